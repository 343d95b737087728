"""One self-contained HTML page: checklist, tables, figures, environment, commands."""

from __future__ import annotations

import datetime
import io
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from panda_mdp.base.atomic import atomic_file
from panda_mdp.base.packages import need
from panda_mdp.version import __version__
from panda_paper.claims import CLAIMS, Finding, checklist, tally
from panda_paper.figures import DRAWINGS, unfinished
from panda_paper.items import FIGURES, ITEMS, TABLES, Item
from panda_paper.results import CityResults, load_results
from panda_paper.tables import Entry, comparison, summarise

if TYPE_CHECKING:
    from matplotlib.figure import Figure

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
        claims=CLAIMS,
        cities=drawn,
        styles="\n".join(f".{name} {{ {style} }}" for style, name in rules.items()),
    )
    return str(page)


def _city(city: CityResults, rules: dict[str, str]) -> dict[str, Any]:
    """What the page says of one city."""
    findings = checklist(city)
    first, last = city.dates
    facts = city.facts
    return {
        "name": city.name,
        "title": city.title,
        "caveats": caveats(city),
        "tallies": (
            ("published accounting", tally(one.published for one in findings.values())),
            ("exact accounting", tally(one.exact for one in findings.values())),
        ),
        "decisive": _decisive(findings),
        "findings": list(findings.values()),
        "size": f"{facts['nodes']:,} nodes, {facts['streets']:,} streets; " if facts else "",
        "count": len(city.rows),
        "first": first[:16],
        "last": last[:16],
        "tables": [
            _table(item, city) for item in TABLES if item.group == "paper" and city.of(item.name)
        ],
        "figures": [_figure(item, city, rules) for item in FIGURES if city.of(item.name)],
        "environments": list(city.environments.values()),
        "versions": city.versions,
    }


def caveats(city: CityResults) -> list[str]:
    """What a reader must know before any number: the map, the prior, repeats and limits."""
    lines = []
    if city.facts.get("synthetic"):
        lines.append("A synthetic city: its numbers are not comparable with the paper's.")
    if city.facts.get("remark"):
        lines.append(f"The map is not the paper's own: {city.facts['remark']}.")
    if city.facts.get("real_prior"):
        lines.append(f"The real prior: {city.facts['real_prior'].removeprefix('public: ')}.")
    draws = [f"{words}: {_draws(ITEMS[name], city)}" for name, words in PAIRS.items()]
    draws = [words for words in draws if not words.endswith(": ")]
    if draws:
        lines.append(
            f"Draws that a number rests on, {REPEATS} in the paper. {'. '.join(draws)}. Figures "
            "have up to three draws at every point, one of what is slow."
        )
    short: dict[str, float] = {}
    for row in city.rows:
        if row.status == "time limit" and row.limit is not None and row.limit < LIMIT:
            short[row.cell.method] = max(short.get(row.cell.method, 0.0), row.limit)
    if short:
        words = ", ".join(f"{name} after {limit:g} s" for name, limit in short.items())
        lines.append(f"Stopped short of the paper's {LIMIT:,.0f} s: {words}.")
    return lines


def _draws(item: Item, city: CityResults) -> str:
    """How many draws the numbers of a table rest on: of most methods, and of those that differ."""
    counts: dict[str, dict[int, int]] = {}
    for entry in summarise(item, city.of(item.name), city.name):
        if entry.method in item.methods:
            counts.setdefault(entry.method, {})[entry.records] = entry.repeats
    if not counts:
        return ""
    sizes = {size for known in counts.values() for size in known}
    spans = {name: _span(list(known.values())) for name, known in counts.items()}
    usual = Counter(spans.values()).most_common(1)[0][0]
    others = []
    for name, known in counts.items():
        some = sorted(known) if len(known) < len(sizes) else []
        if some or spans[name] != usual:
            where = f" (K = {', '.join(f'{size:,}' for size in some)})" if some else ""
            others.append(f"{name} {spans[name]}{where}")
    return f"{usual}; {', '.join(others)}" if others else usual


def _span(counts: Sequence[int]) -> str:
    low, high = min(counts), max(counts)
    return str(low) if low == high else f"{low} to {high}"


def _decisive(findings: Mapping[str, Finding]) -> list[str]:
    """The sentences that decide."""
    statements = (
        ("Privacy as published", "guarantee", "figures"),
        ("Privacy in full", "guarantee", "exact_figures"),
        ("Ours", "guarantee", "ours"),
        ("Loss as published", "76.40 % lower loss", "figures"),
        ("Ours", "76.40 % lower loss", "ours"),
        ("Size", "5,000 records", "ours"),
    )
    return [
        f"{name}: {text}."
        for name, key, part in statements
        if findings[key].published != "cannot be checked" and (text := getattr(findings[key], part))
    ]


def _table(item: Item, city: CityResults) -> dict[str, Any]:
    """One table of the paper: methods down, K across, whichever sizes were run."""
    entries = summarise(item, city.of(item.name), city.name)
    sizes = sorted({entry.records for entry in entries})
    lines: dict[str, dict[int, dict[str, Any]]] = {}
    for entry in entries:
        lines.setdefault(entry.method, {})[entry.records] = _cell(item, entry)
    return {"item": item, "sizes": sizes, "lines": lines, "comparison": comparison(entries)}


def _cell(item: Item, entry: Entry) -> dict[str, Any]:
    form = FORMATS[item.measure or ""]
    broken = ""
    if entry.audited_epsilon is not None and not entry.audit_holds:
        broken = f"{entry.audited_epsilon:,.3g}".replace("inf", "∞")
    return {
        "entry": entry,
        "value": "" if entry.mean is None else form.format(entry.mean),
        "spread": "" if entry.spread is None else form.format(entry.spread),
        "word": WORDS.get(entry.ending, entry.ending),
        "paper": "" if entry.paper == "-" else entry.paper,
        "broken": broken,
    }


def _svg(figure: Figure, salt: str) -> str:
    """A figure as an element; its ids are its own by the salt."""
    import matplotlib as mpl

    stream = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt}):
        figure.savefig(stream, format="svg", transparent=False, metadata={"Date": None})
    return stream.getvalue()[stream.getvalue().index("<svg") :]


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


def _figure(item: Item, city: CityResults, rules: dict[str, str]) -> dict[str, Any]:
    from markupsafe import Markup

    rows, drawing = city.of(item.name), DRAWINGS[item.name]
    picture = _svg(drawing.draw(rows, city.title), f"{city.name}-{item.name}")
    return {
        "item": item,
        "svg": Markup(slim(picture, rules)),  # noqa: S704  # matplotlib escapes the text that it draws
        "sentences": [*drawing.tell(rows, city.title), *unfinished(rows)],
    }
