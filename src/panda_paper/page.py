"""One self-contained HTML page: checklist, tables, figures, environment, commands."""

from __future__ import annotations

import datetime
import io
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from panda_mdp.base.atomic import atomic_file
from panda_mdp.base.packages import need
from panda_mdp.version import __version__
from panda_paper.cell import Values
from panda_paper.claims import CLAIMS, checklist, tally
from panda_paper.figures import DRAWINGS, unfinished
from panda_paper.items import FIGURES, ITEMS, TABLES, Item
from panda_paper.results import CityResults, load_results
from panda_paper.tables import Entry, comparison, ending, summarise

NAME = "report.html"
LIMIT = 1800.0
"""Seconds that the paper gives every cell."""
REPEATS = 10
PAIRS = {
    "table4": "Tables 2 and 4",
    "table5": "Tables 3 and 5",
    "table9": "Tables 7 and 9",
    "table10": "Tables 8 and 10",
    "table12": "Tables 11 and 12",
}
"""Tables of losses, with those of times that show the same runs."""
CHIPS = {
    "holds": ("yes", "holds"),
    "does not hold": ("no", "does not"),
    "cannot be checked": ("open", "unchecked"),
    "does not apply": ("na", "n/a"),
}
FORMATS = {"seconds": "{:,.2f}", "loss_m": "{:,.0f}", "coefficient": "{:.3f}"}
TAG, STYLE = re.compile("<[^>]*>"), re.compile(' style="([^"]*)"')
ASIDE = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->|(?<=>)\s+(?=<)", re.DOTALL)
NAMES = re.compile(' id="(?![mp][0-9a-f]{10}")[^"]*"')
"""Ids that nothing refers to: marks and clips have hashes."""
FINE = re.compile(r"(\.\d)\d+")
WORDS = {"infeasible": "does not fit", "time limit": "over the limit"}
DECISIVE = (
    ("Privacy as published", "guarantee", "figures"),
    ("Privacy in full", "guarantee", "exact_figures"),
    ("Ours", "guarantee", "ours"),
    ("Loss as published", "76.40 % lower loss", "figures"),
    ("Ours", "76.40 % lower loss", "ours"),
    ("Size", "5,000 records", "ours"),
)
"""The sentences that decide: a claim, and what is found of it."""


def write_report(folder: Path, target: Path | None = None) -> Path:
    """Write the report on all results in a folder (and right below it) as one HTML file.

    Nothing is run and no city is read: every number comes from the result rows. The file asks for
    nothing from outside, works in light and dark, on phones and on paper.
    """
    path = folder / NAME if target is None else target
    page = report_html(load_results(folder))
    with atomic_file(path) as stream:
        stream.write(page.encode("utf-8"))
    return path


