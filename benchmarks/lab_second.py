"""The second objective on a city: both certificates, and its time beside that of `optimal`.

    python benchmarks/lab_second.py rome.npz --then vulnerability:0.01 error:0.05
    python benchmarks/lab_second.py rome.npz --limits vulnerability:0.012

Prints, for each objective and slack, loss and bound, the objective before and after with its bound,
the seconds of the first and the second objective (solve, repair and audit, without compilation) and
how many times as long as `optimal` alone both take; for each limit the loss with its bound, and
both without the limit.
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
    parser.add_argument("--then", nargs="*", default=[], metavar="NAME:SLACK")
    parser.add_argument("--limits", nargs="*", default=[], metavar="NAME:LIMIT")
    parser.add_argument("--radius", type=float, default=0.3, help="for located")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    small = draw_problem(pm.synthetic_city(1200, 0), 700, 20, 1, 5.0, 0).problem
    pm.second_objective(small, "error", 0.05)  # compiles
    city = find_city(chosen.city, chosen.records, chosen.seed)
    problem = draw_problem(
        city, chosen.records, chosen.outputs, 1, chosen.epsilon, chosen.seed
    ).problem
    for spec in chosen.then:
        name, slack = spec.split(":")
        radius = chosen.radius if name == "located" else None
        start = time.perf_counter()
        table = pm.second_objective(problem, name, float(slack), radius=radius)
        took = time.perf_counter() - start
        then_s = dict(table.stages)["second"]
        row = {
            **table.details["second"],
            "first_iterations": table.details["iterations"],
            "first_s": took - then_s,
            "second_s": then_s,
            "times": took / (took - then_s),
        }
        show(table, row)
    for spec in chosen.limits:
        name, limit = spec.split(":")
        radius = chosen.radius if name == "located" else None
        start = time.perf_counter()
        table = pm.limit_attacker(problem, name, float(limit), radius=radius)
        show(table, {**table.details["limited"], "seconds": time.perf_counter() - start})


def show(table: pm.Mechanism, row: dict[str, object]) -> None:
    """One line, with what the audit says of the integers that are drawn from."""
    facts = {"loss": table.loss, "lower_bound": table.lower_bound, "holds": table.audit.holds}
    print(json.dumps({**row, **facts}), flush=True)


if __name__ == "__main__":
    main()
