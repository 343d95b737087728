"""Which anchor stands in for the record: the nearest one of the set that was drawn.

v(x, a) is the probability that a is the nearest anchor of record x, ties going to the lowest index
(Proposition 4): a is selected and no candidate that comes before it is,

    v(x, a) = w(x, a) prod_{u before a} (1 - w(x, u)).
"""

from __future__ import annotations

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.panda.law import AnchorLaw, Rows
from panda_mdp.space.domain import Domain
from panda_mdp.space.metrics import BLOCK_ENTRIES


def nearest_law(probabilities: FloatArray) -> FloatArray:
    """v for candidates in the order of surrogates: w_k prod_{i < k} (1 - w_i)."""
    none_before = np.concatenate([[1.0], np.cumprod(1.0 - probabilities)[:-1]])
    return np.asarray(probabilities * none_before)


def surrogate_law(law: AnchorLaw, x: int) -> FloatArray:
    """v(x, a) for all records a of the domain, 0 where a is no candidate; sums to 1 - Pr[empty]."""
    candidates = law.candidates
    order, w = ranking(law, x)
    out = np.zeros(law.domain.size)
    out[candidates[order]] = nearest_law(w)
    return out


def ranking(law: AnchorLaw, x: int) -> tuple[IntArray, FloatArray]:
    """Positions of the candidates from nearest to farthest of x, and w(x, .) in that order."""
    candidates = law.candidates
    apart = law.domain.metric.pairs(np.full(len(candidates), x), candidates)
    order = np.lexsort((candidates, apart))
    w = law.dense(np.array([x]))[0][candidates]
    return order, w[order]


def near_laws(rows: Rows) -> tuple[IntArray, FloatArray]:
    """Anchors of every row in the order of surrogates and v of each, laid out as the rows are."""
    order = rows.by_distance
    w = rows.probability[order]
    out = np.empty(len(w))
    for begin, end in zip(rows.start[:-1], rows.start[1:], strict=True):
        out[begin:end] = nearest_law(w[begin:end])
    return rows.anchor[order], out


def surrogates(domain: Domain, anchors: IntArray, records: IntArray | None = None) -> IntArray:
    """The position in `anchors` (ascending) of the nearest anchor of each record.

    Distances come from the function that the law of v uses, so ties fall the same way.
    """
    chosen = np.arange(domain.size) if records is None else records
    out = np.empty(len(chosen), dtype=np.int64)
    step = max(1, BLOCK_ENTRIES // len(anchors))
    for begin in range(0, len(chosen), step):
        part = chosen[begin : begin + step]
        apart = domain.metric.pairs(np.repeat(part, len(anchors)), np.tile(anchors, len(part)))
        out[begin : begin + step] = apart.reshape(len(part), -1).argmin(axis=1)
    return out


def members(size: int, anchors: IntArray) -> BoolArray:
    """A mask over the domain of an anchor set."""
    mask = np.zeros(size, dtype=bool)
    mask[anchors] = True
    return mask