def report_html(cities: Sequence[CityResults]) -> str:
    """The whole page; everything but our own pictures is escaped."""
    jinja2 = need("jinja2", "a report", "paper")
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("panda_paper", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    rules: dict[str, str] = {}
    drawn = [_city(city, rules) for city in cities]
    page = made.get_template("page.html").render(
        names=" and ".join(city.title for city in cities),
        now=datetime.datetime.now(datetime.UTC).strftime("%d %B %Y, %H:%M UTC"),
        version=__version__,
        chips=CHIPS,
        words=WORDS,
        ending=ending,
        claims=CLAIMS,
        cities=drawn,
        styles="\n".join(f".{name} {{ {style} }}" for style, name in rules.items()),
    )
    return str(page)


def _city(city: CityResults, rules: dict[str, str]) -> Values:
    """What the page says of one city."""
    findings = checklist(city)
    tables = [item for item in TABLES if item.group == "paper" and city.of(item.name)]
    return {
        "name": city.name,
        "title": city.title,
        "caveats": caveats(city),
        "tallies": (
            ("published accounting", tally(one.published for one in findings.values())),
            ("exact accounting", tally(one.exact for one in findings.values())),
        ),
        "decisive": [
            f"{name}: {text}."
            for name, key, part in DECISIVE
            if findings[key].published != "cannot be checked"
            and (text := getattr(findings[key], part))
        ],
        "findings": list(findings.values()),
        "results": city,
        "tables": [_table(item, city) for item in tables],
        "figures": [_figure(item, city, rules) for item in FIGURES if city.of(item.name)],
    }


def caveats(city: CityResults) -> list[str]:
    """What a reader must know before any number: the map, the prior, repeats and limits."""
    remark, prior = (str(city.facts.get(name, "")) for name in ("remark", "real_prior"))
    draws = {words: _draws(ITEMS[name], city) for name, words in PAIRS.items()}
    rests = ". ".join(f"{words}: {count}" for words, count in draws.items() if count)
    short: dict[str, float] = {}
    for row in city.rows:
        if row.status == "time limit" and row.limit is not None and row.limit < LIMIT:
            short[row.cell.method] = max(short.get(row.cell.method, 0.0), row.limit)
    limits = ", ".join(f"{name} after {limit:g} s" for name, limit in short.items())
    lines = {
        "A synthetic city: its numbers are not comparable with the paper's.": city.facts.get(
            "synthetic"
        ),
        f"The map is not the paper's own: {remark}.": remark,
        f"The real prior: {prior.removeprefix('public: ')}.": prior,
        f"Draws that a number rests on, {REPEATS} in the paper. {rests}. Figures "
        "have up to three draws at every point, one of what is slow.": rests,
        f"Stopped short of the paper's {LIMIT:,.0f} s: {limits}.": limits,
    }
    return [line for line, applies in lines.items() if applies]


def _draws(item: Item, city: CityResults) -> str:
    """How many draws the numbers of a table rest on: of most methods, and of those that differ."""
    cells = [row.cell for row in city.of(item.name) if row.cell.method in item.methods]
    repeats = Counter((cell.method, cell.setting.records) for cell in cells)
    sizes = {size for _, size in repeats}
    words: dict[str, tuple[str, str]] = {}
    for name in item.methods:
        own = {size: count for (method, size), count in repeats.items() if method == name}
        if own:
            span = " to ".join(map(str, sorted({min(own.values()), max(own.values())})))
            some = f" (K = {', '.join(f'{size:,}' for size in sorted(own))})"
            words[name] = (span, "" if len(own) == len(sizes) else some)
    usual = "".join(span for span, _ in Counter(s for s, _ in words.values()).most_common(1))
    others = [f"{name} {s}{some}" for name, (s, some) in words.items() if some or s != usual]
    return "; ".join(filter(None, (usual, ", ".join(others))))


def _table(item: Item, city: CityResults) -> Values:
    """One table of the paper: methods down, K across, whichever sizes were run."""
    entries = summarise(item, city.of(item.name), city.name)
    lines: dict[str, dict[int, Entry]] = {}
    for entry in entries:
        lines.setdefault(entry["method"], {})[entry["records"]] = entry
    return {
        "item": item,
        "form": FORMATS[item.measure or ""],
        "sizes": sorted({entry["records"] for entry in entries}),
        "lines": lines,
        "comparison": comparison(entries),
    }


def slim(svg: str, rules: dict[str, str]) -> str:
    """An SVG element with a class for each style, which `rules` collects for the page's head,
    places to a tenth of a point, and nothing that a page does not need. It has half the size.

    >>> rules = {}
    >>> slim('<svg> <g id="a"><path d="M 1.2345 2" style="fill: red"/>0.25</g> </svg>', rules)
    '<svg><g><path d="M 1.2 2" class="s0"/>0.25</g></svg>'
    >>> rules
    {'fill: red': 's0'}
    """

    def classed(match: re.Match[str]) -> str:
        return f' class="{rules.setdefault(match[1], f"s{len(rules)}")}"'

    text = STYLE.sub(classed, NAMES.sub("", ASIDE.sub("", svg)))
    return TAG.sub(lambda tag: FINE.sub(r"\1", tag[0]), text)


def _figure(item: Item, city: CityResults, rules: dict[str, str]) -> Values:
    import matplotlib as mpl
    from markupsafe import Markup

    rows, drawing = city.of(item.name), DRAWINGS[item.name]
    stream = io.StringIO()
    # The ids of a picture are its own by the salt.
    look: Any = {"svg.fonttype": "none", "svg.hashsalt": f"{city.name}-{item.name}"}
    with mpl.rc_context(look):
        figure = drawing.draw(rows, city.title)
        figure.savefig(stream, format="svg", transparent=False, metadata={"Date": None})
    picture = stream.getvalue().partition("<svg")[2]
    return {
        "item": item,
        "svg": Markup(slim(f"<svg{picture}", rules)),  # noqa: S704  # matplotlib escapes the text that it draws
        "sentences": [*drawing.tell(rows, city.title), *unfinished(rows)],
    }
