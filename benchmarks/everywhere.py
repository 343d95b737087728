"""What privacy at every point costs: bounding gradients, beside solving again at a smaller epsilon.

    python benchmarks/everywhere.py [--nats 0.1 0.2] [--width 2.4 4] [--gap 0.01]
    python benchmarks/everywhere.py --nats 0.2 --width 5 --gap 0.005 --least 6400

Squares of `width` / epsilon km a side under displacement, about 50 of their vertices as outputs.
All losses are expected losses over points that draw at random vertices. "vertices" is the vertices'
own optimum, which is not private between them: eps_c is its rate there. "again" is the vertices'
optimum at the largest epsilon whose tables are private between them for sure, "everywhere" is
optimal_everywhere; behind both their prices, over "vertices". The first two are certified to
`gap` against all tables over the vertices, the last gap against every mechanism that is private at
every point. Its time is split into the lower bound and the rest. With --least instead how low any
table of the mesh can come that keeps the slope of every triangle, by that many iterations.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time

import numpy as np

import panda_mdp as pm
from panda_mdp.methods.mesh_repair import ConeSolver, MeshRepair
from panda_mdp.methods.optimal.program import constraint_graph, warm_start
from panda_mdp.privacy.continuous import audit_mesh
from panda_mdp.table.claims import spread

EPSILON = 5.0
KM_PER_DEGREE = 111.195
SETTINGS = [(5, 0.5), (2.4, 0.4), (2.4, 0.2), (2.4, 0.1), (5, 0.2), (4, 0.1), (1.2, 0.05)]
"""Widths and epsilon times the spacing, where none are asked for."""


def question(nats: float, width: float) -> pm.Problem:
    """A square around (0, 0), where degrees are alike in both directions."""
    half = width / EPSILON / 2 / KM_PER_DEGREE
    domain = pm.Domain.from_area((-half, -half, half, half), spacing=nats / EPSILON)
    inside = np.flatnonzero(domain.mesh.inside)
    outputs = inside[:: max(1, len(inside) // 48)]
    return pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), EPSILON)


def row(nats: float, width: float, gap: float) -> str:
    problem = question(nats, width)
    points = spread(problem)
    plain = pm.optimal(points, gap, backend="cpu")
    rate = audit_mesh(problem.domain.mesh, problem.outputs, plain.weights, EPSILON).epsilon
    smaller = EPSILON * math.log1p(math.sqrt(0.75) * nats) / nats * (1 - 1e-5)
    again = pm.optimal(points.with_epsilon(smaller), gap, backend="cpu")
    start = time.perf_counter()
    here = pm.optimal_everywhere(problem, gap)
    seconds = time.perf_counter() - start
    bound = dict(here.stages)["lower bound"]
    priced = [
        f"{1000 * m.loss:.1f} m, {100 * (m.loss / plain.loss - 1):.1f} %" for m in (again, here)
    ]
    return (
        f"| {nats:g} | {width:g} | {problem.size:,} x {problem.outputs_count} "
        f"| {1000 * plain.loss:.1f} m, to {100 * plain.gap:.1f} % | {rate / EPSILON:.3f} "
        f"| {' | '.join(priced)} "
        f"| {here.everywhere.epsilon / EPSILON:.6f} | {1000 * here.lower_bound:.1f} m "
        f"| {100 * here.gap:.1f} % | {bound:.0f} + {seconds - bound:.0f} s |"
    )


def least(nats: float, width: float, gap: float, iterations: int) -> str:
    problem = question(nats, width)
    points = spread(problem)
    plain = pm.optimal(points, gap, backend="cpu")
    repair = MeshRepair(points, problem.domain.mesh)
    start = warm_start(points, constraint_graph(points.domain, EPSILON))
    cones = ConeSolver(points.weighted_loss, problem.domain.mesh.triangles, repair.slope, start)
    cones.advance(iterations)
    bound, table = cones.bound(), points.expected_loss(repair.run(cones.matrix()))
    prices = " to ".join(f"{100 * (x / plain.loss - 1):.2f}" for x in (bound, table))
    return (
        f"{nats:g}, {width:g}: vertices {1000 * plain.loss:.1f} m to {100 * plain.gap:.2f} %, "
        f"triangles {1000 * bound:.1f} to {1000 * table:.1f} m, {prices} % over them"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nats", type=float, nargs="+")
    parser.add_argument("--width", type=float, nargs="+")
    parser.add_argument("--gap", type=float, default=0.01)
    parser.add_argument("--least", type=int, metavar="ITERATIONS")
    options = parser.parse_args()
    asked = SETTINGS
    if options.nats or options.width:
        asked = list(itertools.product(options.width or [2.4], options.nats or [0.1, 0.2, 0.4]))
    if options.least:
        for width, nats in asked:
            print(least(nats, width, options.gap, options.least), flush=True)
        return
    pm.optimal_everywhere(question(0.5, 2.0))  # compiles
    print(
        "| eps x spacing | eps x width | table | vertices | their eps_c / eps | again | everywhere "
        "| its eps_c / eps | bound | gap | time |\n" + "|---" * 11 + "|"
    )
    for width, nats in asked:
        print(row(nats, width, options.gap), flush=True)


if __name__ == "__main__":
    main()
