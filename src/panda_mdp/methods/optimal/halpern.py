"""The structured first-order method: restarted, reflected Halpern PDHG.

Solves, over the edges of a constraint graph,

    min sum_x p_x c_xy z_xy   s.t.  sum_y z_xy = 1,  z >= 0,
                                    (z_iy, z_jy) in C_ij for every edge (i, j) and output y,

with C_ij = {a <= e^t b, b <= e^t a}, t = epsilon d(i, j). Each edge holds a copy of its two rows
and one dual vector in the polar cone, so both inequalities are projected on at once. The table is
scaled by the root of a guess, at first a closed form's and then the table's own
(compute/numba/pdhg.py); steps are diagonal (Pock and Chambolle 2011). The iteration is r2HPDHG (Lu
and Yang 2024), restarted on the fixed-point residual, with the primal weight balanced at restarts.
No matrix is formed; float32 throughout: what is certified is computed in float64 from whatever the
iterates are.

**Lending.** h_xy, the reduced cost of output y for record x, lies above the least of its record for
most y. That part of it can be lent: in equal shares to all neighbours, by lowering what they lend
first, and by lending them then. No least falls and many rise, so the bound does. Along few edges,
where multipliers have to travel through many of them, a few rounds of it before every bound, from
which the iteration goes on, save half of the iterations.

`Halpern` holds the method, `GraphSolver` what all machines share for a program (program.py);
`cpu_solver` and `jax_solver` hold the arrays.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np

from panda_mdp.base.arrays import AnyArray, FloatArray, IntArray
from panda_mdp.methods.optimal.program import (
    TILING,
    Graph,
    Program,
    Tiling,
    TilingTuning,
    both_ways,
)
from panda_mdp.problem import Problem
from panda_mdp.table.bound import UNIT_ROUNDOFF, Multipliers, Proved, growth, total_from_below

CHECK = 40
ROW_PULL = 5.0
WARM_WEIGHT = 0.3
"""Of the iterations that go on from multipliers."""
SMALLEST = 3e-3
"""Entries below this share of a row are scaled alike: they carry little of the loss."""
SCALE_ANEW = 40
"""Iterations after which the scale follows the table, and then whenever they have doubled: it is
far nearer to the end by then than any first guess."""
MOST_KEPT = 1 << 18
"""Losses of a problem whose best multipliers are kept."""
SUFFICIENT = 0.2
NECESSARY = 0.8
ARTIFICIAL = 0.36


class Pace(NamedTuple):
    """How far multipliers go at a time."""

    start_weight: float = 1.0
    """Of the first iterations."""
    most_weight: float = 30.0
    """Where the primal has come to rest its travel is rounding alone; a weight that follows it
    without limit (thousands were seen) drowns the multipliers in rounding."""
    lending: int = 0
    """Rounds of lending before a bound."""


PACE = Pace()
ALONG_EDGES = Pace(10.0, 25.0, 10)
"""Where few edges alone are constrained: multipliers have to travel through all of them and
become larger than where many pairs share them."""
FEW_EDGES = 3
"""For each record: no graph in a plane has more, and those of some nodes of a map have many."""


class Halpern(ABC):
    """The iteration, its restarts and its weight; a machine makes the steps."""

    def __init__(self, pace: Pace = PACE) -> None:
        self.pace = pace
        self.weight = pace.start_weight
        self.iterations = 0
        self.residual = math.inf
        self._scale_anew = SCALE_ANEW

    @abstractmethod
    def _anchor(self) -> None:
        """Make the current point the anchor of the Halpern iteration."""

    @abstractmethod
    def _iterate(self, steps: int, since: int) -> float:
        """Make `steps` iterations, `since` after the anchor; the squared residual of the last."""

    @abstractmethod
    def _rescale(self) -> None:
        """Scale by the root of the current table; a restart follows."""

    @abstractmethod
    def _travel(self) -> tuple[float, float]:
        """Step-weighted squared distances of primal and dual from the anchor."""

    def _restart(self) -> None:
        self._anchor()
        self._since = 0
        self._first: float | None = None
        self._last: float | None = None

    def advance(self, iterations: int) -> None:
        """At least `iterations` more iterations, in blocks of a few dozen."""
        target = self.iterations + iterations
        while self.iterations < target:
            self._block()

    def _block(self) -> None:
        residual = self.residual = math.sqrt(self._iterate(CHECK, self._since))
        self.iterations += CHECK
        self._since += CHECK
        if self._first is None:
            self._first = residual
        stalled = self._last is not None and residual > self._last
        if (
            residual <= SUFFICIENT * self._first
            or (residual <= NECESSARY * self._first and stalled)
            or self._since >= ARTIFICIAL * self.iterations
        ):
            self._renew()
        else:
            self._last = residual

    def _renew(self) -> None:
        """Balance, scale anew where it is time, and restart."""
        self._balance()
        if self.iterations >= self._scale_anew:
            self._rescale()
            self._scale_anew = 2 * self.iterations
        self._restart()

    def _balance(self) -> None:
        """Move the primal weight towards equal travel of primal and dual since the restart."""
        primal, dual = self._travel()
        if primal > 1e-24 and dual > 1e-24:
            weight = math.sqrt(self.weight * math.sqrt(dual / primal))
            most = self.pace.most_weight
            self.weight = min(max(weight, 1 / most), most)


class Lent(NamedTuple):
    """Multipliers of edges between nodes."""

    program: Program
    ends: IntArray
    """(E, 2) nodes."""
    above: FloatArray
    """(E,) upper bounds on exp(epsilon d)."""
    sides: tuple[AnyArray, AnyArray]
    """(E, width) each: of z_i <= g z_j and of z_j <= g z_i, scaled as the table is."""
    inverse: AnyArray
    """(nodes, width): one over that scale."""
    unit: float
    """Of the costs that they are for."""

    @property
    def multipliers(self) -> Multipliers:
        """In the form that a file holds, read off as its kernel does where both sides have their
        sign; of outputs that a tile has twice the first."""
        program, ends, above, sides, inverse, unit = self
        first = ~program.tiling.again[program.tile[ends[:, 0]]]
        found = []
        for side in range(2):
            own = sides[side]
            other = sides[1 - side]
            edge, column = np.nonzero((own > 0) & (other < 0) & first)
            near = ends[edge, side]
            far = ends[edge, 1 - side]
            up = own[edge, column].astype(float) * inverse[near, column]
            down = other[edge, column].astype(float) * inverse[far, column]
            value = unit * np.minimum(up, -down / above[edge])
            output = program.tiling.tiles[program.tile[near], column]
            sound = np.isfinite(value)
            found.append((edge[sound] + side * len(ends), output[sound], value[sound]))
        owner, outputs, values = map(np.concatenate, zip(*found, strict=True))
        return Multipliers.listed(both_ways(program.record[ends]), owner, outputs, values)


class GraphSolver(Halpern):
    """Iterates on a problem's constraint graph, cut into tiles; what was reached is kept when pairs
    are constrained that were not, or tiles see more."""

    def __init__(
        self,
        problem: Problem,
        graph: Graph,
        start: FloatArray | None,
        tiling: Tiling | None = None,
        tuning: TilingTuning = TILING,
    ) -> None:
        along = problem.domain.metric.generating_pairs is not None
        super().__init__(ALONG_EDGES if along and graph.count <= FEW_EDGES * problem.size else PACE)
        self.problem = problem
        self.graph = graph
        self.tuning = tuning
        self._best = -math.inf
        self._kept = None
        self._begin(Tiling.whole(problem) if tiling is None else tiling, start)

    tiling: Tiling
    unit: float
    """Of the costs that are iterated on."""
    _kept: Lent | None
    """The multipliers of the best bound."""

    @property
    @abstractmethod
    def finish(self) -> Any:
        """What makes sparse tables of these (finish.py)."""

    @abstractmethod
    def _begin(self, tiling: Tiling, start: FloatArray | None) -> None:
        """Build the arrays of a tiling, from a table K x m or a start of its own."""

    def extend(self, graph: Graph) -> None:
        """Constrain further pairs, in every tile that sees both ends."""
        self.graph = self.graph.join(graph.ends, graph.length)
        self._join(graph)

    @abstractmethod
    def _join(self, graph: Graph) -> None:
        """Iterate on these edges of records as well."""

    @abstractmethod
    def _widen(self) -> None:
        """Let tiles see farther, and go on from the current table."""

    def grow(self, candidate: Any) -> None:
        """See what the current table, `candidate` as a sparse one's, lacks, where that is done."""

    @abstractmethod
    def matrix(self) -> FloatArray:
        """The current table, K x m: non-negative, rows near 1, nearly feasible; 0 outside tiles."""

    def table(self) -> Any:
        """`matrix` as the closure of dense tables on the same machine takes it."""
        return self.matrix()

    @abstractmethod
    def _lend(self) -> None:
        """`pace.lending` rounds of lending, in place."""

    @abstractmethod
    def least(self) -> FloatArray:
        """The least reduced cost of every record over its nodes, rounding errors subtracted."""

    def bound(self) -> float:
        """A rigorous lower bound on the true problem's optimum from the current multipliers, which
        lend first what they can."""
        if self.pace.lending:
            self._renew()
            self._lend()
            self._restart()
        inside = self.least()
        outside = self.tiling.outside * (1 - 2 * UNIT_ROUNDOFF)
        bound = total_from_below(np.minimum(inside, outside))
        if bound > self._best:
            self._best = bound
            # Later multipliers may prove less. Of large problems they are not kept.
            self._kept = self.lent() if self.problem.loss.size <= MOST_KEPT else None
        # Where plain costs outside are the least, seeing more would raise the bound.
        limited = float(np.maximum(inside - outside, 0.0).sum())
        if limited > self.tuning.limited * abs(bound) and self.tiling.nats < self.tuning.most_nats:
            self._widen()
        return bound

    @abstractmethod
    def lent(self) -> Lent:
        """The current multipliers, on the host and to be kept."""

    def take_over(self, multipliers: Multipliers, epsilon: float) -> None:
        """Go on from the multipliers of a solve at `epsilon`, where that is done."""

    def proof(self) -> Proved:
        """What the best `bound` rests on, or of large problems the present multipliers."""
        return Proved(self.problem, (self._kept or self.lent()).multipliers)


def growths(problem: Problem, length: FloatArray) -> tuple[FloatArray, FloatArray]:
    """exp(epsilon d) of edges, and upper bounds on it: a looser constraint keeps a lower bound
    rigorous."""
    above = growth(problem.epsilon, length, problem.domain.metric.relative_error)
    return np.exp(problem.epsilon * length), above


def root_scale(z: AnyArray) -> AnyArray:
    """The scale D of a table: its root over a floor, of mean 1."""
    scale = np.sqrt(np.maximum(z, np.asarray(SMALLEST, dtype=z.dtype)))
    return scale / scale.mean()
