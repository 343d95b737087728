"""The law of coins on a domain: who selects which anchor with what probability.

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

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import BLOCK_ENTRIES, BoolArray, FloatArray, IntArray, frozen
from panda_mdp.errors import MethodError
from panda_mdp.privacy.quantise import TOTAL, BitSource
from panda_mdp.space.domain import Domain, check_indices

ENUMERATED = 14
"""Up to this many candidates all sets are visited."""
LIKELY = 64
RARE = 1e-18
"""Candidates that are looked at first for a sum over surrogates, and what may be left out of it."""


def quantise_probability(values: FloatArray) -> FloatArray:
    """Probabilities rounded to multiples of 2^-62, strictly between 0 and 1.

    What would round to 0 or 1 becomes the nearest multiple inside: an outcome that is impossible
    for one record and possible for another would give the record away (Proposition 2). Float64
    holds every result exactly: above 2^-10 a float is such a multiple already, below it the
    multiple has fewer than 53 bits. So float formulas see the numbers that are drawn.
    """
    units = np.clip(np.rint(np.asarray(values) * TOTAL), 1.0, TOTAL * (1 - 2.0**-53))
    return units / TOTAL


def numerators(probabilities: FloatArray) -> IntArray:
    """The integers p of quantised probabilities p / 2^62."""
    return (probabilities * TOTAL).astype(np.int64)


def flip(probabilities: FloatArray, bits: BitSource) -> BoolArray:
    """One coin for each quantised probability, exactly: 62 random bits below its numerator."""
    return bits.integers(len(probabilities)) < numerators(probabilities)


def log_ratio(p: FloatArray, q: FloatArray) -> FloatArray:
    """log p / q elementwise for positive p, q, accurate where they are near each other."""
    up = p >= q
    size = np.log1p(np.where(up, p - q, q - p) / np.where(up, q, p))
    return np.where(up, size, -size)


@dataclass(frozen=True, eq=False)
class Rows:
    """Candidates nearer than the radius, for some records, in compressed rows.

    Row i covers `anchor[start[i]:start[i + 1]]`, ascending; `probability` is the chance that the
    record of that row selects that anchor. Candidates that are not listed have the tail's.
    """

    start: IntArray
    anchor: IntArray
    distance: FloatArray
    probability: FloatArray

    def __len__(self) -> int:
        return len(self.start) - 1

    def take(self, rows: IntArray) -> Rows:
        """Some of the rows."""
        counts = np.diff(self.start)[rows]
        start = np.concatenate([[0], np.cumsum(counts)])
        entries = np.repeat(self.start[rows] - start[:-1], counts) + np.arange(start[-1])
        parts = (part[entries] for part in (self.anchor, self.distance, self.probability))
        return Rows(start, *parts)

    @property
    def owner(self) -> IntArray:
        """The row of each entry."""
        return np.repeat(np.arange(len(self)), np.diff(self.start))

    def sums(self, terms: FloatArray) -> FloatArray:
        """The sum over each row of one number for every entry."""
        return np.bincount(self.owner, terms, len(self)).astype(float)

    @cached_property
    def missed(self) -> FloatArray:
        """q of each row: the chance that no candidate within the radius is selected."""
        return frozen(np.exp(self.sums(np.log1p(-self.probability))))

    @cached_property
    def surrogates(self) -> tuple[IntArray, FloatArray]:
        """Anchors of every row from the nearest on, and v of each, laid out as the rows are."""
        order = np.lexsort((self.anchor, self.distance, self.owner))
        w = self.probability[order]
        out = np.empty(len(w))
        for begin, end in zip(self.start[:-1], self.start[1:], strict=True):
            out[begin:end] = nearest_law(w[begin:end])
        return self.anchor[order], out


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
        self.candidates: IntArray = frozen(
            np.arange(domain.size) if candidates is None else candidates
        )
        place = np.full(domain.size, -1, dtype=np.int64)
        place[self.candidates] = np.arange(len(self.candidates))
        self.place: IntArray = frozen(place)
        """The position of each record among the candidates; -1 for others."""

    def rows(self, records: IntArray) -> Rows:
        """The rows of some records."""
        return self.all_rows.take(records)

    @cached_property
    def all_rows(self) -> Rows:
        """The rows of all records."""
        size = self.domain.size
        # Distances in blocks may differ from those of pairs in the last bits.
        reach = self.radius * (1 + 1e-9)
        near = [np.stack(pair) for *pair, _ in self.domain.pairs_within(reach)]
        pairs = np.concatenate([np.tile(np.arange(size), (2, 1)), *near], axis=1)
        both = np.concatenate([pairs, pairs[::-1, size:]], axis=1)
        owner, anchor = both[:, np.lexsort(both[::-1])]
        distance = self.domain.metric.pairs(owner, anchor)
        keep = (self.place[anchor] >= 0) & (distance < self.radius)
        start = np.searchsorted(owner[keep], np.arange(size + 1))
        values = quantise_probability(self._near(distance[keep]))
        return Rows(start, frozen(anchor[keep]), frozen(distance[keep]), frozen(values))

    @cached_property
    def indifferent(self) -> bool:
        """Whether everybody selects alike, whatever the record: the set then tells nothing."""
        return bool((self.all_rows.probability == self.tail).all())

    def dense(self, records: IntArray) -> FloatArray:
        """w(x, a) for some records and all records a of the domain; 0 where a is no candidate."""
        rows = self.rows(records)
        table = np.where(self.place >= 0, self.tail, 0.0)[None, :].repeat(len(records), axis=0)
        table[rows.owner, rows.anchor] = rows.probability
        return table

    def coins(self, rows: Rows) -> tuple[IntArray, IntArray, FloatArray, float]:
        """Rows as compiled loops take them: starts, anchors, probabilities, the tail's."""
        return rows.start, rows.anchor, rows.probability, self.tail

    def draw(self, record: int, bits: BitSource) -> IntArray:
        """An anchor set for a record, exactly, by a coin for every candidate.

        Indices into the domain, ascending, possibly empty. As many random bits for every record.
        """
        chances = self.dense(np.array([record]))[0]
        return self.candidates[flip(chances[self.candidates], bits)]

    def check(self, anchors: npt.ArrayLike) -> IntArray:
        """An anchor set as distinct candidates, ascending."""
        chosen = np.unique(check_indices(anchors, self.domain.size, "anchors", MethodError))
        foreign = np.flatnonzero(self.place[chosen] < 0)
        if len(foreign):
            raise MethodError(
                f"anchor {chosen[foreign[0]]} is not among the candidates; no record selects it"
            )
        return chosen

    def log_likelihoods(self, anchors: IntArray) -> FloatArray:
        """log P_x(A) of every record, less the log-likelihood of A when every candidate has the
        tail's probability: differences between records are l(x, x'; A)."""
        rows = self.all_rows
        w = rows.probability
        tail = np.full_like(rows.probability, self.tail)
        inside = np.isin(rows.anchor, anchors)
        return rows.sums(
            log_ratio(np.where(inside, w, 1.0 - w), np.where(inside, tail, 1.0 - tail))
        )

    def releases(self) -> Iterator[tuple[IntArray, FloatArray]]:
        """Every set of at most 14 candidates, and how likely each record selects it, (K,)."""
        count = len(self.candidates)
        if count > ENUMERATED:
            raise MethodError(
                f"{count} candidates have 2^{count} sets, and all of at most {ENUMERATED} are "
                "visited; what a report alone tells is known for any number"
            )
        chances = self.dense(np.arange(self.domain.size))[:, self.candidates]
        for mask in range(1 << count):
            chosen = (mask >> np.arange(count) & 1) > 0
            yield self.candidates[chosen], np.where(chosen, chances, 1.0 - chances).prod(axis=1)

    def ranked(self, count: int, records: IntArray | None = None) -> IntArray:
        """The `count` nearest candidates of records (all by default) in the order of surrogates."""
        count = min(count, len(self.candidates))
        parts = [
            _least(distance, count)
            for distance in _distances(self.domain, self.candidates, records)
        ]
        return self.candidates[np.concatenate(parts)]

    def surrogate_law(self, records: IntArray) -> tuple[IntArray, FloatArray]:
        """For each of some records candidates from the nearest on and v(x, .) of each; all of them,
        save a rest that is together rarer than `RARE`. Sums to 1 less the probability of an empty
        set."""
        table = self.dense(records)
        for count in (LIKELY, len(self.candidates)):
            anchors = self.ranked(count, records)
            chances = np.take_along_axis(table, anchors, axis=1)
            if np.prod(1.0 - chances, axis=1).max() <= RARE:
                break
        return anchors, nearest_law(chances)


