"""Exact noise on integers: the discrete Laplace distribution, without a float on the way.

    Pr[Z = z] = (1 - q) / (1 + q) q^|z|,    q = exp(-epsilon / sensitivity).

Sampled as by Canonne, Kamath and Steinke (2020, algorithm 2) from uniform integers of the
operating system's generator; epsilon / sensitivity is taken as the rational number that it is.
"""

from __future__ import annotations

import secrets
from fractions import Fraction

import numpy as np

from panda_mdp.base.arrays import IntArray
from panda_mdp.errors import PrivacyError


def discrete_laplace(rate: Fraction, count: int) -> IntArray:
    """`count` independent draws with q = exp(-rate)."""
    if rate <= 0:
        raise PrivacyError(f"the rate of the noise is {rate}; it must be positive")
    return np.array([_draw(rate.denominator, rate.numerator) for _ in range(count)], dtype=np.int64)


def _draw(t: int, s: int) -> int:
    """One draw with q = exp(-s / t)."""
    while True:
        rest = secrets.randbelow(t)
        if not _bernoulli_exp(rest, t):
            continue
        whole = 0
        while _bernoulli_exp(1, 1):
            whole += 1
        size = (rest + t * whole) // s
        negative = secrets.randbelow(2) == 1
        # Zero would otherwise come up for both signs.
        if negative and size == 0:
            continue
        return -size if negative else size


def _bernoulli_exp(numerator: int, denominator: int) -> bool:
    """True with probability exp(-numerator / denominator), for a fraction in [0, 1]."""
    k = 1
    # The run of successes with chances g, g/2, g/3, ... has odd length + 1 with chance exp(-g).
    while secrets.randbelow(denominator * k) < numerator:
        k += 1
    return k % 2 == 1
