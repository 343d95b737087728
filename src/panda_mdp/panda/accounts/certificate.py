"""The guarantee of the composed mechanism under the standard definition: one user, one set.

A user with record x releases the set A that x draws and a report from the row of x's nearest
anchor s(x, A). For another record x' the same release has probability P_x'(A) z(y | s(x', A)): both
surrogates lie in the SAME A. With L the cost of Phase I and a table that keeps the budgets b,

    |log ratio| <= L(x, x') + b(s(x, A), s(x', A)),

so the pair is safe for every A with b(s, s') <= eps d(x, x') - L(x, x'). The probability of the
other sets is enumerated over the two surrogates' joint law, under x and under x', for all pairs of
records. It must not exceed delta. The paper's margin takes the two surrogates as independent
draws of two users (Proposition 4), which does not imply this; here it is checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.errors import MethodError, SurrogateError
from panda_mdp.panda.accounts.compiled import kernels
from panda_mdp.panda.accounts.quantiles import cost_table
from panda_mdp.panda.selection.law import AnchorLaw
from panda_mdp.space.metrics import BLOCK_ENTRIES

MOST_RECORDS = 9_000
"""Pairwise tables of more records than this would not fit into a small machine's memory."""
MOST_CANDIDATES = 16_000
"""Candidates that everybody selects alike may be this many: a table of budgets has 2 GB then."""
LISTED = 64
"""Surrogates beyond a record's nearest candidates of this number count as unsafe."""


@dataclass(frozen=True)
class Certificate:
    """An upper bound on the violation probability of every pair of records."""

    violation: float
    """The largest, over all pairs and both hypotheses."""
    pair: tuple[int, int]
    delta: float
    pairs: int

    @property
    def holds(self) -> bool:
        """Whether the bound is within delta."""
        return self.violation <= self.delta

    @property
    def failure(self) -> SurrogateError | None:
        """Why it does not hold, as an error; None where it does."""
        if self.holds:
            return None
        x, x2 = self.pair
        msg = (
            f"for one anchor set the surrogates of records {x} and {x2} differ by more than the "
            f"budget with probability {self.violation:.4g}, and delta is {self.delta:g}: the "
            "margin of the paper, which compares two users' independent sets, does not protect "
            "one user's neighbouring records. An alpha nearer to 1, a larger `neighbours`, or "
            "BallAnchors does"
        )
        return SurrogateError(msg, value=self.violation, limit=self.delta, pair=self.pair)


