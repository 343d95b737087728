"""What the checks of several claims need: means over sizes, and whether anything fits exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from panda_paper.cells.city_results import CityResults
from panda_paper.cells.outcome import Row
from panda_paper.claims.claim import Verdict
from panda_paper.draw.series import Series, collect, records_of
from panda_paper.settings.method_names import EXACT, PUBLISHED, TEXT

TOLERANCE = 0.1
"""A number of the paper comes out where ours is within this share of it, or better."""


@dataclass(frozen=True)
class Exact:
    """Whether PAnDA fits (epsilon, delta) in any run at the paper's settings, fully accounted."""

    verdict: Verdict
    figures: str

    fitting: int = 0
    """Runs that fit."""

    @property
    def brief(self) -> str:
        """The first part of the figures."""
        return self.figures.partition(":")[0]

    @property
    def blocked(self) -> Verdict:
        """The verdict on what PAnDA does exactly: nothing where it fits nowhere.

        Where some run fits, its own rows would have to be judged.
        """
        if self.verdict == "does not hold" and not self.fitting:
            return "does not hold"
        return "cannot be checked"


def exact_state(results: CityResults, name: str = "figure7") -> Exact:
    """From the text's conditions at all sizes of an item, and the tables' own runs."""
    rows = [row for row in results.of(name) if row.cell.method in TEXT and row.status == "done"]
    tables = (*results.of("table4"), *results.of("table5"))
    tried = [row for row in tables if row.cell.method in EXACT]
    fitting = [row for row in rows if row.value("fits")]
    fitting += [row for row in tried if row.status == "done"]
    if not rows and not tried:
        return Exact("cannot be checked", "no run in exact accounting yet")
    total = len(rows) + len(tried)
    if fitting:
        verdict: Verdict = "holds" if len(fitting) == total else "does not hold"
        return Exact(verdict, f"{len(fitting)} of {total} runs fit", len(fitting))
    figures = f"none of {total} runs fits"
    if rows:
        cost = [float(row.value("cost_epsilon")) for row in rows]
        short = [float(row.value("shortfall")) for row in rows]
        figures += (
            f": choosing anchors alone costs {min(cost):,.0f} to {max(cost):,.0f} /km at the worst "
            f"pair, and with probability up to {max(short):.2g} one of two has no anchor within "
            f"gamma, for epsilon {rows[0].cell.setting.epsilon:g} /km and delta "
            f"{rows[0].cell.setting.delta:g}"
        )
    return Exact("does not hold", figures)


def by_size(rows: Sequence[Row], method: str, value: str) -> Series:
    """A method's value against K."""
    return collect(rows, method, value, records_of)


def mean_over_sizes(rows: Sequence[Row], method: str, value: str) -> float:
    """The mean of the means at each K; NaN where there is none."""
    series = by_size(rows, method, value)
    return float(series.mean.mean()) if len(series) else float("nan")


def reduction(rows: Sequence[Row], method: str, other: str, value: str = "loss_m") -> float:
    """How much lower a method's loss is than another's, averaged over the sizes that both have."""
    mine, theirs = by_size(rows, method, value), by_size(rows, other, "loss_m")
    both = np.intersect1d(mine.x, theirs.x)
    if not len(both):
        return float("nan")
    return float(np.mean([1 - mine.at(size) / theirs.at(size) for size in both]))


def known(rows: Sequence[Row], methods: Sequence[str] = PUBLISHED) -> list[str]:
    """Those methods that have a finished row."""
    return [
        name
        for name in methods
        if any(row.cell.method == name and row.status == "done" for row in rows)
    ]


def percents(values: Sequence[float]) -> str:
    """Shares in words: one number, or the range."""
    numbers = [value for value in values if not np.isnan(value)]
    if not numbers:
        return "unknown"
    low, high = min(numbers), max(numbers)
    return f"{low:.1%}" if high - low < 5e-4 else f"{low:.1%} to {high:.1%}"


def optimal_figures(rows: Sequence[Row]) -> str:
    """The loss of our optimal mechanism over sizes, with its certificate and audit."""
    series = by_size(rows, "optimal", "loss_m")
    if not len(series):
        return ""
    held = [row.value("holds") for row in rows if row.cell.method == "optimal"]
    gaps = by_size(rows, "optimal", "gap")
    proof = f", within {gaps.mean.max():.1%} of the best possible" if len(gaps) else ""
    audit = "audit holds in every cell" if all(held) else "AUDIT FAILS somewhere"
    return (
        f"optimal: {series.mean.min():,.0f} to {series.mean.max():,.0f} m for K = "
        f"{series.x[0]:,.0f} to {series.x[-1]:,.0f}{proof}; {audit}"
    )
