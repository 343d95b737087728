"""The law of anchor selection on a domain: who selects which anchor with what probability.

Anchors are chosen independently. A candidate nearer than the radius has a probability of its own,
every other candidate has the tail's, so a record's whole row is a short list and one number.
All distances here come from one function, so that the probabilities that are drawn are the ones
that leakage and margins are computed from, to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray, frozen
from panda_mdp.panda.draws import quantise_probability
from panda_mdp.space.domain import Domain

BLOCK_ROWS = 1 << 20


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
        apart = self.domain.metric.pairs(records[owners], anchors)
        keep = apart < self.radius
        owners, anchors, apart = owners[keep], anchors[keep], apart[keep]
        counts = np.bincount(owners, minlength=len(records))
        start = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        values = quantise_probability(self._near(apart))
        return Rows(frozen(records), start, frozen(anchors), frozen(apart), frozen(values))

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
        found: list[tuple[IntArray, IntArray]] = []
        everyone = np.arange(self.domain.size)
        for begin in range(0, len(records), step):
            block = metric.block(records[begin : begin + step], everyone)
            i, j = np.nonzero(block <= self.radius * (1 + 1e-9))
            found.append((i + begin, j))
        return np.concatenate([i for i, _ in found]), np.concatenate([j for _, j in found])
