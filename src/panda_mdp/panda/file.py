"""Reads files of every kind; of PAnDA's it verifies all that their guarantee rests on.

Balls: the law of centres and the fading of rows are proved; what the proofs ask of domain and
numbers is checked, and the table audited over all pairs at what they leave. Coins: the budgets are
what the rows differ by, measured on the integers; Phase I's cost and the joint law of surrogates
are computed for all pairs of records.
"""

from __future__ import annotations

import copyreg
from typing import Any

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray, frozen
from panda_mdp.base.atomic import FilePath
from panda_mdp.compute.pairs import LOG_ERROR
from panda_mdp.errors import FileFormatError
from panda_mdp.panda.anpo import AnchorTable, anchor_problem
from panda_mdp.panda.balls import BallAnchors
from panda_mdp.panda.coins import BernoulliAnchors
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.panda.selection import check_delta
from panda_mdp.privacy.quantise import check_weights
from panda_mdp.problem import Problem
from panda_mdp.space.domain import check_indices
from panda_mdp.table import decode as tables
from panda_mdp.table.container import Sections, fit
from panda_mdp.table.decode import (
    Expected,
    at_path,
    contradictions,
    look,
    opened,
    restore_problem,
    restore_weights,
)
from panda_mdp.table.mechanism import Mechanism

KINDS = {
    "ball": {
        "kind": str,
        **dict.fromkeys(("delta", "epsilon", "edge", "radius"), float),
    },
    "coins": {
        **dict.fromkeys(("kind", "decay"), str),
        **dict.fromkeys(("delta", "alpha", "rate", "radius"), float),
        **{"tail": object, "neighbours": int},
    },
}
"""What a file says of the selection."""
LEAST_NATS = 1e-6
"""Rows nearer than this count as so far from each other, which allows them less."""


def load(path: FilePath, *, expected: Expected | None = None) -> Mechanism | PandaTable:
    """Read a table, check it, and audit its weights again over all pairs of records.

    Gives a `Mechanism`, an `EverywhereMechanism` where the file has a mesh, or a `PandaTable`, with
    the guarantee of both phases computed from their integers. Raises `FileFormatError` with the
    reason where the file is damaged, truncated, foreign, of an unknown version, inconsistent, would
    unpack to far more than it is, or does not keep its epsilon and delta; and `PrivacyError` where
    it is not what was `expected`. `bound` is `Proved` where the file has multipliers and else
    `Stated`. There is no way to load without that: `inspect` looks into a file and returns what can
    be neither sampled, saved nor served.
    """
    return at_path(path, lambda data: decode(data, expected))


def decode(data: bytes, expected: Expected | None = None) -> Mechanism | PandaTable:
    """The table of a file's bytes, verified as by `load`."""
    if not look(data).phased:
        return tables.decode(data, expected)
    table = decode_panda(data)
    if expected is not None:
        expected.check(table.problem.domain, table.epsilon, table)
    return table


def decode_panda(data: bytes) -> PandaTable:
    """The table of PAnDA of a file's bytes, verified as by `load`."""
    with contradictions():
        header, sections = opened(data)
        if "selection" not in header:
            raise FileFormatError(
                "a plain table, which has no first phase: panda_mdp.load(path) reads it"
            )
        if "mesh" in header:
            raise FileFormatError("a table of PAnDA over a mesh; there are none")
        problem = restore_problem(header, sections, len(data))
        stated = header["selection"]
        kind = stated.get("kind")
        if kind not in KINDS:
            raise FileFormatError("a selection of another kind; this library knows ball and coins")
        stated = fit(stated, KINDS[kind], "selection")
        check_delta(stated["delta"])
        return (_balls if kind == "ball" else _coins)(problem, stated, sections)


def _balls(problem: Problem, stated: Any, sections: Sections) -> PandaTable:
    weights = restore_weights(sections, problem)
    sections.finish()
    if stated["delta"] != 0:
        raise FileFormatError(f"balls need no delta, and this file says {stated['delta']!r}")
    scheme = BallAnchors(stated["epsilon"], stated["radius"], stated["edge"]).scheme(problem)
    if not scheme.table_epsilon > 0:
        raise FileFormatError("centre and edge leave nothing of epsilon for the table")
    # The law checks what the proof asks of domain and numbers; rows are audited over all pairs.
    rows = Mechanism(problem.with_epsilon(scheme.table_epsilon), weights, "PAnDA")
    return PandaTable(scheme.holding(mechanism=rows))


def _coins(problem: Problem, stated: Any, sections: Sections) -> PandaTable:
    delta = stated["delta"]
    given = sections.take("candidates", None)
    weights = sections.take("weights", None, problem.outputs_count)
    anchor_rows = sections.take("anchor_rows", len(given))
    sections.finish()
    candidates = check_indices(given, problem.domain.size, "candidates")
    row = check_indices(anchor_rows, len(weights), "anchor_rows")
    if (np.diff(candidates) <= 0).any():
        raise FileFormatError("the candidates do not ascend; the file is damaged")
    tail = stated["tail"]
    selection = BernoulliAnchors(
        stated["decay"],
        stated["alpha"],
        stated["rate"],
        stated["radius"],
        tail if tail == "clip" else fit(tail, float, "tail"),
        None if len(candidates) == problem.domain.size else candidates,
        stated["neighbours"],
    )
    scheme = selection.scheme(problem, delta)
    mechanism, nats = _anchor_mechanism(problem, weights)
    # Rows may differ by what they differ by: the certificate decides whether that is little enough.
    table = AnchorTable(frozen(candidates), frozen(row), mechanism)
    return PandaTable(scheme.holding(budgets=nats[np.ix_(row, row)], whole_table=table))


def _anchor_mechanism(problem: Problem, weights: IntArray) -> tuple[Mechanism, FloatArray]:
    """Rows of anchors as a mechanism over the metric that they themselves span, and that in nats.

    max_y |log z_a(y) / z_a'(y)| is a metric; the least distance makes it one for equal rows.
    """
    count, outputs = weights.shape
    check_weights(weights, (count, outputs))
    used = weights[:, weights.any(axis=0)].astype(float)
    if (used == 0).any():
        raise FileFormatError("an output is impossible for one anchor and possible for another")
    logs = np.log(used)
    nats = scipy.spatial.distance.cdist(logs, logs, "chebyshev") + LOG_ERROR
    np.fill_diagonal(nats, 0.0)
    metric = np.maximum(nats * (1 + 1e-6), LEAST_NATS)
    np.fill_diagonal(metric, 0.0)
    spanned = anchor_problem(
        problem, np.zeros(weights.shape), np.ones(count), np.arange(count), metric
    )
    # A domain has two records at least: a single row stands twice.
    return Mechanism(spanned, np.resize(weights, (spanned.size, outputs)), "PAnDA"), nats


# A pickle can be edited: what comes out of one is verified as a file is.
copyreg.pickle(PandaTable, lambda table: (decode_panda, (table.encode(),)))
