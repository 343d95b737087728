"""What an attacker gains from a table, measure by measure, on plain arrays.

A channel z (K x m, rows on the simplex) carries a secret record x, drawn from a prior p, to an
observed output y. Every measure is a finite sum in float64; nothing is sampled. The attacker
knows p and z and does the best that can be done. Names and definitions follow quantitative
information flow (Alvim, Chatzikokolakis, McIver, Morgan, Palamidessi and Smith, The Science of
Quantitative Information Flow, Springer 2020) and, for locations, Shokri et al. (S&P 2011).

Entropies are in bits. `prior` has shape (K,), `matrix` (K, m).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, frozen
from panda_mdp.compute.highs import Lp
from panda_mdp.errors import InvalidInputError, MethodError, SolverError
from panda_mdp.table.mechanism import Table

LARGEST = 4_000_000
"""Entries of the LP's matrix that are taken on."""
TOLERANCE = 1e-7


def joint(prior: FloatArray, matrix: FloatArray) -> FloatArray:
    """p_x z_xy, the probability of record and output together, (K, m)."""
    if prior.ndim != 1 or matrix.ndim != 2 or len(prior) != len(matrix):
        msg = f"prior has shape {prior.shape} and the channel {matrix.shape}; give (K,) and (K, m)"
        raise InvalidInputError(msg)
    if not (prior >= 0).all():
        msg = "the prior has an entry that is negative or no number"
        raise InvalidInputError(msg)
    return np.asarray(prior[:, None] * matrix)


def posterior(prior: FloatArray, matrix: FloatArray) -> FloatArray:
    """What the attacker believes after each output: column y is p(x | y), (K, m).

    The column of an output that is never seen is 0.

    >>> posterior(np.array([0.5, 0.5]), np.array([[0.75, 0.25], [0.25, 0.75]])).tolist()
    [[0.75, 0.25], [0.25, 0.75]]
    """
    both = joint(prior, matrix)
    seen = both.sum(axis=0)
    return np.asarray(both / np.where(seen > 0, seen, 1.0))


def prior_vulnerability(prior: FloatArray) -> float:
    """max_x p_x: how often the best guess without any report is right."""
    return float(prior.max())


def bayes_vulnerability(prior: FloatArray, matrix: FloatArray) -> float:
    """sum_y max_x p_x z_xy: how often the best single guess of the record is right (Smith 2009)."""
    return float(joint(prior, matrix).max(axis=0).sum())


def bayes_risk(prior: FloatArray, matrix: FloatArray) -> float:
    """1 - Bayes vulnerability: how often the best guess is wrong (Chatzikokolakis et al. 2008)."""
    return 1.0 - bayes_vulnerability(prior, matrix)


def g_vulnerability(gain: FloatArray, prior: FloatArray, matrix: FloatArray) -> float:
    """sum_y max_w sum_x p_x z_xy g_wx for gains g, (guesses, K) (Alvim et al., CSF 2012).

    The identity as gain is Bayes vulnerability; g_wx = 1 where w lies within r of x is the
    probability of being located within r; minus a distance is minus the inference error.

    >>> fair, channel = np.array([0.5, 0.5]), np.array([[0.75, 0.25], [0.25, 0.75]])
    >>> g_vulnerability(np.eye(2), fair, channel)
    0.75
    """
    return float((gain @ joint(prior, matrix)).max(axis=0).sum())


def inference_error(distances: FloatArray, prior: FloatArray, matrix: FloatArray) -> float:
    """sum_y min_w sum_x p_x z_xy d(w, x), distances (guesses, K): how far off the best guess is.

    The expected error of the Bayesian attacker (Shokri et al., S&P 2011); a squared distance or
    any other cost will do.
    """
    return float((distances @ joint(prior, matrix)).min(axis=0).sum())


def located_within(
    radius: float, distances: FloatArray, prior: FloatArray, matrix: FloatArray
) -> float:
    """How often the best guess lies within `radius` of the record; distances (guesses, K)."""
    return g_vulnerability((distances <= radius).astype(np.float64), prior, matrix)


def min_entropy_leakage(prior: FloatArray, matrix: FloatArray) -> float:
    """log2 of posterior over prior Bayes vulnerability, in bits (Smith, FoSSaCS 2009)."""
    return float(np.log2(bayes_vulnerability(prior, matrix) / prior_vulnerability(prior)))


def entropy(distribution: FloatArray) -> float:
    """Shannon entropy in bits.

    >>> entropy(np.array([0.5, 0.25, 0.25, 0.0]))
    1.5
    """
    positive = distribution[distribution > 0]
    return float(-(positive @ np.log2(positive)))


def shannon_leakage(prior: FloatArray, matrix: FloatArray) -> float:
    """Mutual information I(X; Y) in bits, as a sum of terms without cancellation between entropies.

    sum_xy p_x z_xy log2(z_xy / q_y), q the distribution of outputs.
    """
    both = joint(prior, matrix)
    ratio = np.divide(matrix, prior @ matrix, out=np.ones_like(matrix), where=both > 0)
    return float(np.einsum("xy,xy->", both, np.log2(ratio)))


