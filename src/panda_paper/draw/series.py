"""Rows as series: a mean and 1.96 standard deviations for each point, as the paper gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_paper.cells.outcome import Row

SPREAD = 1.96
STEP = 0.02
"""A step of less than this share of the largest value is neither up nor down."""

Axis = Callable[[Row], float]
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

    def __len__(self) -> int:
        return len(self.x)

    def at(self, x: float) -> float:
        """The mean at a point; NaN where there is none."""
        places = np.flatnonzero(np.isclose(self.x, x))
        return float(self.mean[places[0]]) if len(places) else float("nan")


def no_points(label: str) -> Series:
    """A series without any."""
    nothing = np.empty(0)
    return Series(label, nothing, nothing, nothing, nothing)


def records_of(row: Row) -> float:
    """K."""
    return float(row.cell.setting.records)


def users_of(row: Row) -> float:
    """Users."""
    return float(row.cell.setting.users)


def epsilon_of(row: Row) -> float:
    """The claimed epsilon, per km."""
    return row.cell.setting.epsilon


def delta_of(row: Row) -> float:
    """The accepted probability of a violation."""
    return row.cell.setting.delta


def collect(
    rows: Iterable[Row], method: str, value: str, axis: Axis, label: str | None = None
) -> Series:
    """The series of one method's value; rows that are not done or lack it are left out."""
    values: dict[float, list[float]] = {}
    for row in rows:
        number = row.value(value) if row.cell.method == method and row.status == "done" else None
        if number is not None and not np.isnan(float(number)):
            values.setdefault(axis(row), []).append(float(number))
    points = sorted(values)
    means = [float(np.mean(values[x])) for x in points]
    spreads = [
        float(SPREAD * np.std(values[x], ddof=1))
        if len(values[x]) > 1 and np.isfinite(values[x]).all()
        else 0.0
        for x in points
    ]
    return Series(
        method if label is None else label,
        np.array(points, dtype=np.float64),
        np.array(means, dtype=np.float64),
        np.array(spreads, dtype=np.float64),
        np.array([len(values[x]) for x in points], dtype=np.float64),
    )


def present(all_series: Iterable[Series]) -> list[Series]:
    """Those that have a point."""
    return [one for one in all_series if len(one)]


def mean_of(rows: Iterable[Row], methods: Sequence[str], value: str) -> float:
    """The mean over all done rows of some methods; NaN where there are none."""
    numbers = [
        float(row.value(value))
        for row in rows
        if row.cell.method in methods and row.status == "done" and row.value(value) is not None
    ]
    numbers = [number for number in numbers if not np.isnan(number)]
    return float(np.mean(numbers)) if numbers else float("nan")


def trend(values: Sequence[float] | FloatArray) -> Trend:
    """Whether a sequence grows or falls: every step, up to 2 % of its largest value.

    >>> trend([1.0, 2.0, 2.0, 5.0]), trend([3.0, 1.0]), trend([1.0, 3.0, 1.0]), trend([1.0])
    ('grows', 'falls', 'neither', 'nothing to see')
    """
    known = np.asarray(values, dtype=np.float64)
    known = known[np.isfinite(known)]
    if len(known) < 2 or np.ptp(known) == 0:
        return "nothing to see"
    steps = np.diff(known)
    slack = STEP * np.abs(known).max()
    if (steps >= -slack).all() and known[-1] > known[0]:
        return "grows"
    if (steps <= slack).all() and known[-1] < known[0]:
        return "falls"
    return "neither"
