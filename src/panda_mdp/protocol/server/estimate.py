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

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.panda.file import decode
from panda_mdp.panda.law import AnchorLaw, surrogates
from panda_mdp.protocol.messages.deployments import Estimate
from panda_mdp.protocol.server.solving import Solution
from panda_mdp.protocol.server.store.catalogue import domain_of, domain_row, table_row
from panda_mdp.protocol.server.store.schema import DeploymentRow, ReportRow, RoundRow

CONFIDENCE = 0.95
REPLICATES = 200
TOLERANCE = 1e-5
"""The update ends when a step moves less than this share of the people."""
MOST_STEPS = 300
"""Where people are in few places this is far from the maximum (docs/protocol.md)."""
MOST_WORK = 3e11
"""Multiplications that an estimate may take; larger ones make fewer steps."""
BLOCK = 20
"""Replicates that are computed at once."""
Rows = Sequence[tuple[str, int, int, int]]
"""A user, a version or round, an output, and how often."""
Sets = Mapping[tuple[int, str], tuple[IntArray, Solution]]
"""The anchors of a user in a round, and the round's table."""


class Observations(NamedTuple):
    """Who observed which unit how often, and how likely each record makes each unit."""

    likelihood: FloatArray
    """(units, records), each row up to a factor of its own."""
    counts: scipy.sparse.csr_array
    """(users, units)."""

    @classmethod
    def of(cls, likelihood: FloatArray, entries: Sequence[tuple[str, int, int]]) -> Observations:
        """From a user, a unit and how often, for each user and unit."""
        given, units, counts = zip(*entries, strict=True) if entries else ((), (), ())
        users, user = np.unique(given, return_inverse=True)
        where = (np.array(counts, dtype=float), (user, np.array(units, dtype=int)))
        return cls(likelihood, scipy.sparse.csr_array(where, (len(users), len(likelihood))))


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
    shares, taken, moved = np.full((len(counts), size), 1.0 / size), 0, 1.0
    while taken < steps and moved >= tolerance:
        expected = shares @ likelihood.T
        # What no record can have reported tells nothing about records: it was made up.
        ratio = np.divide(counts, expected, out=np.zeros_like(expected), where=expected > 0)
        after = shares * (ratio @ likelihood)
        total = after.sum(axis=1, keepdims=True)
        after = np.divide(after, total, out=shares.copy(), where=total > 0)
        moved = np.abs(after - shares).sum(axis=1).max() / 2
        shares, taken = after, taken + 1
    return shares, taken


