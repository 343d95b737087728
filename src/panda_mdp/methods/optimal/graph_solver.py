"""What the first-order solvers of all machines share for a program (program.py), and that of the
CPU's cores.

What tiles see at first follows from the losses alone, and a few records are always left out that
closing gives mass: there the table has to pay at the end, and nothing pushes against it in the
bound. A hundred such nodes among twelve thousand are worth a third of the iterations. They join
with their edges, and the iteration goes on with the multipliers that it has.

**Another objective** may be priced beside the loss: loss(z) + price v(z), v(z) = max over w (on a
simplex in every group) of <w, A z> (methods/second/objectives.py). This is a saddle point with one
more dual variable: the cost becomes p c + price A^T w, and w takes a projected ascent step after
each few primal ones. Any price >= 0 and any w give

    loss(z) + price v(z)  >=  min over private tables of  <p c + price b, z>,   <b, z> <= v(z),

whose right side is bounded from below as the loss is.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from functools import cached_property
from typing import Any

import numpy as np

from panda_mdp.base.arrays import AnyArray, BoolArray, FloatArray, IntArray, incidence
from panda_mdp.base.threads import in_parts
from panda_mdp.compute.closure import closure_of
from panda_mdp.methods.optimal.finish import Candidate, HostFinish
from panda_mdp.methods.optimal.halpern import (
    ALONG_EDGES,
    FEW_EDGES,
    PACE,
    ROW_PULL,
    ROWS_AT_ONCE,
    Float32Halpern,
    Halpern,
    root_scale,
)
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

MOST_KEPT = 1 << 18
"""Losses of a problem whose best multipliers are kept."""
TOGETHER = 4
"""Iterations between two steps of the weights: a step costs about half as much as one."""
FAINTEST = 1e-6
"""Of the steepest output: one that no record may report has no forms to move."""
WARM_WEIGHT = 0.3
"""Of the iterations that go on from multipliers."""
LEAST_BLOCK = 32
BLOCK_ENTRIES = 1 << 15
"""Entries of the table in a block, so that its edges stay in the cache."""
LEAST_BLOCKS = 16
SERIAL_MULTIPLIERS = 1 << 18
"""Up to this many one thread is done before several, on a busy machine, have met."""


class GraphSolver(Halpern):
    """Iterates on a problem's constraint graph, cut into tiles; what was reached is kept when pairs
    are constrained that were not, or tiles see more."""

    program: Program
    tiling: Tiling
    unit: float
    """Of the costs that are iterated on."""
    on_host = True
    """Whether arrays are NumPy's."""
    _kept: Lent | None = None
    """The multipliers of the best bound."""
    _best = -math.inf
    _goal: Any = None
    """The objective beside the loss; None for the loss alone."""
    _w: Any = None
    """Weights of its forms, which are `on` the nodes of `_on_nodes`."""
    _on_nodes: Program | None = None
    on: Any
    price = 0.0

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
        self.rescales = tuning.rescales
        self._begin(Tiling.whole(problem) if tiling is None else tiling, start)

    @property
    def tiled(self) -> bool:
        """Whether objectives are gains over the nodes of tiles, or on an accelerator."""
        return not (self.on_host and self.program.tiling.one)

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
    def least(self, added: Any = None) -> FloatArray:
        """The least reduced cost of every record over its nodes, where `added` costs so much more,
        rounding errors subtracted."""

    def bound(self, added: Any = None) -> float:
        """A rigorous lower bound on the true problem's optimum, where `added` costs so much more on
        the nodes, from the current multipliers."""
        inside = self.least(added)
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

    # An objective beside the loss.

    def aim(self, goal: Any, price: float) -> None:
        """Minimise loss + `price` v from here on."""
        with self._precisely():
            if self._goal is not goal:
                self._goal = goal
                self._take(goal)
                self._w = self.on.heaviest(self.on.forward(self.entries()))
            self.price = float(price)
            self._restart()

    def follow(self) -> None:
        """Take in the forms that matter for where the table is now."""
        with self._precisely():
            if self.tiled:
                forms = self.forms.paced(self.on.values(self.entries()))
            else:
                forms = self.forms.moved(self.matrix(), self._w)
            if forms is not self.forms:
                self._take(forms)
                self._restart()

    def _take(self, forms: Any) -> None:
        self.forms = forms
        known = self.tiled and self._on_nodes is self.program
        self.on = self.on.at(forms) if known else self._stored(forms.on(self.program, self.tiled))
        self._on_nodes = self.program
        share = self.on.shares()
        steep = self.on.steepness(self._entry_scale**2 / share[:, None])
        # As an array of the machine that iterates, which NumPy's functions would take it from.
        self._steep = steep.clip(FAINTEST * (float(steep.max()) or 1.0))
        self._stiffen(forms.stiffness * share)

    def _built(self) -> None:
        """Go on with the same forms on other nodes and edges."""
        if self._goal is not None:
            before = self.on
            self._take(self.forms)
            self._w = self.on.taken_over(before, self._w)
        self._restart()

    def _precisely(self) -> AbstractContextManager[Any]:
        """In which this machine's arrays have 64 bits."""
        return nullcontext()

    def _stored(self, forms: Any) -> Any:
        """Forms where the nodes are."""
        return forms

    @property
    @abstractmethod
    def _entry_scale(self) -> Any:
        """The scale of the table, on the nodes."""

    @abstractmethod
    def entries(self) -> Any:
        """The current table on the nodes."""

    @abstractmethod
    def _ahead(self, keep: float) -> Any:
        """Where the last iteration went, before it was drawn back to the anchor."""

    @abstractmethod
    def _charge(self, added: Any) -> None:
        """Iterate at the problem's cost, in its unit, and so much more."""

    @abstractmethod
    def _stiffen(self, added: Any) -> None:
        """Add to the degrees of nodes, of which steps are the shorter."""

    @abstractmethod
    def _run(self, steps: int, since: int) -> float:
        """`_iterate` at the present cost."""

    def _restart(self) -> None:
        super()._restart()
        self._w0 = self._w

    def _iterate(self, steps: int, since: int) -> float:
        if self._goal is None:
            return self._run(steps, since)
        moved, on, rate = 0.0, self.on, self.price / self.unit
        with self._precisely():
            for done in range(0, steps, TOGETHER):
                self._charge(rate * on.adjoint(self._w))
                count = min(TOGETHER, steps - done)
                moved = self._run(count, since + done)
                # With step 1 / (weight stiffness) of the table these are the largest that converge.
                step = self.weight * on.stiffness / (rate * self._steep)
                keep = (since + done + count) / (since + done + count + 1.0)
                new = on.onto(self._w + step * on.forward(self._ahead(keep)))
                if done + count == steps:
                    moved += float(((new - self._w) ** 2 * (rate / step)).sum())
                self._w = keep * (2 * new - self._w) + (1 - keep) * self._w0
        return moved

    @property
    def weights(self) -> Any:
        """Of the forms, on their simplexes."""
        return self.on.onto(self._w)

    def least_trade(self) -> float:
        """L with loss + price v >= L for every private table, rigorously."""
        # What rounds the product is within what `below` leaves, and the sum's within the kernel's.
        with self._precisely():
            return self.bound(self.price * self.on.below(self.weights))


