"""Rows as series: a mean and 1.96 standard deviations for each point, as the paper gives them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_paper.results import Row

SPREAD = 1.96
STEP = 0.02
"""A step of less than this share of the largest value is neither up nor down."""

Axis = Literal["records", "users", "epsilon", "delta"]
"""What a value is drawn against: a field of the cell's setting."""
Trend = Literal["grows", "falls", "neither", "nothing to see"]


@dataclass(frozen=True)
class Series:
    """Points (x, mean) with their spread over repeats; x ascending."""

    label: str
    x: FloatArray
    mean: FloatArray
    spread: FloatArray
    count: FloatArray
    """Repeats behind each point."""
    flat: bool = False
    """Whether it is one number that does not depend on x, drawn as a line."""

    @classmethod
    def of(
        cls, label: str, x: FloatArray | Sequence[float], mean: FloatArray | Sequence[float]
    ) -> Series:
        """Points without spread."""
        places, means = np.asarray(x, dtype=np.float64), np.asarray(mean, dtype=np.float64)
        return cls(label, places, means, np.zeros(len(means)), np.ones(len(means)))

    def __len__(self) -> int:
        return len(self.x)

    @property
    def low(self) -> float:
        """The least mean."""
        return float(self.mean.min())

    @property
    def high(self) -> float:
        """The largest mean."""
        return float(self.mean.max())

    @property
    def first(self) -> tuple[float, float]:
        """The first point."""
        return float(self.x[0]), float(self.mean[0])

    @property
    def last(self) -> tuple[float, float]:
        """The last point."""
        return float(self.x[-1]), float(self.mean[-1])

    def at(self, x: float) -> float:
        """The mean at a point; NaN where there is none."""
        places = np.flatnonzero(np.isclose(self.x, x))
        return float(self.mean[places[0]]) if len(places) else float("nan")


def numbers(rows: Iterable[Row], methods: Sequence[str], value: str) -> list[float]:
    """A value of all done rows of some methods that have it."""
    found = [
        float(row.value(value))
        for row in rows
        if row.cell.method in methods and row.status == "done" and row.value(value) is not None
    ]
    return [number for number in found if not np.isnan(number)]


def mean_of(rows: Iterable[Row], methods: Sequence[str], value: str) -> float:
    """The mean over all done rows of some methods; NaN where there are none."""
    found = numbers(rows, methods, value)
    return float(np.mean(found)) if found else float("nan")


def collect(
    rows: Iterable[Row], method: str, value: str, axis: Axis, label: str | None = None
) -> Series:
    """The series of one method's value; rows that are not done or lack it are left out."""
    groups: dict[float, list[Row]] = {}
    for row in rows:
        if numbers([row], (method,), value):
            groups.setdefault(float(getattr(row.cell.setting, axis)), []).append(row)
    places = sorted(groups)
    values = [numbers(groups[x], (method,), value) for x in places]
    spread = [
        SPREAD * np.std(one, ddof=1) if len(one) > 1 and np.isfinite(one).all() else 0.0
        for one in values
    ]
    return Series(
        method if label is None else label,
        np.array(places, dtype=np.float64),
        np.array([np.mean(one) for one in values], dtype=np.float64),
        np.array(spread, dtype=np.float64),
        np.array([len(one) for one in values], dtype=np.float64),
    )


def collect_all(
    rows: Sequence[Row], methods: Sequence[str], value: str, axis: Axis, least: int = 1
) -> list[Series]:
    """The series of those methods that have at least so many points."""
    found = (collect(rows, method, value, axis) for method in methods)
    return [series for series in found if len(series) >= least]


def trend(values: Sequence[float] | FloatArray) -> Trend:
    """Whether a sequence grows or falls: every step, up to 2 % of its largest value.

    >>> trend([1.0, 2.0, 2.0, 5.0]), trend([3.0, 1.0]), trend([1.0, 3.0, 1.0]), trend([1.0])
    ('grows', 'falls', 'neither', 'nothing to see')
    """
    finite = np.asarray(values, dtype=np.float64)
    finite = finite[np.isfinite(finite)]
    if len(finite) < 2 or np.ptp(finite) == 0:
        return "nothing to see"
    steps = np.diff(finite)
    slack = STEP * np.abs(finite).max()
    if (steps >= -slack).all() and finite[-1] > finite[0]:
        return "grows"
    if (steps <= slack).all() and finite[-1] < finite[0]:
        return "falls"
    return "neither"