def estimate(seen: Observations, reports: int = 0, replicates: int = REPLICATES) -> Estimate:
    """Shares of the records, with a bootstrap interval over users.

    The bootstrap's generator has a fixed seed, so that the same reports give the same answer; what
    it draws is no secret. With fewer than two users there is no interval but 0 to 1.
    """
    # Only units that occur; a table of few outputs is small, one of a few reports smaller still.
    occurs = np.unique(seen.counts.indices)
    likelihood, counts = np.ascontiguousarray(seen.likelihood[occurs]), seen.counts[:, occurs]
    users, size = counts.shape[0], likelihood.shape[1]
    work = 2.0 * max(1, likelihood.size) * (replicates + 1)
    steps = int(np.clip(MOST_WORK / work, 20, MOST_STEPS))
    shares, taken = bayesian_update(
        likelihood, np.asarray(counts.sum(axis=0), dtype=float)[None, :], steps=steps
    )
    limits = np.array([np.zeros(size), np.ones(size)])
    if users > 1:
        generator, tail = np.random.default_rng(0), (1.0 - CONFIDENCE) / 2
        even = np.full(users, 1.0 / users)
        drawn = []
        for _ in range(replicates // BLOCK):
            again = np.asarray(generator.multinomial(users, even, size=BLOCK) @ counts, dtype=float)
            drawn.append(bayesian_update(likelihood, again, steps=taken, tolerance=0.0)[0])
        limits = np.quantile(np.concatenate(drawn), [tail, 1.0 - tail], axis=0)
    share, low, high = np.concatenate([shares, limits]).clip(0, 1).tolist()
    return Estimate(
        records=list(range(size)),
        share=share,
        low=low,
        high=high,
        iterations=taken,
        reports=reports,
        confidence=CONFIDENCE,
    )


def table_observations(files: Mapping[int, bytes], rows: Rows) -> Observations:
    """Observations of reports drawn from whole tables or balls: a unit is an output of a version.

    The tables were audited when they were published; `files` has those of the versions.
    """
    tables = {version: decode(data) for version, data in files.items()}
    units = [(version, y) for version in tables for y in tables[version].problem.outputs.tolist()]
    place = {unit: n for n, unit in enumerate(units)}
    likelihood = np.concatenate([table.matrix for table in tables.values()], axis=1).T
    entries = [(user, place[version, output], count) for user, version, output, count in rows]
    return Observations.of(likelihood, entries)


def anchors_observations(law: AnchorLaw, sets: Sets, rows: Rows) -> Observations:
    """Observations of an anchors deployment: a unit is what one user released in one round.

    The likelihood is that of the set and all reports together,

        L(x) = Pr[A | x] prod_y z(y | s(x, A)),

    because the set tells about the record as well.
    """
    released: dict[tuple[int, str], list[tuple[int, int]]] = defaultdict(list)
    for user, number, output, count in rows:
        released[number, user].append((output, count))
    likelihoods: list[FloatArray] = []
    entries: list[tuple[str, int, int]] = []
    for (number, user), reports in released.items():
        anchors, solution = sets[number, user]
        total = law.log_likelihoods(anchors)
        if len(anchors):
            nearest = anchors[surrogates(law.domain, anchors)]
            with np.errstate(divide="ignore"):
                row_logs = np.log(solution.rows(nearest) / 2.0**62)
            for output, count in reports:
                total += count * row_logs[:, solution.outputs.tolist().index(output)]
        if np.isfinite(total.max()):
            # Otherwise no record makes this set and these reports: they were made up.
            entries.append((user, len(likelihoods), 1))
            likelihoods.append(np.exp(total - total.max()))
    return Observations.of(np.reshape(likelihoods, (len(likelihoods), law.domain.size)), entries)


# Out of the store


def span(session: Session, deployment: int) -> str:
    """The first and the latest report: what an estimate is about changes with either."""
    ends = select(func.min(ReportRow.seq), func.max(ReportRow.seq))
    first, last = session.execute(ends.where(ReportRow.deployment == deployment)).one()
    return f"{first}-{last}"


def gather(
    session: Session, deployment: DeploymentRow
) -> tuple[Callable[[Any, Rows], Observations], Any, Rows]:
    """Everything that an estimate takes. Users are token ids, and stay on the server."""
    columns = (ReportRow.token, ReportRow.version, ReportRow.output)
    query = select(*columns, func.count()).filter_by(deployment=deployment.id).group_by(*columns)
    rows: Rows = [(*row,) for row in session.execute(query)]
    versions, request = sorted({row[1] for row in rows}), deployment.request
    if request.kind == "anchors":
        sets = {}
        for number in versions:
            solved = session.get_one(RoundRow, (deployment.id, number))
            solution = Solution.of(solved)
            for row in solved.uploads:
                sets[number, row.token] = np.array(row.anchors, dtype=np.int64), solution
        return _observe_anchors, (request, domain_row(session, request.domain).arrays, sets), rows
    files = {
        version: table_row(session, deployment.tables[version - 1]).file
        for version in versions or [deployment.version]
    }
    return table_observations, files, rows


def _observe_anchors(given: Any, rows: Rows) -> Observations:
    request, domain, sets = given
    return anchors_observations(request.selection.law().on(domain_of(domain)), sets, rows)


def compute(observe: Callable[[Any, Rows], Observations], given: Any, rows: Rows) -> Estimate:
    """The estimate. Runs in a worker process."""
    return estimate(observe(given, rows), sum(row[3] for row in rows))
