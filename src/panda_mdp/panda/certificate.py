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

from panda_mdp.base.arrays import BLOCK_ENTRIES, FloatArray, frozen
from panda_mdp.base.threads import check_time
from panda_mdp.errors import MethodError
from panda_mdp.panda.law import AnchorLaw
from panda_mdp.panda.leakage import cost_table
from panda_mdp.panda.selection import Account, check_delta

TRIM = 1e-11
"""Share of what is spent, and nats, by which budgets are lowered for the rounding of sums."""
MOST_RECORDS = 9_000
"""Pairwise tables of more records than this would not fit into a small machine's memory."""


@dataclass(frozen=True)
class Limits:
    """How large the tables of an account over all pairs may become."""

    records: int = MOST_RECORDS
    """Records whose cost of Phase I is looked at pair by pair."""
    candidates: int = 16_000
    """Candidates that everybody selects alike: a table of budgets has 2 GB then."""
    block_entries: int = BLOCK_ENTRIES
    """Entries of a pairwise table that are in memory at a time, where not all need be."""
    rows: int = 256
    """Records of which all pairs are looked at between two looks at the clock."""
    listed: int = 64
    """Surrogates beyond a record's nearest candidates of this number count as unsafe."""


LIMITS = Limits()


def trim(left: FloatArray, whole: FloatArray) -> FloatArray:
    """What may be spent where `left` remains of eps d, `whole`, in nats; not negative.

    Less a trifle (1e-11 relative and absolute) that covers the rounding of distances, leakage and
    margins, so that what is proved about budgets holds for the numbers in use.
    """
    return np.maximum(0.0, left - TRIM * (1.0 + 2 * whole - left))


def certified_budgets(
    law: AnchorLaw,
    epsilon: float,
    delta: float,
    limits: Limits = LIMITS,
) -> FloatArray:
    """Budgets between all candidates, (n, n) in nats, as large as the certificate allows (ours).

    A pair of records x, x' with surrogates a, a' of one set is safe where
    b(a, a') <= eps d(x, x') - L(x, x'). So b(a, a') is the least of those over the records that a
    and a' stand in for, save surrogates that together are rarer than delta. Where every record has
    its nearest candidate almost surely this is the least eps d(x, x') over the records behind a
    and a'.
    """
    check_delta(delta)
    anchors = law.candidates
    domain = law.domain
    most = limits.candidates if law.indifferent else limits.records
    if len(anchors) > most:
        alike = "" if law.indifferent else f" ({limits.candidates:,} selected alike by everybody)"
        raise MethodError(
            f"budgets are kept for at most {most:,} candidates{alike}, not {len(anchors):,}: "
            "name a public candidate set, or use BallAnchors"
        )
    budgets = domain.distances(anchors, anchors)
    np.fill_diagonal(budgets, 0.0)
    if law.indifferent:
        budgets *= epsilon
    else:
        cost = cost_table(law, law.rows(anchors), budgets)
        budgets = np.maximum(0.0, epsilon * budgets - cost)
    cap(law, epsilon, budgets, delta, limits)
    step = max(1, limits.block_entries // len(anchors))
    for begin in range(0, len(anchors), step):
        part = slice(begin, begin + step)
        budgets[part] = trim(budgets[part], epsilon * domain.distances(anchors[part], anchors))
    np.fill_diagonal(budgets, 0.0)
    return frozen(budgets)


def cap(
    law: AnchorLaw, epsilon: float, budgets: FloatArray, delta: float, limits: Limits = LIMITS
) -> None:
    """Lower budgets between candidates, in place, until all pairs of records are safe."""
    from panda_mdp.compute.numba import anchors

    ranked = law.ranked(limits.listed)
    near = law.coins(law.all_rows)
    # The certificate counts as unsafe what is rarer than a millionth of delta.
    kept = delta * (1 - 1e-3)
    rare = delta * 1e-6
    for begin, room in _rooms(law, epsilon, limits):
        anchors.cap_budgets(begin, ranked, near, law.place, room, budgets, kept, rare)


def certify(
    law: AnchorLaw,
    epsilon: float,
    delta: float,
    budgets: FloatArray,
    limits: Limits = LIMITS,
) -> Account:
    """Bound the violation probability over all pairs of records.

    `budgets` are between all candidates of the law, in their order.
    """
    from panda_mdp.compute.numba import anchors

    ranked = law.ranked(limits.listed)
    near = law.coins(law.all_rows)
    found = Account(0.0, (0, 1))
    for begin, room in _rooms(law, epsilon, limits):
        worst, partner = anchors.unsafe_pairs(
            begin, ranked, near, budgets, law.place, room, delta * 1e-6
        )
        k = int(worst.argmax())
        if worst[k] > found.violation:
            found = Account(float(worst[k]), (int(partner[k]), begin + k))
    return found


def _rooms(law: AnchorLaw, epsilon: float, limits: Limits) -> Iterator[tuple[int, FloatArray]]:
    """What Phase I leaves of eps d between records, (rows, K) at a time, and the first row.

    Rounded against the claim; negative where Phase I costs more than eps d.
    """
    domain = law.domain
    size = law.domain.size
    if law.indifferent:
        step = max(1, min(limits.rows, limits.block_entries // size))
        for begin in range(0, size, step):
            check_time()
            some = np.arange(begin, min(begin + step, size))
            yield begin, epsilon * domain.distances(some) * (1 - 1e-12)
        return
    if size > limits.records:
        raise MethodError(
            f"the cost of Phase I is looked at for all pairs of at most {limits.records:,} "
            f"records, not {size:,}: use BallAnchors, or anchors that do not depend on the record "
            "(rate 0)"
        )
    distance = domain.distances()
    check_time()
    rooms = epsilon * distance * (1 - 1e-12)
    rooms -= cost_table(law, law.all_rows, distance) * (1 + 1e-12)
    for begin in range(0, size, limits.rows):
        check_time()
        yield begin, rooms[begin : begin + limits.rows]