def nearest_law(probabilities: FloatArray) -> FloatArray:
    """v for candidates in the order of surrogates, by rows: w_k prod_{i < k} (1 - w_i)."""
    v = probabilities.copy()
    v[..., 1:] *= np.cumprod(1.0 - probabilities, axis=-1)[..., :-1]
    return v


def surrogates(domain: Domain, anchors: IntArray, records: IntArray | None = None) -> IntArray:
    """The position in `anchors` (ascending) of the nearest anchor of each record.

    Distances come from the function that the law of v uses, so ties fall the same way.
    """
    parts = [distance.argmin(axis=1) for distance in _distances(domain, anchors, records)]
    return np.concatenate(parts)


def _distances(
    domain: Domain, anchors: IntArray, records: IntArray | None = None
) -> Iterator[FloatArray]:
    """Distances (some records, anchors) by the function for pairs, in blocks of records."""
    chosen = np.arange(domain.size) if records is None else records
    step = max(1, BLOCK_ENTRIES // len(anchors))
    # Of no records there is an empty block.
    for begin in range(0, max(1, len(chosen)), step):
        part = chosen[begin : begin + step]
        pairs = domain.metric.pairs(np.repeat(part, len(anchors)), np.tile(anchors, len(part)))
        yield pairs.reshape(len(part), len(anchors))


def _least(distance: FloatArray, count: int) -> IntArray:
    """Positions of the least entries of every row, ascending, ties by position."""
    if count < distance.shape[1]:
        some = np.sort(np.argpartition(distance, count - 1, axis=1)[:, :count], axis=1)
        near = np.take_along_axis(distance, some, axis=1)
        alone = (distance <= near.max(axis=1, keepdims=True)).sum(axis=1) == count
        if alone.all():
            order = np.argsort(near, axis=1, kind="stable")
            return np.take_along_axis(some, order, axis=1)
    # Of entries that are equal at the cut, the first stay.
    return np.argsort(distance, axis=1, kind="stable")[:, :count]
