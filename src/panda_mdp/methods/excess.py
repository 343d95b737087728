"""Losses of single records, spread over their neighbours as private tables must spread them.

A column f of an epsilon-mDP table is log-Lipschitz, f_x <= exp(epsilon d(x, x')) f_x', so it cannot
gather on the few records where a loss d_x is large. For any kernel h(x, x') >= 0 with h(x, x) > 0,
f_x Z_x <= sum_x' p_x' h(x, x') f_x' with Z_x = sum_x' p_x' h(x, x') exp(-epsilon d(x, x')), hence

    sum_x p_x f_x d_x  <=  sum_x p_x f_x b_x,
    b_x = min(d_x, 0) + sum_x' h(x', x) p_x' max(d_x', 0) / Z_x'.

`Smoothing` takes tents h = max(0, 1 - d / R) of several radii, or b = d, the limit R -> 0,
whichever makes the positive part of b smallest. The proof and its use are in docs/pruning.md.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain

DENSE_RECORDS = 2048
"""Up to this many records all pairs are kept in one array."""
MOST_PAIRS = 1 << 21
WIDEST = 16.0
"""Radius of the widest tent, in nats: epsilon R."""
TENTS = 4
"""Each tent has half the radius of the one before."""
ROUNDING = 1e-11
"""Of the largest loss: bounds what float64 takes away in sums over all records."""
SAMPLE = 64
SPARSE_SHARE = 0.1
"""Losses of which fewer are positive are worth multiplying one by one."""

Kernel: TypeAlias = "FloatArray | scipy.sparse.csr_array"


class Smoothing:
    """Spreads losses over the records of one problem."""

    def __init__(self, problem: Problem) -> None:
        self.prior = problem.prior
        self.kernels = list(_kernels(problem))

    def spread(self, losses: FloatArray) -> FloatArray:
        """b of the module's head for each column d of `losses`, shape (K, n); not negative.

        For every f that is log-Lipschitz at epsilon, sum p f d <= sum p f b.
        """
        raised, base = np.maximum(losses, 0), np.minimum(losses, 0)
        best, least = raised, self._size(raised)
        for kernel in self.kernels:
            smoothed = np.maximum(base + _product(kernel, raised), 0)
            size = self._size(smoothed)
            best = np.where(size < least, smoothed, best)
            least = np.minimum(least, size)
        return np.asarray(best + ROUNDING * np.abs(losses).max(initial=0))

    def _size(self, columns: FloatArray) -> FloatArray:
        # In units of the largest, so that squares stay in range.
        top = float(np.abs(columns).max(initial=0.0)) or 1.0
        return np.asarray(np.sqrt(self.prior @ (columns / top) ** 2) * top)


def _product(kernel: Kernel, columns: FloatArray) -> FloatArray:
    few = np.count_nonzero(columns) < SPARSE_SHARE * columns.size
    if few and not isinstance(kernel, np.ndarray):
        return np.asarray((kernel @ scipy.sparse.csc_array(columns)).toarray())
    return np.asarray(kernel @ columns)


def _kernels(problem: Problem) -> Iterator[Kernel]:
    """Matrices h(x', x) p_x' / Z_x' with x down and x' across, one for each tent."""
    domain, epsilon, prior = problem.domain, problem.epsilon, problem.prior
    if domain.size <= DENSE_RECORDS:
        between = domain.distances()
        for radius in _radii(WIDEST / epsilon):
            tent = np.maximum(0.0, 1 - between / radius)
            yield tent * _share(prior, (tent * np.exp(-epsilon * between)) @ prior)
        return
    widest = _affordable(domain, WIDEST / epsilon)
    near = _near(domain, widest)
    fade = np.exp(-epsilon * near.data)
    for radius in _radii(widest):
        height = np.maximum(0.0, 1 - near.data / radius)
        share = _share(prior, np.asarray(_like(near, height * fade) @ prior))
        yield _like(near, height * share[near.indices])


def _radii(widest: float) -> list[float]:
    return [widest / 2**k for k in range(TENTS)]


def _share(prior: FloatArray, reach: FloatArray) -> FloatArray:
    """p_x / Z_x; 0 for records without weight, whose losses count for nothing."""
    return np.divide(prior, reach, out=np.zeros_like(prior), where=prior > 0)


def _affordable(domain: Domain, radius: float) -> float:
    """The radius, halved until about MOST_PAIRS pairs lie within it."""
    some = np.linspace(0, domain.size - 1, SAMPLE).astype(np.int64)
    distance = domain.distances(some)
    while np.count_nonzero(distance <= radius) * domain.size / SAMPLE > 2 * MOST_PAIRS:
        radius /= 2
    return radius


def _like(pattern: scipy.sparse.csr_array, data: FloatArray) -> scipy.sparse.csr_array:
    return scipy.sparse.csr_array((data, pattern.indices, pattern.indptr), shape=pattern.shape)


def _near(domain: Domain, radius: float) -> scipy.sparse.csr_array:
    """Distances of all pairs within a radius, both ways, and of every record to itself (0)."""
    chunks = list(domain.pairs_within(radius))
    own = np.arange(domain.size)
    first = np.concatenate([own, *(i for i, _, _ in chunks), *(j for _, j, _ in chunks)])
    second = np.concatenate([own, *(j for _, j, _ in chunks), *(i for i, _, _ in chunks)])
    distance = np.concatenate(
        [np.zeros(domain.size), *(d for _, _, d in chunks), *(d for _, _, d in chunks)]
    )
    return scipy.sparse.csr_array((distance, (first, second)), shape=(domain.size, domain.size))
