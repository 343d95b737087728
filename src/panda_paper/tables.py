"""Tables and figures as files, the paper's values beside ours, and one page on everything.

`mean` and `spread_1.96_std` are over the repeats that ended; `paper` is the paper's entry as it
stands; `difference` is ours less the paper's mean, and `inside_paper_interval` says whether ours
lies within the paper's interval. `audited_epsilon` is the largest that an audit over all pairs of
records found in any repeat, beside what is claimed. `status` says how many repeats ended how,
`mean_...` are means of the other values.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from panda_mdp.base.atomic import write_whole
from panda_mdp.base.text import Facts, as_csv
from panda_mdp.plot.html import write_page
from panda_mdp.plot.style import save_figure
from panda_paper.claims import CLAIMS
from panda_paper.figures import draw_figure, drawn_rows
from panda_paper.items import ITEMS, Item, Setting, paper_row
from panda_paper.paper import PaperValue, paper_value, readme_value
from panda_paper.results import Frame, Results, load_results, numbers, spread

SHOWN = {
    "method": ("method", "{}"),
    "K": ("records", "{:,}"),
    "repeats": ("repeats", "{}"),
    "ours": ("mean", "{:.4g}"),
    "±": ("spread_1.96_std", "{:.3g}"),
    "paper": ("paper", "{}"),
    "difference": ("difference", "{:+.4g}"),
    "inside": ("inside_paper_interval", "{}"),
    "overlap": ("intervals_overlap", "{}"),
    "README": ("readme", "{:g}"),
    "seconds": ("seconds", "{:.3g}"),
    "gap": ("certified_gap", "{:.2%}"),
    "claimed ε": ("claimed_epsilon", "{:.3g}"),
    "audited ε": ("audited_epsilon", "{:.5g}"),
    "holds": ("audit_holds", "{}"),
    "pairs violated": ("mean_violated_pairs", "{:.2%}"),
    "loss over true records": ("mean_true_loss_m", "{:.4g}"),
    "LP alone, s": ("mean_lp_seconds", "{:.2g}"),
    "rows in a ball": ("mean_ball_share", "{:.0%}"),
    "ended": ("status", "{}"),
    "note": ("note", "{}"),
}
"""Of a table for people: columns of the one for machines, and how they are written."""
NAME = "report.html"
INTRODUCTION = """\
The evaluation of PAnDA: Rethinking Metric Differential Privacy Optimization at Scale with
Anchor-Based Approximation (CCS 2025), run again. Published accounting follows the choices of the
published code, to see whether the numbers come out; it promises nothing, so the epsilon that an
audit finds stands beside the one that is claimed. Exact accounting charges everything that the
paper's text says is to be charged, over all pairs of records. Ours are this library's own
mechanisms at the same settings, each audited over all pairs. Every number comes from the rows of
cells.jsonl."""


LARGEST = ("gap", "claimed_epsilon", "audited_epsilon")
UNTOLD = (*Setting.__dataclass_fields__, *LARGEST, "repeat", "limit", "done", "spent", "seconds")
"""Numbers whose means are not told beside the others."""


def summarise(item: Item, rows: Frame, city: str) -> list[Facts]:
    """One entry per method and setting, in the item's order, whichever sizes were run."""
    groups = rows.groupby(["method", "setting"], sort=False)
    entries = [_entry(item, group.dropna(axis=1, how="all"), city) for _, group in groups]
    return sorted(entries, key=lambda one: (item.methods.index(one["method"]), one["records"]))


def _entry(item: Item, rows: Frame, city: str) -> Facts:
    first = rows.iloc[0]
    measure = item.measure or ""
    values = numbers(rows, measure)
    mean = float(values.mean()) if len(values) else None
    deviation = spread(values) if len(values) > 1 else None
    place = (city, paper_row(first["method"]), first["records"])
    paper = paper_value(item.name, *place) or PaperValue(None)
    off = None if mean is None or paper.mean is None else mean - paper.mean
    room = paper.spread or 0.0
    gap, claimed, audited = (max(numbers(rows, name), default=None) for name in LARGEST)
    others = rows.select_dtypes("number").drop(columns=[*UNTOLD, measure], errors="ignore")
    notes = Counter(filter(None, rows["note"])).most_common(1)
    return {
        "item": item.name,
        "method": first["method"],
        **{name: first[name] for name in ("records", "epsilon", "delta", "users", "prior")},
        "repeats": len(rows),
        "done": int(rows["done"].sum()),
        "status": "; ".join(f"{one} {count}" for one, count in Counter(rows["status"]).items()),
        "mean": mean,
        "spread_1.96_std": deviation,
        "paper": paper.text,
        "paper_mean": paper.mean,
        "paper_spread": paper.spread,
        "difference": off,
        "inside_paper_interval": None if off is None else abs(off) <= room,
        "intervals_overlap": None if off is None else abs(off) <= room + (deviation or 0.0),
        "readme": readme_value(measure, *place) if item.name in ("table2", "table4") else None,
        "seconds": rows["spent"].mean() if "spent" in rows else None,
        "certified_gap": gap,
        "claimed_epsilon": claimed,
        "audited_epsilon": audited,
        "audit_holds": bool(rows["holds"].dropna().all()) if "holds" in rows else None,
        "note": "".join(
            note if count == len(rows) else f"{note} ({count} of {len(rows)} repeats)"
            for note, count in notes
        ),
        **others.replace(np.inf, np.nan).mean().dropna().add_prefix("mean_"),
    }


