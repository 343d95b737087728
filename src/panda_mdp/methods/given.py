"""Tables from elsewhere: an LP solver's, another library's, anybody's."""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from panda_mdp.compute.closure import Closure
from panda_mdp.compute.highs import require_numba
from panda_mdp.errors import MethodError
from panda_mdp.privacy import repair as repairs
from panda_mdp.privacy.quantise import quantise
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import Mechanism, judged
from panda_mdp.table.release import release


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
    start = time.perf_counter()
    table = np.asarray(matrix, dtype=np.float64)
    shape = (problem.size, problem.outputs_count)
    if table.shape != shape:
        msg = f"the matrix has shape {table.shape}; this problem needs {shape}"
        raise MethodError(msg)
    if not (np.isfinite(table).all() and (table >= 0).all() and (table.sum(axis=1) > 0).all()):
        msg = "a matrix of probabilities is finite and not negative, and no row is all zeros"
        raise MethodError(msg)
    rows = table / table.sum(axis=1, keepdims=True)
    facts = {"loss_before": problem.expected_loss(rows), "moved": 0.0}
    as_it_is = judged(problem, quantise(rows), method, details=facts)
    if isinstance(as_it_is, Mechanism):
        return as_it_is
    require_numba("the exact repair of a table")
    mended = repairs.repair(Closure(problem.domain), rows, problem.epsilon)
    facts["moved"] = float(np.abs(mended.matrix - rows).max())
    stages = (("repair", time.perf_counter() - start),)
    return release(
        problem, mended.matrix, method=f"{method}, repaired", stages=stages, details=facts
    )
