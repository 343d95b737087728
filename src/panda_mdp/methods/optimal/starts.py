"""Tables to start from, and to fall back on."""

from __future__ import annotations

import math

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.floored import FlooredRows
from panda_mdp.loss import blocks
from panda_mdp.methods.closed_forms import softmax
from panda_mdp.methods.optimal.graph import Graph
from panda_mdp.methods.optimal.program import typical_slope
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.problem import Problem

OPEN_MARGIN = 1e-6
"""Of epsilon: what distances and logarithms may be off by, and far more."""


def one_row(problem: Problem) -> FloatArray:
    """The best table that ignores the record: private at every epsilon."""
    row = np.arange(problem.outputs_count) == problem.best_single_output
    return np.tile(row.astype(float), (problem.size, 1))


def one_floor(problem: Problem) -> FlooredRows:
    """The same as whole numbers over a floor, of which nothing has to be stored."""
    floor = np.zeros(problem.outputs_count, np.int64)
    floor[problem.best_single_output] = TOTAL
    none = np.zeros(problem.size + 1, np.int64)
    return FlooredRows(floor, none, none[:0].astype(np.int32), none[:0])


def cheapest_rows(problem: Problem) -> FlooredRows:
    """Every record reports its cheapest output but for what epsilon allows nobody to leave out:
    of every output that is some record's, so many units that no two records differ by more.

    Where the nearest records may differ by more than 2^62, that is one unit. An output that is
    possible for one record is possible for all.
    """
    least = float(problem.domain.neighbours(1)[1].min()) * (1 - OPEN_MARGIN)
    unit = max(1, math.ceil(TOTAL * math.exp(-problem.epsilon * least)))
    cheapest = [block.argmin(axis=1) for _, block in blocks(problem.loss)]
    best = np.concatenate(cheapest).astype(np.int32)
    used = np.unique(best)
    floor = np.zeros(problem.outputs_count, np.int64)
    floor[used] = unit
    rest = np.full(problem.size, TOTAL - unit * (len(used) - 1))
    return FlooredRows(floor, np.arange(problem.size + 1), best, rest)


def warm_start(problem: Problem, graph: Graph) -> FloatArray:
    """Weights exp(-epsilon c / (2 L)), L a typical slope of the loss along the graph's edges."""
    typical = typical_slope(problem, graph)
    if typical <= 0:
        return one_row(problem)
    return softmax(-problem.epsilon / (2 * typical) * problem.loss)