def comparison(entries: Sequence[Facts]) -> str:
    """How many of our means lie inside the paper's intervals, over all and by method."""
    judged = [entry for entry in entries if entry["inside_paper_interval"] is not None]
    inside = Counter(entry["method"] for entry in judged if entry["inside_paper_interval"])
    every = Counter(entry["method"] for entry in judged)
    parts = ", ".join(f"{method} {inside[method]}/{count}" for method, count in every.items())
    overlap = sum(entry["intervals_overlap"] for entry in judged)
    return (
        f"Our mean lies inside the paper's interval in {inside.total()} of {len(judged)} entries "
        f"that have one, and the two intervals overlap in {overlap}. Inside, by method: {parts}."
    )


def described(item: Item, city: Results, rows: Frame) -> tuple[str, list[list[Facts]]]:
    """What there is to say of an item, and its tables for people: of a figure what it shows, and
    how many cells ended without a result, with what the first of them says."""
    priors = {"uniform": "uniform", "real": str(city.facts.get("real_prior"))}
    place = city.title
    if city.facts.get("synthetic"):
        place = "SYNTHETIC, not comparable with the paper"
    said = (
        f"City: {place} ({city.facts.get('nodes', 0):,} nodes). Prior: "
        f"{'; '.join(priors[name] for name in sorted({*rows['prior']}))}."
    )
    if item.measure is None:
        ended = rows[rows["status"] != "done"].groupby(["method", "status"])["note"]
        unfinished = ended.agg(["size", "first"]).reset_index()
        return said, [drawn_rows(item.name, rows), unfinished.to_dict("records")]
    entries = summarise(item, rows, city.name)
    table = [
        {
            heading: "" if entry.get(name) is None else form.format(entry[name])
            for heading, (name, form) in SHOWN.items()
        }
        for entry in entries
    ]
    told = [heading for heading in SHOWN if any(row[heading] for row in table)]
    said += " Means and 1.96 standard deviations over the repeats. " + comparison(entries)
    return said, [[{heading: row[heading] for heading in told} for row in table]]


def markdown(rows: Sequence[Facts]) -> str:
    """Rows of texts as a table.

    >>> print(markdown([{"K": 500, "loss": "0.12"}]))
    | K | loss |
    |---|---|
    | 500 | 0.12 |
    """
    cells = [[str(cell).replace("|", "/") for cell in row.values()] for row in rows]
    lines = [f"| {' | '.join(line)} |" for line in ([*rows[0]], *cells)] if rows else []
    return "\n".join([*lines[:1], *(["|" + "---|" * len(rows[0])] if rows else []), *lines[1:]])


def write_item(item: Item, city: Results) -> list[Path]:
    """Write an item's files into the city's folder; returns their paths.

    A table becomes CSV and markdown, a figure PNG, SVG and markdown.
    """
    rows = city.shown(item)
    said, tables = described(item, city, rows)
    parts = [f"# {item.name}: {item.title}", said, *filter(None, map(markdown, tables))]
    if item.measure is None:
        parts.insert(1, f"![{item.title}]({item.name}.png)")
        figure = draw_figure(item.name, rows, city.title)
        paths = [save_figure(figure, city.folder / f"{item.name}{end}") for end in (".png", ".svg")]
    else:
        text = as_csv(summarise(item, rows, city.name))
        paths = [write_whole(city.folder / f"{item.name}.csv", text)]
    return [*paths, write_whole(city.folder / f"{item.name}.md", "\n\n".join(parts) + "\n")]


def write_report(folder: Path) -> Path:
    """Write the report on all results in a folder (and right below it) as one HTML file in it.

    Nothing is run and no city is read: every number comes from the result rows. The file asks for
    nothing from outside.
    """
    cities = load_results(folder)
    parts: list[Any] = [INTRODUCTION]
    for city in cities:
        facts = {**city.facts, **{f"machine {k}": v for k, v in city.environments.items()}}
        parts += [f"# {city.title}", [{"of": name, "is": one} for name, one in facts.items()]]
        parts += [f"# {city.title}: the paper's claims", claims_rows(city)]
    for city in cities:
        for item in ITEMS.values():
            rows = city.of(item.name)
            if len(rows):
                said, tables = described(item, city, rows)
                parts += [f"# {city.title}, {item.name}: {item.title}", said]
                if item.measure is None:
                    parts.append(draw_figure(item.name, rows, city.title))
                parts += tables
    title = f"PAnDA, reproduced: {' and '.join(city.title for city in cities)}"
    return write_page(folder / NAME, title, parts)


def claims_rows(city: Results) -> list[Facts]:
    """Every claim, what was measured on each side, and the verdict."""
    return [
        {
            "claim": claim.key,
            "the paper says": f"{claim.says} ({claim.where})",
            "it counts as held": claim.rule,
            "accounting": side,
            "measured": "; ".join(f"{name} {one:.4g}" for name, one in finding.measured.items())
            or f"nothing yet; run {claim.command('FILE')}",
            "verdict": "" if side == "ours" else finding.verdict,
        }
        for claim in CLAIMS
        for side, finding in claim.judge(city).items()
        if finding.measured or finding.verdict != "does not apply"
    ]
