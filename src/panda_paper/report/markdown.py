"""An item's table for people, the paper's values beside ours.

`ours` is mean ± 1.96 standard deviations over the repeats that ended; `paper` is
the paper's entry as it stands; `difference` is ours less the paper's mean, and `inside` says
whether ours lies within the paper's interval. `audited` is the largest epsilon that an audit over
all pairs of records found in any repeat, beside what is claimed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from panda_paper.cells.workspace import Study
from panda_paper.report.entries import Entry
from panda_paper.settings.item import Item

HEADER = (
    "| method | K | repeats | ours | paper | difference | inside | README | seconds "
    "| certified gap | claimed ε | audited ε | remarks |"
)


def markdown(item: Item, entries: Sequence[Entry], study: Study) -> str:
    """The table and a summary of how it compares."""
    priors = sorted({study.prior_source(entry.setting.prior) for entry in entries})
    where = "SYNTHETIC city, not comparable with the paper" if study.synthetic else study.title
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
