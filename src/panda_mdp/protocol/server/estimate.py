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

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.panda.file import decode
from panda_mdp.panda.law import AnchorLaw, surrogates
from panda_mdp.protocol.messages.deployments import AnchorsDeploymentRequest, Estimate
from panda_mdp.protocol.server.solving import AnchorsTask, Solution
from panda_mdp.protocol.server.store.catalogue import (
    DomainParts,
    domain_of,
    domain_parts,
    domain_row,
    table_row,
)
from panda_mdp.protocol.server.store.deployments import table_of_version
from panda_mdp.protocol.server.store.rounds import find_round, served_sets, solution_of
from panda_mdp.protocol.server.store.schema import DeploymentRow, ReportRow

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
    counts: scipy.sparse.csr_array
    """(users, units)."""

    @classmethod
    def of(cls, likelihood: FloatArray, entries: Sequence[tuple[str, int, int]]) -> Observations:
        """From a user, a unit and how often, for each user and unit."""
        names = {name: n for n, name in enumerate(sorted({user for user, _, _ in entries}))}
        rows = np.array([(names[user], *rest) for user, *rest in entries], dtype=np.int64)
        user, unit, count = rows.reshape(-1, 3).T
        shape = (len(names), len(likelihood))
        return cls(
            likelihood, scipy.sparse.csr_array((count.astype(np.float64), (user, unit)), shape)
        )

    @property
    def reports(self) -> int:
        """Observations in all."""
        return int(self.counts.sum())

    @property
    def users(self) -> int:
        """Users who observed anything."""
        return int(self.counts.shape[0])


@dataclass(frozen=True, eq=False)
class Shares:
    """Estimated shares of the records with their interval."""

    share: FloatArray
    low: FloatArray
    high: FloatArray
    iterations: int

    def message(self, reports: int) -> Estimate:
        """As they travel."""
        return Estimate(
            records=list(range(len(self.share))),
            share=self.share.clip(0, 1).tolist(),
            low=self.low.clip(0, 1).tolist(),
            high=self.high.clip(0, 1).tolist(),
            iterations=self.iterations,
            reports=reports,
            confidence=CONFIDENCE,
        )


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
    size = observations.likelihood.shape[1]
    unknown = np.zeros(size), np.ones(size)
    if observations.reports == 0:
        return Shares(np.full(size, 1.0 / size), *unknown, 0)
    # Only units that occur; a table of few outputs is small, one of a few reports smaller still.
    seen = np.unique(observations.counts.indices)
    likelihood = np.ascontiguousarray(observations.likelihood[seen])
    reported = observations.counts[:, seen].toarray()
    work = 2.0 * len(seen) * size * (replicates + 1)
    steps = int(np.clip(MOST_WORK / work, 20, MOST_STEPS))
    point, taken = bayesian_update(likelihood, reported.sum(axis=0, keepdims=True), steps=steps)
    users = observations.users
    if users < 2:
        return Shares(point[0], *unknown, taken)
    generator = np.random.default_rng(seed)
    drawn = []
    for start in range(0, replicates, BLOCK):
        some = min(BLOCK, replicates - start)
        weights = generator.multinomial(users, np.full(users, 1.0 / users), size=some)
        counts = np.asarray(scipy.sparse.csr_array(weights.astype(np.float64)) @ reported)
        drawn.append(bayesian_update(likelihood, counts, steps=taken, tolerance=0.0)[0])
    tail = (1.0 - confidence) / 2
    low, high = np.quantile(np.concatenate(drawn).astype(np.float64), [tail, 1.0 - tail], axis=0)
    return Shares(point[0], low, high, taken)


Rows = Sequence[tuple[str, int, int, int]]
"""A user, a version or round, an output, and how often."""


def table_observations(
    tables: Sequence[tuple[int, IntArray, FloatArray]], rows: Rows
) -> Observations:
    """Observations of reports drawn from whole tables.

    `tables` has a version, its outputs and its K x m probabilities each. A unit is an output of a
    version.
    """
    units = [(version, output) for version, outputs, _ in tables for output in outputs.tolist()]
    place = {unit: n for n, unit in enumerate(units)}
    likelihood = np.concatenate([matrix for _, _, matrix in tables], axis=1).T
    entries = [(user, place[version, output], count) for user, version, output, count in rows]
    return Observations.of(likelihood, entries)


