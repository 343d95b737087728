"""What a whole trace tells of one moment, beside composition; and how often to report on a way.

    python benchmarks/lab_traces.py
    python benchmarks/lab_traces.py --city rome.npz --displacement 0.92

Places on a grid of 1 km and three ways to move: to a neighbour or nowhere; the same, but three
moves in ten go to the middle; the same, but three in ten go anywhere. Chains begin where they rest.

With a city: the made-up ways to work of `lab_today.py`, a fix every 300 m, and schedules of
reporting: a draw at every fix, a new one after each move, one at every n-th fix that is repeated
until the next. What is repeated lags behind, so each schedule has the epsilon at which fixes and
what is reported at them lie `--displacement` apart on average, an exact sum over the ways and the
table. The error is that of who knows the schedule and how others move, at places anywhere, with
95 % intervals over people.
"""

from __future__ import annotations

import argparse
import json
from functools import partial

import numpy as np
import scipy
from lab_better import middle_of
from lab_today import Person, interval, people

import panda_mdp as pm
from panda_mdp.city.draw import find_city
from panda_mdp.meaning.several import Movement, moment_leakage, track
from panda_mdp.space.guesses import best_guesses, guess_distances
from panda_mdp.table.mechanism import Table

SCHEDULES = ("stay", 1, 2, 3, 4, 6)


def moments(side: int, epsilon: float, reports: int) -> None:
    at = np.stack(np.divmod(np.arange(side**2), side), axis=1)
    apart = np.sqrt(((at[:, None] - at) ** 2).sum(axis=2))
    near = (apart <= 1).astype(float)
    walk = near / near.sum(axis=1, keepdims=True)
    home = np.eye(len(at))[np.full(len(at), len(at) // 2)]
    moves = {
        "walk": walk,
        "three in ten go home": 0.7 * walk + 0.3 * home,
        "three in ten go anywhere": 0.7 * walk + 0.3 / len(at),
    }
    pairs = ~np.eye(len(at), dtype=bool)
    nats = epsilon * apart
    for name, steps in moves.items():
        rest = np.linalg.matrix_power(steps, 1 << 14)[0]
        told = moment_leakage(Movement(rest / rest.sum(), steps), nats, reports)
        by_moment = (told[:, pairs] / nats[pairs]).max(axis=1)
        facts = {"whole_trace": by_moment.max(), "past_alone": by_moment[-1]}
        print(json.dumps({"moves": name, "composition": reports, **facts}), flush=True)


def drawn_at(way: np.ndarray, schedule: str | int) -> np.ndarray:
    """For every fix the one at which its report was drawn."""
    steps = np.arange(len(way))
    if schedule == "stay":
        fresh = np.append(True, way[1:] != way[:-1])
        return np.maximum.accumulate(np.where(fresh, steps, 0))
    return steps - steps % int(schedule)


def displacement(table: Table, crowd: list[Person], schedule: str | int) -> float:
    """Of all fixes of the ways from what is reported at them, on average over people."""
    apart = table.problem.reports.distances(table.problem.domain)
    expected = table.matrix @ apart.T
    means = [expected[p.way[drawn_at(p.way, schedule)], p.way].mean() for p in crowd]
    return float(np.mean(means))


def way_errors(
    table: Table, crowd: list[Person], movement: Movement, schedule: str | int
) -> np.ndarray:
    domain, errors = table.problem.domain, []
    for seed, person in enumerate(crowd):
        simulation, drawn = table.simulate(seed), {}
        at = drawn_at(person.way, schedule)
        for t in np.unique(at):
            drawn[int(t)] = simulation.sample(int(person.way[t]))
        reports = np.array([drawn[int(t)] for t in at])
        belief = track(movement, table, reports, schedule)
        off = guess_distances(domain, best_guesses(domain, belief.T)[0])
        errors.append(off[np.arange(len(off)), person.way].mean())
    return np.array(errors)


def schedules(chosen: argparse.Namespace) -> None:
    city = find_city(chosen.city, chosen.records, chosen.seed)
    domain = middle_of(chosen.city, chosen.records, chosen.seed)
    rng = np.random.default_rng(chosen.seed + 1)
    crowd, others = (people(city, domain, count * chosen.people, rng) for count in (1, 2))
    movement = Movement.learn([person.way for person in others], domain.size)
    problem = pm.Problem(domain, np.arange(domain.size), domain.distances(), 1.0)
    kinds = {
        "planar Laplace + remap": lambda at: pm.remap(pm.planar_laplace(at)),
        "optimal": partial(pm.optimal, gap=0.02),
    }
    for kind, make in kinds.items():
        for schedule in SCHEDULES:

            def missing(log_epsilon: float, make=make, schedule=schedule) -> float:  # type: ignore[no-untyped-def]
                table = make(problem.with_epsilon(float(np.exp(log_epsilon))))
                return displacement(table, crowd, schedule) - chosen.displacement

            try:
                log_epsilon = scipy.optimize.brentq(missing, -1.5, 3.0, xtol=0.01)
            except ValueError:
                print(json.dumps({"table": kind, "schedule": schedule, "epsilon": None}))
                continue
            table = make(problem.with_epsilon(float(np.exp(log_epsilon))))
            errors = way_errors(table, crowd, movement, schedule)
            told = {
                "table": kind,
                "schedule": schedule,
                "epsilon": table.epsilon,
                "displacement_km": displacement(table, crowd, schedule),
                "way_km": float(errors.mean()),
                "way_95_km": interval(errors),
                "draws_a_way": float(
                    np.mean([len(np.unique(drawn_at(p.way, schedule))) for p in crowd])
                ),
            }
            print(json.dumps(told), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=3)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--reports", type=int, default=6)
    parser.add_argument("--city")
    parser.add_argument("--displacement", type=float, default=0.92)
    parser.add_argument("--records", type=int, default=120)
    parser.add_argument("--people", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    if chosen.city is None:
        moments(chosen.side, chosen.epsilon, chosen.reports)
    else:
        schedules(chosen)


if __name__ == "__main__":
    main()
