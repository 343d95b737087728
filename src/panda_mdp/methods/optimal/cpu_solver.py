"""The first-order method on the CPU: compiled loops over records and edges, all cores."""

from __future__ import annotations

import numba
import numpy as np

from panda_mdp.base.arrays import Float32Array, FloatArray, IntArray
from panda_mdp.compute.numba.bound import least_reduced_costs
from panda_mdp.compute.numba.pdhg import run
from panda_mdp.methods.optimal.dual import proof_of, total_from_below
from panda_mdp.methods.optimal.graph import Graph
from panda_mdp.methods.optimal.halpern import ROW_PULL, Halpern, incidence, root_scale
from panda_mdp.problem import Problem
from panda_mdp.table.bound import BoundProof

LEAST_BLOCK = 32
BLOCK_ENTRIES = 1 << 15
"""Entries of the table in a block, so that its edges stay in the cache."""

LEAST_BLOCKS = 16
FAINTEST = 1e-24
READ_MULTIPLIERS = 1 << 22
"""Multipliers of a graph among which those of a proof are looked for."""
ROWS_AT_ONCE = 64
SERIAL_MULTIPLIERS = 1 << 18
"""Up to this many one thread is done before several, on a busy machine, have met."""


class Float32Halpern(Halpern):
    """What solvers with compiled loops share: arrays in float32, outputs contiguous."""

    _row_sums: FloatArray
    """The scale's sums by record."""

    def _begin(self, cost: FloatArray, scale: FloatArray, z: FloatArray) -> None:
        self._cost = np.ascontiguousarray(cost / self.unit, dtype=np.float32)
        self._scale = np.ascontiguousarray(scale, dtype=np.float32)
        self._x = np.ascontiguousarray(z / scale, dtype=np.float32)
        self._mu = np.zeros(len(self._row_sums), dtype=np.float32)
        self._u = np.zeros((0, 2, z.shape[1]), dtype=np.float32)
        self._x0, self._mu0, self._u0 = self._x.copy(), self._mu.copy(), self._u.copy()
        self._mid = np.empty_like(self._x)

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
        rise = (self._mu - self._mu0).astype(np.float64)
        row = float(rise**2 @ self._row_sums) / ROW_PULL
        primal = float(np.einsum("ij,ij,ij->", step, step, stiff))
        return primal, squared_distance(self._u, self._u0) + row


