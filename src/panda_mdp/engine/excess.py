"""How much a private table can lose, on average over records, where single records lose more.

A column f of an epsilon-mDP table is log-Lipschitz, f_x <= exp(epsilon d(x, x')) f_x', so it cannot
gather on the few records where a loss d_x is large. For any kernel h(x, x') >= 0 with h(x, x) > 0,
f_x Z_x <= sum_x' p_x' h(x, x') f_x' with Z_x = sum_x' p_x' h(x, x') exp(-epsilon d(x, x')), hence

    sum_x p_x f_x d_x  <=  sum_x p_x f_x max over x' with p_x' > 0 of
                           [ min(d_x', 0) + sum_x h(x, x') p_x max(d_x, 0) / Z_x ].

`Smoothing` takes the least of these bounds over tents h = max(0, 1 - d / R) of several radii and of
max_x d_x, which is the limit R -> 0. The proof and its use are in docs/pruning.md.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import sparse

from panda_mdp._arrays import FloatArray
from panda_mdp.domain import Domain
from panda_mdp.problem import Problem

DENSE_RECORDS = 2048
"""Up to this many records all pairs are kept in one array."""
MOST_PAIRS = 1 << 21
WIDEST = 16.0
"""Radius of the widest tent, in nats: epsilon R."""
TENTS = 4
"""Each tent has half the radius of the one before."""
ROUNDING = 1e-11
"""Of the largest difference: bounds what float64 adds to sums over all records."""
SAMPLE = 64

Kernel = FloatArray | sparse.csr_array


class Smoothing:
    """Bounds on mean losses under the columns of private tables of one problem."""

    def __init__(self, problem: Problem) -> None:
        self.weighted = problem.prior > 0
        self.kernels = list(_kernels(problem))

    def excess(self, losses: FloatArray) -> FloatArray:
        """Upper bounds on sum_x p_x f_x d_x / sum_x p_x f_x over log-Lipschitz f, for each column d
        of `losses`, shape (K, n)."""
        rows = losses[self.weighted]
        best = rows.max(axis=0)
        raised, base = np.maximum(losses, 0), np.minimum(rows, 0)
        for kernel in self.kernels:
            spread = np.asarray(kernel @ raised)[self.weighted]
            best = np.minimum(best, (base + spread).max(axis=0))
        return np.asarray(best + ROUNDING * np.abs(losses).max(initial=0))


def _kernels(problem: Problem) -> Iterator[Kernel]:
    """Matrices h(x', x) p_x / Z_x, one for each tent."""
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
    apart = domain.distances(some)
    while np.count_nonzero(apart <= radius) * domain.size / SAMPLE > 2 * MOST_PAIRS:
        radius /= 2
    return radius


def _like(pattern: sparse.csr_array, data: FloatArray) -> sparse.csr_array:
    return sparse.csr_array((data, pattern.indices, pattern.indptr), shape=pattern.shape)


def _near(domain: Domain, radius: float) -> sparse.csr_array:
    """Distances of all pairs within a radius, both ways, and of every record to itself (0)."""
    chunks = list(domain.pairs_within(radius))
    own = np.arange(domain.size)
    first = np.concatenate([own, *(i for i, _, _ in chunks), *(j for _, j, _ in chunks)])
    second = np.concatenate([own, *(j for _, j, _ in chunks), *(i for i, _, _ in chunks)])
    apart = np.concatenate(
        [np.zeros(domain.size), *(d for _, _, d in chunks), *(d for _, _, d in chunks)]
    )
    return sparse.csr_array((apart, (first, second)), shape=(domain.size, domain.size))
