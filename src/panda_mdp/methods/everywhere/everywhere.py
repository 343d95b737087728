"""The best table that is private for every point of an area, with proof of both."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.compute.closure import Closure
from panda_mdp.compute.highs import require_numba
from panda_mdp.compute.status import Stopped
from panda_mdp.errors import MethodError, PrivacyError
from panda_mdp.methods.everywhere.lower_bound import lower_bound
from panda_mdp.methods.everywhere.repair import MeshRepair
from panda_mdp.methods.everywhere.spread import mesh_of, spread
from panda_mdp.methods.optimal.graph import constraint_graph
from panda_mdp.methods.optimal.progress import Progress
from panda_mdp.methods.optimal.starts import warm_start
from panda_mdp.privacy.continuous import audit_mesh
from panda_mdp.privacy.quantise import quantise
from panda_mdp.problem import Problem
from panda_mdp.table.everywhere import EverywhereMechanism
from panda_mdp.table.release import LADDER, MAX_SHARE, floor_row

MOST_NATS = 1.0
"""Of epsilon times the spacing: beyond it a mesh hides more than it shows."""
CHECKS = (800, 1_600, 3_200, 6_400)
"""Iterations after which the table is repaired and looked at."""
BLOCK = 40
SHARE_OF_BOUND = 0.4
"""Of a time limit: what the lower bound may take."""


@dataclass
class Everywhere:
    """One run. `best` is a table that fits every triangle, `bound` always a valid bound."""

    problem: Problem
    gap: float
    backend: Literal["auto", "cpu", "jax"] = "auto"
    devices: Sequence[Any] | None = None
    time_limit: float | None = None
    progress: Callable[[Progress], None] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    best: FloatArray | None = None
    loss: float = math.inf
    bound: float = 0.0
    iterations: int = 0

    def run(self) -> EverywhereMechanism:
        """Bound, solve, repair, audit."""
        require_numba("optimal(..., everywhere=True)")
        self.began = self.mark = time.perf_counter()
        self.mesh = mesh = mesh_of(self.problem)
        nats = self.problem.epsilon * mesh.spacing
        if nats > MOST_NATS:
            msg = (
                f"epsilon {self.problem.epsilon:g} per km times the spacing of {mesh.spacing:g} km "
                f"is {nats:.3g}; at most {MOST_NATS:g} works: make the mesh with "
                f"spacing={0.2 / self.problem.epsilon:.2g} or so"
            )
            raise MethodError(msg)
        self.spread = spread(self.problem)
        limit = None if self.time_limit is None else SHARE_OF_BOUND * self.time_limit
        self.bound = lower_bound(
            self.problem, mesh, self.gap, self.backend, self.devices, limit, self.progress
        )
        self._spent("lower bound")
        self.repair = MeshRepair(self.spread, mesh, Closure(self.problem.domain))
        try:
            stopped = self._loop()
        except KeyboardInterrupt:
            stopped = Stopped.INTERRUPTED
        if self.best is None:
            self._offer(np.tile(self._ignorant(), (self.problem.size, 1)))
        return self._released(stopped)

    def _loop(self) -> Stopped:
        from panda_mdp.methods.everywhere.cone_solver import ConeSolver

        problem, mesh = self.spread, self.mesh
        start = warm_start(problem, constraint_graph(problem.domain, problem.epsilon))
        cost = problem.weighted_loss
        solver = ConeSolver(cost, mesh.triangles, self.repair.slope, start)
        for target in CHECKS:
            before = self.loss
            while solver.iterations < target and not self._late():
                solver.advance(BLOCK)
            self.iterations = solver.iterations
            self._spent("solve")
            self._offer(self.repair.run(solver.matrix()))
            self._spent("repair")
            self._report(3 * len(mesh.triangles))
            if self.loss - self.bound <= self.gap * self.bound:
                return Stopped.GAP_REACHED
            if self._late():
                return Stopped.TIME_LIMIT
            least = max(solver.bound(), self.bound)
            near = self.loss <= (1 + self.gap / 2) * least
            if near or self.loss > before * (1 - self.gap / 4):
                return Stopped.PRECISION_REACHED
        return Stopped.PRECISION_REACHED

    def _ignorant(self) -> FloatArray:
        row = np.zeros(self.problem.outputs_count)
        row[self.spread.best_single_output] = 1.0
        return row

    def _offer(self, table: FloatArray) -> None:
        loss = self.spread.expected_loss(table)
        if loss < self.loss:
            self.best, self.loss = table, loss

    def _released(self, stopped: Stopped) -> EverywhereMechanism:
        """Quantise above the lowest floor for which the audit of every point holds."""
        problem, rows = self.spread, self.best
        if rows is None:
            msg = "no table could be made; raise the time limit"
            raise MethodError(msg)
        lowest = floor_row(problem, rows)
        for k in range(-1, LADDER):
            floor = lowest * (10.0**k if k >= 0 else 0.0)
            share = float(floor.sum())
            if share > MAX_SHARE:
                break
            weights = quantise(rows * (1 - share) + floor)
            verdict = audit_mesh(self.mesh, problem.outputs, weights, problem.epsilon)
            if not verdict.holds:
                continue
            try:
                mechanism = EverywhereMechanism(problem, weights, "optimal, everywhere")
            except PrivacyError:
                continue
            self._spent("quantise and audit")
            return mechanism.with_facts(
                lower_bound=min(self.bound, mechanism.loss),
                stages=tuple(self.seconds.items()),
                details={
                    "stopped": stopped,
                    "iterations": self.iterations,
                    "uniform_share": share,
                    "spacing_km": self.mesh.spacing,
                    "everywhere": verdict.epsilon,
                    "resolution_km": verdict.resolution_km,
                },
            )
        msg = f"no floor makes the table private at every point; last: {verdict}"
        raise PrivacyError(msg)

    def _late(self) -> bool:
        spent = time.perf_counter() - self.began
        return self.time_limit is not None and spent > self.time_limit

    def _report(self, edges: int) -> None:
        if self.progress is not None:
            spent = time.perf_counter() - self.began
            self.progress(Progress(spent, self.iterations, self.loss, self.bound, edges))

    def _spent(self, stage: str) -> None:
        now = time.perf_counter()
        self.seconds[stage] = self.seconds.get(stage, 0.0) + now - self.mark
        self.mark = now
