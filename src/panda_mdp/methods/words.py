"""What the literature on private text draws words from, as tables that are audited like any other.

SanText is the exponential mechanism. Of the others TEM alone is epsilon-mDP as integers; noise in
many dimensions has no cells that can be integrated and is estimated by draws, the last three keep
other promises than epsilon per distance. What does not hold is a `NoGuarantee` with its audit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

import numpy as np
import scipy

from panda_mdp.base.arrays import BLOCK_ENTRIES, FloatArray, stopwatch
from panda_mdp.errors import MethodError
from panda_mdp.methods.closed_forms import softmax
from panda_mdp.privacy.quantise import TOTAL, quantise
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import Table, audited_table

DRAWS = 100
"""Of noise around each word."""
MAHALANOBIS = 0.5
"""Weight of the words' own covariance beside a round one (Xu et al. 2020: lambda)."""
TRUNCATION = 0.001
"""TEM: the share of rows that may go beyond its radius."""
RARE = 0.9
REPLACED = 0.3
"""SanText+: the share of words, the rarest, that are sensitive; how often others are replaced."""
GROUP = 20
"""CusText: words of one group."""
LISTS = 5
"""1-Diffractor: orders of all words."""
TOPICS, TEXTS, LENGTH = 10, 500, 10
"""Words around which texts are made, texts, and their words."""


def laplace(problem: Problem, distances: FloatArray, own: float = 0.0) -> FloatArray:
    """Noise of density exp(-epsilon |v|) on the vector, then the nearest word (Feyisetan et al.
    2020), estimated by draws; `own` > 0 shapes it by the words'
    covariance: Mahalanobis (Xu et al. 2020), private in a norm of its own."""
    metric = problem.domain.metric
    if metric.kind not in ("euclidean", "angular"):
        raise MethodError(f"noise on words needs vectors; this domain is {problem.domain!r}")
    vectors = metric.embedding
    rng, (size, dimensions) = np.random.default_rng(0), vectors.shape
    covariance = np.atleast_2d(np.cov(vectors.T))
    covariance *= dimensions / np.trace(covariance)
    values, axes = np.linalg.eigh(own * covariance + (1 - own) * np.eye(dimensions))
    shape = axes * np.sqrt(np.maximum(values, 0.0))
    norms = (vectors**2).sum(axis=1)
    rows = np.empty((size, size))
    for record, vector in enumerate(vectors):
        noise = rng.normal(size=(DRAWS, dimensions))
        length = rng.gamma(dimensions, 1 / problem.epsilon, (DRAWS, 1))
        noise *= length / np.linalg.norm(noise, axis=1, keepdims=True)
        nearest = (norms - 2 * (vector + noise @ shape.T) @ vectors.T).argmin(axis=1)
        rows[record] = np.bincount(nearest, minlength=size) / DRAWS
    return rows


def truncated(problem: Problem, distances: FloatArray) -> FloatArray:
    """TEM (Carvalho et al. 2021): words beyond a radius share one score, so it is the exponential
    mechanism over min(d, radius), which is 1-Lipschitz: epsilon-mDP."""
    odds = (1 - TRUNCATION) * max(1, len(distances) - 1) / TRUNCATION
    radius = 2 * np.log(odds) / problem.epsilon
    return softmax(-problem.epsilon / 2 * np.minimum(distances, radius))


def santext_plus(problem: Problem, distances: FloatArray) -> FloatArray:
    """Yue et al. 2021: sensitive words are drawn by SanText among themselves; others stay, or are
    replaced by one of these. Of equally rare words the later ones of the file are rarer."""
    rarest = np.argsort(problem.prior[::-1], kind="stable")[: round(RARE * len(distances))]
    sensitive = np.zeros(len(distances), bool)
    sensitive[len(distances) - 1 - rarest] = True
    rows = softmax(np.where(sensitive, -problem.epsilon * distances / 2, -np.inf))
    rows[~sensitive] *= REPLACED
    return rows + np.diag(np.where(sensitive, 0.0, 1 - REPLACED))


