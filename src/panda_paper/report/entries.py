"""Rows of repeats gathered into one entry per method and setting, beside the paper's value."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from panda_paper.cells.outcome import Row
from panda_paper.cells.table_methods import METHODS
from panda_paper.settings.cell import Setting
from panda_paper.settings.item import Item
from panda_paper.settings.paper_values import PaperValue, paper_value, readme_value

NORMAL = 1.96


@dataclass(frozen=True)
class Entry:
    """One method at one setting, over all repeats."""

    item: str
    method: str
    setting: Setting
    statuses: dict[str, int]
    """How many repeats ended how."""
    mean: float | None
    spread: float | None
    """1.96 sample standard deviations; None for a single repeat."""
    seconds: float | None
    gap: float | None
    """The largest certified gap."""
    claimed: float | None
    audited: float | None
    """The largest audited epsilon."""
    holds: bool | None
    """Whether every repeat's audit holds."""
    paper: PaperValue | None
    readme: float | None
    note: str
    extra: dict[str, float]
    """Means of the other values."""

    @property
    def difference(self) -> float | None:
        """Ours less the paper's mean."""
        if self.mean is None or self.paper is None or self.paper.mean is None:
            return None
        return self.mean - self.paper.mean

    @property
    def inside(self) -> bool | None:
        """Whether our mean lies within the paper's interval."""
        if self.mean is None or self.paper is None:
            return None
        return self.paper.holds(self.mean)

    @property
    def overlaps(self) -> bool | None:
        """Whether our interval and the paper's have anything in common."""
        paper = self.paper
        if self.mean is None or paper is None or paper.low is None or paper.high is None:
            return None
        reach = self.spread or 0.0
        return self.mean - reach <= paper.high and self.mean + reach >= paper.low

    @property
    def solved(self) -> int:
        return self.statuses.get("done", 0)

    def fields(self) -> dict[str, Any]:
        """For CSV and JSON, flat."""
        setting = self.setting
        paper = self.paper
        return {
            "item": self.item,
            "method": self.method,
            "records": setting.records,
            "epsilon": setting.epsilon,
            "delta": setting.delta,
            "users": setting.users,
            "prior": setting.prior,
            "repeats": sum(self.statuses.values()),
            "done": self.solved,
            "status": "; ".join(f"{name} {count}" for name, count in self.statuses.items()),
            "mean": self.mean,
            "spread_1.96_std": self.spread,
            "paper": None if paper is None else paper.text,
            "paper_mean": None if paper is None else paper.mean,
            "paper_spread": None if paper is None else paper.spread,
            "difference": self.difference,
            "inside_paper_interval": self.inside,
            "intervals_overlap": self.overlaps,
            "readme": self.readme,
            "seconds": self.seconds,
            "certified_gap": self.gap,
            "claimed_epsilon": self.claimed,
            "audited_epsilon": self.audited,
            "audit_holds": self.holds,
            "note": self.note,
            **{f"mean_{name}": value for name, value in self.extra.items()},
        }


def summarise(item: Item, rows: Sequence[Row], city: str) -> list[Entry]:
    """One entry per method and setting, in the item's order."""
    groups: dict[tuple[str, Setting], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.cell.method, row.cell.setting), []).append(row)
    entries = []
    for method in item.methods:
        for setting in item.settings:
            members = groups.get((method, setting))
            if members:
                entries.append(_entry(item, method, setting, members, city))
    return entries


def _entry(item: Item, method: str, setting: Setting, rows: Sequence[Row], city: str) -> Entry:
    values = numbers(rows, item.measure)
    known = METHODS.get(method)
    name = method if known is None else known.paper
    stands_beside = None
    if name is not None:
        stands_beside = paper_value(item.name, city, name, setting.records)
    readme = None
    if name is not None and item.name in ("table2", "table4"):
        readme = readme_value(item.measure, city, name, setting.records)
    holds = [row.value("holds") for row in rows if row.value("holds") is not None]
    notes = Counter(row.outcome.note for row in rows if row.outcome.note)
    return Entry(
        item=item.name,
        method=method,
        setting=setting,
        statuses=dict(Counter(row.status for row in rows)),
        mean=float(np.mean(values)) if values else None,
        spread=float(NORMAL * np.std(values, ddof=1)) if len(values) > 1 else None,
        seconds=_mean([row.outcome.seconds for row in rows]),
        gap=_largest(numbers(rows, "gap")),
        claimed=_largest(numbers(rows, "claimed_epsilon")),
        audited=_largest(numbers(rows, "audited_epsilon")),
        holds=all(holds) if holds else None,
        paper=stands_beside,
        readme=readme,
        note=_note(notes, len(rows)),
        extra=_extra(item, rows),
    )


def _note(notes: Counter[str], repeats: int) -> str:
    """What most repeats that have a note say, and how many have one where not all do."""
    if not notes:
        return ""
    text, noted = notes.most_common(1)[0][0], notes.total()
    return text if noted == repeats else f"{text} ({noted} of {repeats} repeats)"


def numbers(rows: Sequence[Row], name: str) -> list[float]:
    """A value over the rows that have it, as floats; infinities included."""
    values = (row.value(name) for row in rows)
    return [
        float(value)
        for value in values
        if isinstance(value, int | float) and not isinstance(value, bool)
    ]


def _extra(item: Item, rows: Sequence[Row]) -> dict[str, float]:
    shown = {item.measure, "gap", "claimed_epsilon", "audited_epsilon"}
    names = sorted({name for row in rows for name in row.outcome.values} - shown)
    means = {name: _mean(numbers(rows, name)) for name in names}
    return {name: value for name, value in means.items() if value is not None}


def _mean(values: Sequence[float]) -> float | None:
    finite = [value for value in values if math.isfinite(value)]
    return float(np.mean(finite)) if finite else None


def _largest(values: Sequence[float]) -> float | None:
    return max(values) if values else None
