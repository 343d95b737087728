"""Series of results: means and 1.96 standard deviations by points, as the paper gives them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

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


class Listed(dict[str, Any]):
    """Something of each variant, in words by its name without its accounting.

    >>> f"{Listed({'PAnDA-e published': 0.5, 'PAnDA-p text': 1}):.1%}"
    'PAnDA-e 50.0%, PAnDA-p 100.0%'
    """

    def __format__(self, form: str) -> str:
        return ", ".join(f"{variant(name)} {format(one, form)}" for name, one in self.items())


class Averages(dict[str, float]):
    """One number of each method, in words the range of shares.

    >>> f"{Averages(a=0.5, b=0.25):.1%}", f"{Averages(a=0.5):.1%}", Averages(a=0.5, b=0.25).mean
    ('25.0% to 50.0%', '50.0%', 0.375)
    """

    @property
    def low(self) -> float:
        """The least number."""
        return min(self.values())

    @property
    def high(self) -> float:
        """The largest number."""
        return max(self.values())

    @property
    def mean(self) -> float:
        """The mean of all."""
        return float(np.mean([*self.values()]))

    @property
    def each(self) -> Listed:
        """All of them by name."""
        return Listed(self)

    def __format__(self, form: str) -> str:
        low, high = format(self.low, form), format(self.high, form)
        return low if self.high - self.low < 5e-4 else f"{low} to {high}"


class Curves(list[Series]):
    """The series of several methods."""

    @property
    def low(self) -> float:
        """The least mean of all."""
        return min(one.low for one in self)

    @property
    def high(self) -> float:
        """The largest mean of all."""
        return max(one.high for one in self)

    @property
    def ends(self) -> tuple[tuple[float, float], tuple[float, float]]:
        """The ends of the first."""
        return self[0].ends

    @property
    def share(self) -> float:
        """The mean of all, each as a share of its place."""
        return float(np.concatenate([one.mean / one.x for one in self]).mean())

    @property
    def averages(self) -> Averages:
        """The mean of each method's means."""
        return Averages({one.label: float(one.mean.mean()) for one in self})


def variant(name: str) -> str:
    """The name of a variant without its accounting."""
    return name.removesuffix(" published").removesuffix(" text")


def below(mine: Series, theirs: Series) -> FloatArray:
    """How much lower one series is than another, at every point that both have."""
    return np.array([1 - mine.at(x) / theirs.at(x) for x in np.intersect1d(mine.x, theirs.x)])


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
