"""Tables and figures as files, the paper's values beside ours.

`ours` is mean ± 1.96 standard deviations over the repeats that ended; `paper` is
the paper's entry as it stands; `difference` is ours less the paper's mean, and `inside` says
whether ours lies within the paper's interval. `audited` is the largest epsilon that an audit over
all pairs of records found in any repeat, beside what is claimed.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from panda_mdp.base.atomic import atomic_file
from panda_mdp.base.plain import plain
from panda_mdp.plot.style import save_figure
from panda_paper.cell import Setting, paper_row
from panda_paper.figures import DRAWINGS, unfinished
from panda_paper.items import Item
from panda_paper.paper import PaperValue, paper_value, readme_value
from panda_paper.results import Row
from panda_paper.series import SPREAD
from panda_paper.study import Study

HEADER = (
    "| method | K | repeats | ours | paper | difference | inside | README | seconds "
    "| certified gap | claimed ε | audited ε | remarks |"
)
REMARKS = {
    "violated_pairs": "{:.2%} of pairs violated",
    "true_loss_m": "over true records {:.4g} m",
    "lp_seconds": "LP alone {:.2g} s",
    "download": "download {:.0%}",
}
"""Means of other values that a table for people tells."""


@dataclass(frozen=True)
class Entry:
    """One method at one setting, over all repeats; the columns of a table for machines."""

    item: str
    method: str
    records: int
    epsilon: float
    delta: float
    users: int
    prior: str
    repeats: int
    done: int
    status: str
    """How many repeats ended how."""
    mean: float | None
    spread: float | None
    """1.96 sample standard deviations; None for a single repeat."""
    paper: str | None
    paper_mean: float | None
    paper_spread: float | None
    difference: float | None
    """Ours less the paper's mean."""
    inside_paper_interval: bool | None
    """Whether our mean lies within the paper's interval."""
    intervals_overlap: bool | None
    """Whether our interval and the paper's have anything in common."""
    readme: float | None
    seconds: float | None
    certified_gap: float | None
    """The largest."""
    claimed_epsilon: float | None
    audited_epsilon: float | None
    """The largest."""
    audit_holds: bool | None
    """Whether every repeat's audit holds."""
    note: str
    extra: dict[str, float]
    """Means of the other values."""

    @property
    def ending(self) -> str:
        """How the first repeat ended, of those that ended alike."""
        return self.status.rpartition(" ")[0].partition(";")[0].rstrip("0123456789 ")

    def columns(self) -> dict[str, Any]:
        """For CSV and JSON, flat."""
        fields = asdict(self)
        extra = fields.pop("extra")
        names = {"spread": "spread_1.96_std"}
        return {names.get(name, name): value for name, value in fields.items()} | {
            f"mean_{name}": value for name, value in extra.items()
        }


def summarise(item: Item, rows: Sequence[Row], city: str) -> list[Entry]:
    """One entry per method and setting, in the item's order, whichever sizes were run."""
    groups: dict[tuple[str, Setting], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.cell.method, row.cell.setting), []).append(row)
    methods = dict.fromkeys((*item.methods, *(method for method, _ in groups)))
    settings = sorted({setting for _, setting in groups}, key=lambda one: one.records)
    return [
        _entry(item, groups[method, setting], city)
        for method in methods
        for setting in settings
        if (method, setting) in groups
    ]


def _entry(item: Item, rows: Sequence[Row], city: str) -> Entry:
    method, setting = rows[0].cell.method, rows[0].cell.setting
    measure = item.measure or ""
    values = _numbers(rows, measure)
    mean = float(np.mean(values)) if values else None
    spread = float(SPREAD * np.std(values, ddof=1)) if len(values) > 1 else None
    name = paper_row(method)
    paper = paper_value(item.name, city, name, setting.records) or PaperValue(None)
    readme = item.name in ("table2", "table4")
    endings = Counter(row.status for row in rows)
    verdicts = [row.value("holds") for row in rows if row.value("holds") is not None]
    shown = {measure, "gap", "claimed_epsilon", "audited_epsilon"}
    others = sorted({name for row in rows for name in row.outcome.values} - shown)
    means = {name: _mean(_numbers(rows, name)) for name in others}
    return Entry(
        item=item.name,
        method=method,
        records=setting.records,
        epsilon=setting.epsilon,
        delta=setting.delta,
        users=setting.users,
        prior=setting.prior,
        repeats=len(rows),
        done=endings["done"],
        status="; ".join(f"{ending} {count}" for ending, count in endings.items()),
        mean=mean,
        spread=spread,
        paper=paper.text,
        paper_mean=paper.mean,
        paper_spread=paper.spread,
        difference=None if mean is None or paper.mean is None else mean - paper.mean,
        inside_paper_interval=paper.meets(mean),
        intervals_overlap=paper.meets(mean, spread or 0.0),
        readme=readme_value(measure, city, name, setting.records) if readme else None,
        seconds=_mean([row.outcome.seconds for row in rows]),
        certified_gap=max(_numbers(rows, "gap"), default=None),
        claimed_epsilon=max(_numbers(rows, "claimed_epsilon"), default=None),
        audited_epsilon=max(_numbers(rows, "audited_epsilon"), default=None),
        audit_holds=all(verdicts) if verdicts else None,
        note=_note(rows),
        extra={name: value for name, value in means.items() if value is not None},
    )


