"""The geometric mechanism on a line, truncated at the ends of the outputs."""

from __future__ import annotations

import time

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.errors import MethodError
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain
from panda_mdp.space.metrics import Euclidean
from panda_mdp.table.mechanism import Mechanism
from panda_mdp.table.release import release

EVEN = 1e-9
"""Relative: how far records may lie from an even grid of the line."""


def geometric(problem: Problem) -> Mechanism:
    """Two-sided geometric noise on an even line, reported as the nearest output.

    Records are steps k s of a line (vectors of one dimension); noise j has probability
    (1 - a) / (1 + a) a^|j| with a = exp(-epsilon s), and the output nearest to the sum is reported
    (the lower of two). Beyond the outermost outputs everything falls to them: with every step
    between them an output this is the truncated geometric mechanism, which after a remap has the
    least expected loss of all epsilon-mDP tables for every prior and every loss that grows with
    |x - y| (Ghosh, Roughgarden and Sundararajan, STOC 2009). Tails are summed in closed form.

    Guarantee: epsilon-mDP: neighbours on the lattice differ by a factor 1 / a, and rounding to an
    output is post-processing. The audit confirms the result.

    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0]])
    >>> problem = Problem(domain, [0, 1, 2], domain.distances(), epsilon=1.0)
    >>> geometric(problem).matrix.round(4).tolist()
    [[0.7311, 0.17, 0.0989], [0.2689, 0.4621, 0.2689], [0.0989, 0.17, 0.7311]]
    """
    start = time.perf_counter()
    place, step = lattice(problem.domain)
    order = np.argsort(place[problem.outputs])
    targets = place[problem.outputs][order]
    # Cell of output k: the lattice points up to half way, the lower output taking a tie.
    ends = (targets[:-1] + targets[1:]) // 2
    below = cumulative(ends[None, :] - place[:, None], problem.epsilon * step)
    above = cumulative(place[:, None] - ends[None, :] - 1, problem.epsilon * step)
    matrix = np.empty((problem.size, problem.outputs_count))
    matrix[:, order] = _between(below, above)
    return release(
        problem,
        matrix,
        method="geometric",
        stages=(("sum over cells", time.perf_counter() - start),),
        details={"step": step},
    )


def lattice(domain: Domain) -> tuple[IntArray, float]:
    """The records as whole steps of an even line, and the step's length."""
    metric = domain.metric
    if not isinstance(metric, Euclidean) or metric.vectors.shape[1] != 1:
        msg = (
            f"the geometric mechanism needs records on a line, and this domain is {domain!r}; "
            "use Domain.from_vectors with one dimension, or tight_constraints for any metric"
        )
        raise MethodError(msg)
    line = metric.vectors[:, 0]
    step = float(np.diff(np.sort(line)).min())
    steps = (line - line.min()) / step
    whole = np.rint(steps)
    if np.abs(steps - whole).max() > EVEN * max(1.0, float(whole.max())):
        msg = (
            f"the records are no multiples of their least distance {step:g}; the geometric "
            "mechanism needs an even line: use tight_constraints or optimal"
        )
        raise MethodError(msg)
    return whole.astype(np.int64), step


def cumulative(steps: IntArray, exponent: float) -> FloatArray:
    """Pr[noise <= steps] of two-sided geometric noise with a = exp(-exponent)."""
    tail = np.exp(-exponent * np.where(steps >= 0, steps + 1, -steps)) / (1 + np.exp(-exponent))
    return np.asarray(np.where(steps >= 0, 1 - tail, tail))


def _between(below: FloatArray, above: FloatArray) -> FloatArray:
    """Masses of the cells from the masses below and above each end, from the smaller of the two."""
    left = np.column_stack([np.zeros(len(below)), below])
    right = np.column_stack([below, np.ones(len(below))])
    left_above = np.column_stack([np.ones(len(below)), above])
    right_above = np.column_stack([above, np.zeros(len(below))])
    # Differences of small tails keep their digits, those of numbers near 1 do not.
    return np.where(right <= 0.5, right - left, np.where(
        left_above <= 0.5, left_above - right_above, 1 - left - right_above
    ))  # fmt: skip