def custext(problem: Problem, distances: FloatArray) -> FloatArray:
    """Chen et al. 2023: groups of near words, each word drawn within its own by the exponential
    mechanism over distances scaled to 1: epsilon-DP inside a group, nothing between two."""
    logits = np.full_like(distances, -np.inf)
    free = np.arange(len(distances))
    while len(free):
        order = np.argsort(distances[free[0], free], kind="stable")
        group = np.ix_(free[order[:GROUP]], free[order[:GROUP]])
        widest = distances[group].max(axis=1, keepdims=True)
        logits[group] = -problem.epsilon * distances[group] / np.where(widest > 0, widest, 1) / 2
        free = np.sort(free[order[GROUP:]])
    return softmax(logits)


def diffractor(problem: Problem, distances: FloatArray) -> FloatArray:
    """1-Diffractor (Meisenbacher et al. 2024): the truncated geometric mechanism over places in a
    list of all words, each near the one before; one list of several: private in places."""
    size = len(distances)
    rng = np.random.default_rng(0)
    rows = np.zeros_like(distances)
    steps = np.exp(-problem.epsilon * np.abs(np.subtract.outer(np.arange(size), np.arange(size))))
    ends = np.where(np.isin(np.arange(size), (0, size - 1)), 1.0, -np.expm1(-problem.epsilon))
    for _ in range(LISTS):
        order = [int(rng.integers(size))]
        left = np.ones(size, bool)
        left[order] = False
        while left.any():
            order.append(int(np.where(left, distances[order[-1]], np.inf).argmin()))
            left[order[-1]] = False
        rows[np.ix_(order, order)] += steps * ends
    return rows / rows.sum(axis=1, keepdims=True)


RULES: Mapping[str, Callable[[Problem, FloatArray], FloatArray]] = MappingProxyType(
    {
        "words_laplace": laplace,
        "words_mahalanobis": partial(laplace, own=MAHALANOBIS),
        "tem": truncated,
        "santext_plus": santext_plus,
        "custext": custext,
        "diffractor": diffractor,
    }
)


def as_words(table: Table) -> dict[str, float]:
    """How often a word is drawn as it is, and how often the topic of a text, of ten, is told from
    the mean vector of what was drawn for its ten words; nothing where records are no vectors that
    may all be reported."""
    problem = table.problem
    domain = problem.domain
    records = problem.reports.records
    vectors = domain.metric.kind in ("euclidean", "angular") and domain.metric.plane is None
    if not vectors or records is None or len(records) < domain.size:
        return {}
    kept = np.zeros(domain.size)
    for some in np.array_split(records, -(-(domain.size**2) // BLOCK_ENTRIES)):
        own = some[:, None] == records
        kept[some] = np.where(own, table.weights[some], 0).sum(axis=1) / TOTAL
    rng = np.random.default_rng(2)
    anchors = rng.permutation(domain.size)[:TOPICS]
    around = np.argsort(domain.distances(anchors), axis=1)[:, : 2 * LENGTH]
    topic = rng.integers(len(anchors), size=TEXTS)
    texts = np.array([rng.choice(around[k], LENGTH) for k in topic])
    places = domain.metric.embedding
    drawn = places[table.simulate(3).sample(texts.ravel())]
    means = drawn.reshape(TEXTS, LENGTH, -1).mean(axis=1)
    centres = places[around].mean(axis=1)
    told = scipy.spatial.distance.cdist(means, centres).argmin(axis=1) == topic
    return {"kept": float(problem.prior @ kept), "topics": float(told.mean())}


def field_table(name: str, problem: Problem) -> Table:
    """One of `RULES`, audited: a `Mechanism` where epsilon holds over all pairs, else a
    `NoGuarantee`. Every record is an output.

    >>> from panda_mdp import Domain
    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0]])
    >>> problem = Problem(domain, [0, 1, 2], domain.distances(), epsilon=1.0)
    >>> field_table("tem", problem).audit.holds, field_table("custext", problem).audit.holds
    (True, True)
    """
    spent = stopwatch()
    records = problem.reports.records
    if records is None or len(records) != problem.size:
        raise MethodError(
            f"{name} reports any word, and this problem has {problem.outputs_count} outputs for "
            f"{problem.size} records; make every record an output, or use optimal"
        )
    rows = RULES[name](problem, problem.domain.distances())[:, records]
    return audited_table(problem, quantise(rows), name, stages=spent("rows"))
