"""The tight-constraints mechanism: every privacy constraint with the true place is tight."""

from __future__ import annotations

import time

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray
from panda_mdp.errors import MethodError
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import Mechanism
from panda_mdp.table.release import release


def tight_constraints(problem: Problem) -> Mechanism:
    """z(y|x) = mu_y exp(-epsilon d(x, y)) with mu >= 0 such that all rows sum to 1.

    Every record is an output, so mu solves the linear system sum_y exp(-epsilon d(x, y)) mu_y = 1:
    no optimisation, one factorisation of a K x K matrix. Where mu has a negative entry the
    mechanism does not exist at this epsilon (it does for every larger one in which the matrix
    is diagonally dominant), and `MethodError` says so. On a line with equal steps it is the
    truncated geometric mechanism. ElSalamouny, Chatzikokolakis and Palamidessi, Generalized
    differential privacy: regions of priors that admit robust optimal mechanisms, 2014.

    Guarantee: epsilon-mDP, by the triangle inequality, whatever mu is; rows sum to 1 by the system.
    The audit confirms the result.

    >>> from panda_mdp import Domain
    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0]])
    >>> problem = Problem(domain, [0, 1, 2], domain.distances(), epsilon=1.0)
    >>> tight_constraints(problem).matrix.round(4).tolist()
    [[0.7311, 0.17, 0.0989], [0.2689, 0.4621, 0.2689], [0.0989, 0.17, 0.7311]]
    """
    start = time.perf_counter()
    if problem.outputs_count != problem.size:
        msg = (
            f"tight-constraints reports any record, and this problem has {problem.outputs_count} "
            f"outputs for {problem.size} records; make every record an output, or use optimal"
        )
        raise MethodError(msg)
    decay = np.exp(-problem.epsilon * problem.domain.distances(None, problem.outputs))
    share = _shares(decay, problem.epsilon)
    matrix = decay * share
    return release(
        problem,
        matrix,
        method="tight constraints",
        stages=(("solve", time.perf_counter() - start),),
        details={"least_share": float(share.min())},
    )


def _shares(decay: FloatArray, epsilon: float) -> FloatArray:
    try:
        share = np.asarray(scipy.linalg.solve(decay, np.ones(len(decay))))
    except scipy.linalg.LinAlgError:
        share = np.full(len(decay), -1.0)
    if not share.min() >= 0:
        msg = (
            f"the tight-constraints mechanism does not exist at epsilon {epsilon:g}: its linear "
            "system has a negative solution; raise epsilon, or use exponential or optimal"
        )
        raise MethodError(msg)
    return share
