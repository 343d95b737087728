"""Closed-form mechanisms of exponential type."""

from __future__ import annotations

import time

import numpy as np

from panda_mdp._arrays import FloatArray
from panda_mdp.mechanism import Mechanism
from panda_mdp.privacy.release import release
from panda_mdp.problem import Problem


def exponential(problem: Problem, tight: bool = False) -> Mechanism:
    """The exponential mechanism of the paper: weights exp(-epsilon d(x, y) / 2).

    Is epsilon-mDP: numerator and normaliser each change by at most exp(epsilon d / 2).
    """
    start = time.perf_counter()
    scores = problem.domain.distances(None, problem.outputs)
    matrix = softmax(-problem.epsilon / 2 * scores)
    return release(
        problem,
        matrix,
        method="exponential",
        stages=(("weights", time.perf_counter() - start),),
    )


def softmax(logits: FloatArray) -> FloatArray:
    """Rows exp(logit) over their sums, without overflow."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))
