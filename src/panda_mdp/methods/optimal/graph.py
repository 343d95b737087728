"""Which pairs of records the solver constrains.

The privacy constraints of all pairs follow, up to a little, from those of near pairs. Leaving pairs
out only enlarges the feasible set, so any lower bound for the graph's problem is one for the true
problem; the exact repair then enforces all pairs.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.threads import by_slices
from panda_mdp.compute.closure import NEAR_NATS, Closure
from panda_mdp.space.domain import Domain
from panda_mdp.space.paths import delaunay

PER_RECORD = 2
"""Pairs that are added for a record at a time."""
LEAST_GAIN = 3e-5
"""Violations by less than this share of a row's mass are left to the repair."""
SMALL_GAIN = 3e-6
"""Of a row's mass, by which one group of outputs may miss a constraint before it is counted."""
NEIGHBOURS = 16
"""Of a record; half as many in a plane, where triangles give it more."""
ALL_PAIRS_RECORDS = 40
MAX_EXPONENT = 30.0
"""Edges with epsilon d beyond this bind nothing that is left above the floor; they are dropped,
never shortened: the bound must hold for the true constraints."""


@dataclass(frozen=True)
class Graph:
    """Undirected edges first < second with their true distances."""

    ends: IntArray
    length: FloatArray

    @property
    def count(self) -> int:
        return len(self.ends)

    def join(self, ends: IntArray, length: FloatArray) -> Graph:
        """This graph and further edges (which must be new), at the end."""
        return Graph(np.concatenate([self.ends, ends]), np.concatenate([self.length, length]))


def constraint_graph(
    domain: Domain, epsilon: float, neighbours: int = NEIGHBOURS, small: int = ALL_PAIRS_RECORDS
) -> Graph:
    """The nearest neighbours and, in a plane, the Delaunay triangulation; all pairs up to `small`
    records; for path metrics the edges, which imply all pairs."""
    if domain.size <= small and domain.metric.generating_pairs is None:
        return all_pairs(domain, epsilon)
    whole = _graph_of(domain, neighbours)
    short = epsilon * whole.length <= MAX_EXPONENT
    return Graph(np.ascontiguousarray(whole.ends[short]), whole.length[short])


@lru_cache(maxsize=1)
def _graph_of(domain: Domain, neighbours: int) -> Graph:
    """The graph before any edge is too long, kept: solves of one domain follow each other."""
    pairs = domain.metric.generating_pairs
    if pairs is None:
        # One core triangulates while the others look for neighbours.
        with ThreadPoolExecutor(1) as pool:
            plane = domain.plane
            triangles = None if plane is None else pool.submit(delaunay, plane)
            count = min(neighbours if plane is None else neighbours // 2, domain.size - 1)
            near, _ = domain.neighbours(count)
            pairs = np.stack([np.repeat(np.arange(domain.size), count), near.ravel()], axis=1)
            if triangles is not None:
                pairs = np.concatenate([pairs, triangles.result()])
    return measured(domain, distinct(pairs, domain.size), 0.0)


def all_pairs(domain: Domain, epsilon: float, most: float = MAX_EXPONENT) -> Graph:
    """Every pair of records with epsilon d of at most `most`, or the pairs that imply all."""
    pairs = domain.metric.generating_pairs
    if pairs is None:
        pairs = np.stack(np.triu_indices(domain.size, 1), axis=1)
    return measured(domain, pairs, epsilon, most)


def distinct(pairs: IntArray, size: int) -> IntArray:
    """The pairs of `size` records without order and repetition, sorted."""
    keys = np.unique(pairs.min(axis=1) * size + pairs.max(axis=1))
    return np.stack(np.divmod(keys, size), axis=1)


def measured(domain: Domain, ends: IntArray, epsilon: float, most: float = MAX_EXPONENT) -> Graph:
    """The edges whose epsilon d is at most `most`, with their lengths."""
    length = np.empty(len(ends))

    def work(part: slice) -> None:
        length[part] = domain.metric.pairs(ends[part, 0], ends[part, 1])

    by_slices(work, len(ends), 1 << 16)
    short = epsilon * length <= most
    return Graph(np.ascontiguousarray(ends[short]), length[short])


def broken_pairs(
    closure: Closure, graph: Graph, z: Any, epsilon: float, most: int = PER_RECORD
) -> Graph:
    """For every record the pairs outside the graph whose constraints a table of `closure` breaks
    the most.

    Few at a time: every edge slows the solver, and one edge often mends its neighbours' breaks.
    """
    broken, _ = closure.broken(z, epsilon, NEAR_NATS, (SMALL_GAIN, LEAST_GAIN), most)
    return missing(closure.domain, graph, closure.order[broken], epsilon)


def missing(domain: Domain, graph: Graph, pairs: IntArray, epsilon: float) -> Graph:
    """Those pairs of records that the graph lacks."""
    pairs = distinct(pairs, domain.size)
    old, keys = (e.min(axis=1) * domain.size + e.max(axis=1) for e in (graph.ends, pairs))
    return measured(domain, pairs[~np.isin(keys, old)], epsilon)
