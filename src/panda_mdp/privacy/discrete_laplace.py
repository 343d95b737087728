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
    return np.array([_signed(rate) for _ in range(count)], dtype=np.int64)


def _signed(rate: Fraction) -> int:
    while True:
        size = geometric(rate)
        negative = secrets.randbelow(2) == 1
        # Zero would otherwise come up for both signs.
        if size or not negative:
            return -size if negative else size


def geometric(rate: Fraction) -> int:
    """One draw of Pr[Z = z] = (1 - q) q^z, z from 0 on, with q = exp(-rate)."""
    s, t = rate.as_integer_ratio()
    rest = secrets.randbelow(t)
    while not _bernoulli_exp(rest, t):
        rest = secrets.randbelow(t)
    whole = 0
    while _bernoulli_exp(1, 1):
        whole += 1
    return (rest + t * whole) // s


def happens(exponent: Fraction) -> bool:
    """True with probability exp(-exponent), for a fraction that is not negative."""
    whole, rest = divmod(exponent, 1)
    return all(_bernoulli_exp(1, 1) for _ in range(whole)) and _bernoulli_exp(
        *rest.as_integer_ratio()
    )


def _bernoulli_exp(numerator: int, denominator: int) -> bool:
    """True with probability exp(-numerator / denominator), for a fraction in [0, 1]."""
    k = 1
    # The run of successes with chances g, g/2, g/3, ... has odd length + 1 with chance exp(-g).
    while secrets.randbelow(denominator * k) < numerator:
        k += 1
    return k % 2 == 1
