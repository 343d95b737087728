"""Records that share one row: public fences, and the LP over the cells of a grid (LP+CA).

A fence that is drawn round one person's home gives the home away by its shape: where reports stop,
or stop to vary, is a circle, and its middle is the home. Here fences are drawn once for everybody
(districts, cells of a public grid) before anybody's record is known. Distances within a zone become
0 and all others what is left of them,

    d_F(x, x') = the shortest way from x to x' where steps within a zone are free,

so a table that is epsilon-mDP for d_F is so for d as well (d_F <= d), and besides that all rows of
a zone are the same integers. Between a zone and the rest the guarantee is that of any other table.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray, RebuiltOnCopy, frozen, stopwatch
from panda_mdp.base.threads import current_clock
from panda_mdp.compute.pairs import LOG_ERROR
from panda_mdp.errors import DomainError, MethodError
from panda_mdp.methods.optimal.optimal import optimal
from panda_mdp.methods.optimal.program import middle, one_row
from panda_mdp.prior import square_cells
from panda_mdp.problem import Outputs, Problem, check_number, quiet_scale
from panda_mdp.space.domain import Domain
from panda_mdp.table.mechanism import Mechanism, NoGuarantee, Table, release

LARGEST = 4_000
"""Zones and records outside of them up to which all shortest ways are computed."""
SHORTER = 1e-12
"""Relative: sums along a way round up, and d_F must not exceed d."""


@dataclass(frozen=True, eq=False)
class Fences(RebuiltOnCopy):
    """Zones of a domain, the same for everybody: (K,) numbers, -1 for a record outside of all.

    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0], [5.0]])
    >>> fences = Fences(domain, [0, 0, 0, -1])
    >>> fences.quotient.distances().tolist()[0][1].__round__(6)
    3.0
    >>> problem = Problem(domain, [0, 1, 2, 3], domain.distances(), epsilon=1.0)
    >>> from panda_mdp import optimal
    >>> table = fences.unfold(optimal(fences.fold(problem)), problem)
    >>> table.audit.holds, bool((table.weights[0] == table.weights[2]).all())
    (True, True)
    """

    domain: Domain
    zones: IntArray
    group: IntArray = field(init=False)
    """The record of `quotient` that stands for each record: its zone, or itself, (K,)."""
    quotient: Domain = field(init=False)
    """The zones and the records outside of them under d_F."""

    def __post_init__(self) -> None:
        zones = np.asarray(self.zones)
        if zones.shape != (self.domain.size,) or zones.dtype.kind not in "iu":
            raise DomainError(
                f"zones have shape {zones.shape} and type {zones.dtype}; give one whole number per "
                f"record, ({self.domain.size},), -1 where a record is in none"
            )
        if zones.min() < -1:
            raise DomainError(
                f"zone {zones.min()} is negative; zones are 0, 1, ..., and -1 is none"
            )
        own = np.where(zones < 0, zones.max() + 1 + np.arange(len(zones)), zones)
        group = np.unique(own, return_inverse=True)[1].reshape(-1)
        count = int(group.max()) + 1
        if not 1 < count <= LARGEST:
            raise DomainError(
                f"there are {count:,} zones and records outside; fences take 2 to {LARGEST:,} of "
                "them: draw larger zones, or more than one"
            )
        vars(self).update(
            zones=frozen(zones.astype(np.int64)),
            group=frozen(group.astype(np.int64)),
            quotient=Domain.from_matrix(shortest_ways(self.domain, group), unit=self.domain.unit),
        )

    @classmethod
    def cells(cls, domain: Domain, side: float, *, fewest: int = 2) -> Fences:
        """The cells of a square grid of `side` (in the plane's unit) that hold `fewest` records or
        more; records of other cells stand alone. The grid is that of the plane, nobody's."""
        if not fewest >= 1:
            raise DomainError(f"fewest is {fewest!r}; a zone holds at least 1 record")
        cell = square_cells(domain, side)
        return cls(domain, np.where(np.bincount(cell)[cell] >= fewest, cell, -1))

    def __repr__(self) -> str:
        fenced = int((self.zones >= 0).sum())
        return f"Fences({len(np.unique(self.zones[self.zones >= 0]))} zones, {fenced} records)"

    def fold(self, problem: Problem) -> Problem:
        """The problem over the zones: their prior, their mean losses under it; the same outputs."""
        if problem.domain.fingerprint != self.domain.fingerprint:
            raise DomainError(
                "the problem has another domain than the fences; draw fences on its own domain"
            )
        group = self.group
        weight = np.bincount(group, problem.prior)
        # Where nobody is expected every record of the zone counts alike.
        nobody = weight == 0
        share = np.where(nobody[group], 1 / np.bincount(group)[group], problem.prior)
        share /= np.where(nobody, 1.0, weight)[group]
        members = (share, (group, np.arange(problem.size)))
        mean = scipy.sparse.csr_array(members, shape=(self.quotient.size, problem.size))
        with quiet_scale():
            return Problem(
                self.quotient,
                Outputs.labels(f"{code}" for code in problem.outputs),
                mean @ np.asarray(problem.loss),
                problem.epsilon,
                weight / weight.sum(),
                problem.loss_unit,
                problem.prior_source,
            )

    def unfold(self, mechanism: Mechanism, problem: Problem) -> Mechanism:
        """The table of `fold(problem)` for the records: every one has the row of its zone.

        Guarantee: epsilon-mDP for the domain's own distances, audited again over all pairs of
        records, and rows of a zone are equal. `details["fenced_bound"]` is the lower bound of the
        loss of tables with these fences; tables without them may have less, so it is no
        `lower_bound`.
        """
        folded = self.fold(problem)
        given = mechanism.problem
        if not (
            given.domain.fingerprint == folded.domain.fingerprint
            and given.epsilon == folded.epsilon
            and np.array_equal(given.loss, folded.loss)
            and np.array_equal(given.prior, folded.prior)
        ):
            raise DomainError(
                "this table is not one of fold(problem) of these fences; solve that, then unfold"
            )
        facts = {
            "fences": len(np.unique(self.zones[self.zones >= 0])),
            "fenced_bound": mechanism.lower_bound,
        }
        return Mechanism(
            problem=problem,
            weights=np.asarray(mechanism.weights)[self.group],
            method=f"{mechanism.method}, fenced",
            stages=mechanism.stages,
            details={**mechanism.details, **facts},
        )


def shortest_ways(domain: Domain, group: IntArray) -> FloatArray:
    """d_F between groups of records, numbered from 0: their least distances, closed under shortest
    paths, which least distances are not."""
    order = np.argsort(group, kind="stable")
    count = int(group.max()) + 1
    starts = np.searchsorted(group[order], np.arange(count))
    least = np.full((count, count), np.inf)
    for rows, distance in domain.blocks(order):
        np.minimum.at(least, group[rows], np.minimum.reduceat(distance, starts, axis=1))
    np.fill_diagonal(least, 0.0)
    # SciPy takes what is below 1e-8 for no edge at all; powers of two change no digit.
    unit = 2.0 ** np.floor(np.log2(least[least > 0].min()))
    ways = scipy.sparse.csgraph.floyd_warshall(least / unit, directed=False) * unit
    # Symmetric to the last bit.
    return 0.5 * (ways + ways.T) * (1 - SHORTER)


def coarse(
    problem: Problem, cells: int = 8, *, gap: float = 0.01, time_limit: float | None = None
) -> Mechanism:
    """Records of a cell share one row, and the LP runs over cells (the paper's LP+CA, made sound).

    The plane is cut into `cells` x `cells` equal rectangles over the records; domains that are
    not planar are cut into at most cells^2 clusters around records that are far apart. Cells are
    `Fences`: their problem, in which a shared row has its exact expected loss and cells are as far
    apart as the shortest way with free steps inside, is solved by `optimal` to `gap`; `time_limit`
    is in seconds.

    Guarantee: epsilon-mDP over all pairs of records, by audit. Within a cell rows are equal.

    `details["fenced_bound"]` bounds the LP over the cells; there is none on the problem's
    optimum. The paper's text says 8 x 8; its loss is that of the cell's representative where
    this one is the mean over the cell's records, which can only be better.

    >>> domain = Domain.from_vectors([[0.0, 0.0], [0.1, 0.0], [4.0, 1.0], [4.0, 0.9]])
    >>> problem = Problem(domain, [0, 2], domain.distances(None, [0, 2]), epsilon=1.0)
    >>> mechanism = coarse(problem, cells=2)
    >>> mechanism.details["cells"], bool((mechanism.matrix[0] == mechanism.matrix[1]).all())
    (2, True)
    """
    spent = stopwatch(current_clock())
    cell, between = grid_cells(problem.domain, cells)
    if len(between) == 1:
        return release(problem, one_row(problem), method="coarse", details={"cells": 1})
    fences = Fences(problem.domain, cell)
    drawn = spent("cells")
    left = None if time_limit is None else max(time_limit - drawn[0][1], 1e-3)
    table = fences.unfold(optimal(fences.fold(problem), gap, time_limit=left), problem)
    details = {**table.details, "cells": len(between)}
    return table.with_facts(method="coarse", stages=drawn + table.stages, details=details)


def coarse_unsound(
    problem: Problem, cells: int = 8, *, gap: float = 0.01, time_limit: float | None = None
) -> NoGuarantee:
    """The paper's LP+CA as it is written: cells are as far apart as their centres.

    Two records on either side of a border are then told apart far better than epsilon allows, so
    there is no guarantee; `details["violated_pairs"]` is the share of the pairs of records that
    break epsilon-mDP.
    """
    domain = problem.domain
    cell, between = grid_cells(domain, cells)
    centres = Domain.from_matrix(between, unit=domain.unit)
    with quiet_scale():
        folded = replace(Fences(domain, cell).fold(problem), domain=centres)
    solved = optimal(folded, gap, time_limit=time_limit)
    table = NoGuarantee(problem, np.asarray(solved.weights)[cell], "coarse, unsound")
    details = {**solved.details, "cells": len(between)}
    details["violated_pairs"] = violations(problem, cell, table)
    return table.with_facts(stages=solved.stages, details=details)


def grid_cells(domain: Domain, side: int) -> tuple[IntArray, FloatArray]:
    """The cell of each record on a side x side grid, those that hold records numbered from 0, and
    the distances of their centres; clusters where there is no plane."""
    check_number(side, "cells", "a whole number from 1, along a side", least=1, whole=True)
    plane = domain.plane
    if plane is None:
        return clusters(domain, int(side) ** 2)
    low = plane.min(axis=0)
    extent = np.ptp(plane, axis=0)
    step = np.where(extent > 0, extent, 1.0) / side
    index = np.minimum(((plane - low) / step).astype(np.int64), side - 1)
    used, cell = np.unique(index, axis=0, return_inverse=True)
    centres = used * step
    return cell.reshape(-1), scipy.spatial.distance.cdist(centres, centres)


def clusters(domain: Domain, count: int) -> tuple[IntArray, FloatArray]:
    """At most `count` clusters around records that are `spread_out`, in any metric: the cluster of
    each record, which joins the nearest, and the distances of their centres."""
    centres = spread_out(domain, min(count, domain.size))
    distance = domain.distances(None, centres)
    return distance.argmin(axis=1), distance[centres]


def spread_out(domain: Domain, count: int) -> IntArray:
    """`count` records that cover the domain, ascending: each is the farthest from those before.

    Starts at the record nearest to the middle. Deterministic, and within a factor 2 of the least
    covering radius that any `count` records have (Gonzalez 1985). Costs count x K distances.
    """
    check_count(domain, count)
    chosen = [middle(domain)]
    nearest = domain.distances(chosen)[0]
    while len(chosen) < count:
        chosen.append(int(nearest.argmax()))
        np.minimum(nearest, domain.distances(chosen[-1:])[0], out=nearest)
    return np.sort(np.array(chosen, dtype=np.int64))


def check_count(domain: Domain, count: int) -> None:
    """So many records can be named."""
    if not (isinstance(count, int | np.integer) and 1 <= count <= domain.size):
        raise MethodError(
            f"count is {count}; a domain of {domain.size} has 1 to {domain.size} candidates"
        )


def violations(problem: Problem, cell: IntArray, table: Table) -> float:
    """The share of the pairs of records for which a table with shared rows breaks epsilon-mDP by
    more than rounding."""
    rows = table.matrix[np.unique(cell, return_index=True)[1]]
    # What is impossible is next to it: two rows that lack an output do not differ by it.
    logs = np.log(np.maximum(rows, np.finfo(np.float64).tiny))
    ratio = scipy.spatial.distance.cdist(logs, logs, "chebyshev") - LOG_ERROR
    stretch = problem.epsilon * (1 + problem.domain.metric.relative_error + 1e-14)
    blocks = problem.domain.blocks()
    broken = (ratio[cell[x]][:, cell] > stretch * apart for x, apart in blocks)
    return float(sum(map(np.count_nonzero, broken)) / (problem.size * (problem.size - 1)))
