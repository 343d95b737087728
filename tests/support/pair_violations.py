"""How often a pair of records exceeds epsilon times its distance in a run of PAnDA, by enumeration:
every centre of balls, every set of at most 14 candidates, else the surrogates of one set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from panda_mdp.compute.numba import anchors
from panda_mdp.panda.anpo import AnchorTable
from panda_mdp.panda.balls import BallScheme
from panda_mdp.panda.certificate import LIMITS
from panda_mdp.panda.law import ENUMERATED, AnchorLaw, log_ratio
from panda_mdp.panda.leakage import leakage
from panda_mdp.panda.selection import SLACK


@dataclass(frozen=True)
class Violation:
    """Bounds on the probability that the pair's loss exceeds epsilon d: equal where exact.

    `epsilon` is the smallest that holds with probability 1 - delta, infinite where that cannot be
    seen.
    """

    lower: float
    upper: float
    epsilon: float
    method: str


def violation(run: Any, x: int, x2: int) -> Violation:
    """Exact only where the table is the same whatever the user draws."""
    scheme, pair = run.scheme, np.array([x, x2])
    if isinstance(scheme, BallScheme):
        return _of_balls(scheme, pair)
    candidates = scheme.law.candidates
    # A public table, or one over all candidates, each in the sets of two users at least: whatever
    # one user draws instead, the union, and with it the table, stays as it is.
    counts = np.bincount(np.concatenate(run.releases), minlength=scheme.problem.size)
    stays = scheme.options.pairs == "public" or counts[candidates].min() >= 2
    table = run.table if stays else None
    if len(candidates) > ENUMERATED:
        upper = 1.0
        if scheme.affordable:
            cost = leakage(scheme.law, x, x2)
            upper = pair_bound(scheme.law, scheme.problem.epsilon, scheme.budgets, cost, (x, x2))
        epsilon = scheme.problem.epsilon if upper <= scheme.delta else np.inf
        return Violation(0.0, upper, epsilon, "surrogates of one set")
    w = scheme.law.dense(pair)[:, candidates]
    sets = (np.arange(1 << len(candidates))[:, None] >> np.arange(len(candidates)) & 1) > 0
    masses = np.where(sets, w[:, None], 1.0 - w[:, None]).prod(axis=2)
    chosen, passed = log_ratio(w[0], w[1]), log_ratio(1.0 - w[0], 1.0 - w[1])
    leaks = np.where(sets, chosen, passed).sum(axis=1)
    orders = scheme.law.place[scheme.law.ranked(len(candidates), pair)]
    a, b = (order[sets[:, order].argmax(axis=1)] for order in orders)
    between = _between(scheme, table)
    high = np.maximum(leaks + between[a, b], between[b, a] - leaks)
    low = high if table is not None else np.where(a == b, high, np.abs(leaks))
    # An empty set has no surrogate: its loss is infinite.
    empty = ~sets.any(axis=1)
    low, high = np.where(empty, np.inf, low), np.where(empty, np.inf, high)
    return _summed(scheme, pair, low, high, masses, "all anchor sets")


def _of_balls(scheme: BallScheme, pair: np.ndarray) -> Violation:
    seen = [
        chances[pair, None] * scheme.rows(np.array(centre), scheme.whole_table, pair)[0]
        for centre, chances in scheme.law.releases()
    ]
    masses = np.concatenate(seen, axis=1)
    masses = masses[:, masses.any(axis=0)]
    losses = np.abs(np.log(masses[0]) - np.log(masses[1]))
    return _summed(scheme, pair, losses, losses, masses, "all centres and reports")


def _between(scheme: Any, table: AnchorTable | None) -> np.ndarray:
    """max_y log z_a / z_b between all candidates, (n, n): of a table, or what any keeps."""
    if table is not None:
        with np.errstate(divide="ignore", invalid="ignore"):
            row = table.row[table.positions(scheme.law.candidates)]
            rows = np.log(table.mechanism.weights[row].astype(np.float64))
            gaps = rows[:, None] - rows
        # Neither has the output.
        return np.where(np.isnan(gaps), 0.0, gaps).max(axis=2)
    if scheme.affordable:
        return scheme.budgets
    return np.where(np.eye(len(scheme.law.candidates), dtype=bool), 0.0, np.inf)


def _summed(
    scheme: Any, pair: np.ndarray, low: np.ndarray, high: np.ndarray, masses: np.ndarray, how: str
) -> Violation:
    """What lies beyond eps d, and the quantile at 1 - delta, given all releases of two records:
    bounds on the loss of each and its probability under each hypothesis, (2, n)."""
    distance = scheme.problem.domain.distance(int(pair[0]), int(pair[1]))
    limit = scheme.problem.epsilon * distance
    room = SLACK * (1 + limit)
    lower = float(masses[:, low > limit + room].sum(axis=1).max())
    upper = float(masses[:, high > limit - room].sum(axis=1).max())
    order = np.argsort(-high)
    over = (np.cumsum(masses[:, order], axis=1) > scheme.delta).any(axis=0)
    # The largest loss whose probability, with all larger ones, no longer fits into delta.
    effective = float(high[order[over.argmax()]]) / distance if over.any() else 0.0
    return Violation(lower, upper, effective, how)


def pair_bound(
    law: AnchorLaw, epsilon: float, budgets: np.ndarray, cost: float, pair: tuple[int, int]
) -> float:
    """An upper bound on the violation probability of one pair, by the kernel that certifies all.

    `cost` is Phase I's in nats. Exact where every table uses its budgets in full and every set
    has the largest leakage; never below the truth.
    """
    room = epsilon * law.domain.distance(*pair) * (1 - 1e-12) - cost * (1 + 1e-12)
    both = np.array(pair)
    ranked, near = law.ranked(LIMITS.listed, both), law.coins(law.rows(both))
    # The second of the two is compared with what comes before it.
    tables = (ranked, near, budgets, law.place, np.array([[room]]), 0.0)
    return float(anchors.unsafe_pairs(1, *tables)[0][0])
