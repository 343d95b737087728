"""Elastic protection: a metric that is stretched where people are many and shrunk where a place
is rare or sensitive, the same for everybody and audited like any other.

A domain's distances are multiplied by public scales s_x > 0 and made a metric again:

    d_s(x, x') = the shortest path from x to x' over steps of length d(a, b) (s_a + s_b) / 2.

With min s d <= d_s <= d (s_x + s_x') / 2, a table that is epsilon-mDP for d_s protects x as one at
about epsilon s_x would for d: smaller scales are more noise. Chatzikokolakis, Palamidessi and
Stronati, Constructing elastic distinguishability metrics for location privacy, PoPETs 2015.

The scales must be public and the same for all: a scale that follows one person (a fence round a
home) would tell where that is by the shape of the reports. Scales that depend on people's data
belong to a private prior first (`Prior.private`).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import scipy

from panda_mdp.base.arrays import FloatArray
from panda_mdp.errors import DomainError
from panda_mdp.space.domain import Domain

LARGEST = 2_000
"""Records up to which all shortest paths are computed, K^3 steps."""


def elastic(domain: Domain, scale: npt.ArrayLike) -> Domain:
    """The domain under the elastic metric of public scales, (K,).

    A true metric by construction; `Domain.from_matrix` checks the triangle inequality of all
    triples again. Losses stay those of the plain distances: make them from `domain`.

    >>> line = Domain.from_vectors([[0.0], [1.0], [2.0]])
    >>> elastic(line, [1.0, 1.0, 0.5]).distances().tolist()
    [[0.0, 1.0, 1.5], [1.0, 0.0, 0.75], [1.5, 0.75, 0.0]]
    """
    scales = np.asarray(scale, dtype=np.float64)
    if scales.shape != (domain.size,):
        raise DomainError(
            f"scale has shape {scales.shape}; give one number per record, ({domain.size},)"
        )
    bad = np.flatnonzero(~(np.isfinite(scales) & (scales > 0)))
    if len(bad):
        raise DomainError(f"scale[{bad[0]}] is {scales[bad[0]]}; scales are positive and finite")
    if domain.size > LARGEST:
        raise DomainError(
            f"the domain has {domain.size:,} records; elastic metrics take up to {LARGEST:,}"
        )
    steps = domain.distances() * (0.5 * (scales[:, None] + scales))
    made = Domain.from_matrix(shortest_ways(steps), unit=domain.unit)
    return made if domain.nodes is None else made.with_nodes(domain.nodes)


def shortest_ways(steps: FloatArray) -> FloatArray:
    """Lengths of the shortest ways over symmetric steps, (K, K), symmetric to the last bit."""
    lengths = scipy.sparse.csgraph.shortest_path(steps, method="FW", directed=False)
    return np.asarray(0.5 * (lengths + lengths.T))
