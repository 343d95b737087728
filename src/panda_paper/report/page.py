"""One self-contained HTML page: checklist, tables, figures, environment, commands."""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from panda_mdp.base.atomic import atomic_file
from panda_mdp.errors import MissingDependencyError
from panda_mdp.version import __version__
from panda_paper.cells.city_results import CityResults, load_results
from panda_paper.cells.outcome import Row
from panda_paper.claims.checklist import CLAIMS, checklist, tally
from panda_paper.claims.claim import Checked, Finding
from panda_paper.draw.figures import DRAWINGS, unfinished
from panda_paper.report.entries import Entry, summarise
from panda_paper.report.markdown import comparison
from panda_paper.report.pictures import Pictures
from panda_paper.settings.item import Item
from panda_paper.settings.paper_items import items

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
    try:
        from jinja2 import Environment, PackageLoader, StrictUndefined
    except ImportError as error:
        msg = "reports need jinja2, which is not installed: pip install 'panda-mdp[paper]'"
        raise MissingDependencyError(msg) from error
    made = Environment(
        loader=PackageLoader("panda_paper", "report"), autoescape=True, undefined=StrictUndefined
    )
    pictures = Pictures()
    drawn = [_city(city, pictures) for city in cities]
    return made.get_template("page.html").render(
        names=" and ".join(city.title for city in cities),
        now=datetime.datetime.now(datetime.UTC).strftime("%d %B %Y, %H:%M UTC"),
        version=__version__,
        chips=CHIPS,
        claims=CLAIMS,
        cities=drawn,
        styles=pictures.css,
    )


def _city(city: CityResults, pictures: Pictures) -> dict[str, Any]:
    """What the page says of one city."""
    known = items()
    checked = checklist(city)
    findings = [one.finding for one in checked]
    first, last = city.dates
    facts = city.facts
    tables = [
        known[name] for name in known if name not in DRAWINGS and known[name].group == "paper"
    ]
    return {
        "name": city.name,
        "title": city.title,
        "caveats": caveats(city),
        "tallies": (
            ("published accounting", tally(one.published for one in findings)),
            ("exact accounting", tally(one.exact for one in findings)),
        ),
        "decisive": _decisive(checked),
        "findings": findings,
        "size": f"{facts['nodes']:,} nodes, {facts['streets']:,} streets; " if facts else "",
        "count": len(city.rows),
        "first": first[:16],
        "last": last[:16],
        "tables": [_table(item, city) for item in tables if city.of(item.name)],
        "figures": [_figure(known[name], city, pictures) for name in DRAWINGS if city.of(name)],
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
    draws = [f"{words}: {_draws(items()[name], city)}" for name, words in PAIRS.items()]
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
        counts.setdefault(entry.method, {})[entry.setting.records] = sum(entry.statuses.values())
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


def _decisive(checked: Sequence[Checked]) -> list[str]:
    """The sentences that decide."""
    findings: dict[str, Finding] = {
        one.claim.key: one.finding
        for one in checked
        if one.finding.published != "cannot be checked"
    }
    nothing = Finding("cannot be checked", "")
    guarantee, loss, size = (
        findings.get(key, nothing) for key in ("guarantee", "76.40 % lower loss", "5,000 records")
    )
    statements = (
        ("Privacy as published", guarantee.figures),
        ("Privacy in full", guarantee.exact_figures),
        ("Ours", guarantee.ours),
        ("Loss as published", loss.figures),
        ("Ours", loss.ours),
        ("Size", size.ours),
    )
    return [f"{name}: {text}." for name, text in statements if text]


def _table(item: Item, city: CityResults) -> dict[str, Any]:
    """One table of the paper: methods down, K across, whichever sizes were run."""
    entries = entries_of(item, city.of(item.name), city.name)
    sizes = sorted({entry.setting.records for entry in entries})
    lines = []
    for method in dict.fromkeys(entry.method for entry in entries):
        mine = {entry.setting.records: entry for entry in entries if entry.method == method}
        lines.append((method, [_cell(item, mine[k]) if k in mine else None for k in sizes]))
    return {"item": item, "sizes": sizes, "lines": lines, "comparison": comparison(entries)}


def entries_of(item: Item, rows: Sequence[Row], city: str) -> list[Entry]:
    """One entry per method and setting of the rows, whichever sizes were run."""
    settings = tuple(dict.fromkeys(row.cell.setting for row in rows))
    methods = tuple(dict.fromkeys((*item.methods, *(row.cell.method for row in rows))))
    return summarise(replace(item, settings=settings, methods=methods), rows, city)


def _cell(item: Item, entry: Entry) -> dict[str, Any]:
    pattern = FORMATS.get(item.measure, "{:,.3g}")
    status = next(iter(entry.statuses))
    broken = ""
    if entry.audited is not None and not entry.holds:
        broken = "∞" if math.isinf(entry.audited) else f"{entry.audited:,.3g}"
    return {
        "entry": entry,
        "value": "" if entry.mean is None else pattern.format(entry.mean),
        "spread": "" if entry.spread is None else pattern.format(entry.spread),
        "word": WORDS.get(status, status),
        "paper": "" if entry.paper is None or entry.paper.text == "-" else entry.paper.text,
        "broken": broken,
    }


def _figure(item: Item, city: CityResults, pictures: Pictures) -> dict[str, Any]:
    from markupsafe import Markup

    rows, drawing = city.of(item.name), DRAWINGS[item.name]
    picture = pictures.svg(drawing.draw(rows, city.title), f"{city.name}-{item.name}")
    return {
        "item": item,
        "svg": Markup(picture),  # noqa: S704  # matplotlib escapes the text that it draws
        "sentences": [*drawing.tell(rows, city.title), *unfinished(rows)],
    }
