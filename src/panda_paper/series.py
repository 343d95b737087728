"""Series of results: means and 1.96 standard deviations by points, as the paper gives them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray

SPREAD = 1.96
STEP = 0.02
"""A step of less than this share of the largest value is neither up nor down."""

Trend = Literal["grows", "falls", "neither", "nothing to see"]


@dataclass(frozen=True)
class Series:
    """Points (x, mean) with their spread over repeats; x ascending."""

    label: str
    x: FloatArray
    mean: FloatArray
    spread: FloatArray

    @classmethod
    def of(cls, label: str, points: Iterable[tuple[float, ...]]) -> Series:
        """The series of points (x, mean, spread)."""
        x, mean, spread = np.array(list(points), dtype=np.float64).reshape(-1, 3).T
        return cls(label, x, mean, spread)

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
    def ends(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The first point and the last."""
        points = list(zip(self.x.tolist(), self.mean.tolist(), strict=True))
        return points[0], points[-1]

    def at(self, x: float) -> float:
        """The mean at a point; NaN where there is none."""
        return float(np.append(self.mean[np.isclose(self.x, x)], np.nan)[0])


def deviation(values: FloatArray) -> float:
    """1.96 sample standard deviations; 0 for a single value or where one is infinite."""
    spread_known = len(values) > 1 and np.isfinite(values).all()
    return SPREAD * float(np.std(values, ddof=1)) if spread_known else 0.0


def trend(values: npt.ArrayLike) -> Trend:
    """Whether a sequence grows or falls: every step, up to 2 % of its largest value.

    >>> trend([1.0, 2.0, 2.0, 5.0]), trend([3.0, 1.0]), trend([1.0, 3.0, 1.0]), trend([1.0])
    ('grows', 'falls', 'neither', 'nothing to see')
    """
    every = np.asarray(values, dtype=np.float64)
    finite = every[np.isfinite(every)]
    if len(finite) < 2 or np.ptp(finite) == 0:
        return "nothing to see"
    steps = np.diff(finite) / np.abs(finite).max()
    if finite[-1] > finite[0] and steps.min() >= -STEP:
        return "grows"
    return "falls" if finite[-1] < finite[0] and steps.max() <= STEP else "neither"
