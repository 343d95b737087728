"""Where people are, from what they reported: the iterative Bayesian update, with an interval.

For units u of observation (reports) with likelihood L_u(x) = Pr[observation | record x],

    p_x  <-  p_x / n  sum_u  L_u(x) / sum_x' p_x' L_u(x'),

from the uniform distribution: expectation maximisation, so the likelihood never falls. L is taken
from the integer tables that were audited and sampled from. It is stopped early, after 300 steps at
most, and is then not the maximum of the likelihood: `iterations` says how many steps were made.

The interval is a bootstrap over users: users are drawn with replacement, as many as there are, with
all that each reported, and the whole computation is repeated for each draw; `low` and `high` are
quantiles of the results, record by record (95 % pointwise). It covers the chance of who reported
and of what was drawn for them. It does not cover that a table with fewer outputs than records
leaves several distributions that explain the reports equally well: the update picks one of them;
nor what stopping early does, since the repetitions stop as early.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.panda.selection.law import AnchorLaw, surrogates

CONFIDENCE = 0.95
REPLICATES = 200
TOLERANCE = 1e-5
"""The update ends when a step moves less than this share of the people."""
MOST_STEPS = 300
"""Where people are in few places this is far from the maximum (docs/protocol.md)."""
MOST_WORK = 3e11
"""Multiplications that an estimate may take; larger ones make fewer steps."""
BLOCK = 50


@dataclass(frozen=True, eq=False)
class Observations:
    """Who observed which unit how often, and how likely each record makes each unit."""

    likelihood: FloatArray
    """(units, records), each row up to a factor of its own."""
    user: IntArray
    unit: IntArray
    count: IntArray
    """One entry per user and unit."""

    @property
    def reports(self) -> int:
        """Observations in all."""
        return int(self.count.sum())

    @property
    def users(self) -> int:
        """Users who observed anything."""
        return int(self.user.max()) + 1 if len(self.user) else 0


@dataclass(frozen=True, eq=False)
class Shares:
    """Estimated shares of the records with their interval."""

    share: FloatArray
    low: FloatArray
    high: FloatArray
    iterations: int


def bayesian_update(
    likelihood: FloatArray,
    counts: FloatArray,
    *,
    steps: int = MOST_STEPS,
    tolerance: float = TOLERANCE,
) -> tuple[FloatArray, int]:
    """Maximise sum_u n_u log sum_x p_x L_u(x) for each row n of `counts`, from uniform.

    Shapes: likelihood (units, records), counts (problems, units); returns (problems, records) and
    the number of steps. With `tolerance` 0 all `steps` are made.

    >>> flip = np.array([[0.9, 0.1], [0.1, 0.9]])
    >>> bayesian_update(flip, np.array([[66.0, 34.0]]))[0].round(2)
    array([[0.7, 0.3]])
    """
    size = likelihood.shape[1]
    shares = np.full((len(counts), size), 1.0 / size)
    # What no record can have reported tells nothing about records: it was made up.
    counts = np.where(likelihood.any(axis=1), counts, 0.0)
    total = counts.sum(axis=1, keepdims=True)
    taken = 0
    while taken < steps:
        expected = shares @ likelihood.T
        # A unit that nobody observed has no weight, and its expectation may be 0.
        ratio = np.divide(counts, expected, out=np.zeros_like(expected), where=counts > 0)
        after = np.where(total > 0, shares * (ratio @ likelihood), shares)
        after /= after.sum(axis=1, keepdims=True)
        moved = float(np.abs(after - shares).sum(axis=1).max()) / 2
        shares, taken = after, taken + 1
        if moved < tolerance:
            break
    return shares, taken


def estimate(
    observations: Observations,
    *,
    confidence: float = CONFIDENCE,
    replicates: int = REPLICATES,
    seed: int = 0,
) -> Shares:
    """Shares of the records, with a bootstrap interval over users.

    The bootstrap's generator has a fixed seed, so that the same reports give the same answer; what
    it draws is no secret. With fewer than two users there is no interval but 0 to 1.
    """
    units, size = observations.likelihood.shape
    if observations.reports == 0:
        even = np.full(size, 1.0 / size)
        return Shares(even, np.zeros(size), np.ones(size), 0)
    table = scipy.sparse.csr_array(
        (
            observations.count.astype(np.float64),
            (observations.user, observations.unit),
        ),
        shape=(observations.users, units),
    )
    # Only units that occur; a table of few outputs is small, one of a few reports smaller still.
    seen = np.unique(observations.unit)
    likelihood = np.ascontiguousarray(observations.likelihood[seen])
    table = table[:, seen]
    work = 2.0 * len(seen) * size * (replicates + 1)
    steps = int(np.clip(MOST_WORK / work, 20, MOST_STEPS))
    everyone: FloatArray = np.asarray(table.sum(axis=0), dtype=np.float64).reshape(1, -1)
    point, taken = bayesian_update(likelihood, everyone, steps=steps)
    if observations.users < 2:
        return Shares(point[0], np.zeros(size), np.ones(size), taken)
    generator = np.random.default_rng(seed)
    users = observations.users
    reported = table.toarray()
    drawn = []
    for start in range(0, replicates, BLOCK):
        some = min(BLOCK, replicates - start)
        weights = generator.multinomial(users, np.full(users, 1.0 / users), size=some)
        counts = np.asarray(scipy.sparse.csr_array(weights.astype(np.float64)) @ reported)
        drawn.append(bayesian_update(likelihood, counts, steps=taken, tolerance=0.0)[0])
    tail = (1.0 - confidence) / 2
    low, high = np.quantile(np.concatenate(drawn).astype(np.float64), [tail, 1.0 - tail], axis=0)
    return Shares(point[0], low, high, taken)


def table_observations(
    tables: list[tuple[int, IntArray, FloatArray]],
    rows: list[tuple[str, int, int, int]],
) -> Observations:
    """Observations of reports drawn from whole tables.

    `tables` has a version, its outputs and its K x m probabilities each; `rows` a user, a version,
    an output and how often. A unit is an output of a version.
    """
    place: dict[tuple[int, int], int] = {}
    parts = []
    for version, outputs, matrix in tables:
        for column, output in enumerate(outputs.tolist()):
            place[version, output] = len(place)
            parts.append(matrix[:, column])
    names = {name: n for n, name in enumerate(sorted({row[0] for row in rows}))}
    return Observations(
        likelihood=np.array(parts),
        user=np.array([names[row[0]] for row in rows], dtype=np.int64),
        unit=np.array([place[row[1], row[2]] for row in rows], dtype=np.int64),
        count=np.array([row[3] for row in rows], dtype=np.int64),
    )


def selection_logs(law: AnchorLaw, sets: list[IntArray]) -> FloatArray:
    """log Pr[A | x] of each set for all records, (sets, K), up to a constant per set.

    log P_x(A) = sum_A log w(x, a) + sum_notA log(1 - w(x, a))
    """
    size = law.domain.size
    inside = np.zeros((len(sets), size))
    for n, chosen in enumerate(sets):
        inside[n, chosen] = 1.0
    out = np.empty((len(sets), size))
    step = max(1, 4_000_000 // size)
    candidate = np.asarray(law.is_candidate)
    for start in range(0, size, step):
        records = np.arange(start, min(start + step, size))
        w = law.dense(records)[:, candidate]
        taken, left = np.log(w), np.log1p(-w)
        out[:, records] = inside[:, candidate] @ (taken - left).T + left.sum(axis=1)
    return out


def anchors_observations(
    law: AnchorLaw,
    rounds: list[tuple[list[tuple[str, IntArray]], FloatArray, IntArray, IntArray]],
    reports: list[dict[str, list[tuple[int, int]]]],
) -> Observations:
    """Observations of an anchors deployment: a unit is what one user released in one round.

    `rounds` has the users with their anchor sets, the probabilities of the table's rows, the row
    of each anchor of the union, and the union; `reports` has, per round and user, the columns that
    were reported and how often. The likelihood is that of the set and all reports together,

        L(x) = Pr[A | x] prod_y z(y | s(x, A)),

    because the set tells about the record as well.
    """
    parts, users = [], []
    for (members, matrix, row, union), by_user in zip(rounds, reports, strict=True):
        present = [(name, chosen) for name, chosen in members if name in by_user]
        if not present:
            continue
        logs = selection_logs(law, [chosen for _, chosen in present])
        for (name, chosen), log in zip(present, logs, strict=True):
            heard = np.zeros(law.domain.size)
            if len(chosen):
                nearest = chosen[surrogates(law.domain, chosen)]
                rows = matrix[row[np.searchsorted(union, nearest)]]
                with np.errstate(divide="ignore"):
                    for column, count in by_user[name]:
                        heard += count * np.log(rows[:, column])
            total = log + heard
            if not np.isfinite(total.max()):
                # No record makes this set and these reports: somebody has made them up.
                continue
            parts.append(np.exp(total - total.max()))
            users.append(name)
    names = {name: n for n, name in enumerate(sorted(set(users)))}
    return Observations(
        likelihood=np.array(parts).reshape(len(parts), law.domain.size),
        user=np.array([names[name] for name in users], dtype=np.int64),
        unit=np.arange(len(parts)),
        count=np.ones(len(parts), dtype=np.int64),
    )
