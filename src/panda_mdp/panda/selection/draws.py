"""Exact draws of anchor sets from integer probabilities, with random bits alone.

A probability is an integer p over 2^62. One coin is a 62-bit uniform integer u < p. A count of
successes among n equal coins needs no n coins: all n uniforms are compared with p bit by bit, from
the top, and only their number is kept. Where p has a one, the uniforms with a zero are decided
(success); where p has a zero, those with a one are decided (failure); how many of the undecided
have a one is the number of ones in as many random bits. About 2 n random bits in all, and the count
is binomial exactly, not up to a float.
"""

from __future__ import annotations

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.privacy.quantise import BITS, TOTAL
from panda_mdp.privacy.sampler import BitSource


def quantise_probability(values: FloatArray) -> FloatArray:
    """Probabilities rounded to multiples of 2^-62, strictly between 0 and 1.

    What would round to 0 or 1 becomes the nearest multiple inside: an outcome that is impossible
    for one record and possible for another would give the record away (Proposition 2). Float64
    holds every result exactly: above 2^-10 a float is such a multiple already, below it the
    multiple has fewer than 53 bits. So float formulas see the numbers that are drawn.
    """
    units = np.clip(np.rint(np.asarray(values) * float(TOTAL)), 1.0, float(TOTAL) * (1 - 2.0**-53))
    return np.asarray(units / float(TOTAL))


def numerators(probabilities: FloatArray) -> IntArray:
    """The integers p of quantised probabilities p / 2^62."""
    return (np.asarray(probabilities) * float(TOTAL)).astype(np.int64)


def flip(probabilities: FloatArray, bits: BitSource) -> BoolArray:
    """One coin for each quantised probability."""
    return np.asarray(bits.integers(len(probabilities)) < numerators(probabilities))


def ones(count: int, bits: BitSource) -> int:
    """The number of ones among `count` fair random bits."""
    words = bits.integers(-(-count // BITS))
    spare = len(words) * BITS - count
    if spare:
        words = words.copy()
        words[-1] >>= spare
    return int(np.unpackbits(words.view(np.uint8)).sum(dtype=np.int64))


def binomial(count: int, probability: float, bits: BitSource) -> int:
    """How many of `count` coins with one quantised probability succeed, exactly."""
    numerator = int(numerators(np.array([probability]))[0])
    undecided, successes = count, 0
    for level in range(BITS - 1, -1, -1):
        if undecided == 0:
            break
        high = ones(undecided, bits)
        if numerator >> level & 1:
            successes += undecided - high
            undecided = high
        else:
            undecided -= high
    return successes


def below(limit: int, count: int, bits: BitSource) -> IntArray:
    """`count` independent uniform integers in [0, limit), by rejection."""
    usable = TOTAL - TOTAL % limit
    accepted: list[IntArray] = []
    missing = count
    while missing:
        draws = bits.integers(missing)
        draws = draws[draws < usable]
        accepted.append(draws % limit)
        missing -= len(draws)
    return np.concatenate(accepted) if accepted else np.empty(0, dtype=np.int64)


def subset(size: int, count: int, bits: BitSource) -> IntArray:
    """A uniformly random subset of 0..size-1 with `count` members, ascending.

    The first distinct values of a sequence of uniform draws are a uniform subset; for more than
    half of the members the complement is drawn instead.
    """
    if 2 * count > size:
        out = np.ones(size, dtype=bool)
        out[subset(size, size - count, bits)] = False
        return np.flatnonzero(out)
    member = np.zeros(size, dtype=bool)
    seen = np.empty(size, dtype=np.int64)
    missing = count
    while missing:
        sequence = below(size, missing * 3 // 2 + 8, bits)
        sequence = sequence[~member[sequence]]
        # Written from the back, so that the first place of a value is the one that remains.
        places = np.arange(len(sequence))
        seen[sequence[::-1]] = places[::-1]
        fresh = sequence[seen[sequence] == places][:missing]
        member[fresh] = True
        missing -= len(fresh)
    return np.flatnonzero(member)