def selection_logs(law: AnchorLaw, sets: list[IntArray]) -> FloatArray:
    """log Pr[A | x] of each set for all records, (sets, K), up to a constant per set.

    log P_x(A) = sum_A log w(x, a) + sum_notA log(1 - w(x, a))
    """
    size = law.domain.size
    inside = np.zeros((len(sets), size))
    for n, anchors in enumerate(sets):
        inside[n, anchors] = 1.0
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
    rounds: Sequence[tuple[int, Sequence[tuple[str, IntArray]], Solution]],
    rows: Rows,
) -> Observations:
    """Observations of an anchors deployment: a unit is what one user released in one round.

    `rounds` has a number, the users with their anchor sets, and the table. The likelihood is that
    of the set and all reports together,

        L(x) = Pr[A | x] prod_y z(y | s(x, A)),

    because the set tells about the record as well.
    """
    told: dict[tuple[int, str], list[tuple[int, int]]] = {}
    for user, number, output, count in rows:
        told.setdefault((number, user), []).append((output, count))
    parts: list[FloatArray] = []
    entries: list[tuple[str, int, int]] = []
    for number, members, solution in rounds:
        present = [(user, anchors) for user, anchors in members if (number, user) in told]
        column = {output: k for k, output in enumerate(solution.outputs.tolist())}
        logs = selection_logs(law, [anchors for _, anchors in present])
        for (user, anchors), set_log in zip(present, logs, strict=True):
            total = set_log.copy()
            if len(anchors):
                nearest = anchors[surrogates(law.domain, anchors)]
                with np.errstate(divide="ignore"):
                    row_logs = np.log(solution.rows(nearest) / 2.0**62)
                for output, count in told[number, user]:
                    total += count * row_logs[:, column[output]]
            if not np.isfinite(total.max()):
                # No record makes this set and these reports: somebody has made them up.
                continue
            entries.append((user, len(parts), 1))
            parts.append(np.exp(total - total.max()))
    likelihood = np.array(parts).reshape(len(parts), law.domain.size)
    return Observations.of(likelihood, entries)


# Out of the store


@dataclass(frozen=True)
class TableInputs:
    """Reports of a deployment that draws from whole tables or balls."""

    files: list[tuple[int, str, bytes]]
    """Versions with the kind and the file of their table."""
    rows: Rows

    def observations(self) -> Observations:
        """What was observed."""
        tables = [(version, *_table(data)) for version, _, data in self.files]
        return table_observations(tables, self.rows)


@dataclass(frozen=True, eq=False)
class AnchorsInputs:
    """Reports of an anchors deployment."""

    request: AnchorsDeploymentRequest
    domain: DomainParts
    rounds: list[tuple[int, list[tuple[str, IntArray]], Solution]]
    rows: Rows

    def observations(self) -> Observations:
        """What was observed."""
        task = AnchorsTask.of(self.request, domain_of(self.domain))
        law = task.selection.on(task.problem.domain)
        return anchors_observations(law, self.rounds, self.rows)


def _table(data: bytes) -> tuple[IntArray, FloatArray]:
    """Outputs and probabilities of a stored table, which was audited when it was published."""
    table = decode(data)
    return table.problem.outputs, table.matrix


def span(session: Session, deployment: int) -> str:
    """The first and the latest report: what an estimate is about changes with either."""
    ends = select(func.min(ReportRow.seq), func.max(ReportRow.seq))
    first, last = session.execute(ends.where(ReportRow.deployment == deployment)).one()
    return f"{first or 0}-{last or 0}"


def gather(session: Session, deployment: DeploymentRow) -> TableInputs | AnchorsInputs:
    """Everything that an estimate takes. Users are token ids, and stay on the server."""
    columns = (ReportRow.token, ReportRow.version, ReportRow.output)
    query = select(*columns, func.count()).filter_by(deployment=deployment.id).group_by(*columns)
    rows = [
        (user, version, output, count) for user, version, output, count in session.execute(query)
    ]
    versions = sorted({row[1] for row in rows})
    request = deployment.request
    if request.kind == "anchors":
        solved = [
            (
                version,
                served_sets(session, deployment.id, version),
                solution_of(find_round(session, deployment.id, version)),
            )
            for version in versions
        ]
        domain = domain_parts(domain_row(session, request.domain))
        return AnchorsInputs(request, domain, solved, rows)
    files = []
    for version in versions or [deployment.version]:
        table = table_row(session, table_of_version(session, deployment.id, version))
        files.append((version, table.kind, table.file))
    return TableInputs(files, rows)


def compute(inputs: TableInputs | AnchorsInputs) -> Estimate:
    """The estimate. Runs in a worker process."""
    return estimate(inputs.observations()).message(sum(row[3] for row in inputs.rows))