def multiplicative_capacity(matrix: FloatArray) -> float:
    """sum_y max_x z_xy: by which factor, at most over all priors and all non-negative gains, an
    attacker's success grows (the miracle theorem; attained at the uniform prior for Bayes
    vulnerability; Braun, Chatzikokolakis and Palamidessi 2009, Alvim et al. 2012)."""
    return float(matrix.max(axis=0).sum())


@dataclass(frozen=True, eq=False)
class Refinement:
    """Whether `other` is `base` followed by post-processing, with a proof either way.

    Where it holds, `other` leaks no more than `base` to any attacker with any prior and any gain
    (data processing); where it does not, some attacker gains more, and `gain` is one (the
    coriaceous theorem; McIver et al., POST 2014).
    """

    holds: bool
    residual: float
    """max |base R - other| for the best post-processing R that was computed."""
    post_processing: FloatArray
    """R, rows on the simplex, (outputs of base, outputs of other)."""
    gain: FloatArray | None
    """Gains g_wx, (outputs of other, K), of an attacker who at the uniform prior gains more from
    `other` than from `base`; None where no such attacker was computed."""
    advantage: float
    """V_g(other) - V_g(base) at the uniform prior for that gain, evaluated in float64; above 0 it
    proves that the refinement does not hold."""


def refinement(
    base: Table | FloatArray, other: Table | FloatArray, *, largest: int = LARGEST
) -> Refinement:
    """Whether `other` = `base` R for a stochastic matrix R, by a small LP.

        min t   s.t.   |sum_a base_xa R_ay - other_xy| <= t,   R on the simplex, row by row.

    R from the solver is put on the simplex exactly and the residual computed from it, the LP's
    prices become the gain of the attacker that proves the contrary; both are checked here, so
    the solver is not trusted. LPs of up to `largest` entries are taken on.

    >>> flip = np.array([[0.75, 0.25], [0.25, 0.75]])
    >>> refinement(np.eye(2), flip).holds, refinement(flip, np.eye(2)).holds
    (True, False)
    """
    first, second = _matrix(base), _matrix(other)
    if len(first) != len(second):
        msg = f"the tables have {len(first)} and {len(second)} records; they must be the same ones"
        raise MethodError(msg)
    made, gain = _solve(first, second, largest)
    residual = float(np.abs(first @ made - second).max())
    uniform = np.full(len(first), 1 / len(first))
    more = g_vulnerability(gain, uniform, second) - g_vulnerability(gain, uniform, first)
    holds = residual <= TOLERANCE
    proves = more > 0 and not holds
    return Refinement(
        holds=holds,
        residual=residual,
        post_processing=frozen(made),
        gain=frozen(gain) if proves else None,
        advantage=more if proves else 0.0,
    )


def _matrix(table: Table | FloatArray) -> FloatArray:
    if isinstance(table, Table):
        return table.matrix
    matrix = np.asarray(table, dtype=np.float64)
    if matrix.ndim != 2 or matrix.size == 0:
        msg = f"a channel has shape {matrix.shape}; give records by outputs, (K, m)"
        raise MethodError(msg)
    if not ((matrix >= 0).all() and np.allclose(matrix.sum(axis=1), 1.0, rtol=0, atol=1e-9)):
        msg = "every row of a channel must be probabilities: not negative, with sum 1"
        raise MethodError(msg)
    return matrix


def _solve(first: FloatArray, second: FloatArray, largest: int) -> tuple[FloatArray, FloatArray]:
    size, inner = first.shape
    outer = second.shape[1]
    entries = 2 * size * outer * (inner + 1) + inner * outer
    if entries > largest:
        msg = (
            f"the LP of this refinement has {entries:,} entries and at most {largest:,} are taken "
            "on; compare the mechanisms on fewer records or outputs"
        )
        raise MethodError(msg)
    product = scipy.sparse.kron(scipy.sparse.csr_array(first), scipy.sparse.eye_array(outer))
    slack = scipy.sparse.csr_array(np.ones((size * outer, 1)))
    simplex = scipy.sparse.kron(scipy.sparse.eye_array(inner), np.ones((1, outer)))
    blocks: list[Any] = [[product, -slack], [product, slack], [simplex, None]]
    wanted, free = second.ravel(), np.full(size * outer, np.inf)
    lp = Lp(
        np.append(np.zeros(inner * outer), 1.0),
        scipy.sparse.csr_array(scipy.sparse.block_array(blocks)),
        np.concatenate([-free, wanted, np.ones(inner)]),
        np.concatenate([wanted, free, np.ones(inner)]),
    )
    answer = lp.solve()
    if answer.primal is None or answer.prices is None:
        msg = f"HiGHS ended the refinement with {answer.status!r}; there is no verdict"
        raise SolverError(msg)
    table = np.maximum(answer.primal[:-1].reshape(inner, outer), 0.0)
    prices = answer.prices[: 2 * size * outer].reshape(2, size, outer)
    return np.asarray(table / table.sum(axis=1, keepdims=True)), np.asarray(prices.sum(axis=0).T)
