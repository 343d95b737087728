"""One self-contained HTML report: checklist, tables, figures, environment, commands."""

from __future__ import annotations

import datetime
import io
from collections.abc import Sequence
from html import escape
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

from panda_mdp.base.atomic import atomic_file
from panda_mdp.errors import MissingDependencyError
from panda_mdp.version import __version__
from panda_paper.claims import checklist, tally
from panda_paper.claims_model import Checked, Claim, Finding, Verdict
from panda_paper.figures import DRAWINGS, unfinished
from panda_paper.report_results import CityResults, load_results
from panda_paper.report_tables import entries_of, table_html
from panda_paper.specs import Item, items
from panda_paper.tables import comparison

if TYPE_CHECKING:
    from matplotlib.figure import Figure

NAME = "report.html"
CHIPS = {
    "holds": ("yes", "holds"),
    "does not hold": ("no", "does not"),
    "cannot be checked": ("open", "unchecked"),
    "does not apply": ("na", "n/a"),
}


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
    """The whole page."""
    template = resources.files("panda_paper").joinpath("report.html").read_text("utf-8")
    checked = {city.name: checklist(city) for city in cities}
    names = " and ".join(city.title for city in cities)
    synthetic = [city.title for city in cities if city.facts.get("synthetic")]
    warning = ""
    if synthetic:
        warning = (
            f'<p class="warn">{escape(", ".join(synthetic))}: a synthetic city. Its numbers are '
            "not comparable with the paper's.</p>"
        )
    now = datetime.datetime.now(datetime.UTC).strftime("%d %B %Y, %H:%M UTC")
    parts = {
        "__TITLE__": f"PAnDA, reproduced: {escape(names)}",
        "__LEAD__": f"{escape(names)} · {now} · panda-mdp {escape(__version__)}",
        "__SUMMARY__": warning + _summary(cities, checked),
        "__CHECKLIST__": _checklist(cities, checked),
        "__FINDINGS__": _findings(cities, checked),
        "__CITIES__": "".join(_city(city) for city in cities),
        "__ENVIRONMENT__": "".join(_environment(city) for city in cities),
        "__NAV__": "".join(
            f'<a href="#{escape(city.name)}">{escape(city.title)}</a>' for city in cities
        ),
    }
    for key, text in parts.items():
        template = template.replace(key, text)
    return template


def _summary(cities: Sequence[CityResults], checked: dict[str, list[Checked]]) -> str:
    """The counts, and the sentences that decide."""
    blocks = []
    for city in cities:
        found = [one.finding for one in checked[city.name]]
        by_key = {one.claim.key: one.finding for one in checked[city.name]}
        lines = [
            _tally("published accounting", [one.published for one in found]),
            _tally("exact accounting", [one.exact for one in found]),
        ]
        told = [
            sentence
            for key in ("guarantee", "76.40 % lower loss", "5,000 records")
            for sentence in _decisive(key, by_key.get(key))
        ]
        points = "".join(f"<li>{escape(sentence)}</li>" for sentence in told)
        blocks.append(
            f'<section class="card"><h3>{escape(city.title)}</h3>{"".join(lines)}'
            f"<ul>{points}</ul></section>"
        )
    return f'<div class="cards">{"".join(blocks)}</div>'


def _decisive(key: str, finding: Finding | None) -> list[str]:
    if finding is None or finding.published == "cannot be checked":
        return []
    out = {
        "guarantee": [
            f"Privacy as published: {finding.found}.",
            f"Privacy in full: {finding.exact_found}." if finding.exact_found else "",
            f"Ours: {finding.ours}." if finding.ours else "",
        ],
        "76.40 % lower loss": [
            f"Loss as published: {finding.found}.",
            f"Ours: {finding.ours}." if finding.ours else "",
        ],
        "5,000 records": [f"Size: {finding.ours}." if finding.ours else ""],
    }[key]
    return [sentence for sentence in out if sentence]


def _tally(name: str, found: Sequence[Verdict]) -> str:
    counts = tally(found)
    judged = sum(counts[word] for word in ("holds", "does not hold", "cannot be checked"))
    bars = "".join(
        f'<i class="{CHIPS[word][0]}" style="flex-grow:{counts[word]}"></i>'
        for word in ("holds", "does not hold", "cannot be checked")
        if counts[word]
    )
    return (
        f'<div class="tally"><span>{name}: <b>{counts["holds"]}</b> of {judged} claims hold, '
        f"<b>{counts['does not hold']}</b> do not, {counts['cannot be checked']} unchecked</span>"
        f'<span class="bar">{bars}</span></div>'
    )


def _chip(word: Verdict) -> str:
    kind, text = CHIPS[word]
    return f'<span class="chip {kind}" title="{word}">{text}</span>'


