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

`Halpern` holds the method, `GraphSolver` what all machines share for a program (program.py);
`CpuSolver` has the arrays of compiled loops over nodes and edges on all cores, `jax_solver.py`
those on accelerators.

What tiles see at first follows from the losses alone (program.py), and a few records are always
left out that closing gives mass: there the table has to pay at the end, and nothing pushes against
it in the bound. A hundred such nodes among twelve thousand are worth a third of the iterations.
They join with their edges, and the iteration goes on with the multipliers that it has.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from copy import copy
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from panda_mdp.base.arrays import (
    AnyArray,
    BoolArray,
    Float32Array,
    FloatArray,
    IntArray,
    incidence,
)
from panda_mdp.base.threads import in_parts
from panda_mdp.compute.closure import closure_of
from panda_mdp.methods.optimal.finish import Candidate, HostFinish
from panda_mdp.methods.optimal.program import (
    TILING,
    WIDER,
    Graph,
    Lent,
    Program,
    Tiling,
    TilingTuning,
    growths,
)
from panda_mdp.problem import Problem
from panda_mdp.table.bound import UNIT_ROUNDOFF, Multipliers, Proved, total_from_below

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


PACE = Pace()
ALONG_EDGES = Pace(10.0, 60.0)
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
            self._balance()
            if self.iterations >= self._scale_anew:
                self._rescale()
                self._scale_anew = 2 * self.iterations
            self._restart()
        else:
            self._last = residual

    def _balance(self) -> None:
        """Move the primal weight towards equal travel of primal and dual since the restart."""
        primal, dual = self._travel()
        if primal > 1e-24 and dual > 1e-24:
            weight = math.sqrt(self.weight * math.sqrt(dual / primal))
            most = self.pace.most_weight
            self.weight = min(max(weight, 1 / most), most)


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
    def least(self) -> FloatArray:
        """The least reduced cost of every record over its nodes, rounding errors subtracted."""

    def bound(self) -> float:
        """A rigorous lower bound on the true problem's optimum from the current multipliers."""
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


def root_scale(z: AnyArray) -> AnyArray:
    """The scale D of a table: its root over a floor, of mean 1."""
    scale = np.sqrt(np.maximum(z, np.asarray(SMALLEST, dtype=z.dtype)))
    return scale / scale.mean()


LEAST_BLOCK = 32
BLOCK_ENTRIES = 1 << 15
"""Entries of the table in a block, so that its edges stay in the cache."""
LEAST_BLOCKS = 16
FAINTEST = 1e-24
ROWS_AT_ONCE = 64
SERIAL_MULTIPLIERS = 1 << 18
"""Up to this many one thread is done before several, on a busy machine, have met."""


class Float32Halpern(Halpern):
    """What solvers with compiled loops share: arrays in float32, outputs contiguous."""

    degree: AnyArray
    unit: float
    _row_sums: FloatArray
    """The scale's sums by record."""
    _parts: tuple[IntArray, IntArray, IntArray]
    """The row of every node, and the nodes of every row: offsets and nodes."""

    def _place(self, cost: FloatArray, scale: FloatArray, z: FloatArray) -> None:
        """Take over p c, the scale D and the table to start from."""
        # Costs of order 1 make one starting weight fit all problems.
        self.unit = float(cost.mean()) or 1.0
        self._cost = np.ascontiguousarray(cost / self.unit, dtype=np.float32)
        self._scale = np.ascontiguousarray(scale, dtype=np.float32)
        self._x = np.ascontiguousarray(z / scale, dtype=np.float32)
        self._mu = np.zeros(len(self._row_sums), np.float32)
        self._u = np.zeros((0, 2, z.shape[1]), np.float32)
        self._x0, self._mu0, self._u0 = self._x.copy(), self._mu.copy(), self._u.copy()
        self._mid, self._adjoint = np.empty_like(self._x), np.zeros_like(self._x)

    def _nodes(self) -> Any:
        """What the compiled loops read of nodes and rows, at the present weight."""
        from panda_mdp.compute.numba.pdhg import Nodes

        return Nodes(
            self._cost,
            self._scale,
            *self._parts,
            (self.weight * self.degree).astype(np.float32),
            (self.weight * ROW_PULL / self._row_sums).astype(np.float32),
        )

    def _anchor(self) -> None:
        # Entries that come to rest at 0 shrink a millionfold with every restart, and numbers too
        # small for float32's exponent make the loops several times slower.
        self._x[np.abs(self._x) < FAINTEST] = 0
        # In place where it can be: fresh pages for the largest arrays cost as much as copying.
        self._x0[...], self._mu0[...] = self._x, self._mu
        if self._u0.shape != self._u.shape:
            self._u0 = np.empty_like(self._u)
        self._u0[...] = self._u

    def _travel(self) -> tuple[float, float]:
        step = self._x - self._x0
        stiff = self.degree[:, None] + ROW_PULL * self._scale
        rise = (self._mu - self._mu0).astype(float)
        row = float(rise**2 @ self._row_sums) / ROW_PULL
        primal = float(np.einsum("ij,ij,ij->", step, step, stiff))
        return primal, squared_distance(self._u, self._u0) + row

    def _table(self) -> AnyArray:
        """The current table on the nodes."""
        return np.maximum(self._x, 0) * self._scale


