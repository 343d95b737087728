"""Tables and figures as files, the paper's values beside ours, and a page on the paper's claims.

`mean` and `spread`, 1.96 standard deviations, are over the repeats that ended; `paper` is the
paper's entry as it stands; `difference` is ours less the paper's mean, `inside` says whether ours
lies within the paper's interval, `overlap` whether the two intervals overlap. `audited_epsilon` is
the largest that an audit over all pairs of records found in any repeat, beside what is claimed.
`status` says how many repeats ended how, `mean_...` are means of all values, where they are finite.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from panda_mdp.base.atomic import write_whole
from panda_mdp.base.text import Facts
from panda_mdp.plot.style import save_figure
from panda_paper.claims import CLAIMS
from panda_paper.figures import draw_figure, drawn_rows
from panda_paper.items import DECLARED, ITEMS, Item, paper_row
from panda_paper.paper import PaperValue, paper_value, readme_value
from panda_paper.results import SPREAD, Frame, Results, load_results

NAME = "report.md"
INTRODUCTION = """\
The evaluation of PAnDA: Rethinking Metric Differential Privacy Optimization at Scale with
Anchor-Based Approximation (CCS 2025), run again. Published accounting follows the choices of the
published code, to see whether the numbers come out; it promises nothing, so the epsilon that an
audit finds stands beside the one that is claimed. Exact accounting charges everything that the
paper's text says is to be charged, over all pairs of records. Ours are this library's own
mechanisms at the same settings, each audited over all pairs. Every number comes from the rows of
cells.jsonl."""


KEYS = ["method", "records", "epsilon", "delta", "users", "prior"]
"""Of a row of a table."""
LARGEST = ["gap", "claimed_epsilon", "audited_epsilon"]


def summarise(item: Item, rows: Frame, city: str) -> Frame:
    """One row per method and setting, in the item's order, whichever sizes were run."""
    measure = str(item.measure)
    rows = rows.dropna(axis=1, how="all")
    rows = rows.reindex(columns=[*dict.fromkeys([*rows, *LARGEST, "holds", measure])])
    rows = rows.sort_values("records", kind="stable")
    rows = rows.sort_values("method", kind="stable", key=lambda one: one.map(item.methods.index))
    groups = rows.groupby(KEYS, sort=False)
    finite = rows.replace(np.inf, np.nan).groupby(KEYS, sort=False)
    table = finite.mean(numeric_only=True).add_prefix("mean_")
    table = table.join(groups[LARGEST].max()).assign(
        repeats=groups.size(),
        status=groups["status"].agg(_counted),
        mean=groups[measure].mean(),
        spread=SPREAD * groups[measure].std(),
        holds=groups["holds"].agg(lambda one: one.dropna().all() if one.notna().any() else None),
        note=groups["note"].agg(_most_frequent),
    )
    table = table.reset_index()
    places = [(city, paper_row(name), size) for name, size in table[KEYS[:2]].to_numpy()]
    paper = [paper_value(item.name, *place) or PaperValue(None) for place in places]
    table["paper"], *numbers = (list(part) for part in zip(*paper, strict=True))
    mean, room = np.array(numbers, dtype=float)
    off = table["mean"] - mean
    table["inside"] = (off.abs() <= room).where(off.notna())
    table["overlap"] = (off.abs() <= room + table["spread"].fillna(0)).where(off.notna())
    known = item.name in ("table2", "table4")
    table["readme"] = [readme_value(measure, *place) if known else None for place in places]
    return table.assign(item=item.name, difference=off, paper_mean=mean, paper_spread=room)


def _counted(values: Frame) -> str:
    counts = values.value_counts()
    return "; ".join(f"{word} {count}" for word, count in counts.items())


def _most_frequent(notes: Frame) -> str | None:
    """The most frequent remark, with its repeats where it is not one of all."""
    for note, count in Counter(filter(None, notes)).most_common(1):
        return note if count == len(notes) else f"{note} ({count} of {len(notes)} repeats)"
    return None


