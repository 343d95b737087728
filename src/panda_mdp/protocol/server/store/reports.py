"""Reports: stored in batches, counted by the hour, deleted by age.

A batch is one transaction within `Store.reports`, so no other server stores reports meanwhile: what
is read here stays true until the commit. Ages are whole hours, as counts are, and one hour of one
deployment goes in one transaction: the counts that are left are those of the reports that are left,
at every moment.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from sqlalchemy import delete, exists, func, insert, select, tuple_
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from panda_mdp.protocol.messages.deployments import Counts, HourCount
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.deployments import all_deployments, solved_round
from panda_mdp.protocol.server.store.schema import (
    BallRow,
    CountRow,
    DeploymentRow,
    QuotaRow,
    ReportRow,
    UploadRow,
    now_ms,
    when,
)

Outcome = Literal["new", "known", "conflict", "spent", "failed"]
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS
MOST_HOURS = 24 * 366


class Report(NamedTuple):
    """A report on its way. Its repr would show the output, so it is never printed."""

    deployment: int
    id: bytes
    token: str
    version: int
    output: int


class Period(NamedTuple):
    """A token's reports to a deployment in the period of a number."""

    deployment: int
    token: str
    number: int


@dataclass(frozen=True, slots=True)
class Quota:
    """`most` reports of one token in a period; what the period before left may be caught up."""

    period_ms: int
    most: int

    def refusal(self) -> Failure:
        """What is answered to a token that has no more."""
        seconds = max(1, (self.period_ms - now_ms() % self.period_ms) // 1000)
        return Failure(
            "rate_limited",
            f"this token has made its {self.most} reports of {self.period_ms // 1000} s",
            f"send it again, with the same id, in {seconds} s",
            {"retry-after": str(seconds)},
        )


def store_reports(
    session: Session, batch: Sequence[tuple[Report, Quota | None]], at: int
) -> list[Outcome]:
    """Insert those that are new, in order, and count them; say what became of each."""
    stored = _stored(session, (report for report, _ in batch))
    periods = [
        None if quota is None else Period(report.deployment, report.token, at // quota.period_ms)
        for report, quota in batch
    ]
    room = _room(session, {p: q for p, (_, q) in zip(periods, batch, strict=True) if p and q})
    outcomes: list[Outcome] = []
    fresh: list[Report] = []
    taken: Counter[Period] = Counter()
    spent: set[tuple[int, bytes]] = set()
    for (report, _), period in zip(batch, periods, strict=True):
        key = report[:2]
        before = stored.get(key)
        if before is not None:
            outcomes.append("known" if before == report else "conflict")
        elif key in spent or (period is not None and room[period] <= taken[period]):
            # What repeats it in this batch repeats something that is not there.
            spent.add(key)
            outcomes.append("spent")
        else:
            stored[key] = report
            fresh.append(report)
            if period is not None:
                taken[period] += 1
            outcomes.append("new")
    if fresh:
        rows = [report._asdict() | {"at": when(at)} for report in fresh]
        session.execute(insert(ReportRow), rows)
        hour = at // HOUR_MS
        sums = Counter((r.deployment, r.version, r.output, hour) for r in fresh)
        _add(session, CountRow, ("deployment", "version", "output", "hour"), sums)
        _add(session, QuotaRow, ("deployment", "token", "period"), taken)
        there = _stored(session, fresh)
        if any(there.get(report[:2]) != report for report in fresh):
            # Raised inside the transaction, which then changes nothing.
            msg = "reports that were written cannot be read"
            raise RuntimeError(msg)
    return outcomes


def _stored(session: Session, batch: Iterable[Report]) -> dict[tuple[int, bytes], Report]:
    """The reports that are there under the ids of others."""
    ids = [report[:2] for report in batch]
    query = select(
        ReportRow.deployment, ReportRow.id, ReportRow.token, ReportRow.version, ReportRow.output
    ).where(tuple_(ReportRow.deployment, ReportRow.id).in_(ids))
    rows = [Report(*row) for row in session.execute(query)]
    return {row[:2]: row for row in rows}


def _room(session: Session, limits: Mapping[Period, Quota]) -> dict[Period, int]:
    """How many reports tokens have left in their periods."""
    if not limits:
        return {}
    asked = [*limits, *(_before(period) for period in limits)]
    columns = (QuotaRow.deployment, QuotaRow.token, QuotaRow.period)
    rows = session.execute(select(*columns, QuotaRow.count).where(tuple_(*columns).in_(asked)))
    used = {Period(*row[:3]): int(row[3]) for row in rows}
    return {
        period: quota.most + max(0, quota.most - used.get(_before(period), 0)) - used.get(period, 0)
        for period, quota in limits.items()
    }


def _before(period: Period) -> Period:
    return period._replace(number=period.number - 1)


def _add(
    session: Session,
    table: type[CountRow | QuotaRow],
    columns: Sequence[str],
    counts: Counter[Any],
) -> None:
    """Add to counts, which begin at 0."""
    if not counts:
        return
    on_sqlite = session.get_bind().dialect.name == "sqlite"
    new = sqlite.insert(table) if on_sqlite else postgresql.insert(table)
    added = {"count": table.count + new.excluded.count}
    statement = new.on_conflict_do_update(index_elements=columns, set_=added)
    session.connection().execute(
        statement,
        [dict(zip(columns, key, strict=True), count=n) for key, n in sorted(counts.items())],
    )


# What is left of them


def export_page(session: Session, deployment: int, after: int, limit: int) -> list[ReportRow]:
    """Some reports after one, in the order in which they came."""
    mine = select(ReportRow).filter_by(deployment=deployment).where(ReportRow.seq > after)
    return list(session.scalars(mine.order_by(ReportRow.seq).limit(limit)))


def count_reports(session: Session, deployment: int, outputs: frozenset[int]) -> Counts:
    """How often each output was reported, and how many reports came in each hour."""
    mine, total = CountRow.deployment == deployment, func.sum(CountRow.count)
    by_output = select(CountRow.output, total).where(mine).group_by(CountRow.output)
    reported = {int(output): int(count) for output, count in session.execute(by_output)}
    shown = sorted(outputs | reported.keys())
    hours = select(CountRow.hour, total).where(mine).group_by(CountRow.hour)
    rows = session.execute(hours.order_by(CountRow.hour.desc()).limit(MOST_HOURS)).all()
    return Counts(
        reports=sum(reported.values()),
        outputs=shown,
        counts=[reported.get(output, 0) for output in shown],
        per_hour=[
            HourCount(hour=when(hour * HOUR_MS), count=int(count)) for hour, count in reversed(rows)
        ],
    )


def remove_old(store: Store, most_days: int | None = None, now: int | None = None) -> int:
    """Delete what is older than the deployment's `retention_days`, or than `most_days` where that
    is less. Returns the number of reports that are gone."""
    at = now_ms() if now is None else now
    with store.read() as session:
        rows = all_deployments(session)
    removed = 0
    for row in rows:
        days = [d for d in (row.request.retention_days, most_days) if d is not None]
        if days:
            removed += _remove_before(store, row, at // HOUR_MS - 24 * min(days))
        with store.write() as session:
            # Two periods are looked at, and no more.
            last = at // (1000 * row.request.period_s) - 1
            mine = delete(QuotaRow).filter_by(deployment=row.id)
            session.execute(mine.where(QuotaRow.period < last))
    return removed


def _remove_before(store: Store, row: DeploymentRow, hour: int) -> int:
    removed = 0
    while True:
        with store.write() as session:
            oldest = select(func.min(CountRow.hour)).where(CountRow.deployment == row.id)
            first = session.scalar(oldest)
            if first is None or first >= hour:
                break
            removed += _remove_hour(session, row.id, first)
    with store.write() as session:
        cutoff = when(hour * HOUR_MS)
        session.execute(delete(BallRow).filter_by(deployment=row.id).where(BallRow.at < cutoff))
        # Rows of a round are drawn from while it is in force, and estimates need a round's sets
        # as long as they have reports of it.
        used = exists().where(
            ReportRow.deployment == UploadRow.deployment, ReportRow.version == UploadRow.round
        )
        session.execute(
            delete(UploadRow).where(
                UploadRow.deployment == row.id,
                UploadRow.at < cutoff,
                UploadRow.round < solved_round(session, row.id),
                ~used,
            )
        )
    return removed


def _remove_hour(session: Session, deployment: int, hour: int) -> int:
    mine = (CountRow.deployment == deployment) & (CountRow.hour == hour)
    counted = int(session.scalar(select(func.sum(CountRow.count)).where(mine)) or 0)
    session.execute(delete(CountRow).where(mine))
    old = delete(ReportRow).filter_by(deployment=deployment)
    cutoff = when((hour + 1) * HOUR_MS)
    gone = session.connection().execute(old.where(ReportRow.at < cutoff)).rowcount
    if gone != counted:
        # Raised inside the transaction, which then changes nothing.
        msg = f"{gone} reports of an hour are counted as {counted}"
        raise RuntimeError(msg)
    return counted
