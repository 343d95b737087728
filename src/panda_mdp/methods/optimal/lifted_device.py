"""lifted_finish.py on an accelerator: the table stays there until it is quantised."""

from __future__ import annotations

from functools import cached_property, partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from panda_mdp.compute.jax.device import Array, precise
from panda_mdp.compute.jax.lifted import BlockCut, JaxLiftedClosure, Seen
from panda_mdp.methods.optimal.lifted import Lifted, Reach
from panda_mdp.methods.optimal.lifted_finish import Candidate, LiftedFinish
from panda_mdp.problem import Problem
from panda_mdp.space.tiles import TILE


class DeviceFinish(LiftedFinish):
    """Estimates, repairs and extends for one lifted solver, in blocks on one accelerator."""

    def __init__(self, problem: Problem, mesh: Mesh) -> None:
        self._mesh = mesh
        self._seen: tuple[Reach, Seen] | None = None
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

    def loss(self, cut: BlockCut, z: Array) -> float:
        with precise():
            columns = np.concatenate([np.maximum(cut.columns, 0), np.zeros_like(cut.columns[:1])])
            above = _above(
                z, cut.floors, cut.exists, cut.layout.arrays, *self._costs,
                jax.device_put(columns, self.closure.device),
            )  # fmt: skip
            return float(above) + float(self.problem.mean_loss @ cut.floor)

    @cached_property
    def _costs(self) -> tuple[Array, Array, Array]:
        """The losses, the record of every row of every tile, and the prior, 0 in padding."""
        closure, problem = self.closure, self.problem
        records = np.zeros((len(closure.grid.members), TILE), dtype=np.int64)
        prior = np.zeros(records.shape)
        records.ravel()[closure.slot] = closure.order
        prior.ravel()[closure.slot] = problem.prior[closure.order]
        put = partial(jax.device_put, device=closure.device)
        return put(problem.loss), put(records), put(prior)


@jax.jit
def _above(
    z: Array, floors: Array, exists: Array, c: Any, loss: Array, records: Array, prior: Array,
    columns: Array,
) -> Array:  # fmt: skip
    """The loss of what lies above the floor."""
    group, tile = c["group"], c["tile"]
    cost = loss[records[tile][:, :, None], columns[group][:, None, :]]
    there = exists[group][:, None, :]
    above = jnp.where(there, (z - floors[group][:, None, :]) * cost, 0.0)
    return jnp.sum(prior[tile] * jnp.sum(above, axis=2))
