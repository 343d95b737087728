"""The paper's claims, each judged from result rows, never from memory.

A claim is data (`claims.toml`): what the paper says and where, and the quantities that decide it,
each with the least or the largest value that it may have; numbers of the paper have 10 % of room,
shares 10 points. It is judged twice where PAnDA is involved: under published accounting (does the
number come out when the published code's choices are followed?) and under exact accounting (does it
stand when everything is charged?). Beside both stands what the library's own methods do at the same
settings.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

import numpy as np
import numpy.typing as npt

from panda_mdp.base.text import Facts
from panda_paper.items import named
from panda_paper.results import Frame, Results, means_of

Verdict = Literal["holds", "does not hold", "cannot be checked", "does not apply"]
Trend = Literal["grows", "falls", "neither", "nothing to see"]
STEP = 0.02
"""A step of less than this share of the largest value is neither up nor down."""


def trend(values: npt.ArrayLike) -> Trend:
    """Whether a sequence grows or falls: every step, up to 2 % of its largest value.

    >>> trend([1.0, 2.0, 2.0, 5.0]), trend([3.0, 1.0]), trend([1.0, 3.0, 1.0]), trend([1.0])
    ('grows', 'falls', 'neither', 'nothing to see')
    """
    every = np.asarray(values, dtype=float)
    finite = every[np.isfinite(every)]
    if len(finite) < 2 or np.ptp(finite) == 0:
        return "nothing to see"
    steps = np.diff(finite) / np.abs(finite).max()
    if finite[-1] > finite[0] and steps.min() >= -STEP:
        return "grows"
    return "falls" if finite[-1] < finite[0] and steps.max() <= STEP else "neither"


def share_that(word: Trend, table: Frame) -> float:
    """The share of columns that grow or fall, of those that move at all."""
    words = [trend(column) for _, column in table.items()]
    moving = len(words) - words.count("nothing to see")
    return words.count(word) / moving if moving else np.nan


HOWS: Mapping[str, Callable[[Frame], float]] = {
    "mean": lambda table: table.stack().mean(),
    "least": lambda table: table.min().min(),
    "most": lambda table: table.max().max(),
    "last": lambda table: table.iloc[-1].max(),
    "least gain": lambda table: (table.iloc[-1] / table.iloc[0]).min(),
    "share that grows": lambda table: share_that("grows", table),
    "share that falls": lambda table: share_that("falls", table),
}
"""A number of a table of means: a row for each place on the axis, a column for each method."""


@dataclass(frozen=True, eq=False)
class Quantity:
    """A number of one item's rows: of the means of a value by place on an axis and by method."""

    name: str
    item: str
    methods: Sequence[str]
    value: str
    how: str = "mean"
    axis: str = "records"
    across: Sequence[str] = ("method",)
    """What has columns of its own."""
    by: str | None = None
    """The value that it is divided by."""
    others: Sequence[str] = ()
    """The methods by whose value it is divided, one by one."""
    of: str = "mean"
    """What is taken of the repeats."""
    low: float | None = None
    """The least that it may be, where it decides a claim."""
    high: float | None = None

    def measure(self, city: Results) -> float:
        """The number; NaN where there are no rows."""

        def means(methods: Sequence[str], value: str) -> Frame:
            rows = city.of(self.item)
            rows = rows[rows["method"].isin(named(methods))]
            return means_of(rows, value, [self.axis], self.across, self.of)

        table = means(self.methods, self.value)
        if self.by:
            table = table / means(self.methods, self.by)
        if self.others:
            rest = means(self.others, self.value)
            parts = [table.div(rest[name], axis=0).add_prefix(f"{name} ") for name in rest]
            table = parts[0].join(parts[1:]) if parts else rest
        return float(HOWS[self.how](table)) if len(table.stack()) else np.nan


@dataclass(frozen=True)
class Finding:
    """What the rows of one city say about a claim on one side, by the names of its quantities."""

    verdict: Verdict
    measured: Mapping[str, float]

    @classmethod
    def of(cls, quantities: Iterable[Facts], city: Results) -> Finding:
        """Whether all lie where they must; unknown ones leave it open."""
        found = {one: one.measure(city) for one in (Quantity(**facts) for facts in quantities)}
        deciding = [one for one in found if one.low is not None or one.high is not None]
        measured = {one.name: value for one, value in found.items() if not np.isnan(value)}
        verdict: Verdict = "holds" if deciding else "does not apply"
        for one in deciding:
            low = -np.inf if one.low is None else one.low
            high = np.inf if one.high is None else one.high
            if one.name not in measured:
                verdict = "cannot be checked"
            elif not low <= measured[one.name] <= high:
                return cls("does not hold", measured)
        return cls(verdict, measured)


@dataclass(frozen=True)
class Claim:
    """One claim of the paper, in our words, with the items whose rows decide it."""

    key: str
    says: str
    where: str
    """Where the paper says it."""
    items: Sequence[str]
    rule: str
    """When it counts as held."""
    published: Sequence[Facts] = ()
    exact: Sequence[Facts] = ()
    ours: Sequence[Facts] = ()

    def command(self, city: str) -> str:
        """What produces the rows."""
        return f"panda-mdp reproduce {','.join(self.items)} --city {city}"

    def judge(self, city: Results) -> dict[str, Finding]:
        """What one city's rows say on each side."""
        sides = {"published": self.published, "exact": self.exact, "ours": self.ours}
        return {side: Finding.of(quantities, city) for side, quantities in sides.items()}


_TEXT = files("panda_paper").joinpath("claims.toml").read_text(encoding="utf-8")
CLAIMS = tuple(Claim(**claim) for claim in tomllib.loads(_TEXT)["claim"])
"""Every claim, the main ones first."""
