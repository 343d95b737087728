"""What users sent goes by its age, and counts and estimates with it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from datetime import timedelta

import numpy as np
import pytest
from protocol_servers import small_domain, small_table
from sqlalchemy import select

from panda_mdp.protocol.messages.catalogue import TableRef
from panda_mdp.protocol.messages.deployments import TableDeploymentRequest
from panda_mdp.protocol.messages.signing import SigningKey
from panda_mdp.protocol.server.estimate import estimate, gather, span
from panda_mdp.protocol.server.store.catalogue import examine, store_table
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.deployments import find, store_deployment
from panda_mdp.protocol.server.store.reports import (
    HOUR_MS,
    Quota,
    Report,
    count_reports,
    remove_old,
    store_reports,
)
from panda_mdp.protocol.server.store.schema import (
    QuotaRow,
    ReportRow,
    TokenRow,
    when,
)
from panda_mdp.table.encode import encode

DAY_MS = 24 * HOUR_MS
NOW = 1_000 * DAY_MS + 7 * HOUR_MS + 5
USERS = [f"{number:012x}" for number in range(6)]


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    """Two deployments of one table: reports of a week in "brief" are kept three days."""
    data, quota = encode(small_table(small_domain())), Quota(DAY_MS, 10)
    with Store.create(database) as made:
        with made.write() as session:
            candidate = examine(data)
            store_table(session, SigningKey.generate(), "city", candidate)
            session.add_all(
                TokenRow(id=user, digest=b"", role="reporter", label="") for user in USERS
            )
            for number, (name, days) in enumerate((("brief", 3), ("long", None))):
                request = TableDeploymentRequest(
                    kind="table",
                    name=name,
                    table=TableRef(name="city", version=1),
                    retention_days=days,
                    reports_per_period=10,
                )
                key = store_deployment(session, request, candidate.promise)[0].id
                for day in range(7):
                    at = NOW - day * DAY_MS - number * HOUR_MS
                    batch = [
                        (Report(key, secrets.token_bytes(16), user, 1, 5 * (k % 2)), quota)
                        for k, user in enumerate(USERS)
                    ]
                    assert store_reports(session, batch, at) == ["new"] * 6
        yield made


def ages(store: Store, name: str) -> tuple[list[int], int]:
    """The hours of a deployment's reports, and how many are counted."""
    with store.read() as session:
        key = find(session, name).id
        at = session.scalars(select(ReportRow.at).where(ReportRow.deployment == key))
        hours = sorted({(when(NOW) - each) // timedelta(hours=1) for each in at})
        return hours, count_reports(session, key, frozenset()).reports


def test_counts_follow_reports(store: Store) -> None:
    assert remove_old(store, now=NOW) == 3 * 6
    # Of an hour that has begun three days ago, nothing is gone yet.
    assert ages(store, "brief") == ([0, 24, 48, 72], 24)
    assert ages(store, "long")[1] == 42
    with store.read() as session:
        assert min(session.scalars(select(QuotaRow.period))) == NOW // DAY_MS - 1
    assert remove_old(store, now=NOW) == 0
    assert remove_old(store, now=NOW + HOUR_MS) == 6


def test_estimates_are_of_what_is_left(store: Store) -> None:
    def look() -> tuple[str, int, np.ndarray]:
        with store.read() as session:
            row = find(session, "brief")
            found = estimate(gather(session, row))
            return span(session, row.id), found.reports, np.array(found.share)

    before = look()
    with store.write() as session:
        # The last days are of one output alone.
        key, last = find(session, "brief").id, NOW - 4 * DAY_MS
        mine = select(ReportRow).where(ReportRow.deployment == key, ReportRow.output == 5)
        gone = session.scalars(mine.where(ReportRow.at > when(last))).all()
        for row in gone:
            session.delete(row)
    assert len(gone) == 12
    remove_old(store, now=NOW)
    after = look()
    assert (before[1], after[1]) == (42, 12)
    # An answer from before is not given again.
    assert before[0] != after[0]
    assert after[2][0] > before[2][0]