def ranked_candidates(law: AnchorLaw, count: int, records: IntArray | None = None) -> IntArray:
    """The nearest candidates of records (all by default) in the order of surrogates."""
    candidates = law.candidates
    count = min(count, len(candidates))
    chosen = np.arange(law.domain.size) if records is None else records
    out = np.empty((len(chosen), count), dtype=np.int64)
    step = max(1, BLOCK_ENTRIES // len(candidates))
    for begin in range(0, len(chosen), step):
        part = chosen[begin : begin + step]
        distance = law.domain.metric.pairs(
            np.repeat(part, len(candidates)), np.tile(candidates, len(part))
        ).reshape(len(part), -1)
        out[begin : begin + step] = candidates[_nearest(distance, count)]
    return out


def _nearest(distance: FloatArray, count: int) -> IntArray:
    """Positions of the least entries of every row, ascending, ties by position."""
    if count < distance.shape[1]:
        some = np.sort(np.argpartition(distance, count - 1, axis=1)[:, :count], axis=1)
        near = np.take_along_axis(distance, some, axis=1)
        alone = (distance <= near.max(axis=1, keepdims=True)).sum(axis=1) == count
        if alone.all():
            order = np.argsort(near, axis=1, kind="stable")
            return np.asarray(np.take_along_axis(some, order, axis=1))
    # Of entries that are equal at the cut, the first stay.
    return np.asarray(np.argsort(distance, axis=1, kind="stable")[:, :count])


def pair_bound(
    law: AnchorLaw, epsilon: float, budgets: FloatArray, cost: float, pair: tuple[int, int]
) -> float:
    """An upper bound on the violation probability of one pair, by enumerating its surrogates.

    `cost` is Phase I's in nats. Exact where every table uses its budgets in full and every set
    has the largest leakage; never below the truth.
    """
    unsafe_mass = kernels("joint").unsafe_mass
    x, x2 = pair
    room = epsilon * law.domain.distance(x, x2) * (1 - 1e-12) - cost * (1 + 1e-12)
    if room < 0:
        return 1.0
    rows = law.all_rows
    ranked = ranked_candidates(law, LISTED, np.array(pair))
    near = (rows.start, rows.anchor, rows.probability, law.tail)
    args = (ranked, *near, budgets, law.place, room, 0.0)
    return float(max(unsafe_mass(0, 1, x, *args), unsafe_mass(0, 1, x2, *args)))


def rooms(
    law: AnchorLaw, epsilon: float, delta_selection: float = 0.0
) -> Iterator[tuple[int, FloatArray]]:
    """What Phase I leaves of eps d between records, (rows, K) at a time, and the first row.

    Rounded against the claim; negative where Phase I costs more than eps d.
    """
    size = law.domain.size
    everyone = np.arange(size)
    if law.indifferent:
        step = max(1, BLOCK_ENTRIES // size)
        for begin in range(0, size, step):
            distance = law.domain.distances(everyone[begin : begin + step], everyone)
            yield begin, epsilon * distance * (1 - 1e-12)
        return
    if size > MOST_RECORDS:
        msg = (
            f"the cost of Phase I is looked at for all pairs of at most {MOST_RECORDS:,} records, "
            f"not {size:,}: use BallAnchors, or anchors that do not depend on the record (rate 0)"
        )
        raise MethodError(msg)
    distance = law.domain.distances()
    cost = cost_table(law, law.all_rows, distance, delta_selection)
    yield 0, epsilon * distance * (1 - 1e-12) - cost * (1 + 1e-12)


def cap(
    law: AnchorLaw, epsilon: float, budgets: FloatArray, delta: float, delta_selection: float = 0.0
) -> None:
    """Lower budgets between candidates, in place, until all pairs of records are safe.

    `delta` is what surrogates may take of it, beside Phase I's `delta_selection`.
    """
    rows = law.all_rows
    ranked = ranked_candidates(law, LISTED)
    for begin, room in rooms(law, epsilon, delta_selection):
        kernels("joint").cap_budgets(
            begin,
            ranked,
            rows.start,
            rows.anchor,
            rows.probability,
            law.tail,
            law.place,
            room,
            budgets,
            # The certificate counts as unsafe what is rarer than a millionth of delta.
            delta * (1 - 1e-3),
            delta * 1e-6,
            ranked.shape[1] ** 2,
        )


def certify(
    law: AnchorLaw,
    epsilon: float,
    delta: float,
    budgets: FloatArray,
    delta_selection: float = 0.0,
    listed: int = LISTED,
) -> Certificate:
    """Bound the violation probability over all pairs of records.

    `budgets` are between all candidates of the law, in their order; `delta_selection` is the part
    of delta that Phase I's quantiles use, and counts in full.
    """
    unsafe_pairs = kernels("joint").unsafe_pairs
    rows = law.all_rows
    ranked = ranked_candidates(law, listed)
    violation, pair = 0.0, (0, 1)
    for begin, room in rooms(law, epsilon, delta_selection):
        worst, partner = unsafe_pairs(
            begin,
            ranked,
            rows.start,
            rows.anchor,
            rows.probability,
            law.tail,
            budgets,
            law.place,
            room,
            delta * 1e-6,
        )
        k = int(worst.argmax())
        if worst[k] > violation:
            violation, pair = float(worst[k]), (int(partner[k]), begin + k)
    size = law.domain.size
    return Certificate(
        violation=violation + delta_selection,
        pair=pair,
        delta=delta,
        pairs=size * (size - 1) // 2,
    )