def _checklist(cities: Sequence[CityResults], checked: dict[str, list[Checked]]) -> str:
    """One line per claim: verdicts for each city, and the figure behind them."""
    head = "".join(
        f'<th scope=colgroup colspan=2 class="mid">{escape(city.title)}</th>' for city in cities
    )
    sub = "<th scope=col>published</th><th scope=col>exact</th>" * len(cities)
    body = []
    for k, one in enumerate(checked[cities[0].name]):
        claim = one.claim
        chips = "".join(
            f'<td class="mid" data-label="{escape(city.title)}, {name}">{_chip(word)}</td>'
            for city in cities
            for name, word in _verdicts(checked[city.name][k].finding)
        )
        body.append(
            f'<tr><th scope=row><a href="#claim-{k}">{escape(claim.key)}</a></th>'
            f"<td>{escape(claim.says)}</td>{chips}</tr>"
        )
    return (
        '<div class="scroll"><table class="checklist"><thead>'
        f"<tr><th scope=col rowspan=2>claim</th><th scope=col rowspan=2>the paper says</th>{head}"
        f"</tr><tr>{sub}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _verdicts(found: Finding) -> tuple[tuple[str, Verdict], ...]:
    return ("published", found.published), ("exact", found.exact)


def _findings(cities: Sequence[CityResults], checked: dict[str, list[Checked]]) -> str:
    """The figures behind every verdict."""
    blocks = []
    for k, one in enumerate(checked[cities[0].name]):
        claim = one.claim
        lines = "".join(_finding(city, checked[city.name][k]) for city in cities)
        blocks.append(
            f'<article class="claim" id="claim-{k}"><h3>{escape(claim.key)}</h3>'
            f"<p>{escape(claim.says)}. <small>({escape(claim.where)}; it counts as held: "
            f"{escape(claim.rule)})</small></p><dl>{lines}</dl>"
            f"<p><code>{escape(_command(claim))}</code></p></article>"
        )
    return "".join(blocks)


def _finding(city: CityResults, checked: Checked) -> str:
    found = checked.finding
    lines = [
        (name, word, text)
        for name, word, text in (
            ("published", found.published, found.found),
            ("exact", found.exact, found.exact_found),
        )
        if word != "does not apply"
    ]
    rows = "".join(
        f"<dd><em>{name}</em><span>{_chip(word)} {escape(text)}</span></dd>"
        for name, word, text in lines
    )
    if found.ours:
        rows += f"<dd><em>ours</em><span>{escape(found.ours)}</span></dd>"
    return f"<dt>{escape(city.title)}</dt>{rows}"


def _command(claim: Claim) -> str:
    return claim.command("FILE")


def _city(city: CityResults) -> str:
    """All tables and figures of a city."""
    known = items()
    tables = [
        _table(item, city)
        for item in known.values()
        if item.group == "paper" and item.name not in DRAWINGS
    ]
    figures = [_picture(known[name], city) for name in DRAWINGS if name in known]
    first, last = city.dates
    facts = city.facts
    size = f"{facts['nodes']:,} nodes, {facts['streets']:,} streets; " if "nodes" in facts else ""
    return (
        f'<section id="{escape(city.name)}"><h2>{escape(city.title)}</h2>'
        f"<p>{size}{len(city.rows):,} results from {first[:16]} to {last[:16]} UTC. "
        f"Tables: ours above, the paper's below, <b class=in>in</b> or <b class=out>out</b> of its "
        f"interval (mean ± 1.96 standard deviations).</p>"
        f"{''.join(tables)}{''.join(figures)}</section>"
    )


def _table(item: Item, city: CityResults) -> str:
    rows = city.of(item.name)
    if not rows:
        return ""
    entries = entries_of(item, rows, city.name)
    return (
        f'<article class="table"><h3>{escape(item.name)}: {escape(item.title)}</h3>'
        f"{table_html(item, entries)}<p><small>{escape(comparison(entries))}</small></p>"
        f"<p><code>panda-mdp reproduce {escape(item.name)} --city FILE</code></p></article>"
    )


def _picture(item: Item, city: CityResults) -> str:
    rows = city.of(item.name)
    if not rows:
        return ""
    drawing = DRAWINGS[item.name]
    picture = svg(drawing.draw(rows, city.title), f"{city.name}-{item.name}")
    told = [*drawing.tell(rows, city.title), *(line[2:] for line in unfinished(rows))]
    points = "".join(f"<li>{escape(sentence)}</li>" for sentence in told)
    return (
        f'<figure id="{escape(city.name)}-{escape(item.name)}">'
        f'<div class="scroll picture" role="img" aria-label="{escape(item.title)}">{picture}</div>'
        f"<figcaption><b>{escape(item.name)}.</b> {escape(item.title)}.<ul>{points}</ul>"
        f"<code>panda-mdp reproduce {escape(item.name)} --city FILE</code></figcaption></figure>"
    )


def svg(figure: Figure, salt: str) -> str:
    """A figure as an SVG element for a page: text stays text, its ids are its own."""
    try:
        import matplotlib as mpl
    except ImportError as error:
        msg = "reports need matplotlib, which is not installed: pip install 'panda-mdp[plot]'"
        raise MissingDependencyError(msg) from error
    stream = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt}):
        figure.savefig(stream, format="svg", transparent=False, metadata={"Date": None})
    text = stream.getvalue()
    return text[text.index("<svg") :]


def _environment(city: CityResults) -> str:
    blocks = []
    for found in city.environments.values():
        packages = ", ".join(f"{name} {version}" for name, version in found["packages"].items())
        blocks.append(
            f"<li>{escape(city.title)}: {escape(str(found['processor']))}, {found['cores']} cores, "
            f"{escape(str(found['system']))}, Python {escape(str(found['python']))}; "
            f"{escape(packages)}</li>"
        )
    return "".join(blocks)
