"""Writes files of PAnDA: a `.pmdp` archive of version 4, which `panda.file.decode` verifies.

    arrays of the problem   as in any `.pmdp`: the domain, outputs, prior, loss
    weights                 integer rows summing to 2^62: of records (balls) or of merged anchors
    balls                   centres, centre_weights (K x centres), outside_weights (centres x m)
    coins                   candidates, anchor_rows (the row of each candidate)

Nothing that any user drew is in it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from panda_mdp.panda.schemes.ball_scheme import BallScheme, CommonBalls
from panda_mdp.panda.schemes.coin_scheme import CoinScheme
from panda_mdp.table.certificate import FORMAT, PHASED_VERSION, describe_problem, snapping_words
from panda_mdp.table.pmdp.encode import pack, problem_arrays
from panda_mdp.version import __version__

if TYPE_CHECKING:
    from panda_mdp.panda.panda_table import PandaTable


def encode(table: PandaTable) -> bytes:
    """The bytes of a table's file."""
    return pack(
        _describe(table),
        problem_arrays(table.problem) | {"loss": table.problem.loss} | _contents(table),
    )


def _contents(table: PandaTable) -> dict[str, npt.NDArray[Any]]:
    weights = {"weights": np.asarray(table.table.mechanism.weights)}
    scheme = table.scheme
    if isinstance(scheme, BallScheme):
        law = {
            "centres": scheme.law.centres,
            "centre_weights": np.asarray(scheme.law.mechanism.weights),
        }
        rows = {"outside_weights": scheme.outside_rows} if isinstance(scheme, CommonBalls) else {}
        return weights | law | rows
    return weights | {"candidates": table.table.anchors, "anchor_rows": table.table.row}


def _describe(table: PandaTable) -> dict[str, Any]:
    problem = table.problem
    unit = problem.domain.unit
    return {
        "format": FORMAT,
        "version": PHASED_VERSION,
        "library": __version__,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "method": f"PAnDA, {'balls' if isinstance(table.scheme, BallScheme) else 'anchors'}",
        "epsilon": problem.epsilon,
        "epsilon_unit": f"per {unit}",
        "delta": table.delta,
        "loss": table.loss,
        **describe_problem(problem),
        "selection": _describe_selection(table),
        "rows": len(table.table.mechanism.weights),
        "account": {
            "selection_epsilon": table.selection_epsilon,
            "violation": table.account.violation,
            "pairs": problem.size * (problem.size - 1) // 2,
            "expected_anchors": table.scheme.expected_anchors,
        },
        "guarantee": guarantee_words(problem.epsilon, table.delta, unit),
        "snapping": snapping_words(problem.epsilon),
    }


def guarantee_words(epsilon: float, delta: float, unit: str) -> str:
    """The sentence of a certificate."""
    return (
        f"For all records x, x' of the domain: what one user releases of x, anchors and one "
        f"report, exceeds a log-ratio of {epsilon!r} d(x, x') to x', d in {unit}, with probability "
        f"at most {delta!r}. Both phases again spend both again."
    )


def _describe_selection(table: PandaTable) -> dict[str, Any]:
    scheme = table.scheme
    if isinstance(scheme, BallScheme):
        return {
            "kind": "ball",
            "epsilon": scheme.selection.epsilon,
            "table_epsilon": scheme.mechanism.epsilon,
            "radius": scheme.law.radius,
            "centres": len(scheme.law.centres),
            "outside": scheme.selection.outside,
        }
    if not isinstance(scheme, CoinScheme):
        msg = f"{type(scheme).__name__} has no file"
        raise TypeError(msg)
    coins = scheme.selection
    return {
        "kind": "coins",
        "decay": coins.decay,
        "alpha": coins.alpha,
        "rate": coins.rate,
        "radius": scheme.radius,
        "tail": coins.tail,
        "candidates": len(table.table.anchors),
        "neighbours": int(coins.neighbours),
        "delta_selection": scheme.options.delta_selection,
    }
