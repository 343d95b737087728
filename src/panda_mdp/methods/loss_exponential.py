"""An exponential mechanism that sees the loss."""

from __future__ import annotations

import time
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.errors import MethodError
from panda_mdp.methods.exponential import from_scores, softmax
from panda_mdp.privacy.audit import largest_rate
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import Mechanism

SMALL_RECORDS = 512
"""Up to this many NumPy is done before a compiler has started."""
SEARCH_ROWS = 2048
"""Rows on which candidate constants are compared; all of them up to this many records."""
GRID_RATIO = 2.0
SEARCH_TOLERANCE = 0.01
"""Of log L: the loss is flat at its minimum, so a hundredth costs about 1e-5 of it."""


def loss_exponential(
    problem: Problem, lipschitz: float | None = None, tight: bool = False
) -> Mechanism:
    """The exponential mechanism over the loss: weights exp(-epsilon C~(x, y) / (2 L)), with

        C~(x, y) = min over all records x' of  C(x', y) + L d(x, x'),

    the largest function below the loss C that is L-Lipschitz in x.

    Guarantee: epsilon-mDP, whatever the loss. C~ / L changes by at most d(x, x') between two
    records, so the weight of an output and the row's sum each change by a factor of at most
    exp(epsilon d(x, x') / 2). No solver is involved.

    `lipschitz` is L, in units of loss per unit of distance. By default it is the one with the
    smallest expected loss, found by a scan and a bounded search over log L. No L above the loss's
    own Lipschitz constant can be best (C~ is C from there on, and a larger L only flattens it).
    Beyond 2,048 records candidates are compared on the exact rows of 2,048 records spread evenly
    in space; the table is always computed in full.
    `tight=True` raises the exponent until the audit meets epsilon, as in `exponential`.

    Time K^2 m at worst, far less where L is large: distant tiles of records are passed over when
    they cannot lower an entry. Memory a few K x m tables; K x K is never formed.

    >>> from panda_mdp import Domain
    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0]])
    >>> problem = Problem(domain, [0, 2], [[0, 2], [1, 1], [2, 0]], epsilon=1.0)
    >>> loss_exponential(problem, lipschitz=1.0).matrix[:, 0].round(4).tolist()
    [0.7311, 0.5, 0.2689]
    """
    start = time.perf_counter()
    if lipschitz is not None and not (np.isfinite(lipschitz) and lipschitz > 0):
        msg = (
            f"lipschitz is {lipschitz!r}; it must be a positive, finite number of "
            f"{problem.loss_unit} per {problem.domain.unit}, or None to search for the best"
        )
        raise MethodError(msg)
    stages: tuple[tuple[str, float], ...] = ()
    envelope = Envelope(problem)
    constant = best_constant(envelope) if lipschitz is None else float(lipschitz)
    if lipschitz is None:
        stages = (("choose L", time.perf_counter() - start),)
        start = time.perf_counter()
    scores = envelope(constant) / constant
    stages = (*stages, ("Lipschitz envelope", time.perf_counter() - start))
    return from_scores(
        problem,
        scores,
        tight=tight,
        method="loss exponential",
        stages=stages,
        details={"lipschitz": constant, "loss_lipschitz": envelope.limit},
    )


