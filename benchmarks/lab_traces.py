"""What a whole trace tells of one moment, beside composition.

    python benchmarks/lab_traces.py

Places on a grid of 1 km and three ways to move: to a neighbour or nowhere; the same, but three
moves in ten go to the middle; the same, but three in ten go anywhere. Chains begin where they rest.
"""

from __future__ import annotations

import argparse
import json

import numpy as np

from panda_mdp.meaning.several import Movement, moment_leakage


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--side", type=int, default=3)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--reports", type=int, default=6)
    chosen = parser.parse_args()
    at = np.stack(np.divmod(np.arange(chosen.side**2), chosen.side), axis=1)
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
    nats = chosen.epsilon * apart
    for name, steps in moves.items():
        rest = np.linalg.matrix_power(steps, 1 << 14)[0]
        told = moment_leakage(Movement(rest / rest.sum(), steps), nats, chosen.reports)
        by_moment = (told[:, pairs] / nats[pairs]).max(axis=1)
        facts = {"whole_trace": by_moment.max(), "past_alone": by_moment[-1]}
        print(json.dumps({"moves": name, "composition": chosen.reports, **facts}), flush=True)


if __name__ == "__main__":
    main()
