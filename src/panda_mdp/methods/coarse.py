"""The LP over the cells of a grid in place of the records (LP+CA)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray, Stages
from panda_mdp.base.text import Facts
from panda_mdp.compute.rate import LOG_ERROR
from panda_mdp.methods.optimal.optimal import optimal
from panda_mdp.methods.optimal.starts import one_row
from panda_mdp.outputs import Outputs
from panda_mdp.problem import Problem, check_number, quiet_scale
from panda_mdp.space.domain import Domain
from panda_mdp.table.mechanism import Mechanism, NoGuarantee, Table
from panda_mdp.table.release import release


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
    _, matrix, stages, details = _over_cells(problem, cells, least_distances, gap, time_limit)
    return release(problem, matrix, method="coarse", stages=stages, details=details)


def coarse_unsound(
    problem: Problem, cells: int = 8, *, gap: float = 0.01, time_limit: float | None = None
) -> NoGuarantee:
    """The paper's LP+CA as it is written: D is the distance between the cells' centres.

    Two records on either side of a border are then told apart far better than epsilon allows, so
    there is no guarantee; `details["violated_pairs"]` is the share of the pairs of records that
    break epsilon-mDP.
    """
    cover, matrix, stages, details = _over_cells(
        problem, cells, lambda _, cover: cover.between, gap, time_limit
    )
    table = NoGuarantee.from_matrix(problem, matrix, method="coarse, unsound")
    broken = violations(problem, cover, table)
    return table.with_facts(stages=stages, details={**details, "violated_pairs": broken})


def _over_cells(
    problem: Problem,
    cells: int,
    between: Callable[[Domain, Cells], FloatArray],
    gap: float,
    time_limit: float | None,
) -> tuple[Cells, FloatArray, Stages, Facts]:
    """The LP over cells that are `between` apart: the cells, its rows for the records, what took
    how long, and details."""
    rule = "a whole number from 1, the cells along a side"
    check_number(cells, "cells", rule, least=1, whole=True)
    start = time.perf_counter()
    cover = grid_cells(problem.domain, int(cells))
    if cover.count == 1:
        return cover, one_row(problem), (("cells", time.perf_counter() - start),), {"cells": 1}
    budgets = shortest_paths(between(problem.domain, cover))
    spent = time.perf_counter() - start
    left = None if time_limit is None else max(time_limit - spent, 1e-3)
    solved = optimal(cell_problem(problem, cover, budgets), gap, time_limit=left)
    stages = (("cells", spent), *((f"cells: {name}", took) for name, took in solved.stages))
    details = {
        "cells": cover.count,
        "least_budget": problem.epsilon * _least(budgets),
        "cells_lower_bound": solved.lower_bound,
        "cells_gap": solved.gap,
        "stopped": solved.details["stopped"],
        "iterations": solved.details["iterations"],
    }
    return cover, solved.matrix[cover.cell], stages, details


@dataclass(frozen=True)
class Cells:
    """A partition of the records: `cell[x]` is the cell of record x, numbered from 0."""

    cell: IntArray
    between: FloatArray
    """Distances of the cells' centres, (count, count)."""

    @property
    def count(self) -> int:
        return len(self.between)


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
    return Cells(cell.reshape(-1), scipy.spatial.distance.cdist(centres, centres))


def clusters(domain: Domain, count: int) -> Cells:
    """At most `count` clusters around records that are far apart, in any metric.

    Centres are a farthest-first traversal from the first record on; everybody joins the nearest.
    """
    centres, distance = [0], domain.distances(None, [0])
    while len(centres) < count and distance.min(axis=1).max() > 0:
        centres.append(int(distance.min(axis=1).argmax()))
        distance = np.append(distance, domain.distances(None, centres[-1:]), axis=1)
    return Cells(distance.argmin(axis=1), distance[centres])


def least_distances(domain: Domain, cover: Cells) -> FloatArray:
    """The least distance between a record of one cell and one of another, (count, count)."""
    order = np.argsort(cover.cell, kind="stable")
    starts = np.searchsorted(cover.cell[order], np.arange(cover.count))
    least = np.full((cover.count, cover.count), np.inf)
    for rows, distance in domain.blocks(order):
        np.minimum.at(least, cover.cell[rows], np.minimum.reduceat(distance, starts, axis=1))
    np.fill_diagonal(least, 0.0)
    return least


def shortest_paths(between: FloatArray) -> FloatArray:
    """The largest metric that nowhere exceeds some symmetric distances, all positive."""
    # SciPy takes what is below 1e-8 for no edge at all; powers of two change no digit.
    unit = 2.0 ** np.floor(np.log2(_least(between)))
    return scipy.sparse.csgraph.floyd_warshall(between / unit, directed=False) * unit


def cell_problem(problem: Problem, cover: Cells, budgets: FloatArray) -> Problem:
    """The LP over cells as a problem of its own.

    Its outputs are the problem's, called by their columns.
    """
    cell, prior = cover.cell, problem.prior
    weight = np.bincount(cell, prior)
    # Cells without weight are free to take any row; their loss is that of their records.
    empty = weight == 0
    share = np.where(empty[cell], 1 / np.bincount(cell)[cell], prior)
    share /= np.where(empty, 1.0, weight)[cell]
    members = (share, (cell, np.arange(problem.size)))
    mean = scipy.sparse.csr_array(members, shape=(cover.count, problem.size))
    with quiet_scale():
        return Problem(
            Domain.from_matrix(budgets, unit=problem.domain.unit),
            Outputs.labels(range(problem.outputs_count)),
            mean @ np.asarray(problem.loss),
            problem.epsilon,
            prior=weight / weight.sum(),
            loss_unit=problem.loss_unit,
        )


def violations(problem: Problem, cover: Cells, table: Table) -> float:
    """The share of the pairs of records for which a table with shared rows breaks epsilon-mDP by
    more than rounding."""
    rows = table.matrix[np.unique(cover.cell, return_index=True)[1]]
    # What is impossible is next to it: two rows that lack an output do not differ by it.
    logs = np.log(np.maximum(rows, np.finfo(np.float64).tiny))
    ratio = scipy.spatial.distance.cdist(logs, logs, "chebyshev") - LOG_ERROR
    stretch = problem.epsilon * (1 + problem.domain.metric.relative_error + 1e-14)
    blocks = problem.domain.blocks()
    broken = (ratio[cover.cell[x]][:, cover.cell] > stretch * apart for x, apart in blocks)
    return float(sum(map(np.count_nonzero, broken)) / (problem.size * (problem.size - 1)))


def _least(between: FloatArray) -> float:
    """The least distance of two cells."""
    return float(between[np.triu_indices(len(between), 1)].min())
