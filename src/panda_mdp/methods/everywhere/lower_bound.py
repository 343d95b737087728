"""What no mechanism can beat that is private at every point, whatever lies behind it.

Let z be any mechanism with these outputs that is epsilon-mDP for all points of the area, and let
zbar_v be its average over points spread by hat_v / |hat_v|. Hats are translates of each other, so
zbar_v <= exp(epsilon |v - u|) zbar_u: the averages are a table of the vertices' own problem in the
plane, where nothing is shorter than on the sphere. Their loss is that of z up to how z and the loss
vary together within a hat: with cbar_v the average loss, and |z(p) - z(v)| <= z(v) (exp(epsilon r)
- 1) at distance r <= s (1 - hat_v(p)) of v,

    integral of hat_v z c / |hat_v|  >=  zbar_v (cbar_v - beta_v),
    beta_v = (exp(epsilon s) - 1) exp(epsilon s / 2) (0.2 |c_v - cbar_v| + 0.05 sum over the six
             neighbours u of |c_u - cbar_v|),

of second order in epsilon s. Any lower bound of that problem is one of the problem of all points.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.methods.optimal.backends import choose
from panda_mdp.methods.optimal.progress import Progress
from panda_mdp.methods.optimal.small import SmallLp, is_small
from panda_mdp.methods.optimal.solve import Solve
from panda_mdp.outputs import Outputs
from panda_mdp.problem import Problem, quiet_scale
from panda_mdp.space.domain import Domain
from panda_mdp.space.mesh import Mesh

OWN, OTHER = 1 / 2, 1 / 12
"""Integrals of hat_v times hat_v, and times the hat of a neighbour, over |hat_v|."""
OWN_SPREAD, OTHER_SPREAD = 0.2, 0.05
"""The same with another factor 1 - hat_v: 1/2 - 3/10 and 1/12 - 1/30."""
INFLATED = 1 + 1e-12
"""Above the rounding of the plane's coordinates and of the sums here."""


def lower_problem(problem: Problem, mesh: Mesh) -> Problem:
    """The vertices' own problem in the plane, its losses lowered by beta."""
    people = np.flatnonzero(problem.prior > 0)
    with quiet_scale():
        return Problem(
            Domain.from_vectors(mesh.plane[people], unit="km"),
            Outputs.labels(list(range(problem.outputs_count))),
            lowered(problem, mesh)[people],
            problem.epsilon * INFLATED,
            prior=problem.prior[people],
        )


def lowered(problem: Problem, mesh: Mesh) -> FloatArray:
    """cbar - beta, at least 0, (K, m); 0 for vertices without six neighbours."""
    whole = np.all(mesh.neighbours >= 0, axis=1)
    loss = problem.loss
    around = loss[np.where(whole[:, None], mesh.neighbours, 0)]
    mean = OWN * loss + OTHER * around.sum(axis=1)
    off = OWN_SPREAD * np.abs(loss - mean) + OTHER_SPREAD * np.abs(around - mean[:, None]).sum(1)
    nats = problem.epsilon * mesh.spacing
    beta = np.expm1(nats) * np.exp(nats / 2) * off * INFLATED
    return np.where(whole[:, None], np.maximum(mean / INFLATED - beta, 0.0), 0.0)


def lower_bound(
    problem: Problem,
    mesh: Mesh,
    gap: float,
    backend: Literal["auto", "cpu", "jax"],
    devices: Sequence[Any] | None,
    time_limit: float | None,
    progress: Callable[[Progress], None] | None,
) -> float:
    """A lower bound on the loss of every mechanism that is private at every point."""
    if np.count_nonzero(problem.prior) < 2:
        people = int(problem.prior.argmax())
        return float(lowered(problem, mesh)[people].min())
    relaxed = lower_problem(problem, mesh)
    if backend == "auto" and devices is None and is_small(relaxed):
        solved = SmallLp(relaxed, gap, time_limit, progress).run()
    else:
        solved = Solve(relaxed, gap, choose(backend, devices), time_limit, progress).run()
    return solved.lower_bound or 0.0
