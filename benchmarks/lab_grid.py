"""Baselines and second objectives on a square grid of unit steps, every place an output.

    python benchmarks/lab_grid.py --side 5

Loss is the distance, the prior uniform, epsilon 1 per step.
"""

from __future__ import annotations

import argparse

import panda_mdp as pm
from panda_mdp.errors import PandaError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=5)
    parser.add_argument("--epsilon", type=float, default=1.0)
    chosen = parser.parse_args()
    side = range(chosen.side)
    domain = pm.Domain.from_vectors([[float(i), float(j)] for i in side for j in side], unit="km")
    outputs = range(domain.size)
    problem = pm.Problem(domain, outputs, domain.distances(), chosen.epsilon)
    print(f"{'method':34} {'loss':>7} {'error':>7} {'guess':>7} {'least':>7}  certified")
    for name, make in {
        "exponential": lambda: pm.exponential(problem),
        "exponential, tight": lambda: pm.exponential(problem, tight=True),
        "permute and flip": lambda: pm.permute_and_flip(problem),
        "planar Laplace + remap": lambda: pm.remap(pm.planar_laplace(problem)),
        "tight constraints": lambda: pm.tight_constraints(problem),
        "optimal": lambda: pm.optimal(problem, gap=1e-3),
        "then vulnerability, 1 %": lambda: pm.optimal(
            problem, gap=1e-3, then="vulnerability", slack=0.01
        ),
        "then vulnerability, 5 %": lambda: pm.optimal(
            problem, gap=1e-3, then="vulnerability", slack=0.05
        ),
        "then least protected, 1 %": lambda: pm.optimal(
            problem, gap=1e-3, then="least_protected", slack=0.01
        ),
    }.items():
        try:
            table = make()
        except PandaError as error:
            print(f"{name:34} {error}")
            continue
        seen = pm.attack(table)
        facts = table.details.get("second")
        bound = "" if facts is None else f"{facts['value']:.4f}, bound {facts['bound']:.4f}"
        print(
            f"{name:34} {table.loss:7.4f} {seen.error:7.4f} {seen.vulnerability:7.4f} "
            f"{seen.least_error:7.4f}  {bound}"
        )


if __name__ == "__main__":
    main()
