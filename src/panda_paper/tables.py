"""An item's table: CSV and JSON for machines, markdown for people, the paper's values beside ours.

In the markdown, `ours` is mean ± 1.96 standard deviations over the repeats that ended; `paper` is
the paper's entry as it stands; `difference` is ours less the paper's mean, and `inside` says
whether ours lies within the paper's interval. `audited` is the largest epsilon that an audit over
all pairs of records found in any repeat, beside what is claimed.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from panda_mdp.base.atomic import atomic_file
from panda_mdp.base.plain import plain
from panda_paper.draws import Study
from panda_paper.specs import Item
from panda_paper.store import Row
from panda_paper.summary import Entry, summarise

HEADER = (
    "| method | K | repeats | ours | paper | difference | inside | README | seconds "
    "| certified gap | claimed ε | audited ε | remarks |"
)


def write_table(item: Item, rows: Sequence[Row], study: Study) -> list[Path]:
    """Write `NAME.csv`, `NAME.json` and `NAME.md` into the study's folder."""
    entries = summarise(item, rows, study.name)
    folder = study.folder
    fields = [entry.fields() for entry in entries]
    files = {
        f"{item.name}.csv": _csv(fields),
        f"{item.name}.json": json.dumps(plain(fields, "words"), indent=1) + "\n",
        f"{item.name}.md": markdown(item, entries, study),
    }
    paths = []
    for name, text in files.items():
        path = folder / name
        with atomic_file(path) as stream:
            stream.write(text.encode())
        paths.append(path)
    return paths


def markdown(item: Item, entries: Sequence[Entry], study: Study) -> str:
    """The table and a summary of how it compares."""
    priors = sorted({study.prior_source(entry.setting.prior) for entry in entries})
    where = "SYNTHETIC city, not comparable with the paper" if study.synthetic else study.name
    lines = [
        f"## {item.name}: {item.title}",
        "",
        f"City: {where} ({study.city.nodes:,} nodes). Prior: {'; '.join(priors)}. "
        "Mean ± 1.96 standard deviations over the repeats (a single value where there is one).",
        "",
        HEADER,
        "|---" * HEADER.count(" | ") + "|---|",
    ]
    lines += [_line(entry) for entry in entries]
    lines += ["", comparison(entries), ""]
    return "\n".join(lines)


def comparison(entries: Sequence[Entry]) -> str:
    """How many of our means lie inside the paper's intervals, over all and by method."""
    judged = [entry for entry in entries if entry.inside is not None]
    if not judged:
        return "No entry has an interval of the paper to be compared with."
    inside = sum(bool(entry.inside) for entry in judged)
    parts = []
    for method in dict.fromkeys(entry.method for entry in judged):
        mine = [entry for entry in judged if entry.method == method]
        parts.append(f"{method} {sum(bool(entry.inside) for entry in mine)}/{len(mine)}")
    overlap = sum(bool(entry.overlaps) for entry in judged)
    return (
        f"Our mean lies inside the paper's interval in {inside} of {len(judged)} entries, and the "
        f"two intervals overlap in {overlap}. Inside, by method: {', '.join(parts)}."
    )


def _line(entry: Entry) -> str:
    cells = [
        entry.method,
        f"{entry.setting.records:,}",
        str(sum(entry.statuses.values())),
        _ours(entry),
        "" if entry.paper is None else entry.paper.text,
        "" if entry.difference is None else f"{entry.difference:+.4g}",
        _inside(entry),
        "" if entry.readme is None else f"{entry.readme:g}",
        _number(entry.seconds),
        "" if entry.gap is None else f"{entry.gap:.2%}",
        _number(entry.claimed),
        _audited(entry),
        _remarks(entry),
    ]
    return "| " + " | ".join(cells) + " |"


def _inside(entry: Entry) -> str:
    if entry.inside is None:
        return ""
    if entry.inside:
        return "yes"
    return "no, intervals overlap" if entry.overlaps else "no"


def _ours(entry: Entry) -> str:
    if entry.mean is None:
        return next(iter(entry.statuses))
    if entry.spread is None:
        return f"{entry.mean:.4g}"
    return f"{entry.mean:.4g} ± {entry.spread:.3g}"


def _audited(entry: Entry) -> str:
    if entry.audited is None:
        return ""
    text = "∞" if math.isinf(entry.audited) else f"{entry.audited:.5g}"
    return text if entry.holds else f"**{text}**"


def _remarks(entry: Entry) -> str:
    parts = []
    if len(entry.statuses) > 1:
        parts.append(", ".join(f"{name} {count}" for name, count in entry.statuses.items()))
    extra = entry.extra
    if "violated_pairs" in extra:
        parts.append(f"{extra['violated_pairs']:.2%} of pairs violated")
    if "true_loss_m" in extra:
        parts.append(f"over true records {extra['true_loss_m']:.4g} m")
    if "lp_seconds" in extra:
        parts.append(f"LP alone {extra['lp_seconds']:.2g} s")
    if "download" in extra:
        parts.append(f"download {extra['download']:.0%}")
    if entry.note:
        parts.append(entry.note)
    return "; ".join(parts).replace("|", "/")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
