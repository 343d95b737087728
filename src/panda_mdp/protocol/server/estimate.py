"""Where people are: a deployment's reports, as `meaning.estimate` takes them.

A user counts once, however often they report: what they reported is divided among its outputs. A
client repeats its answer within a period, so repeats tell nothing new.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import numpy as np
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from panda_mdp.errors import InvalidInputError
from panda_mdp.meaning.estimate import Channel, estimate_groups, zone_matrix
from panda_mdp.meaning.shuffled import ShuffledReports
from panda_mdp.panda.file import decode
from panda_mdp.protocol.messages.deployments import Estimate, ZoneEstimate
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.store.catalogue import table_row
from panda_mdp.protocol.server.store.schema import DeploymentRow, ReportRow

BATCH_DELTA = 1e-6
"""That goes with the epsilon of counts of reports whose order is lost."""


class Reported(NamedTuple):
    """What was reported of a deployment, and the tables that it was drawn from."""

    files: dict[int, bytes]
    """Of the versions."""
    counts: list[tuple[int, int, float]]
    """Versions and outputs, and how many users made that report."""
    users: int
    reports: int
    whole: bool = False
    """Whether everybody drew from a whole table; a ball's centre would tell more than counts."""


def estimate(reported: Reported) -> Estimate:
    """Of reports drawn from tables or balls. Runs in a worker process.

    Where they were drawn from `whole` tables, of one version and once by each user, the answer has
    the (epsilon, delta) of who sees their counts alone.

    The tables were audited when they were published.
    """
    users = reported.users
    tables = {version: decode(data) for version, data in reported.files.items()}
    domain = next(iter(tables.values())).problem.domain
    zones = zone_matrix(None, domain)
    seen = {version: np.zeros(domain.size) for version in tables}
    for version, output, count in reported.counts:
        seen[version][output] = count
    counts = [seen[version][table.problem.outputs] for version, table in tables.items()]
    channels = [Channel.of(table, zones[1]) for table in tables.values()]
    # Versions share one distribution of people: each is a part of one channel.
    parts = [part.sum() / users if users else 1 / len(tables) for part in counts]
    first = np.cumsum([0, *(channel.rows.shape[1] for channel in channels)])
    joint = Channel(
        np.hstack([part * channel.rows for part, channel in zip(parts, channels, strict=True)]),
        np.concatenate([k + channel.groups for k, channel in zip(first, channels, strict=False)]),
        np.concatenate([channel.home for channel in channels]),
    )
    found = estimate_groups(joint, np.concatenate(counts)[None], zones, domain, ("all",))
    batch = None
    with suppress(InvalidInputError):
        if reported.whole and len(tables) == 1 and users == reported.reports:
            epsilon = ShuffledReports(next(iter(tables.values())), users).epsilon(BATCH_DELTA)
            batch = epsilon, BATCH_DELTA
    return Estimate(
        records=list(range(domain.size)),
        share=found.records[0].clip(0, 1).tolist(),
        zone=zones[1].argmax(axis=1).tolist(),
        zones=[ZoneEstimate(**dict([*row.items()][2:])) for row in found.rows()],
        users=users,
        reports=reported.reports,
        batch=batch,
    )


# Out of the store


def span(session: Session, deployment: int) -> str:
    """The first and the latest report: what an estimate is about changes with either."""
    ends = select(func.min(ReportRow.seq), func.max(ReportRow.seq))
    first, last = session.execute(ends.where(ReportRow.deployment == deployment)).one()
    return f"{first}-{last}"


def gather(session: Session, deployment: DeploymentRow) -> Reported:
    """Everything that an estimate takes."""
    request = deployment.request
    if request.kind == "anchors":
        raise Failure("not_found", "rounds of anchors have no estimate", "export their reports")
    mine = ReportRow.deployment == deployment.id
    user = func.count().over(partition_by=ReportRow.token)
    each = select(ReportRow.version, ReportRow.output, (1.0 / user).label("part")).where(mine)
    version, output, part = each.subquery().columns
    query = select(version, output, func.sum(part), func.count()).group_by(version, output)
    # In one query, so that it is of one moment: whose reports are one together is a user.
    found = session.execute(query).all()
    counts = [(version, output, part) for version, output, part, _ in found]
    users, reports = round(sum(part for _, _, part in counts)), sum(row[3] for row in found)
    files = {
        version: table_row(session, deployment.tables[version - 1]).file
        for version in {version for version, *_ in counts} or {deployment.version}
    }
    return Reported(files, counts, users, reports, request.kind == "table")
