"""The exponential mechanism, and exponents raised until the audit is tight."""

from __future__ import annotations

import time

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.privacy.audit import audit_weights
from panda_mdp.privacy.quantise import BITS, quantise
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import Mechanism
from panda_mdp.table.release import FLOOR_SHARE, mix, release

TIGHTNESS = 1e-4
"""How far below epsilon, relatively, a tight table's audited epsilon may end."""
SMALLEST_ENTRY = 2.0 ** (24 - BITS)
"""Entries below this lose too many digits as integers of 62 bits; the floor lifts them."""
LARGEST_FACTOR = 2.0**20
"""No exponent is raised further: a table that still has room tells (almost) nothing apart."""


def exponential(problem: Problem, tight: bool = False) -> Mechanism:
    """The exponential mechanism (EM): weights exp(-epsilon d(x, y) / 2) over the outputs y.

    Guarantee: epsilon-mDP. By the triangle inequality the weight of an output changes by a factor
    of at most exp(epsilon d(x, x') / 2) between two records, and so does the row's sum, by which
    it is divided. (The paper's text has epsilon d in the exponent, which is twice the budget; its
    published code has epsilon d / 2.)

    `tight=True` gives weights exp(-a d(x, y)) with the exponent a raised from epsilon / 2 until
    the audit of the final integers meets epsilon: within 1e-4 relative, never above. The guarantee
    is then the audit's.

    >>> from panda_mdp import Domain
    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0]])
    >>> loss = [[0.0, 2.0], [1.0, 1.0], [2.0, 0.0]]
    >>> em = exponential(Problem(domain, [0, 2], loss, epsilon=1.0))
    >>> em.matrix[:, 0].round(4).tolist(), em.audit.holds
    ([0.7311, 0.5, 0.2689], True)
    """
    start = time.perf_counter()
    distances = problem.reports.distances(problem.domain)
    stages = (("distances", time.perf_counter() - start),)
    return from_scores(problem, distances, tight=tight, method="exponential", stages=stages)


def from_scores(
    problem: Problem,
    scores: FloatArray,
    *,
    tight: bool,
    method: str,
    stages: tuple[tuple[str, float], ...] = (),
    details: dict[str, float | bool] | None = None,
) -> Mechanism:
    """Weights exp(-epsilon s(x, y) / 2) for scores s, shape (K, m), that are 1-Lipschitz in x.

    Is epsilon-mDP: weight and row sum each change by at most exp(epsilon d(x, x') / 2).
    """
    start = time.perf_counter()
    half = problem.epsilon / 2
    exponent = tight_exponent(problem, scores) if tight else half
    matrix = softmax(-exponent * scores)
    step = "raise the exponent" if tight else "weights"
    facts = {**(details or {}), "tight": tight, "exponent": exponent}
    return release(
        problem,
        floored(matrix) if exponent > half else matrix,
        method=f"{method}, tight" if tight else method,
        stages=(*stages, (step, time.perf_counter() - start)),
        details=facts,
    )


def tight_exponent(problem: Problem, scores: FloatArray) -> float:
    """The exponent a >= epsilon / 2 for which exp(-a s) just meets epsilon on its integers.

    Bracketed, so the answer's own audit is known to hold; it ends within `TIGHTNESS` below epsilon
    unless no exponent up to `LARGEST_FACTOR` times epsilon / 2 reaches epsilon, in which case that
    largest one is taken (a single output, or scores that do not depend on the record).
    """
    target = problem.epsilon
    low = target / 2
    low_rate = _audited(problem, scores, low)
    if low_rate >= target * (1 - TIGHTNESS):
        return low
    high, high_rate = 2 * low, _audited(problem, scores, 2 * low)
    while high_rate <= target:
        if high_rate >= target * (1 - TIGHTNESS) or high >= LARGEST_FACTOR * target / 2:
            return high
        low, low_rate = high, high_rate
        high, high_rate = 2 * high, _audited(problem, scores, 2 * high)
    while low_rate < target * (1 - TIGHTNESS):
        # The rate is almost linear in the exponent: interpolate a hair below the target, and
        # stay away from the ends so that the bracket always shrinks like a bisection.
        share = 0.5
        if np.isfinite(high_rate):
            aim = target * (1 - TIGHTNESS / 3)
            share = min(max((aim - low_rate) / (high_rate - low_rate), 0.05), 0.95)
        middle = low + share * (high - low)
        if not low < middle < high:
            break
        rate = _audited(problem, scores, middle)
        if rate <= target:
            low, low_rate = middle, rate
        else:
            high, high_rate = middle, rate
    return low


def floored(matrix: FloatArray) -> FloatArray:
    """The matrix, with a share of 1e-8 of the uniform row where entries are too small to round."""
    return matrix if matrix.min() >= SMALLEST_ENTRY else mix(matrix, FLOOR_SHARE)


def softmax(logits: FloatArray) -> FloatArray:
    """Rows exp(logit) over their sums, without overflow."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def _audited(problem: Problem, scores: FloatArray, exponent: float) -> float:
    weights = quantise(floored(softmax(-exponent * scores)))
    return audit_weights(problem.domain, problem.outputs, weights, problem.epsilon).epsilon
