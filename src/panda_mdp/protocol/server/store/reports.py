"""Reports: stored in batches, counted where somebody asks, removed on request and by age.

A batch is one transaction within `Store.reports`, so no other server stores reports meanwhile: what
is read here stays true until the commit. Ages are whole hours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    delete,
    func,
    insert,
    select,
    tuple_,
    type_coerce,
    update,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from panda_mdp.protocol.messages.deployments import Counts, HourCount
from panda_mdp.protocol.messages.service import RemovalDone, RemovalRequest
from panda_mdp.protocol.messages.signing import SigningKey, signed_bytes
from panda_mdp.protocol.server.failures import Failure, unavailable
from panda_mdp.protocol.server.store.database import Store, found, revoke
from panda_mdp.protocol.server.store.deployments import all_deployments, solved_round
from panda_mdp.protocol.server.store.log import append, record_action
from panda_mdp.protocol.server.store.schema import (
    DeploymentRow,
    InvitationRow,
    IssuerRow,
    QuotaRow,
    ReportRow,
    RoundRow,
    TokenRow,
    UploadRow,
    now_ms,
    when,
)

ASKED_AGAIN = 4
"""Balls of a report: an answer that got lost is asked for again."""
Removal = Literal["erase", "exclude", "include"]
Outcome = Literal["new", "known", "conflict", "spent", "failed"]
Period = tuple[int, str, int]
_PERIOD = ("deployment", "token", "period")
"""A deployment, a token of it, and the number of a period since 1970."""
HOUR_MS = 3_600_000
MOST_HOURS = 24 * 366
MOST_REMOVED = 10_000
"""Reports that are deleted in one transaction."""


class Report(NamedTuple):
    """A report on its way. Its repr would show the output, so it is never printed."""

    deployment: int
    id: bytes
    token: str
    version: int
    output: int


class Ball(NamedTuple):
    """A ball that a token asks for in a period."""

    deployment: int
    token: str
    period: int


@dataclass(frozen=True, slots=True)
class Quota:
    """`most` reports of one token in a period; what the period before left may be caught up, by a
    token that was there in it."""

    period_ms: int
    most: int
    since_ms: int = 0
    """When the token was made."""
    once: bool = False
    """Whether the period before counts too, as for what is used once: nothing is caught up."""

    def period(self) -> int:
        """The number of the running period since 1970."""
        return now_ms() // self.period_ms

    def refusal(self) -> Failure:
        """What is answered to a token that has no more."""
        seconds = max(1, (self.period_ms - now_ms() % self.period_ms) // 1000)
        said = f"this token has made its {self.most} reports of {self.period_ms // 1000} s"
        remedy = f"send it again, with the same id, in {seconds} s"
        return unavailable(said, remedy, seconds, "rate_limited")


def store_reports(
    session: Session, batch: Sequence[tuple[Report, Quota]], at: int
) -> list[Outcome]:
    """Insert those that are new, in order, and count them; say what became of each."""
    stored = _stored(session, (report for report, _ in batch))
    periods = [(report.deployment, report.token, at // q.period_ms) for report, q in batch]
    used = _used(session, periods)
    outcomes: list[Outcome] = []
    fresh: list[Report] = []
    taken: Counter[Period] = Counter()
    for (report, quota), period in zip(batch, periods, strict=True):
        key = report[:2]
        before = stored.get(key)
        was_there = quota.since_ms < period[2] * quota.period_ms
        earlier = used[_before(period)]
        caught_up = max(0, quota.most - earlier) if was_there else 0
        if quota.once:
            caught_up = -earlier
        if before is not None:
            # Of whichever version: what was accepted stays so.
            same = (before.token, before.output) == (report.token, report.output)
            outcomes.append("known" if same else "conflict")
        elif used[period] + taken[period] >= quota.most + caught_up:
            outcomes.append("spent")
        else:
            stored[key] = report
            fresh.append(report)
            taken[period] += 1
            outcomes.append("new")
    if fresh:
        rows = [report._asdict() | {"at": when(at)} for report in fresh]
        session.execute(insert(ReportRow), rows)
        _add_to_quotas(session, taken)
        there = _stored(session, fresh)
        if any(there.get(report[:2]) != report for report in fresh):
            # Raised inside the transaction, which then changes nothing.
            raise RuntimeError("reports that were written cannot be read")
    return outcomes


def _stored(session: Session, batch: Iterable[Report]) -> dict[tuple[int, bytes], Report]:
    """The reports that are there under the ids of others, set aside or not: what was set aside
    does not come back by being sent again."""
    columns = [getattr(ReportRow, name) for name in Report._fields]
    keys = [(sign * report.deployment, report.id) for report in batch for sign in (1, -1)]
    rows = session.execute(select(*columns).where(tuple_(*columns[:2]).in_(keys)))
    reports = (Report(abs(row[0]), *row[1:]) for row in rows)
    return {report[:2]: report for report in reports}


def _used(session: Session, periods: Iterable[Period]) -> Counter[Period]:
    """How many reports tokens have made in periods and those before."""
    asked = {each for period in periods for each in (period, _before(period))}
    columns = [getattr(QuotaRow, name) for name in _PERIOD]
    query = select(*columns, QuotaRow.count).where(tuple_(*columns).in_(asked))
    return Counter({row[:3]: row[3] for row in session.execute(query)})


def _before(period: Period) -> Period:
    return (*period[:2], period[2] - 1)


def _add_to_quotas(session: Session, taken: Counter[Period]) -> None:
    on_sqlite = session.get_bind().dialect.name == "sqlite"
    new = sqlite.insert(QuotaRow) if on_sqlite else postgresql.insert(QuotaRow)
    added = {"count": QuotaRow.count + new.excluded.count}
    session.connection().execute(
        new.on_conflict_do_update(index_elements=_PERIOD, set_=added),
        [dict(zip(_PERIOD, key, strict=True), count=n) for key, n in sorted(taken.items())],
    )


def take_ball(session: Session, asked: Ball, quota: Quota) -> Outcome:
    """Count a ball that a token asks for, which may have had those of its reports. Within
    `Store.reports`, as everything that changes quotas."""
    row = _quota_row(session, asked)
    row.balls += 1
    return "new" if row.balls <= ASKED_AGAIN * quota.most else "spent"


def take_one_use(session: Session, period: Period, digest: str) -> bool:
    """Note the one request of a token for one-use tokens; False where there was another. Within
    `Store.reports`."""
    row = _quota_row(session, period)
    row.asked = row.asked or digest
    return row.asked == digest


def _quota_row(session: Session, period: Period) -> QuotaRow:
    row = session.get(QuotaRow, period)
    if row is None:
        row = QuotaRow(**dict(zip(_PERIOD, period, strict=True)), count=0, balls=0)
        session.add(row)
    return row


# What is removed: by a token, by a batch of tokens, or by a report's receipt


def remove(session: Session, key: SigningKey, request: RemovalRequest, by: str) -> RemovalDone:
    """What an operator asks for, whose token is `by`. Within `Store.everything`."""
    action, revoked, target, what = request.action, 0, "", "report"
    if request.receipt is not None:
        chosen = ReportRow.id == bytes.fromhex(request.receipt.replace("-", ""))
    else:
        mine = TokenRow.id == request.token if request.token else TokenRow.batch == request.batch
        mine &= TokenRow.role == "reporter"
        tokens = select(TokenRow.id).where(mine)
        found(session.scalar(tokens.limit(1)), "such reporter's token", "GET /v1/tokens lists them")
        chosen = ReportRow.token.in_(tokens)
        target = request.token or f"batch {request.batch}"
        what = "reports"
        if action != "include":
            revoked = revoke(session, TokenRow, mine)
            revoke(session, InvitationRow, InvitationRow.id == request.batch)
            Store.count_change(session, "token_changes")
        if action == "erase":
            # What is being solved has been read already.
            solving = select(RoundRow.round).where(
                RoundRow.deployment == UploadRow.deployment, RoundRow.state == "solving"
            )
            sent = delete(UploadRow).where(UploadRow.token.in_(tokens))
            session.execute(sent.where(UploadRow.round.not_in(solving)))
    touched = remove_reports(session, key, chosen, action)
    record_action(session, by, f"{action} {what}", target, f"{touched} reports")
    return RemovalDone(reports=touched, tokens=revoked)


def remove_reports(
    session: Session, key: SigningKey, chosen: ColumnElement[bool], action: Removal
) -> int:
    """Erase reports, set them aside or take them back: how many. The log says that something of a
    deployment was removed, and not what. Within `Store.everything`."""
    sign = {"exclude": ReportRow.deployment > 0, "include": ReportRow.deployment < 0}
    mine = chosen & sign[action] if action in sign else chosen
    deployment = func.abs(ReportRow.deployment)
    counts = select(deployment, func.count()).where(mine).group_by(deployment)
    touched: dict[int, int] = dict(session.execute(counts).all())
    if action == "erase":
        session.execute(delete(ReportRow).where(mine))
    else:
        moved = update(ReportRow).where(mine).values(deployment=-ReportRow.deployment)
        session.execute(moved.execution_options(synchronize_session=False))
    names = select(DeploymentRow.name).where(DeploymentRow.id.in_(touched)).order_by("name")
    for name in session.scalars(names).all():
        number = Store.count_change(session, "removals")
        append(session, key, signed_bytes("removal", name, number))
    return sum(touched.values())


# What is left of them


def count_reports(session: Session, deployment: int, outputs: frozenset[int]) -> Counts:
    """How often each output was reported, and how many reports came in each hour."""

    def counts(column: Any) -> Any:
        query = select(column, func.count()).where(ReportRow.deployment == deployment)
        return session.execute(query.group_by(column).order_by(column.desc()).limit(MOST_HOURS))

    reported: dict[int, int] = dict(counts(ReportRow.output).all())
    shown = sorted(outputs | reported.keys())
    hours = counts(type_coerce(ReportRow.at, BigInteger) // HOUR_MS).all()
    return Counts(
        reports=sum(reported.values()),
        outputs=shown,
        counts=[reported.get(output, 0) for output in shown],
        per_hour=[HourCount(hour=when(hour * HOUR_MS), count=n) for hour, n in reversed(hours)],
    )


def remove_old(store: Store, now: int | None = None) -> int:
    """Delete what is older than the deployment's `retention_days`: how many reports are gone."""
    at = now_ms() if now is None else now
    with store.read() as session:
        rows = all_deployments(session)
    removed = 0
    for row in rows:
        days = row.request.retention_days
        if days is not None:
            cutoff = when((at // HOUR_MS - 24 * days) * HOUR_MS)
            while gone := _remove_some(store, row.id, cutoff):
                removed += gone
            _remove_sent(store, row.id, cutoff)
        with store.write() as session:
            # Two periods are looked at, and no more.
            last = at // (1000 * row.request.period_s) - 1
            for kind in (QuotaRow, IssuerRow):
                session.execute(delete(kind).filter_by(deployment=row.id).where(kind.period < last))
    return removed


def _remove_some(store: Store, deployment: int, cutoff: datetime) -> int:
    """Delete reports from before a time, set aside or not, so many that nobody waits for long."""
    mine = ReportRow.deployment.in_((deployment, -deployment)), ReportRow.at < cutoff
    some = select(ReportRow.seq).where(*mine).limit(MOST_REMOVED)
    with store.write() as session:
        old = delete(ReportRow).where(ReportRow.seq.in_(some))
        return session.connection().execute(old).rowcount


def _remove_sent(store: Store, deployment: int, cutoff: datetime) -> None:
    """Delete anchor sets that nothing needs any more: rows of a round are drawn from while it is in
    force."""
    with store.write() as session:
        old = delete(UploadRow).filter_by(deployment=deployment).where(UploadRow.at < cutoff)
        session.execute(old.where(UploadRow.round < solved_round(session, deployment)))
