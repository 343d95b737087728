"""lifted_finish.py on an accelerator: the table stays there until it is quantised."""

from __future__ import annotations

from functools import cache, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from panda_mdp.base.arrays import IntArray
from panda_mdp.base.floored import FlooredRows
from panda_mdp.compute.jax.device import Array, laid_out, precise
from panda_mdp.compute.jax.lifted import BlockCut, JaxLiftedClosure, Seen
from panda_mdp.loss import DistanceLoss
from panda_mdp.methods.optimal.lifted import Lifted, Reach
from panda_mdp.methods.optimal.lifted_finish import Candidate, LiftedFinish
from panda_mdp.privacy.quantise import SLACK, TOTAL
from panda_mdp.privacy.repair import CENTRED_ROUNDS, settle
from panda_mdp.problem import Problem
from panda_mdp.space.tiles import TILE


class DeviceFinish(LiftedFinish):
    """Estimates, repairs and extends for one lifted solver, in blocks on one accelerator."""

    # An audit costs about as much as the closure here: one, of the integers, as a rule.
    audits_before = False
    # Certifying a whole city takes as long as a thousand iterations.
    iterations = 3840

    def __init__(self, problem: Problem, mesh: Mesh) -> None:
        self._mesh = mesh
        self._seen: tuple[Reach, Seen] | None = None
        self._known: tuple[IntArray, tuple[Any, Array]] | None = None
        super().__init__(problem, "jax")

    def _closure(self) -> JaxLiftedClosure:
        return JaxLiftedClosure(self.problem.domain, self.problem.epsilon, self._mesh)

    def candidate(self, solver: Lifted) -> Candidate:
        if self._seen is None or self._seen[0] is not solver.reached:
            self._seen = (
                solver.reached,
                self.closure.seen(solver.reached.sees[:, self.closure.order]),
            )
        seen = self._seen[1]
        z, loss = solver.on_device()
        rows = self.closure.gathered(seen, z, solver.fold)
        return Candidate(*self.closure.cut(solver.columns, seen.mask, rows, self._floor(loss)))

    def _centred(
        self, cut: BlockCut, z: Array, within: float, allowed: float
    ) -> tuple[Array, int, bool]:
        steps = self.closure.centring(cut, z, within)
        z, _, count, done = settle(self.closure, steps, CENTRED_ROUNDS, allowed)
        return z, count, done

    def loss(self, cut: BlockCut, z: Array) -> float:
        with precise():
            columns = np.concatenate([np.maximum(cut.columns, 0), np.zeros_like(cut.columns[:1])])
            tables, prior = self._costs(columns)
            run = _compiled_above(self._losses, getattr(self.problem.loss, "power", 1.0))
            above = run(z, cut.floors, cut.exists, cut.layout.arrays, tables, prior)
            return float(above) + float(self.problem.mean_loss @ cut.floor)

    def _quantised(self, cut: BlockCut, z: Array) -> FlooredRows:
        return FlooredRows(*self.closure.whole_rows(cut, z, TOTAL, SLACK))

    @property
    def _losses(self) -> Any:
        """What computes the losses of tiles and groups from the tables of `_costs`."""
        computed = isinstance(self.problem.loss, DistanceLoss)
        return self.closure.grid.distances if computed else None

    def _costs(self, columns: IntArray) -> tuple[Any, Array]:
        """What the losses of the rows of all tiles and the columns of all groups are computed from,
        and the prior of the rows, 0 in padding. Computed anew where the groups are other ones."""
        if self._known is not None and np.array_equal(self._known[0], columns):
            return self._known[1]
        closure, problem = self.closure, self.problem
        records = np.zeros((len(closure.grid.members), TILE), dtype=np.int64)
        prior = np.zeros(records.shape)
        records.ravel()[closure.slot] = closure.order
        prior.ravel()[closure.slot] = problem.prior[closure.order]
        if isinstance(problem.loss, DistanceLoss):
            # Groups stand behind the tiles as tiles of their own, half of them padding.
            wide = np.pad(problem.loss.outputs[columns], ((0, 0), (0, TILE - columns.shape[1])))
            tables = laid_out(problem.domain.metric, np.concatenate([records, wide]))[1]
        else:
            tables = (np.asarray(problem.loss), records, columns)
        put = partial(jax.device_put, device=closure.device)
        self._known = (columns, (jax.tree.map(put, tables), put(prior)))
        return self._known[1]


@cache
def _compiled_above(distances: Any, power: float) -> Any:
    """The loss of what lies above the floor."""

    def above(z: Array, floors: Array, exists: Array, c: Any, tables: Any, prior: Array) -> Array:
        group, tile = c["group"], c["tile"]
        if distances is None:
            loss, records, columns = tables
            cost = loss[records[tile][:, :, None], columns[group][:, None, :]]
        else:
            cost = distances(tables, tile, len(prior) + group)[:, :, : z.shape[2]] ** power
        there = exists[group][:, None, :]
        part = jnp.where(there, (z - floors[group][:, None, :]) * cost, 0.0)
        return jnp.sum(prior[tile] * jnp.sum(part, axis=2))

    return jax.jit(above)
