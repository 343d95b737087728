"""Tables most of whose entries are at a public floor: losses, sums and rounding on what is stored.

Where any place may be reported nearly all of a table is next to nothing. Every output then has a
floor that is common to all records, and a row stores only what lies above it.
"""

from __future__ import annotations

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.floored import BLOCK_ENTRIES, FlooredRows
from panda_mdp.loss import DistanceLoss
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.problem import Problem


def floored_loss(problem: Problem, rows: FlooredRows) -> float:
    """sum_x p_x sum_y c_xy w_xy / 2^62, from what is stored."""
    common = problem.mean_loss @ (rows.floor / float(TOTAL))
    return float(problem.prior @ _above(problem, rows) + common)


def floored_losses(problem: Problem, rows: FlooredRows) -> FloatArray:
    """sum_y c_xy w_xy / 2^62 of every record, from what is stored."""
    losses, floor = _above(problem, rows), rows.floor / float(TOTAL)
    step = max(1, BLOCK_ENTRIES // problem.outputs_count)
    for start in range(0, problem.size, step):
        part = slice(start, start + step)
        losses[part] += problem.loss[part] @ floor
    return losses


def _above(problem: Problem, rows: FlooredRows) -> FloatArray:
    """What each record loses by what lies above the floor."""
    whole = problem.loss.above(rows) if isinstance(problem.loss, DistanceLoss) else None
    if whole is not None:
        return whole / float(TOTAL)
    above = (rows.values - rows.floor[rows.columns]) / float(TOTAL)
    stored = problem.loss[rows.records, rows.columns] * above
    own = np.add.reduceat(np.append(stored, 0.0), rows.starts[:-1])
    own[np.diff(rows.starts) == 0] = 0.0
    return np.asarray(own)


def is_distance(problem: Problem) -> bool:
    """Whether every loss is the distance of record and output, to the last bit."""
    reports = problem.reports
    if isinstance(problem.loss, DistanceLoss):
        computed = problem.loss
        same = computed.domain is problem.domain or (
            computed.domain.fingerprint == problem.domain.fingerprint
        )
        return same and computed.power == 1 and np.array_equal(computed.outputs, reports.records)
    if reports.records is None and not (reports.kind == "places" and problem.domain.geographic):
        return False
    step = max(1, BLOCK_ENTRIES // problem.outputs_count)
    for start in range(0, problem.size, step):
        rows = np.arange(start, min(start + step, problem.size))
        if not np.array_equal(problem.loss[rows], reports.distances(problem.domain, rows)):
            return False
    return True