def _note(rows: Sequence[Row]) -> str:
    """What most repeats that have a note say, and how many have one where not all do."""
    notes = Counter(row.outcome.note for row in rows if row.outcome.note)
    if not notes:
        return ""
    text, noted = notes.most_common(1)[0][0], notes.total()
    return text if noted == len(rows) else f"{text} ({noted} of {len(rows)} repeats)"


def _numbers(rows: Sequence[Row], name: str) -> list[float]:
    """A value over the rows that have it, as floats; infinities included."""
    values = (row.value(name) for row in rows)
    return [
        float(value)
        for value in values
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]


def _mean(values: Sequence[float]) -> float | None:
    finite = [value for value in values if math.isfinite(value)]
    return float(np.mean(finite)) if finite else None


def comparison(entries: Sequence[Entry]) -> str:
    """How many of our means lie inside the paper's intervals, over all and by method."""
    judged = [entry for entry in entries if entry.inside_paper_interval is not None]
    if not judged:
        return "No entry has an interval of the paper to be compared with."
    inside = Counter(entry.method for entry in judged if entry.inside_paper_interval)
    every = Counter(entry.method for entry in judged)
    parts = ", ".join(f"{method} {inside[method]}/{count}" for method, count in every.items())
    overlap = sum(bool(entry.intervals_overlap) for entry in judged)
    return (
        f"Our mean lies inside the paper's interval in {inside.total()} of {len(judged)} entries, "
        f"and the two intervals overlap in {overlap}. Inside, by method: {parts}."
    )


def markdown(item: Item, entries: Sequence[Entry], study: Study) -> str:
    """The table and a summary of how it compares."""
    priors = sorted({study.prior_source(setting.prior) for setting in item.settings})
    where = "SYNTHETIC city, not comparable with the paper" if study.synthetic else study.title
    lines = [
        f"## {item.name}: {item.title}",
        "",
        f"City: {where} ({study.city.nodes:,} nodes). Prior: {'; '.join(priors)}. "
        "Mean ± 1.96 standard deviations over the repeats (a single value where there is one).",
        "",
        HEADER,
        "|---" * HEADER.count(" | ") + "|---|",
        *(f"| {' | '.join(_cells(entry))} |" for entry in entries),
        "",
        comparison(entries),
        "",
    ]
    return "\n".join(lines)


def _cells(entry: Entry) -> list[str]:
    """A line of the table for people."""
    ours = entry.ending
    if entry.mean is not None:
        ours = f"{entry.mean:.4g}"
    if entry.spread is not None:
        ours += f" ± {entry.spread:.3g}"
    inside = ""
    if entry.inside_paper_interval is not None:
        missed = "no, intervals overlap" if entry.intervals_overlap else "no"
        inside = "yes" if entry.inside_paper_interval else missed
    audited = _form("{:.5g}", entry.audited_epsilon).replace("inf", "∞")
    remarks = [entry.status.replace(";", ",")] if ";" in entry.status else []
    remarks += [
        form.format(entry.extra[name]) for name, form in REMARKS.items() if name in entry.extra
    ]
    remarks += [entry.note] if entry.note else []
    return [
        entry.method,
        f"{entry.records:,}",
        str(entry.repeats),
        ours,
        entry.paper or "",
        _form("{:+.4g}", entry.difference),
        inside,
        _form("{:g}", entry.readme),
        _form("{:.3g}", entry.seconds),
        _form("{:.2%}", entry.certified_gap),
        _form("{:.3g}", entry.claimed_epsilon),
        f"**{audited}**" if audited and not entry.audit_holds else audited,
        "; ".join(remarks).replace("|", "/"),
    ]


def _form(form: str, value: float | None) -> str:
    return "" if value is None else form.format(value)


def write_item(item: Item, rows: Sequence[Row], study: Study) -> list[Path]:
    """Write an item's files into the study's folder; returns their paths.

    A table becomes CSV, JSON and markdown, a figure PNG, SVG and markdown.
    """
    if item.measure is None:
        drawing = DRAWINGS[item.name]
        sentences = drawing.tell(rows, study.title) or ["There are no results yet."]
        lines = [
            f"# {item.title}",
            "",
            f"![{item.title}]({item.name}.png)",
            "",
            *(f"- {one}" for one in (*sentences, *unfinished(rows))),
            "",
        ]
        figure = drawing.draw(rows, study.title)
        pictures = [study.folder / f"{item.name}{end}" for end in (".png", ".svg")]
        paths = [save_figure(figure, path) for path in pictures]
        texts = {".md": "\n".join(lines)}
    else:
        entries = summarise(item, rows, study.name)
        columns = [entry.columns() for entry in entries]
        paths = []
        texts = {
            ".csv": as_csv(columns),
            ".json": json.dumps(plain(columns, "words"), indent=1) + "\n",
            ".md": markdown(item, entries, study),
        }
    for end, text in texts.items():
        paths.append(study.folder / f"{item.name}{end}")
        with atomic_file(paths[-1]) as stream:
            stream.write(text.encode())
    return paths


def as_csv(rows: Sequence[dict[str, Any]]) -> str:
    """Rows of named columns, those that any row has."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
