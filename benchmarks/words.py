"""Words: the certified optimum over whole vocabularies, beside the exponential mechanism.

    python benchmarks/words.py [--sizes 300,1000] [--epsilons 0.5,0.75,1,1.25,1.5,2,3]
                               [--backend auto] [--seconds 60] [--out out/words.json]

Vectors are made: 300 dimensions, words in families of five on average. The centres of families are
normal, so any two are about 8 apart, as high dimensions have it; a word is its centre and noise of
its own size (a log-normal of 0.3), and everything is scaled so that the nearest other word is at
3.3 in the median. Loss is the distance of word and report, the prior uniform. Printed are the loss,
the bound and its proof, the words that are drawn as they are, and the same of the exponential
mechanism up to 2,000 words.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy

import panda_mdp as pm
from panda_mdp.space.embeddings import Embeddings

FAR, NEAR, FAMILY, DIMENSIONS = 8.0, 3.3, 5, 300
COMPARED = 2000


def word_vectors(count: int, seed: int = 0) -> Embeddings:
    """Word-like vectors, called word0, word1, ..."""
    rng = np.random.default_rng(seed)
    family = rng.integers(0, max(1, count // FAMILY), count)
    centres = rng.normal(size=(count, DIMENSIONS))[family]
    sizes = np.exp(0.3 * rng.normal(size=(count, 1)))
    own = 1.1 * NEAR / np.sqrt(2 * DIMENSIONS)
    spread = np.sqrt((FAR**2 - 1.1 * (1.1 * NEAR) ** 2) / (2 * DIMENSIONS))
    vectors = spread * centres + own * sizes * rng.normal(size=(count, DIMENSIONS))
    some = rng.permutation(count)[:COMPARED]
    apart = scipy.spatial.distance.cdist(vectors[some], vectors)
    apart[np.arange(len(some)), some] = np.inf
    vectors *= NEAR / np.median(apart.min(axis=1))
    return Embeddings(tuple(f"word{k}" for k in range(count)), vectors)


def kept_share(table: pm.Mechanism) -> float:
    """How often a word is drawn as it is."""
    size = table.problem.size
    some = np.arange(0, size, max(1, size // 1000))
    return float(np.mean([table.row(int(k))[k] for k in some]))


def measure(count: int, epsilon: float, backend: Any, seconds: float) -> dict[str, Any]:
    """One line of the table."""
    domain = word_vectors(count).domain("euclidean")
    every = np.arange(count)
    problem = pm.Problem(domain, every, pm.distance_loss(domain, every), epsilon)
    start = time.perf_counter()
    table = pm.optimal(problem, gap=0.01, backend=backend, time_limit=seconds)
    spent = time.perf_counter() - start
    answer = {
        "words": count,
        "epsilon": epsilon,
        "seconds": spent,
        "loss": table.loss,
        "lower_bound": table.lower_bound,
        "gap": table.gap,
        "bound": "none" if table.bound is None else table.bound.words,
        "kept": kept_share(table),
        "audited": table.audit.epsilon,
        "rows": type(table.weights).__name__,
        "iterations": table.details["iterations"],
        "stopped": str(table.details["stopped"]),
    }
    if count <= COMPARED:
        plain = pm.exponential(problem)
        answer |= {"exponential_loss": plain.loss, "exponential_kept": kept_share(plain)}
    return answer


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="300,1000")
    parser.add_argument("--epsilons", default="0.5,0.75,1,1.25,1.5,2,3")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--out", type=Path, default=Path("out/words.json"))
    given = parser.parse_args()
    warnings.simplefilter("ignore", pm.errors.GapWarning)
    lines = []
    for count in map(int, given.sizes.split(",")):
        for epsilon in map(float, given.epsilons.split(",")):
            line = measure(count, epsilon, given.backend, given.seconds)
            lines.append(line)
            print(json.dumps(line), flush=True)
            given.out.parent.mkdir(parents=True, exist_ok=True)
            given.out.write_text(json.dumps(lines, indent=2) + "\n")


if __name__ == "__main__":
    main()