class CpuSolver(Float32Halpern):
    """Iterates in float32 with outputs contiguous (compute/numba/pdhg.py).

    Where records are cut into nodes (lifted.py), `owner` is the record of every node.
    """

    def __init__(
        self, problem: Problem, graph: Graph, start: FloatArray, owner: IntArray | None = None
    ) -> None:
        self._owner = np.arange(problem.size) if owner is None else owner
        self._part = np.argsort(self._owner, kind="stable")
        self._part_start = np.concatenate([[0], np.cumsum(np.bincount(self._owner))])
        super().__init__(problem, graph, start)

    def _begin(self, cost: FloatArray, scale: FloatArray, z: FloatArray) -> None:
        self._cost64 = cost
        self._row_sums = np.bincount(self._owner, self.scale_sums).astype(np.float64)
        super()._begin(cost, scale, z)
        self._inverse = 1 / self._scale
        self._adjoint = np.empty_like(self._x)
        self._records_at_once = block_size(len(z), z.shape[1])

    def _rescale(self) -> None:
        z = np.maximum(self._x, 0) * self._scale
        scale = root_scale(z)
        change = scale * self._inverse
        for begin in range(0, len(self._u), ROWS_AT_ONCE):
            rows = slice(begin, begin + ROWS_AT_ONCE)
            self._u[rows] *= change[self.ends[rows]]
        np.divide(self._x, change, out=self._x)
        self._scale, self._inverse = scale, 1 / scale
        self.scale_sums = scale.sum(axis=1, dtype=np.float64)
        self._row_sums = np.bincount(self._owner, self.scale_sums).astype(np.float64)
        self._heard = False

    def forget_anchor(self) -> None:
        """Free what only the next iteration would need, the table and the multipliers stay."""
        self._x0 = self._mid = self._adjoint = np.empty((0, 0), dtype=np.float32)
        self._u0 = np.empty((0, 0, 0), dtype=np.float32)

    def carry_on(self, before: CpuSolver, rows: IntArray) -> None:
        """Go on from where `before` was: its row i is row rows[i] here, its edges are some of those
        here."""
        size = self.problem.size
        moved = rows[before.ends]
        # Edges are sorted by their ends, and rows keep their order.
        at = np.searchsorted(
            self.ends[:, 0] * size + self.ends[:, 1], moved[:, 0] * size + moved[:, 1]
        )
        unit = np.float32(before.unit / self.unit)
        for begin in range(0, len(at), ROWS_AT_ONCE):
            here, there = at[begin : begin + ROWS_AT_ONCE], slice(begin, begin + ROWS_AT_ONCE)
            change = self._scale[self.ends[here]] * before._inverse[before.ends[there]]
            self._u[here] = unit * before._u[there] * change
        self._mu[...] = unit * before._mu
        self.weight, self.iterations = before.weight, before.iterations
        self._scale_anew, self._heard = before._scale_anew, False
        self._restart()

    def _connect(self, source: IntArray) -> None:
        # A restart follows: with the old anchor beside them old and new would be the largest.
        self._u0 = np.empty((0, 2, self._x.shape[1]), dtype=np.float32)
        u = np.zeros((len(source), 2, self._x.shape[1]), dtype=np.float32)
        u[source >= 0] = self._u[source[source >= 0]]
        self._u, self._heard = u, False
        self._growth = self.growth.astype(np.float32)
        block = self.ends // self._records_at_once
        self._inside = np.flatnonzero(block[:, 0] == block[:, 1])
        blocks = -(-len(self._x) // self._records_at_once)
        # Edges are sorted by their first end.
        self._inside_start = np.searchsorted(block[self._inside, 0], np.arange(blocks + 1))
        self._across = np.flatnonzero(block[:, 0] != block[:, 1])
        self._across_start, slot = incidence(self.ends[self._across], len(self._x))
        self._across_slot = 2 * self._across[slot >> 1] + (slot & 1)

    def _iterate(self, steps: int, since: int) -> float:
        moved = np.zeros(3)
        threads = numba.get_num_threads()
        numba.set_num_threads(1 if self._u.size <= SERIAL_MULTIPLIERS else threads)
        try:
            run(
                steps,
                since,
                self._records_at_once,
                self._x,
                self._x0,
                self._mid,
                self._adjoint,
                self._heard,
                self._mu,
                self._mu0,
                self._u,
                self._u0,
                self._cost,
                self._scale,
                self.ends,
                self._inside,
                self._inside_start,
                self._across,
                self._across_start,
                self._across_slot,
                self._growth,
                self._owner,
                self._part_start,
                self._part,
                (self.weight * self.degree).astype(np.float32),
                np.float32(self.weight),
                np.float32(self.weight * ROW_PULL),
                (self.weight * ROW_PULL / self._row_sums).astype(np.float32),
                moved,
            )
        finally:
            numba.set_num_threads(threads)
        self._heard = True
        return float(moved.sum())

    def matrix(self) -> FloatArray:
        """The current table in the domain's order: non-negative, rows near 1, nearly feasible."""
        z = np.maximum(self._x, 0) * self._scale
        return z[self.place].astype(np.float64)

    def bound(self) -> float:
        """A rigorous lower bound on the true problem's optimum from the current multipliers."""
        return total_from_below(self.least())

    def least(self) -> FloatArray:
        """The least reduced cost of every row, rounding errors subtracted."""
        return np.asarray(
            least_reduced_costs(
                self._cost64,
                self._u,
                self._inverse,
                self.ends,
                *self.incident,
                self.growth_above,
                self.unit,
            )
        )

    def proof(self) -> BoundProof | None:
        """The multipliers of `bound`, read off as its kernel does."""
        if 2 * self._u[:, 0].size > READ_MULTIPLIERS:
            return None
        sides = self._u.astype(np.float64) * self._inverse[self.ends]
        first, second = sides[:, 0], sides[:, 1]
        growth = self.growth_above[:, None]
        read = [np.minimum(first, -second / growth), np.minimum(second, -first / growth)]
        # No number counts as none.
        multipliers = self.unit * np.stack([np.fmax(0.0, side) for side in read])
        return proof_of(self.problem, self.graph, multipliers)


def block_size(records: int, outputs: int) -> int:
    """Records that a thread takes at a time: many, so that few edges lie between blocks, but not
    more than fit the cache, nor so many that threads run out of blocks.

    Sums are taken block by block, so this must not depend on how many threads there are.
    """
    return max(LEAST_BLOCK, min(BLOCK_ENTRIES // outputs, records // LEAST_BLOCKS))


def squared_distance(first: Float32Array, second: Float32Array) -> float:
    """Squared distance of two large float32 arrays, summed in float64 without a full copy."""
    total = 0.0
    for begin in range(0, len(first), ROWS_AT_ONCE):
        rows = slice(begin, begin + ROWS_AT_ONCE)
        # Not as a product of vectors: BLAS sums in an order that depends on its threads.
        step = first[rows] - second[rows]
        total += float(np.square(step, out=step).sum(dtype=np.float64))
    return total