class CpuSolver(GraphSolver, Float32Halpern):
    """Iterates in float32 with outputs contiguous (compute/numba/pdhg.py)."""

    block: int | None = None
    """Nodes that a thread takes at a time; `block_size` where None."""

    def _begin(self, tiling: Tiling, start: FloatArray | None) -> None:
        program = Program(self.problem, tiling)
        self._build(program, program.start(start))

    def _build(self, program: Program, z: FloatArray) -> None:
        self.program = program
        self.tiling = program.tiling
        self._parts = program.row, *incidence(program.row, self.problem.size)
        self._cost64 = program.costs
        scale = np.ascontiguousarray(root_scale(z))
        self._row_sums = np.bincount(program.row, scale.sum(axis=1)).astype(float)
        self._place(self._cost64, scale, z)
        self._inverse = 1 / self._scale
        self._rows_at_once = self.block or block_size(*z.shape)
        self.ends = np.empty((0, 2), np.int64)
        self.length = np.empty(0)
        self._join(self.graph)

    def _join(self, graph: Graph) -> None:
        known = len(self.ends)
        more = self.program.node_graph(graph)
        ends = np.concatenate([self.ends, more.ends])
        # Two sorted lists behind each other: merged, not sorted.
        along = np.argsort(ends[:, 0] * self.program.count + ends[:, 1], kind="stable")
        self.ends = np.ascontiguousarray(ends[along])
        self.length = np.concatenate([self.length, more.length])[along]
        self.growth, self.growth_above = growths(self.problem, self.length)
        vars(self).pop("incident", None)
        self.degree = np.bincount(self.ends.ravel(), minlength=self.program.count)
        self._connect(np.where(along < known, along, -1))
        self._restart()

    def _connect(self, source: IntArray) -> None:
        """Edge e continues old edge source[e], or none where that is -1."""
        from panda_mdp.compute.numba.pdhg import Edges

        # A restart follows: with the old anchor beside them old and new would be the largest.
        self._u0 = np.empty((0, 2, self._x.shape[1]), np.float32)
        u = np.zeros((len(source), 2, self._x.shape[1]), dtype=np.float32)
        u[source >= 0] = self._u[source[source >= 0]]
        self._u = u
        self._heard = False
        block = self.ends // self._rows_at_once
        inside = np.flatnonzero(block[:, 0] == block[:, 1])
        blocks = -(-len(self._x) // self._rows_at_once)
        across = np.flatnonzero(block[:, 0] != block[:, 1])
        start, slot = incidence(self.ends[across], len(self._x))
        self._edges = Edges(
            self.ends,
            self.growth.astype(np.float32),
            inside,
            # Edges are sorted by their first end.
            np.searchsorted(block[inside, 0], np.arange(blocks + 1)),
            across,
            start,
            2 * across[slot >> 1] + (slot & 1),
        )

    @cached_property
    def incident(self) -> tuple[IntArray, IntArray]:
        """The edges of every node: `incidence`."""
        return incidence(self.ends, self.program.count)

    def _rescale(self) -> None:
        scale = root_scale(self._table())
        change = scale * self._inverse
        for begin in range(0, len(self._u), ROWS_AT_ONCE):
            rows = slice(begin, begin + ROWS_AT_ONCE)
            self._u[rows] *= change[self.ends[rows]]
        np.divide(self._x, change, out=self._x)
        self._scale = scale
        self._inverse = 1 / scale
        sums = scale.sum(axis=1, dtype=float)
        self._row_sums = np.bincount(self.program.row, sums).astype(float)
        self._heard = False

    def _iterate(self, steps: int, since: int) -> float:
        import numba

        from panda_mdp.compute.numba.pdhg import Point, run

        moved = np.zeros(3)
        threads = numba.get_num_threads()
        numba.set_num_threads(1 if self._u.size <= SERIAL_MULTIPLIERS else threads)
        try:
            run(
                steps,
                since,
                self._rows_at_once,
                Point(self._x, self._mu, self._u),
                Point(self._x0, self._mu0, self._u0),
                self._mid,
                self._adjoint,
                self._heard,
                self._nodes(),
                self._edges,
                np.float32(self.weight),
                np.float32(self.weight * ROW_PULL),
                moved,
            )
        finally:
            numba.set_num_threads(threads)
        self._heard = True
        return float(moved.sum())

    def matrix(self) -> FloatArray:
        return self.program.whole(self._table())

    def grouped(self) -> tuple[BoolArray, FloatArray, float]:
        """Which records, by place in space, tiles see; the current table on those nodes, every
        output of a tile once, and its loss."""
        program = self.program
        tiling = self.tiling
        z = self._table().astype(float)
        loss = float((z * self._cost64).sum())
        for tile, k in np.argwhere(tiling.again).tolist():
            here = program.tile == tile
            z[here, tiling.fold[tile, k]] += z[here, k]
        return tiling.sees[:, self.problem.domain.tiles.order], z, loss

    def least(self) -> FloatArray:
        from panda_mdp.compute.numba.pdhg import least_reduced_costs

        least, tables = np.empty(self.program.count), (self._cost64, self._u, self._inverse)
        edges = (self.ends, *self.incident, self.growth_above)
        in_parts(least_reduced_costs, len(least), *tables, *edges, self.unit, least)
        return self.program.least_of_records(least)

    def lent(self) -> Lent:
        sides = (self._u[:, 0].copy(), self._u[:, 1].copy())
        return Lent(self.program, self.ends, self.growth_above, sides, self._inverse, self.unit)

    def take_over(self, multipliers: Multipliers, epsilon: float) -> None:
        count = self.program.count
        place = np.empty((2, self.problem.outputs_count), np.int64)
        first = np.nonzero(~self.tiling.again)
        place[:, self.tiling.tiles[first]] = first
        tile, column = place[:, multipliers.columns]
        near, far = self.program.node[tile, multipliers.pairs[multipliers.owner].T]
        low = np.minimum(near, far)
        high = np.maximum(near, far)
        keys = self.ends[:, 0] * count + self.ends[:, 1]
        wanted = low * count + high
        edge = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        known = np.flatnonzero((low >= 0) & (keys[edge] == wanted))
        edge, near, far, column = (part[known] for part in (edge, near, far, column))
        value = multipliers.values[known] / self.unit
        side = (near > far).astype(np.int64)
        # What each record felt of an edge then, under another epsilon too.
        before = total_from_below(self.least())
        with np.errstate(over="ignore", invalid="ignore"):
            lent = np.exp(epsilon * self.length[edge]) * value * self._scale[far, column]
            np.add.at(self._u, (edge, side, column), value * self._scale[near, column])
            np.subtract.at(self._u, (edge, 1 - side, column), lent)
            least = self.least()
        if not total_from_below(least) > before:
            # Of records elsewhere, or of losses in another unit: without any it is nearer.
            self._u[...] = 0
            return
        self._mu[...] = least[self.problem.domain.tiles.order] / self.unit
        self._heard = False
        self.weight = WARM_WEIGHT
        self._restart()

    # Tiles that see more.

    @cached_property
    def finish(self) -> HostFinish:
        """What makes sparse tables of these, and says which nodes they lack."""
        return HostFinish(self.problem, closure_of(self.problem.domain))

    def grow(self, candidate: Candidate | None) -> None:
        """See the nodes outside that closing the current table, `candidate` if it was made, gives
        mass."""
        if self.tiling.one:
            return
        if candidate is None:
            candidate = self.finish.candidate(self)
            self.finish.estimate(candidate)
        tile, record = self.finish.raised(candidate, self.tiling.sees)
        if len(tile):
            sees = self.tiling.sees.copy()
            sees[tile, record] = True
            self._see(sees, self.tiling.nats)

    def _widen(self) -> None:
        nats = WIDER * self.tiling.nats
        self._see(Tiling.reaching(self.problem, self.graph, nats).sees | self.tiling.sees, nats)

    def _see(self, sees: BoolArray, nats: float) -> None:
        """Go on with tiles that see all that they saw, and more."""
        before = copy(self)
        program = Program(self.problem, self.tiling.seeing(self.problem, sees, nats))
        nodes = program.node[self.program.tile, self.program.record]
        z = np.zeros((program.count, self._x.shape[1]))
        z[nodes] = self._table()
        # What only the next iteration would need makes room.
        before._x0 = before._mid = before._adjoint = np.empty((0, 0), np.float32)
        before._u0 = np.empty((0, 0, 0), np.float32)
        self._build(program, z)
        moved = nodes[before.ends]
        # Edges are sorted by their ends, and nodes keep their order.
        at = np.searchsorted(
            self.ends[:, 0] * program.count + self.ends[:, 1],
            moved[:, 0] * program.count + moved[:, 1],
        )
        unit = np.float32(before.unit / self.unit)
        for begin in range(0, len(at), ROWS_AT_ONCE):
            here = at[begin : begin + ROWS_AT_ONCE]
            there = slice(begin, begin + ROWS_AT_ONCE)
            change = self._scale[self.ends[here]] * before._inverse[before.ends[there]]
            self._u[here] = unit * before._u[there] * change
        self._mu[...] = unit * before._mu
        self._restart()


def block_size(nodes: int, width: int) -> int:
    """Nodes that a thread takes at a time: many, so that few edges lie between blocks, but not
    more than fit the cache, nor so many that threads run out of blocks.

    Sums are taken block by block, so this must not depend on how many threads there are.
    """
    return max(LEAST_BLOCK, min(BLOCK_ENTRIES // width, nodes // LEAST_BLOCKS))


def squared_distance(first: Float32Array, second: Float32Array) -> float:
    """Squared distance of two large float32 arrays, summed in float64 without a full copy."""
    parts = (slice(k, k + ROWS_AT_ONCE) for k in range(0, len(first), ROWS_AT_ONCE))
    # Not as a product of vectors: BLAS sums in an order that depends on its threads.
    squares = (np.square(first[rows] - second[rows]) for rows in parts)
    return sum(float(square.sum(dtype=float)) for square in squares)