@dataclass(frozen=True, eq=False)
class Envelope:
    """The loss of a problem made Lipschitz: call it with L to get C~, K x m, and with `rows`
    (records) to get only those rows."""

    problem: Problem

    @cached_property
    def limit(self) -> float:
        """The loss's own Lipschitz constant, from above: C~ is C for every L >= limit."""
        loss = self.problem.loss
        return largest_rate(self.problem.domain, loss, loss.view(np.int64))[0]

    def __call__(self, constant: float, rows: IntArray | None = None) -> FloatArray:
        everything = np.arange(self.problem.size)
        wanted = everything if rows is None else rows
        if constant >= self.limit:
            return np.asarray(self.problem.loss[wanted])
        positions = self._position[wanted]
        # Neighbours in the order of tiles share distances and memory.
        turn = np.argsort(positions, kind="stable")
        out = np.empty((len(wanted), self.problem.outputs_count))
        out[turn] = self._at(positions[turn], constant)
        return out

    @cached_property
    def sample(self) -> IntArray:
        """Records on which candidates are compared: evenly along the order of the tiles."""
        order = self.problem.domain.tiles.order
        count = min(SEARCH_ROWS, len(order))
        return order[(np.arange(count) * len(order)) // count]

    def expected_loss(self, constant: float) -> float:
        """Expected loss of the mechanism at L, over the sample."""
        rows = self.sample
        matrix = softmax(-self.problem.epsilon / (2 * constant) * self(constant, rows))
        prior = self.problem.prior[rows]
        total = float(prior.sum())
        if total == 0.0:
            prior, total = np.ones(len(rows)), float(len(rows))
        return float(np.einsum("x,xy,xy->", prior, self.problem.loss[rows], matrix)) / total

    @cached_property
    def _position(self) -> IntArray:
        order = self.problem.domain.tiles.order
        position = np.empty(len(order), dtype=np.int64)
        position[order] = np.arange(len(order))
        return position

    @cached_property
    def _sorted_loss(self) -> FloatArray:
        return np.ascontiguousarray(self.problem.loss[self.problem.domain.tiles.order])

    @cached_property
    def _lowest(self) -> FloatArray:
        starts = self.problem.domain.tiles.starts
        return np.asarray(np.minimum.reduceat(self._sorted_loss, starts[:-1], axis=0))

    @cached_property
    def _visit(self) -> IntArray:
        return np.argsort(self.problem.domain.tiles.between, axis=1, kind="stable")

    def _at(self, positions: IntArray, constant: float) -> FloatArray:
        domain = self.problem.domain
        tiles = domain.tiles
        if domain.size <= SMALL_RECORDS:
            return self._in_numpy(positions, constant)
        try:
            from panda_mdp.compute.numba.distance import coordinates
            from panda_mdp.compute.numba.envelope import envelope
        except ImportError:
            return self._in_numpy(positions, constant)
        kind, table, along = coordinates(domain.metric, tiles.order)
        homes = np.searchsorted(tiles.starts, positions, side="right") - 1
        return np.asarray(
            envelope(
                self._sorted_loss,
                self._lowest,
                kind,
                table,
                along,
                tiles.starts,
                tiles.between,
                self._visit,
                positions,
                homes,
                constant,
            )
        )

    def _in_numpy(self, positions: IntArray, constant: float) -> FloatArray:
        """The compiled kernel's answer in NumPy, one block of records against one tile a time."""
        tiles, metric = self.problem.domain.tiles, self.problem.domain.metric
        rows = self._sorted_loss[positions].copy()
        for t in range(tiles.count):
            members = slice(int(tiles.starts[t]), int(tiles.starts[t + 1]))
            room = (rows - self._lowest[t]).max(axis=1)
            homes = np.searchsorted(tiles.starts, positions, side="right") - 1
            open_ = np.flatnonzero(room > constant * tiles.between[homes, t])
            if len(open_) == 0:
                continue
            distance = metric.block(tiles.order[positions[open_]], tiles.order[members])
            for j in range(distance.shape[1]):
                source = self._sorted_loss[members.start + j]
                reached = np.flatnonzero(constant * distance[:, j] < room[open_])
                at = open_[reached]
                rows[at] = np.minimum(rows[at], source + constant * distance[reached, j, None])
        return rows


def best_constant(envelope: Envelope) -> float:
    """L with the smallest expected loss: a scan by factors of 2, then a bounded search.

    The scan runs from the loss's own Lipschitz constant down to a thousandth of the loss's spread
    over the diameter, below which C~ / L hardly changes.
    """
    problem = envelope.problem
    spread = float(np.ptp(problem.loss, axis=0).max())
    if spread == 0.0:
        # The loss does not depend on the record: neither does the table, so any L is private,
        # and a tiny one reports the best output.
        return float(np.finfo(np.float64).tiny ** 0.25)
    top = envelope.limit
    bottom = min(top, 1e-3 * spread / problem.domain.diameter)
    count = int(np.ceil(np.log(top / bottom) / np.log(GRID_RATIO))) + 1
    grid = np.geomspace(bottom, top, max(count, 3))
    losses = [envelope.expected_loss(float(constant)) for constant in grid]
    k = int(np.argmin(losses))
    low, high = grid[max(k - 1, 0)], grid[min(k + 1, len(grid) - 1)]
    optimum = scipy.optimize.minimize_scalar(
        lambda log: envelope.expected_loss(float(np.exp(log))),
        bounds=(float(np.log(low)), float(np.log(high))),
        method="bounded",
        options={"xatol": SEARCH_TOLERANCE},
    )
    return float(np.exp(optimum.x)) if optimum.fun < losses[k] else float(grid[k])
