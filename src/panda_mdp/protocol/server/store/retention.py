"""What users sent is deleted by age: reports with their counts, centres, anchor sets, quotas.

Ages are whole hours, as counts are, and one hour of one deployment goes in one transaction: the
counts that are left are those of the reports that are left, at every moment.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Row, delete, exists, func, select

from panda_mdp.protocol.server.store.database import Store, now_ms
from panda_mdp.protocol.server.store.deployments import (
    all_deployments,
    request_of,
    solved_round,
)
from panda_mdp.protocol.server.store.schema import balls, counts, quotas, reports, uploads

HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def remove_old(store: Store, most_days: int | None = None, now: int | None = None) -> int:
    """Delete what is older than the deployment's `retention_days`, or than `most_days` where that
    is less. Returns the number of reports that are gone."""
    at = now_ms() if now is None else now
    with store.read() as connection:
        rows = all_deployments(connection)
    removed = 0
    for row in rows:
        request = request_of(row)
        days = [d for d in (request.retention_days, most_days) if d is not None]
        if days:
            removed += _remove_before(store, row, at // HOUR_MS - 24 * min(days))
        with store.write() as connection:
            # Two periods are looked at, and no more.
            last = at // (1000 * request.period_s) - 1
            connection.execute(
                delete(quotas).where(quotas.c.deployment == row.id, quotas.c.period < last)
            )
    return removed


def _remove_before(store: Store, row: Row[Any], hour: int) -> int:
    removed, oldest = 0, select(func.min(counts.c.hour)).where(counts.c.deployment == row.id)
    while True:
        with store.write() as connection:
            first = connection.execute(oldest).scalar()
            if first is None or int(first) >= hour:
                break
            before = (int(first) + 1) * HOUR_MS
            gone = connection.execute(
                delete(reports).where(reports.c.deployment == row.id, reports.c.at < before)
            ).rowcount
            mine = (counts.c.deployment == row.id) & (counts.c.hour == int(first))
            counted = connection.execute(select(func.sum(counts.c.count)).where(mine)).scalar()
            connection.execute(delete(counts).where(mine))
            if gone != int(counted or 0):
                # Raised inside the transaction, which then changes nothing.
                msg = f"{gone} reports of an hour are counted as {counted}"
                raise RuntimeError(msg)
            removed += int(gone)
    with store.write() as connection:
        cutoff = hour * HOUR_MS
        connection.execute(delete(balls).where(balls.c.deployment == row.id, balls.c.at < cutoff))
        # Rows of a round are drawn from while it is in force, and estimates need a round's sets
        # as long as they have reports of it.
        used = exists().where(
            reports.c.deployment == uploads.c.deployment, reports.c.version == uploads.c.round
        )
        connection.execute(
            delete(uploads).where(
                uploads.c.deployment == row.id,
                uploads.c.at < cutoff,
                uploads.c.round < solved_round(connection, row.id),
                ~used,
            )
        )
    return removed
