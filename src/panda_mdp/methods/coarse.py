"""The LP over the cells of a grid in place of the records (LP+CA)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.compute.rate import LOG_ERROR
from panda_mdp.errors import MethodError
from panda_mdp.methods.optimal.optimal import optimal
from panda_mdp.methods.optimal.starts import one_row
from panda_mdp.outputs import Outputs
from panda_mdp.problem import Problem, quiet_scale
from panda_mdp.space.domain import Domain
from panda_mdp.table.mechanism import Mechanism, NoGuarantee, Table
from panda_mdp.table.release import release

ROWS = 256
"""Records whose distances are computed at a time."""


def coarse(
    problem: Problem, cells: int = 8, *, gap: float = 0.01, time_limit: float | None = None
) -> Mechanism:
    """Records of a cell share one row, and the LP runs over cells (the paper's LP+CA, made sound).

    The plane is cut into `cells` x `cells` equal rectangles over the records; domains that are
    not planar are cut into at most cells^2 clusters around records that are far apart. For the
    cells a, b that hold records,

        min sum_a C_ay z_ay   s.t.   sum_y z_ay = 1,  z_ay <= exp(epsilon D(a, b)) z_by,

    with C_ay = sum of p_x c_xy over the records of a, the exact expected loss of a shared row, is
    solved by `optimal` to `gap`; `time_limit` is in seconds. D(a, b) is the least distance between
    a record of a and one of b, closed under shortest paths (least distances are no metric: they
    break the triangle inequality).

    Guarantee: epsilon-mDP over all pairs of records, by audit. Within a cell rows are equal.

    `details["cells_lower_bound"]` bounds the LP over the cells; there is none on the problem's
    optimum. The paper's text says 8 x 8; its loss is that of the cell's representative where
    this one is the mean over the cell's records, which can only be better.

    >>> domain = Domain.from_vectors([[0.0, 0.0], [0.1, 0.0], [4.0, 1.0], [4.0, 0.9]])
    >>> problem = Problem(domain, [0, 2], domain.distances(None, [0, 2]), epsilon=1.0)
    >>> mechanism = coarse(problem, cells=2)
    >>> mechanism.details["cells"], bool((mechanism.matrix[0] == mechanism.matrix[1]).all())
    (2, True)
    """
    solved = _over_cells(problem, cells, least_distances, gap, time_limit)
    return release(
        problem, solved.matrix, method="coarse", stages=solved.stages, details=solved.details
    )


def coarse_unsound(
    problem: Problem, cells: int = 8, *, gap: float = 0.01, time_limit: float | None = None
) -> NoGuarantee:
    """The paper's LP+CA as it is written: D is the distance between the cells' centres.

    Two records on either side of a border are then told apart far better than epsilon allows, so
    there is no guarantee; `details["violated_pairs"]` is the share of the pairs of records that
    break epsilon-mDP, `details["violated_constraints"]` the share of all K (K - 1) m constraints.
    """
    solved = _over_cells(problem, cells, lambda _, cover: cover.between, gap, time_limit)
    start = time.perf_counter()
    table = NoGuarantee.from_matrix(problem, solved.matrix, method="coarse, unsound")
    rates = violations(problem, solved.cover, table)
    stages = (*solved.stages, ("audit", time.perf_counter() - start))
    return table.with_facts(stages=stages, details={**solved.details, **rates})


@dataclass(frozen=True)
class _Solved:
    cover: Cells
    matrix: FloatArray
    stages: tuple[tuple[str, float], ...]
    details: dict[str, Any]


def _over_cells(
    problem: Problem,
    cells: int,
    between: Callable[[Domain, Cells], FloatArray],
    gap: float,
    time_limit: float | None,
) -> _Solved:
    """The LP over cells that are `between` apart, and its rows for the records."""
    if not (isinstance(cells, int | np.integer) and cells >= 1):
        msg = f"cells is {cells!r}; it must be a whole number from 1, the cells along a side"
        raise MethodError(msg)
    start = time.perf_counter()
    cover = grid_cells(problem.domain, int(cells))
    if cover.count == 1:
        matrix, spent = one_row(problem), time.perf_counter() - start
        return _Solved(cover, matrix, (("cells", spent),), {"cells": 1})
    budgets = shortest_paths(between(problem.domain, cover))
    stages: tuple[tuple[str, float], ...] = (("cells", time.perf_counter() - start),)
    left = None if time_limit is None else max(time_limit - stages[0][1], 1e-3)
    solved = optimal(cell_problem(problem, cover, budgets), gap, time_limit=left)
    stages = (*stages, *((f"cells: {name}", seconds) for name, seconds in solved.stages))
    details: dict[str, Any] = {
        "cells": cover.count,
        "least_budget": problem.epsilon * _least(budgets),
        "cells_lower_bound": solved.lower_bound,
        "cells_gap": solved.gap,
        "stopped": solved.details["stopped"],
        "iterations": solved.details["iterations"],
    }
    return _Solved(cover, solved.matrix[cover.cell], stages, details)


@dataclass(frozen=True)
class Cells:
    """A partition of the records: `cell[x]` is the cell of record x, numbered from 0."""

    cell: IntArray
    between: FloatArray
    """Distances of the cells' centres, (count, count)."""

    @property
    def count(self) -> int:
        return len(self.between)

    def members(self) -> Iterator[IntArray]:
        """The records of each cell in turn."""
        order = np.argsort(self.cell, kind="stable")
        ends = np.cumsum(np.bincount(self.cell, minlength=self.count))
        yield from np.split(order, ends[:-1])


def grid_cells(domain: Domain, side: int) -> Cells:
    """The cells of a side x side grid that hold records; clusters where there is no plane."""
    plane = domain.plane
    if plane is None:
        return clusters(domain, side * side)
    low, extent = plane.min(axis=0), np.ptp(plane, axis=0)
    step = np.where(extent > 0, extent, 1.0) / side
    index = np.minimum(((plane - low) / step).astype(np.int64), side - 1)
    used, cell = np.unique(index, axis=0, return_inverse=True)
    centres = low + (used + 0.5) * step
    between = np.sqrt(((centres[:, None] - centres) ** 2).sum(axis=2))
    return Cells(cell.reshape(-1), between)


def clusters(domain: Domain, count: int) -> Cells:
    """At most `count` clusters around records that are far apart, in any metric.

    Centres are a farthest-first traversal from the record in the middle on; everybody joins the
    nearest.
    """
    points = domain.metric.embedding
    centres = [int(((points - points.mean(axis=0)) ** 2).sum(axis=1).argmin())]
    nearest = domain.distances(None, centres)[:, 0]
    while len(centres) < count and nearest.max() > 0:
        centres.append(int(nearest.argmax()))
        nearest = np.minimum(nearest, domain.distances(None, centres[-1:])[:, 0])
    cell = domain.distances(None, centres).argmin(axis=1)
    return Cells(cell, domain.distances(centres, centres))


def least_distances(domain: Domain, cover: Cells) -> FloatArray:
    """The least distance between a record of one cell and one of another, (count, count)."""
    least = np.zeros((cover.count, cover.count))
    parts = list(cover.members())
    for a, part in enumerate(parts[:-1]):
        others = np.concatenate(parts[a + 1 :])
        starts = np.concatenate([[0], np.cumsum([len(other) for other in parts[a + 1 :]])[:-1]])
        nearest = np.full(len(others), np.inf)
        for x in range(0, len(part), ROWS):
            block = domain.distances(part[x : x + ROWS], others)
            nearest = np.minimum(nearest, block.min(axis=0))
        least[a, a + 1 :] = np.minimum.reduceat(nearest, starts)
    return least + least.T


def shortest_paths(between: FloatArray) -> FloatArray:
    """The largest metric that nowhere exceeds some symmetric distances, all positive."""
    if len(between) < 2:
        return between
    # SciPy takes what is below 1e-8 for no edge at all; powers of two change no digit.
    nearest = between[~np.eye(len(between), dtype=bool)].min()
    unit = 2.0 ** np.floor(np.log2(nearest))
    return np.asarray(scipy.sparse.csgraph.floyd_warshall(between / unit, directed=False) * unit)


def cell_problem(problem: Problem, cover: Cells, budgets: FloatArray) -> Problem:
    """The LP over cells as a problem of its own.

    Its outputs are the problem's, called by their columns.
    """
    count, outputs = cover.count, problem.outputs_count
    prior = np.bincount(cover.cell, problem.prior, minlength=count)
    total = np.zeros((count, outputs))
    np.add.at(total, cover.cell, problem.weighted_loss)
    # Cells without weight are free to take any row; their loss is that of their records.
    plain = np.zeros((count, outputs))
    members = np.bincount(cover.cell, minlength=count)
    np.add.at(plain, cover.cell, problem.loss / members[cover.cell, None])
    weighted = prior > 0
    loss = np.where(weighted[:, None], total / np.where(weighted, prior, 1.0)[:, None], plain)
    with quiet_scale():
        return Problem(
            Domain.from_matrix(budgets, unit=problem.domain.unit),
            Outputs.labels(range(outputs)),
            loss,
            problem.epsilon,
            prior=prior / prior.sum(),
            loss_unit=problem.loss_unit,
        )


def violations(problem: Problem, cover: Cells, table: Table) -> dict[str, float]:
    """Shares of pairs and of constraints of epsilon-mDP that a table with shared rows breaks.

    A constraint counts as broken where log z_xy - log z_x'y exceeds epsilon d(x, x') by more than
    the rounding of both. Pairs are unordered; each has two constraints for every output, of which
    one at most can be broken.
    """
    parts = list(cover.members())
    first = np.array([part[0] for part in parts])
    with np.errstate(divide="ignore"):
        logs = np.log(table.weights[first].astype(np.float64))
    stretch = 1 + problem.domain.metric.relative_error + 1e-14
    pairs = constraints = 0
    for a in range(cover.count):
        for b in range(a + 1, cover.count):
            with np.errstate(invalid="ignore"):
                ratio = np.abs(logs[a] - logs[b])
            # A column that is zero for both tells nothing.
            ratio = np.sort(np.where(np.isnan(ratio), 0.0, ratio)) - LOG_ERROR
            for x in range(0, len(parts[a]), ROWS):
                limit = problem.epsilon * stretch
                limits = limit * problem.domain.distances(parts[a][x : x + ROWS], parts[b]).ravel()
                broken = len(ratio) - np.searchsorted(ratio, limits, side="right")
                constraints += int(broken.sum())
                pairs += int(np.count_nonzero(broken))
    total = problem.size * (problem.size - 1)
    return {
        "violated_pairs": pairs / (total / 2),
        "violated_constraints": constraints / (total * problem.outputs_count),
    }


def _least(budgets: FloatArray) -> float:
    off_diagonal = budgets[np.triu_indices(len(budgets), 1)]
    return float(off_diagonal.min()) if len(off_diagonal) else 0.0
