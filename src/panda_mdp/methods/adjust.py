"""A table that is given, made better: repaired where it leaks, its outputs remapped."""

from __future__ import annotations

from typing import overload

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray, IntArray, real_numbers, stopwatch
from panda_mdp.base.text import Facts
from panda_mdp.compute.closure import closure_of
from panda_mdp.errors import MethodError
from panda_mdp.privacy.quantise import TOTAL, quantise
from panda_mdp.privacy.quantise import repair as repaired
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import (
    Mechanism,
    NoGuarantee,
    Table,
    audited_table,
    normalise,
    release,
)


@overload
def remap(mechanism: Mechanism) -> Mechanism: ...
@overload
def remap(mechanism: Table) -> Table: ...
def remap(mechanism: Table) -> Table:
    """Report, in place of each output, the one that is best given that it was drawn (EM+BR).

    Output y is replaced by the output f(y) with the smallest posterior expected loss,

        f(y) = argmin over y' of  sum_x p_x z(y|x) C(x, y'),

    y itself where it is among the best, else the first in the order of the outputs.

    Guarantee: as private as the table that it is given, since f is fixed before any record is
    known: a sum of weights keeps every ratio that its parts keep. The integers are added, so rows
    still sum to 2^62, and the result is audited again over all pairs. The expected loss never
    rises; the lower bound, which speaks of the problem and not of the table, stays. Outputs that
    are no longer reported have a column of zeros.

    >>> from panda_mdp import Domain, Problem, exponential
    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0]])
    >>> loss = [[0, 1, 2], [1, 0, 1], [2, 1, 0]]
    >>> em = exponential(Problem(domain, [0, 1, 2], loss, epsilon=0.5))
    >>> better = remap(em)
    >>> better.matrix.tolist()
    [[0.0, 1.0, 0.0], [0.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
    >>> round(em.loss, 3), round(better.loss, 3)
    (0.76, 0.667)
    """
    spent = stopwatch()
    problem = mechanism.problem
    target = best_response(problem, mechanism.matrix)
    weights = np.zeros_like(mechanism.weights)
    for y, better in enumerate(target):
        weights[:, better] += mechanism.weights[:, y]
    method = f"{mechanism.method}, remapped"
    facts: Facts = {
        "bound": mechanism.bound_over_records,
        "stages": mechanism.stages + spent("remap"),
        "details": {**mechanism.details, "outputs_used": int(weights.any(axis=0).sum())},
    }
    if not isinstance(mechanism, Mechanism):
        # What had no guarantee is not given one by post-processing.
        return NoGuarantee(problem, weights, method, **facts)
    answer = audited_table(problem, weights, method, **facts)
    if isinstance(answer, Mechanism):
        return answer
    # The table is within rounding of its limit: the audit's bound on the added columns lies above
    # it by rounding, which a share of the uniform row absorbs.
    lifted = release(problem, weights / TOTAL, method=method, **facts)
    return min(mechanism, lifted, key=lambda table: table.loss)


def best_response(problem: Problem, matrix: FloatArray) -> IntArray:
    """f(y) of `remap`, as columns."""
    columns = np.arange(problem.outputs_count)
    costs = matrix.T @ problem.weighted_loss
    target = costs.argmin(axis=1)
    # Sums in another order differ in the last digits; nothing is moved for so little.
    stay = costs[columns, columns] <= costs[columns, target] * (1 + 1e-12)
    return np.where(stay, columns, target)


def repair(problem: Problem, matrix: npt.ArrayLike, *, method: str = "given") -> Mechanism:
    """The nearest mechanism that holds, from a K x m matrix of probabilities that may not.

    A matrix whose audit holds comes back as it is, quantised. Any other is closed under
    z_xy <- max_x' z_x'y exp(-epsilon d(x, x')) and normalised in turn until it holds, which moves
    what breaks epsilon and leaves the rest; `details["moved"]` is the largest change of a
    probability, `details["loss_before"]` the loss of what was given.

    Guarantee: epsilon-mDP over all pairs, by audit, whatever was given.

    >>> from panda_mdp import Domain
    >>> domain = Domain.from_vectors([[0.0], [1.0]])
    >>> problem = Problem(domain, [0, 1], [[0, 1], [1, 0]], epsilon=1.0)
    >>> mended = repair(problem, [[0.9, 0.1], [0.1, 0.9]])
    >>> mended.audit.holds, mended.matrix.round(3).tolist()
    (True, [[0.731, 0.269], [0.269, 0.731]])
    """
    spent = stopwatch()
    rows = rows_of(problem, matrix, "the matrix")
    facts = {"loss_before": problem.expected_loss(rows), "moved": 0.0}
    as_it_is = audited_table(problem, quantise(rows), method, details=facts)
    if isinstance(as_it_is, Mechanism):
        return as_it_is
    mended = repaired(closure_of(problem.domain), rows, problem.epsilon)
    facts["moved"] = float(np.abs(mended.matrix - rows).max())
    method = f"{method}, repaired"
    return release(problem, mended.matrix, method=method, stages=spent("repair"), details=facts)


def rows_of(problem: Problem, matrix: npt.ArrayLike, name: str) -> FloatArray:
    """A table that is given, its rows scaled to 1; `MethodError` where it is none."""
    table = real_numbers(matrix, name, MethodError)
    shape = (problem.size, problem.outputs_count)
    if table.shape != shape:
        raise MethodError(f"{name} has shape {table.shape}; this problem needs {shape}")
    if not (np.isfinite(table).all() and (table >= 0).all() and (table.sum(axis=1) > 0).all()):
        raise MethodError(
            f"{name} must be finite and not negative, with a positive entry in every row"
        )
    return normalise(table)
