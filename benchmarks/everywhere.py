"""What privacy at every point costs: bounding gradients, beside solving again at a smaller epsilon.

    python benchmarks/everywhere.py [--nats 0.1 0.2 0.4] [--width 2.4] [--gap 0.01]

A square area of `width` / epsilon km a side under displacement, about 50 of its vertices as
outputs. All losses are expected losses over points that draw at random vertices. "plain" is the
vertices' own optimum, which is not private between them: eps_c is its rate there. "again" is the
vertices' optimum at the largest epsilon whose tables are private between them for sure, "here" is
everywhere=True; both are prices over "plain". The gap is certified against every mechanism that is
private at every point.
"""

from __future__ import annotations

import argparse
import math
import time

import numpy as np

import panda_mdp as pm
from panda_mdp.methods.everywhere.spread import spread
from panda_mdp.privacy.continuous import audit_mesh

EPSILON = 5.0
KM_PER_DEGREE = 111.195


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
    here = pm.optimal(problem, gap, everywhere=True)
    seconds = time.perf_counter() - start
    prices = [f"{100 * (loss / plain.loss - 1):.1f} %" for loss in (again.loss, here.loss)]
    return (
        f"| {nats:g} | {problem.size:,} x {problem.outputs_count} | {rate / EPSILON:.3f} "
        f"| {' | '.join(prices)} | {here.everywhere.epsilon / EPSILON:.6f} "
        f"| {1000 * here.loss:.1f} m "
        f"| {1000 * here.lower_bound:.1f} m | {100 * here.gap:.1f} % | {seconds:.0f} s |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nats", type=float, nargs="+", default=[0.1, 0.2, 0.4])
    parser.add_argument("--width", type=float, default=2.4)
    parser.add_argument("--gap", type=float, default=0.01)
    options = parser.parse_args()
    print(
        "| eps x spacing | table | plain eps_c / eps | again | here | here eps_c / eps | loss ",
        end="",
    )
    print("| bound | gap | time |\n" + "|---" * 10 + "|")
    for nats in options.nats:
        print(row(nats, options.width, options.gap), flush=True)


if __name__ == "__main__":
    main()
