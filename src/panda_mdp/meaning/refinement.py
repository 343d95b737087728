"""Whether one mechanism is safe in place of another for every prior and every attacker."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, frozen
from panda_mdp.compute.highs import Lp
from panda_mdp.errors import MethodError, SolverError
from panda_mdp.table.mechanism import Table

LARGEST = 4_000_000
"""Entries of the LP's matrix that are taken on."""
TOLERANCE = 1e-7


@dataclass(frozen=True, eq=False)
class Refinement:
    """Whether `other` is `base` followed by post-processing, with a proof either way.

    Where it holds, `other` leaks no more than `base` to any attacker with any prior and any gain
    (data processing); where it does not, some attacker gains more, and `gain` is one (the
    coriaceous theorem; McIver et al., POST 2014).
    """

    holds: bool
    residual: float
    """max |base R - other| for the best post-processing R that was computed."""
    post_processing: FloatArray
    """R, rows on the simplex, (outputs of base, outputs of other)."""
    gain: FloatArray | None
    """Gains g_wx, (outputs of other, K), of an attacker who at the uniform prior gains more from
    `other` than from `base`; None where no such attacker was computed."""
    advantage: float
    """V_g(other) - V_g(base) at the uniform prior for that gain, evaluated in float64; above 0 it
    proves that the refinement does not hold."""


def refinement(base: Table | FloatArray, other: Table | FloatArray) -> Refinement:
    """Whether `other` = `base` R for a stochastic matrix R, by a small LP.

        min t   s.t.   |sum_a base_xa R_ay - other_xy| <= t,   R on the simplex, row by row.

    R from the solver is put on the simplex exactly and the residual computed from it, the LP's
    prices become the gain of the attacker that proves the contrary; both are checked here, so
    the solver is not trusted. Up to `LARGEST` entries.

    >>> flip = np.array([[0.75, 0.25], [0.25, 0.75]])
    >>> refinement(np.eye(2), flip).holds, refinement(flip, np.eye(2)).holds
    (True, False)
    """
    first, second = _matrix(base), _matrix(other)
    if len(first) != len(second):
        msg = f"the tables have {len(first)} and {len(second)} records; they must be the same ones"
        raise MethodError(msg)
    answer = _solve(first, second)
    residual = float(np.abs(first @ answer[0] - second).max())
    gain = answer[1]
    advantage = _vulnerability(gain, second) - _vulnerability(gain, first)
    holds = residual <= TOLERANCE
    proves = advantage > 0 and not holds
    return Refinement(
        holds=holds,
        residual=residual,
        post_processing=frozen(answer[0]),
        gain=frozen(gain) if proves else None,
        advantage=advantage if proves else 0.0,
    )


def _vulnerability(gain: FloatArray, matrix: FloatArray) -> float:
    return float((gain @ matrix).max(axis=0).sum()) / len(matrix)


def _matrix(table: Table | FloatArray) -> FloatArray:
    if isinstance(table, Table):
        return table.matrix
    matrix = np.asarray(table, dtype=np.float64)
    if matrix.ndim != 2 or matrix.size == 0:
        msg = f"a channel has shape {matrix.shape}; give records by outputs, (K, m)"
        raise MethodError(msg)
    if not ((matrix >= 0).all() and np.allclose(matrix.sum(axis=1), 1.0, rtol=0, atol=1e-9)):
        msg = "every row of a channel must be probabilities: not negative, with sum 1"
        raise MethodError(msg)
    return matrix


def _solve(first: FloatArray, second: FloatArray) -> tuple[FloatArray, FloatArray]:
    size, inner = first.shape
    outer = second.shape[1]
    entries = 2 * size * outer * (inner + 1) + inner * outer
    if entries > LARGEST:
        msg = (
            f"the LP of this refinement has {entries:,} entries and at most {LARGEST:,} are taken "
            "on; compare the mechanisms on fewer records or outputs"
        )
        raise MethodError(msg)
    product = scipy.sparse.kron(scipy.sparse.csr_array(first), scipy.sparse.eye_array(outer))
    slack = scipy.sparse.csr_array(np.ones((size * outer, 1)))
    simplex = scipy.sparse.kron(scipy.sparse.eye_array(inner), np.ones((1, outer)))
    rows = scipy.sparse.csr_array(
        scipy.sparse.vstack(
            [
                scipy.sparse.hstack([product, -slack]),
                scipy.sparse.hstack([product, slack]),
                scipy.sparse.hstack([simplex, scipy.sparse.csr_array((inner, 1))]),
            ]
        )
    )
    wanted, free = second.ravel(), np.full(size * outer, np.inf)
    lp = Lp(
        np.concatenate([np.zeros(inner * outer), [1.0]]),
        rows,
        np.concatenate([-free, wanted, np.ones(inner)]),
        np.concatenate([wanted, free, np.ones(inner)]),
    )
    answer = lp.solve()
    if answer.primal is None or answer.prices is None:
        msg = f"HiGHS ended the refinement with {answer.status!r}; there is no verdict"
        raise SolverError(msg)
    table = np.maximum(answer.primal[:-1].reshape(inner, outer), 0.0)
    prices = answer.prices[: 2 * size * outer].reshape(2, size, outer)
    return np.asarray(table / table.sum(axis=1, keepdims=True)), np.asarray(prices.sum(axis=0).T)
