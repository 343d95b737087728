"""The second objective on a city: both certificates, and its time beside that of `optimal`.

    python benchmarks/lab_second.py ../shared/data/rome.npz --records 5000 --outputs 100

Prints, for each slack, loss and bound, the objective before and after with its bound, and the
seconds of the first and the second objective (solve, repair and audit, without compilation).
"""

from __future__ import annotations

import argparse
import json
import time

import panda_mdp as pm
from panda_mdp.city.draw import draw_problem, find_city


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("city")
    parser.add_argument("--records", type=int, default=5000)
    parser.add_argument("--outputs", type=int, default=100)
    parser.add_argument("--epsilon", type=float, default=5.0)
    parser.add_argument("--then", default="vulnerability")
    parser.add_argument("--radius", type=float)
    parser.add_argument("--slacks", type=float, nargs="+", default=[0.01, 0.05])
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    small = draw_problem(pm.synthetic_city(600, 0), 200, 20, 1, 5.0, 0).problem
    pm.optimal(small, then="vulnerability", slack=0.05)  # compiles
    city = find_city(chosen.city, chosen.records, chosen.seed)
    problem = draw_problem(
        city, chosen.records, chosen.outputs, 1, chosen.epsilon, chosen.seed
    ).problem
    for slack in chosen.slacks:
        start = time.perf_counter()
        table = pm.optimal(problem, then=chosen.then, slack=slack, radius=chosen.radius)
        took = time.perf_counter() - start
        facts = table.details["second"]
        stages = dict(table.stages)
        then_s = stages["second objective"]
        row = {
            "slack": slack,
            "loss": table.loss,
            "budget": facts["budget"],
            "lower_bound": table.lower_bound,
            "audited": table.audit.epsilon,
            "holds": table.audit.holds,
            "before": facts["before"],
            "value": facts["value"],
            "bound": facts["bound"],
            "stopped": facts["stopped"],
            "first_s": took - then_s,
            "second_s": then_s,
        }
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