class CpuSolver(GraphSolver, Float32Halpern):
    """Iterates in float32 with outputs contiguous (compute/numba/pdhg.py)."""

    block: int | None = None
    """Nodes that a thread takes at a time; `block_size` where None."""
    _plain: AnyArray | None = None
    """The costs without what an objective adds to them, where one does."""

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
        self._plain = None
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
        self._own_degree = self.degree
        self._connect(np.where(along < known, along, -1))
        self._built()

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

    def _run(self, steps: int, since: int) -> float:
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

    def least(self, added: AnyArray | None = None) -> FloatArray:
        from panda_mdp.compute.numba.pdhg import least_reduced_costs

        cost = self._cost64 if added is None else np.ascontiguousarray(self._cost64 + added)
        least, tables = np.empty(self.program.count), (cost, self._u, self._inverse)
        edges = (self.ends, *self.incident, self.growth_above)
        in_parts(least_reduced_costs, len(least), *tables, *edges, self.unit, least)
        return self.program.least_of_records(least)

    @property
    def _entry_scale(self) -> AnyArray:
        return self._scale

    def entries(self) -> AnyArray:
        return self._table()

    def _ahead(self, keep: float) -> AnyArray:
        return self._mid * self._scale

    def _charge(self, added: AnyArray) -> None:
        if self._plain is None:
            self._plain = self._cost.copy()
        np.add(self._plain, added, out=self._cost, casting="same_kind")

    def _stiffen(self, added: FloatArray) -> None:
        self.degree = self._own_degree + added

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
