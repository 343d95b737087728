"""Pairs that the constraint graph lacks and that matter."""

from __future__ import annotations

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.compute.closure import Closure
from panda_mdp.methods.optimal.graph import MAX_EXPONENT, Graph, distinct

PER_RECORD = 2
LEAST_GAIN = 3e-5
"""Violations by less than this share of a row's mass are left to the repair."""


def missing_pairs(
    closure: Closure, graph: Graph, matrix: FloatArray, epsilon: float, most: int = PER_RECORD
) -> Graph:
    """For every record the pairs outside the graph whose constraints `matrix` breaks the most.

    Few at a time: every edge slows the solver, and one edge often mends its neighbours' breaks.
    """
    partner, _ = closure.violated(closure.start(matrix), epsilon, most, LEAST_GAIN)
    tiles = closure.tiles
    first, column = np.nonzero(partner >= 0)
    pairs = np.stack([tiles.order[first], tiles.order[partner[first, column]]], axis=1)
    size = closure.domain.size
    pairs = distinct(pairs, size)
    old = np.sort(graph.ends.min(axis=1) * size + graph.ends.max(axis=1))
    keys = pairs[:, 0] * size + pairs[:, 1]
    place = np.searchsorted(old, keys)
    known = place < len(old)
    known[known] = old[place[known]] == keys[known]
    pairs = pairs[~known]
    length = closure.domain.metric.pairs(pairs[:, 0], pairs[:, 1])
    short = epsilon * length <= MAX_EXPONENT
    return Graph(np.ascontiguousarray(pairs[short]), length[short])
