"""Fences: public zones whose records all report alike, so that any number of reports from inside
tells the zone at most and never a place in it.

A fence that is drawn round one person's home gives the home away by its shape: where reports stop,
or stop to vary, is a circle, and its middle is the home. Here fences are drawn once for everybody
(districts, cells of a public grid) before anybody's record is known. Distances within a zone become
0 and all others what is left of them,

    d_F(x, x') = the shortest way from x to x' where steps within a zone are free,

so a table that is epsilon-mDP for d_F is so for d as well (d_F <= d), and besides that all rows of
a zone are the same integers. Between a zone and the rest the guarantee is that of any other table.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import scipy

from panda_mdp.base.arrays import IntArray, RebuiltOnCopy, frozen
from panda_mdp.errors import DomainError
from panda_mdp.outputs import Outputs
from panda_mdp.prior import square_cells
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain
from panda_mdp.table.mechanism import Mechanism

LARGEST = 2_000
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
        nearest = np.full((count, count), np.inf)
        for rows, block in self.domain.blocks():
            np.minimum.at(nearest, (group[rows, None], group[None, :]), block)
        np.fill_diagonal(nearest, 0.0)
        ways = scipy.sparse.csgraph.shortest_path(nearest, method="FW", directed=False)
        # Symmetric to the last bit.
        lengths = 0.5 * (ways + ways.T) * (1 - SHORTER)
        vars(self).update(
            zones=frozen(zones.astype(np.int64)),
            group=frozen(group.astype(np.int64)),
            quotient=Domain.from_matrix(lengths, unit=self.domain.unit),
        )

    @classmethod
    def cells(cls, domain: Domain, side: float, *, fewest: int = 2) -> Fences:
        """The cells of a square grid of `side` (in the plane's unit) that hold `fewest` records or
        more; records of other cells stand alone. The grid is that of the plane, nobody's."""
        if not fewest >= 1:
            raise DomainError(f"fewest is {fewest!r}; a zone holds at least 1 record")
        cell = square_cells(domain, side)
        many = np.bincount(cell)[cell] >= fewest
        return cls(domain, np.where(many, cell, -1))

    def __repr__(self) -> str:
        fenced = int((self.zones >= 0).sum())
        return f"Fences({len(np.unique(self.zones[self.zones >= 0]))} zones, {fenced} records)"

    def fold(self, problem: Problem) -> Problem:
        """The problem over the zones: their prior, their mean losses under it; the same outputs."""
        if problem.domain.fingerprint != self.domain.fingerprint:
            raise DomainError(
                "the problem has another domain than the fences; draw fences on its own domain"
            )
        count = self.quotient.size
        prior = np.bincount(self.group, problem.prior, count)
        members = np.bincount(self.group, minlength=count)
        # Where nobody is expected every record of the zone counts alike.
        nobody = prior == 0
        share = np.where(nobody[self.group], 1.0, problem.prior)
        share = share / np.where(nobody, members, prior)[self.group]
        loss = np.zeros((count, problem.outputs_count))
        np.add.at(loss, self.group, share[:, None] * problem.loss)
        return Problem(
            self.quotient,
            Outputs.labels(f"{code}" for code in problem.outputs),
            loss,
            problem.epsilon,
            prior / prior.sum(),
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
        folded, given = self.fold(problem), mechanism.problem
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
