"""One self-contained HTML page: checklist, tables, figures, environment, commands."""

from __future__ import annotations

import datetime
import io
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


def write_report(folder: Path) -> Path:
    """Write the report on all results in a folder (and right below it) as one HTML file in it.

    Nothing is run and no city is read: every number comes from the result rows. The file asks for
    nothing from outside, works in light and dark, on phones and on paper.
    """
    page, path = report_html(load_results(folder)), folder / NAME
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
    page = made.get_template("page.html").render(
        names=" and ".join(city.title for city in cities),
        now=datetime.datetime.now(datetime.UTC).strftime("%d %B %Y, %H:%M UTC"),
        version=__version__,
        chips=CHIPS,
        words=WORDS,
        ending=ending,
        claims=CLAIMS,
        cities=[*map(_city, cities)],
    )
    return str(page)


def _city(city: CityResults) -> Values:
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
        "figures": [_figure(item, city) for item in FIGURES if city.of(item.name)],
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
    repeats = Counter(
        (row.cell.method, row.cell.setting.records)
        for row in city.of(item.name)
        if row.cell.method in item.methods
    )
    spans = {}
    for name in item.methods:
        counts = {count for (method, _), count in repeats.items() if method == name}
        if counts:
            spans[name] = " to ".join(map(str, sorted({min(counts), max(counts)})))
    usual = "".join(span for span, _ in Counter(spans.values()).most_common(1))
    others = ", ".join(f"{name} {span}" for name, span in spans.items() if span != usual)
    return "; ".join(filter(None, (usual, others)))


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


def _figure(item: Item, city: CityResults) -> Values:
    import matplotlib as mpl
    from markupsafe import Markup

    rows, drawing = city.of(item.name), DRAWINGS[item.name]
    stream = io.StringIO()
    # The ids of a picture are its own by the salt.
    look: Any = {"svg.fonttype": "none", "svg.hashsalt": f"{city.name}-{item.name}"}
    with mpl.rc_context(look):
        figure = drawing.draw(rows, city.title)
        figure.savefig(stream, format="svg", transparent=False, metadata={"Date": None})
    picture = "".join(stream.getvalue().partition("<svg")[1:])
    return {
        "item": item,
        "svg": Markup(picture),  # noqa: S704  # matplotlib escapes the text that it draws
        "sentences": [*drawing.tell(rows, city.title), *unfinished(rows)],
    }
