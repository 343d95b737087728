"""Where people are: a deployment's reports, as `meaning.estimate` takes them.

A user counts once, however often they report: what they reported is divided among its outputs. A
client repeats its answer within a period, so repeats tell nothing new.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import Any

import numpy as np
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.errors import InvalidInputError
from panda_mdp.meaning.deconvolution import bumps_of, fit_shares
from panda_mdp.meaning.estimate import Channel, estimate_groups, zone_matrix
from panda_mdp.meaning.shuffled import ShuffledReports
from panda_mdp.panda.file import decode
from panda_mdp.panda.law import AnchorLaw, surrogates
from panda_mdp.protocol.messages.deployments import Estimate, ZoneEstimate
from panda_mdp.protocol.server.solving import Solution
from panda_mdp.protocol.server.store.catalogue import domain_of, domain_row, table_row
from panda_mdp.protocol.server.store.schema import DeploymentRow, ReportRow, RoundRow

BATCH_DELTA = 1e-6
"""That goes with the epsilon of counts of reports whose order is lost."""
MOST_UNITS = 1000
"""Users of anchors that are looked at: each is a column of its own."""
Rows = Sequence[tuple[str, int, int, int]]
"""A user, a version or round, an output, and how often."""
Sets = Mapping[tuple[int, str], tuple[IntArray, Solution]]
"""The anchors of a user in a round, and the round's table."""


def estimate_tables(files: Mapping[int, bytes], rows: Rows, *, whole: bool = False) -> Estimate:
    """Of reports drawn from whole tables or balls; `files` has those of the versions.

    Where they were drawn from `whole` tables, of one version and once by each user, the answer has
    the (epsilon, delta) of who sees their counts alone: a ball's centre would tell more.

    The tables were audited when they were published. Versions share one distribution of people, so
    that each is a part of one channel, as large as its part of the reports.
    """
    tables = {version: decode(data) for version, data in files.items()}
    domain = next(iter(tables.values())).problem.domain
    _, zones = zone_matrix(None, domain)
    each: Counter[str] = Counter()
    for user, _, _, count in rows:
        each[user] += count
    people = max(1, len(each))
    seen = {version: np.zeros(domain.size) for version in tables}
    for user, version, output, count in rows:
        seen[version][output] += count / each[user]
    parts = []
    grouped = []
    raw = np.zeros(zones.shape[1])
    for version, table in tables.items():
        counts = seen[version][table.problem.outputs]
        channel = Channel.of(table, zones)
        parts.append((counts.sum() / people if each else 1 / len(tables)) * channel.rows)
        grouped.append(channel.counts(counts[None, :]))
        raw += counts @ zones[channel.home] / people
    groups = np.concatenate(grouped, axis=1)
    found = estimate_groups(np.concatenate(parts, axis=1), groups, zones, bumps_of(domain))
    share, low, high, unplaced, records = (part[0] for part in found)
    made = _message(records, zones, (raw, share, low, high), unplaced <= 0.5 * high, rows)
    once = len(tables) == 1 and len(each) == sum(count for *_, count in rows)
    with suppress(InvalidInputError):
        if whole and once:
            epsilon = ShuffledReports(next(iter(tables.values())), len(rows)).epsilon(BATCH_DELTA)
            made = made.model_copy(update={"batch": (epsilon, BATCH_DELTA)})
    return made


def estimate_anchors(law: AnchorLaw, sets: Sets, rows: Rows) -> Estimate:
    """Of an anchors deployment: the likelihood of what each user released, and no limits.

    It is that of the sets and all reports together, because a set tells about the record as well:

        L(x) = prod over rounds of Pr[A | x] prod_y z(y | s(x, A)).

    Rows of anchors that nobody drew are in no round's table, so what a report would have been is
    not known and no limits are: they are 0 and 1.
    """
    likelihood = anchors_likelihood(law, sets, rows)
    shares, _ = fit_shares(likelihood.T, np.ones(len(likelihood)))
    _, zones = zone_matrix(None, law.domain)
    inside = shares @ zones
    none = np.zeros_like(inside)
    all_ = np.ones_like(inside)
    return _message(shares, zones, (none, inside, none, all_), none.astype(bool), rows)


def anchors_likelihood(law: AnchorLaw, sets: Sets, rows: Rows) -> FloatArray:
    """(users, records): how likely each record makes what a user released, up to a factor."""
    totals: dict[str, FloatArray] = {}
    for (user, number), reports in groupby(sorted(rows), itemgetter(0, 1)):
        if user not in totals and len(totals) == MOST_UNITS:
            break
        anchors, solution = sets[number, user]
        total = totals.setdefault(user, np.zeros(law.domain.size))
        total += law.log_likelihoods(anchors)
        if len(anchors):
            weights = solution.rows(anchors[surrogates(law.domain, anchors)])
            with np.errstate(divide="ignore"):
                row_logs = np.log(weights / 2.0**62)
            column = solution.outputs.tolist().index
            for *_, output, count in reports:
                total += count * row_logs[:, column(output)]
    # One that no record makes was made up.
    found = [np.exp(total - total.max()) for total in totals.values() if np.isfinite(total.max())]
    return np.reshape(found, (len(found), law.domain.size))


def _message(
    records: FloatArray,
    zones: FloatArray,
    numbers: tuple[FloatArray, FloatArray, FloatArray, FloatArray],
    told_apart: Any,
    rows: Rows,
) -> Estimate:
    columns = (np.clip(part, 0, 1).tolist() for part in numbers)
    names = ("raw", "share", "low", "high", "told_apart")
    each = zip(*columns, told_apart.tolist(), strict=True)
    return Estimate(
        records=list(range(len(records))),
        share=records.clip(0, 1).tolist(),
        zone=zones.argmax(axis=1).tolist(),
        zones=[ZoneEstimate(**dict(zip(names, values, strict=True))) for values in each],
        users=len({row[0] for row in rows}),
        reports=sum(row[3] for row in rows),
    )


# Out of the store


def span(session: Session, deployment: int) -> str:
    """The first and the latest report: what an estimate is about changes with either."""
    ends = select(func.min(ReportRow.seq), func.max(ReportRow.seq))
    first, last = session.execute(ends.where(ReportRow.deployment == deployment)).one()
    return f"{first}-{last}"


def gather(
    session: Session, deployment: DeploymentRow
) -> tuple[Callable[[Any, Rows], Estimate], Any, Rows]:
    """What computes an estimate in a worker process, and everything that it takes. Users are token
    ids, and stay on the server."""
    columns = (ReportRow.token, ReportRow.version, ReportRow.output)
    query = select(*columns, func.count()).filter_by(deployment=deployment.id).group_by(*columns)
    rows: Rows = [(*row,) for row in session.execute(query)]
    versions = sorted({row[1] for row in rows})
    request = deployment.request
    if request.kind == "anchors":
        sets = {}
        for number in versions:
            solved = session.get_one(RoundRow, (deployment.id, number))
            solution = Solution.of(solved)
            for row in solved.uploads:
                sets[number, row.token] = np.array(row.anchors, dtype=np.int64), solution
        return _estimate_anchors, (request, domain_row(session, request.domain).arrays, sets), rows
    files = {
        version: table_row(session, deployment.tables[version - 1]).file
        for version in versions or [deployment.version]
    }
    return partial(estimate_tables, whole=request.kind == "table"), files, rows


def _estimate_anchors(given: Any, rows: Rows) -> Estimate:
    request, domain, sets = given
    return estimate_anchors(request.selection.law().on(domain_of(domain)), sets, rows)
