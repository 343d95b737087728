"""The best table that is private for every point of an area, with proof of both.

**What is asked.** A prior w over vertices means people who are spread with the density
sum_v w_v hat_v / |hat_v|, hat_v being 1 at v, 0 at all other vertices and linear between; a loss c
over vertices is linear between them. A point p draws at vertex v with weight hat_v(p), so the
expected loss over points is

    sum_vy z_vy sum_u Q_vu c_uy,     Q_vu = integral of hat_v hat_u sum_x w_x hat_x / |hat_x|,

exactly, and linear in the table: it is the loss of a table over the prior p_v = sum_u Q_vu and the
loss (Q c)_vy / p_v. Over a triangle of area 1, products of three of its hats integrate to 1/10
where they are one hat, 1/30 where two are, 1/60 where none are; |hat| is 2. Hence a triangle adds
(1 + [u = v]) (w_u + w_v + the sum of its w) / 120 to Q_vu.

**What cannot be beaten.** Let z be any mechanism with these outputs that is epsilon-mDP for all
points of the area, and let zbar_v be its average over points spread by hat_v / |hat_v|. Hats are
translates of each other, so zbar_v <= exp(epsilon |v - u|) zbar_u: the averages are a table of the
vertices' own problem in the plane, where nothing is shorter than on the sphere. Their loss is that
of z up to how z and the loss vary together within a hat: with cbar_v the average loss, and
|z(p) - z(v)| <= z(v) (exp(epsilon r) - 1) at distance r <= s (1 - hat_v(p)) of v,

    integral of hat_v z c / |hat_v|  >=  zbar_v (cbar_v - beta_v),
    beta_v = (exp(epsilon s) - 1) exp(epsilon s / 2) (0.2 |c_v - cbar_v| + 0.05 sum over the six
             neighbours u of |c_u - cbar_v|),

of second order in epsilon s. Any lower bound of that problem is one of the problem of all points.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.errors import MethodError, PrivacyError, Stopped
from panda_mdp.methods.certify import Budget, Report, Solver, Standing, Tuning, certify
from panda_mdp.methods.optimal.optimal import Machine, solver_for
from panda_mdp.methods.optimal.program import constraint_graph, one_row, warm_start
from panda_mdp.privacy.quantise import quantise
from panda_mdp.problem import Problem
from panda_mdp.space.mesh import Mesh
from panda_mdp.table.bound import Proved
from panda_mdp.table.claims import Averaged, lower_problem, lowered, mesh_of, spread
from panda_mdp.table.everywhere import EverywhereMechanism
from panda_mdp.table.mechanism import Mechanism, attempts


def lower_bound(
    problem: Problem, mesh: Mesh, budget: Budget, machine: Machine, progress: Report | None = None
) -> tuple[float, Proved | None]:
    """A lower bound on the loss of every mechanism that is private at every point, and the proof
    of about as much in the problem of averages."""
    if np.count_nonzero(problem.prior) < 2:
        people = int(problem.prior.argmax())
        return float(lowered(problem, mesh)[people].min()), None
    solved = certify(solver_for(lower_problem(problem, mesh), machine), budget, progress)
    return max(solved.bound, 0.0), solved.proof or solved.solver.proof()


MOST_NATS = 1.0
"""Of epsilon times the spacing: beyond it a mesh hides more than it shows."""
FIRST_CHECK = 800
LAST_CHECK = 6_400
"""Iterations after which the table is first repaired and looked at, and last."""
SHARE_OF_BOUND = 0.4
"""Of a time limit: what the lower bound may take."""


def optimal_everywhere(
    problem: Problem,
    gap: float = 0.01,
    *,
    backend: Machine = "auto",
    time_limit: float | None = None,
    progress: Report | None = None,
) -> EverywhereMechanism:
    """The table of least expected loss that is private for every point of an area.

    For domains of `Domain.from_area`: not for the vertices of the mesh alone but for any two points
    between them, and `sample_at(lat, lon)` draws at the point. Expected loss is the one over points
    that are spread as the prior says (methods/everywhere.py). `backend` makes the lower
    bound, which is that of all mechanisms that are private at every point; the table is made on
    the CPU.

    Guarantee: epsilon-mDP at every point by the audit of every triangle on the integers that are
    drawn from; loss <= (1 + mechanism.gap) times the least that any such mechanism has
    (docs/everywhere.md). A mesh too coarse for epsilon is refused.
    """
    budget = Budget(gap, time_limit)
    solver = Everywhere(problem, backend)
    return cast("EverywhereMechanism", certify(solver, budget, progress).mechanism())


class Everywhere(Solver):
    """The first-order method over triangles, each held within a cone (mesh_repair.py)."""

    method = "optimal, everywhere"
    tuning = Tuning(first_check=FIRST_CHECK, growth=2.0, negligible=0.0)
    _averages: Proved | None = None

    def __init__(self, problem: Problem, backend: Machine = "auto") -> None:
        self.given = problem
        self.machine = backend
        self.mesh = mesh = mesh_of(problem)
        nats = problem.epsilon * mesh.spacing
        if nats > MOST_NATS:
            raise MethodError(
                f"epsilon {problem.epsilon:g} per km times the spacing of {mesh.spacing:g} km "
                f"is {nats:.3g}; at most {MOST_NATS:g} works: make the mesh with "
                f"spacing={0.2 / problem.epsilon:.2g} or so"
            )
        self.problem = spread(problem)
        self.edges = 3 * len(mesh.triangles)

    def begin(self, standing: Standing) -> None:
        # Compiled loops, without which the package is imported all the same.
        from panda_mdp.methods.mesh_repair import ConeSolver, MeshRepair

        problem = self.problem
        budget = standing.budget
        limit = None if budget.time_limit is None else SHARE_OF_BOUND * budget.time_limit
        with standing.stage("lower bound"):
            share = Budget(budget.gap, limit)
            bound, self._averages = lower_bound(
                self.given, self.mesh, share, self.machine, standing.progress
            )
            standing.raise_bound(bound)
        self._repair = MeshRepair(problem, self.mesh)
        start = warm_start(problem, constraint_graph(problem.domain, problem.epsilon))
        cost = problem.weighted_loss
        self._iterates = ConeSolver(cost, self.mesh.triangles, self._repair.slope, start)
        self._before = np.inf

    def advance(self, target: int, standing: Standing) -> None:
        while self._iterates.iterations < target and not standing.late():
            self._iterates.advance(self.tuning.step)
        self.iterations = self._iterates.iterations

    def proof(self) -> Proved | None:
        return self._averages and Averaged(self.given, self._averages.multipliers)

    def candidate(self) -> FloatArray:
        return self._repair.run(self._iterates.matrix())

    def certified(self, candidate: FloatArray, standing: Standing) -> Mechanism:
        """Quantised above the lowest floor for which the audit of every point holds."""
        with standing.stage("quantise and audit"):
            for table, facts in attempts(self.problem, candidate):
                try:
                    mechanism = EverywhereMechanism(self.problem, quantise(table), self.method)
                except PrivacyError as error:
                    refused = error
                else:
                    audit = mechanism.everywhere
                    return mechanism.with_details(
                        **facts,
                        spacing_km=self.mesh.spacing,
                        everywhere=audit.epsilon,
                        resolution_km=audit.resolution_km,
                    )
        raise PrivacyError(f"no floor makes the table private at every point; last: {refused}")

    def extend(self, candidate: FloatArray, standing: Standing) -> None:
        """Nothing; ends where more iterations would move little."""
        gap = standing.budget.gap or 0.0
        value = standing.value
        near = value <= (1 + gap / 2) * max(self._iterates.bound(), standing.bound)
        if near or (value > self._before * (1 - gap / 4)) or self.iterations >= LAST_CHECK:
            self.ended = Stopped.PRECISION_REACHED
        self._before = value

    def fallbacks(self, standing: Standing) -> Any:
        if standing.best is None:
            yield self.last_resort(standing)

    def last_resort(self, standing: Standing) -> Mechanism:
        return self.certified(one_row(self.problem), standing)
