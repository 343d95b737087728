"""Permute-and-flip with distance as the score, as an exact table."""

from __future__ import annotations

import time

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import Mechanism
from panda_mdp.table.release import release


def permute_and_flip(problem: Problem) -> Mechanism:
    """Take the outputs in random order; report y with probability exp(-epsilon (d_xy - d_x) / 2).

    d_xy is the distance of record and output and d_x that of the nearest output, which is reported
    when its turn comes. An output's turn is a uniform time t, so with p_y the probability above

        z(y|x) = p_y * integral over t in [0, 1] of the product over s != y of (1 - p_s t),

    a polynomial of degree m - 1: Gauss-Legendre with m / 2 points is exact. Never a larger expected
    distance than the exponential mechanism of the same scores (McKenna and Sheldon, NeurIPS 2020).

    Guarantee: epsilon-mDP. Scores move by at most d(x, x') between records, and permute-and-flip
    at epsilon / 2 then changes probabilities by at most exp(2 (epsilon / 2) d(x, x')), their
    proposition 1. The audit confirms the result.

    >>> from panda_mdp import Domain
    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0]])
    >>> problem = Problem(domain, [0, 2], [[0, 2], [1, 1], [2, 0]], epsilon=1.0)
    >>> permute_and_flip(problem).matrix.round(4).tolist()
    [[0.8161, 0.1839], [0.5, 0.5], [0.1839, 0.8161]]
    """
    start = time.perf_counter()
    distance = problem.domain.distances(None, problem.outputs)
    chance = np.exp(-0.5 * problem.epsilon * (distance - distance.min(axis=1, keepdims=True)))
    matrix = flip_probabilities(chance)
    return release(
        problem,
        matrix,
        method="permute and flip",
        stages=(("integrate", time.perf_counter() - start),),
    )


def flip_probabilities(chance: FloatArray) -> FloatArray:
    """The distribution over outputs, row by row, for chances p with a 1 in every row; (K, m)."""
    nodes, weights = np.polynomial.legendre.leggauss((chance.shape[1] + 1) // 2)
    total = np.zeros_like(chance)
    for node, weight in zip(0.5 * (nodes + 1), 0.5 * weights, strict=True):
        miss = 1.0 - node * chance
        total += weight * (chance * np.exp(np.log(miss).sum(axis=1, keepdims=True)) / miss)
    return np.asarray(total / total.sum(axis=1, keepdims=True))
