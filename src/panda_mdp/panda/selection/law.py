"""The law of anchor selection on a domain: who selects which anchor with what probability.

Anchors are chosen independently. A candidate nearer than the radius has a probability of its own,
every other candidate has the tail's, so a record's whole row is a short list and one number.
All distances here come from one function, so that the probabilities that are drawn are the ones
that leakage and margins are computed from, to the last bit.

The nearest anchor of the set that was drawn stands in for the record, its surrogate. v(x, a) is the
probability that it is a, ties going to the lowest index (Proposition 4): a is selected and no
candidate that comes before it is,

    v(x, a) = w(x, a) prod_{u before a} (1 - w(x, u)).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray, frozen
from panda_mdp.errors import MethodError
from panda_mdp.panda.selection.draws import quantise_probability
from panda_mdp.space.domain import Domain, check_indices
from panda_mdp.space.metrics import BLOCK_ENTRIES

BLOCK_ROWS = 1 << 20
LIKELY, RARE = 64, 1e-18
"""Candidates that are looked at first for a sum over surrogates, and what may be left out of it."""


@dataclass(frozen=True, eq=False)
class Rows:
    """Candidates nearer than the radius, for some records, in compressed rows.

    Row i covers `anchor[start[i]:start[i + 1]]`, ascending; `probability` is the chance that
    record `records[i]` selects that anchor. Candidates that are not listed have the tail's.
    """

    records: IntArray
    start: IntArray
    anchor: IntArray
    distance: FloatArray
    probability: FloatArray

    def __len__(self) -> int:
        return len(self.records)

    def row(self, i: int) -> tuple[IntArray, FloatArray, FloatArray]:
        """Anchors, distances and probabilities of row i."""
        part = slice(int(self.start[i]), int(self.start[i + 1]))
        return self.anchor[part], self.distance[part], self.probability[part]

    @property
    def owner(self) -> IntArray:
        """The row of each entry."""
        return np.repeat(np.arange(len(self.records)), np.diff(self.start))

    @cached_property
    def by_distance(self) -> IntArray:
        """Entries of each row in the order of surrogates: by distance, then by index."""
        return np.lexsort((self.anchor, self.distance, self.owner))

    @cached_property
    def missed(self) -> FloatArray:
        """q of each row: the chance that no candidate within the radius is selected."""
        logs = np.log1p(-self.probability)
        sums = np.zeros(len(self))
        np.add.at(sums, self.owner, logs)
        return frozen(np.exp(sums))


class Independent(Protocol):
    """A selection that flips one coin for each candidate."""

    @property
    def neighbours(self) -> int:
        """Gamma, by default."""

    def on(self, domain: Domain) -> AnchorLaw:
        """The law of the coins on a domain."""


class AnchorLaw:
    """Independent selection on a domain: near probabilities by distance, one tail probability."""

    def __init__(
        self,
        domain: Domain,
        radius: float,
        near: Callable[[FloatArray], FloatArray],
        tail: float,
        candidates: IntArray | None,
    ) -> None:
        self.domain = domain
        self.radius = radius
        self.tail = float(quantise_probability(np.array([tail]))[0])
        self._near = near
        chosen = np.arange(domain.size) if candidates is None else candidates
        self.candidates: IntArray = frozen(chosen)
        mask = np.zeros(domain.size, dtype=bool)
        mask[self.candidates] = True
        self.is_candidate: BoolArray = frozen(mask)

    def rows(self, records: IntArray) -> Rows:
        """The rows of some records."""
        owners, anchors = self._close(records)
        keep = self.is_candidate[anchors]
        owners, anchors = owners[keep], anchors[keep]
        distance = self.domain.metric.pairs(records[owners], anchors)
        keep = distance < self.radius
        owners, anchors, distance = owners[keep], anchors[keep], distance[keep]
        counts = np.bincount(owners, minlength=len(records))
        start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        values = quantise_probability(self._near(distance))
        return Rows(frozen(records), start, frozen(anchors), frozen(distance), frozen(values))

    @cached_property
    def place(self) -> IntArray:
        """The position of each record among the candidates; -1 for others."""
        out = np.full(self.domain.size, -1, dtype=np.int64)
        out[self.candidates] = np.arange(len(self.candidates))
        return frozen(out)

    @cached_property
    def indifferent(self) -> bool:
        """Whether everybody selects alike, whatever the record: the set then tells nothing."""
        return bool((self.all_rows.probability == self.tail).all())

    @cached_property
    def all_rows(self) -> Rows:
        """The rows of all records."""
        return self.rows(np.arange(self.domain.size))

    def dense(self, records: IntArray) -> FloatArray:
        """w(x, a) for some records and all records a of the domain; 0 where a is no candidate."""
        rows = self.rows(records)
        table = np.where(self.is_candidate, self.tail, 0.0)[None, :].repeat(len(records), axis=0)
        table[rows.owner, rows.anchor] = rows.probability
        return table

    def _close(self, records: IntArray) -> tuple[IntArray, IntArray]:
        """Pairs (position in `records`, record) that include all within the radius, sorted."""
        metric = self.domain.metric
        tree = metric.tree
        if tree is not None:
            reach = metric.embedded_radius(self.radius)
            lists = tree.query_ball_point(metric.embedding[records], reach, return_sorted=True)
            parts = [np.asarray(near, dtype=np.int64) for near in lists]
            counts = np.array([len(part) for part in parts], dtype=np.int64)
            flat = np.concatenate(parts)
            return np.repeat(np.arange(len(records)), counts), flat
        step = max(1, BLOCK_ROWS // self.domain.size)
        hits: list[tuple[IntArray, IntArray]] = []
        everyone = np.arange(self.domain.size)
        for begin in range(0, len(records), step):
            block = metric.block(records[begin : begin + step], everyone)
            i, j = np.nonzero(block <= self.radius * (1 + 1e-9))
            hits.append((i + begin, j))
        return np.concatenate([i for i, _ in hits]), np.concatenate([j for _, j in hits])


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
    distance = law.domain.metric.pairs(np.full(len(candidates), x), candidates)
    order = np.lexsort((candidates, distance))
    w = law.dense(np.array([x]))[0][candidates]
    return order, w[order]


def likely_surrogates(law: AnchorLaw, x: int) -> tuple[IntArray, FloatArray]:
    """Positions of candidates and v(x, .) of each, from the nearest of x on; all of them, save a
    rest that is together rarer than `RARE`."""
    candidates = law.candidates
    if len(candidates) > LIKELY:
        distance = law.domain.metric.pairs(np.full(len(candidates), x), candidates)
        # With all that are as near as the last one, so that ties fall as in the whole ranking.
        near = np.flatnonzero(distance <= np.partition(distance, LIKELY - 1)[LIKELY - 1])
        order = near[np.argsort(distance[near], kind="stable")]
        w = law.dense(np.array([x]))[0][candidates[order]]
        if np.prod(1.0 - w) <= RARE:
            return order, nearest_law(w)
    order, w = ranking(law, x)
    return order, nearest_law(w)


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
        distance = domain.metric.pairs(np.repeat(part, len(anchors)), np.tile(anchors, len(part)))
        out[begin : begin + step] = distance.reshape(len(part), -1).argmin(axis=1)
    return out


def members(size: int, anchors: IntArray) -> BoolArray:
    """A mask over the domain of an anchor set."""
    mask = np.zeros(size, dtype=bool)
    mask[anchors] = True
    return mask


def check_anchors(law: AnchorLaw, anchors: npt.ArrayLike) -> IntArray:
    """An anchor set as distinct candidates, ascending."""
    chosen = np.unique(check_indices(anchors, law.domain.size, "anchors", MethodError))
    foreign = np.flatnonzero(~law.is_candidate[chosen])
    if len(foreign):
        msg = f"anchor {chosen[foreign[0]]} is not among the candidates; no record selects it"
        raise MethodError(msg)
    return chosen
