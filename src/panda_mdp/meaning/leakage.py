"""What an attacker gains from a table, measure by measure, on plain arrays.

A channel z (K x m, rows on the simplex) carries a secret record x, drawn from a prior p, to an
observed output y. Every measure is a finite sum in float64; nothing is sampled. The attacker
knows p and z and does the best that can be done. Names and definitions follow quantitative
information flow (Alvim, Chatzikokolakis, McIver, Morgan, Palamidessi and Smith, The Science of
Quantitative Information Flow, Springer 2020) and, for locations, Shokri et al. (S&P 2011).

Entropies are in bits. `prior` has shape (K,), `matrix` (K, m).
"""

from __future__ import annotations

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.errors import InvalidInputError


def joint(prior: FloatArray, matrix: FloatArray) -> FloatArray:
    """p_x z_xy, the probability of record and output together, (K, m)."""
    if prior.ndim != 1 or matrix.ndim != 2 or len(prior) != len(matrix):
        raise InvalidInputError(
            f"prior has shape {prior.shape} and the channel {matrix.shape}; give (K,) and (K, m)"
        )
    if not (prior >= 0).all():
        raise InvalidInputError("the prior has an entry that is negative or no number")
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