def comparison(table: Frame) -> str:
    """How many of our means lie inside the paper's intervals, over all and by method."""
    judged = table.dropna(subset=["inside"])
    groups = judged["inside"].groupby(judged["method"], sort=False)
    parts = ", ".join(f"{method} {sum(flags):d}/{len(flags)}" for method, flags in groups)
    return (
        f"Our mean lies inside the paper's interval in {sum(judged['inside'])} of {len(judged)} "
        f"entries that have one, and the two intervals overlap in {sum(judged['overlap'])}. "
        f"Inside, by method: {parts}."
    )


def markdown(rows: Sequence[Facts]) -> str:
    """Rows of texts as a table.

    >>> print(markdown([{"K": 500, "loss": "0.12"}]))
    | K | loss |
    | --- | --- |
    | 500 | 0.12 |
    """
    lines = [[*rows[0]], ["---"] * len(rows[0]), *(row.values() for row in rows)] if rows else []
    cells = ([str(cell).replace("|", "/") for cell in line] for line in lines)
    return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def write_item(item: Item, city: Results) -> list[Path]:
    """Write an item's files into the city's folder; returns their paths.

    A table becomes CSV and markdown, a figure PNG, SVG and markdown: what it shows, and how many
    cells ended without a result, with what the first of them says.
    """
    rows = city.shown(item)
    name, place = city.title, city.folder / item.name
    if city.facts.get("synthetic"):
        name = "SYNTHETIC, not comparable with the paper"
    priors = {"uniform": "uniform", "real": str(city.facts.get("real_prior"))}
    prior = "; ".join(priors[one] for one in sorted({*rows["prior"]}))
    parts = [
        f"# {item.name}: {item.title}",
        f"City: {name} ({city.facts.get('nodes', 0):,} nodes). Prior: {prior}. Means and 1.96 "
        "standard deviations over the repeats.",
    ]
    if item.measure is None:
        figure = draw_figure(item.name, rows, city.title)
        paths = [save_figure(figure, f"{place}{end}") for end in (".png", ".svg")]
        ended = rows[rows["status"] != "done"].groupby(["method", "status"])["note"]
        unfinished = ended.agg(["size", "first"]).reset_index()
        parts += [f"![{item.title}]({item.name}.png)", markdown(drawn_rows(item.name, rows))]
        parts += [markdown(unfinished.to_dict("records"))]
    else:
        table = summarise(item, rows, city.name)
        paths = [write_whole(Path(f"{place}.csv"), table.to_csv(index=False))]
        written = {
            heading: table[name].map(form.format, na_action="ignore")
            for heading, (name, form) in DECLARED["columns"].items()
            if name in table
        }
        people = table[[]].assign(**written).dropna(axis=1, how="all").fillna("")
        parts += [comparison(table), markdown(people.to_dict("records"))]
    text = "\n\n".join(filter(None, parts)) + "\n"
    return [*paths, write_whole(Path(f"{place}.md"), text)]


def write_report(folder: Path) -> Path:
    """Write what the results in a folder, and right below it, say about the paper's claims.

    Nothing is run and no city is read: every number comes from the result rows.
    """
    parts = ["# PAnDA, reproduced", INTRODUCTION]
    for city in load_results(folder):
        facts = {**city.facts, **{f"machine {k}": v for k, v in city.environments.items()}}
        about = [{"of": name, "is": one} for name, one in facts.items() if one]
        written = [name for name in ITEMS if (city.folder / f"{name}.md").exists()]
        place = city.folder.relative_to(folder).as_posix()
        links = ", ".join(f"[{name}]({place}/{name}.md)" for name in written)
        parts += [f"## {city.title}", links, markdown(about), markdown(claims_rows(city))]
    return write_whole(folder / NAME, "\n\n".join(filter(None, parts)) + "\n")


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
