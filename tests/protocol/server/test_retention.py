"""What users sent goes by its age, and counts and estimates with it."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import numpy as np
import pytest
from protocol_servers import small_domain, small_table
from sqlalchemy import delete, func, insert, select

from panda_mdp.protocol.messages.catalogue import TableRef
from panda_mdp.protocol.messages.deployments import TableDeploymentRequest
from panda_mdp.protocol.messages.signing import SigningKey
from panda_mdp.protocol.server.aggregate import compute, gather, span
from panda_mdp.protocol.server.store.batches import Quota, Report, store_reports
from panda_mdp.protocol.server.store.catalogue import (
    Candidate,
    store_table,
    table_facts,
    table_file,
)
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.deployments import find, store_deployment
from panda_mdp.protocol.server.store.retention import DAY_MS, HOUR_MS, remove_old
from panda_mdp.protocol.server.store.schema import balls, counts, quotas, reports, tokens
from panda_mdp.table.pmdc.archive import decode, encode

NOW = 1_000 * DAY_MS + 7 * HOUR_MS + 5
USERS = [f"{number:012x}" for number in range(6)]


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    """Two deployments of one table: reports of a week in "brief" are kept three days."""
    data = encode(small_table(small_domain()))
    with Store.create(database) as made:
        with made.write() as connection:
            candidate = Candidate(table_facts(decode(data)), data)
            store_table(connection, SigningKey.generate(), "city", candidate)
            for name, days in (("brief", 3), ("long", None)):
                request = TableDeploymentRequest(
                    kind="table",
                    name=name,
                    table=TableRef(name="city", version=1),
                    retention_days=days,
                    reports_per_period=10,
                )
                store_deployment(connection, request, {})
            row = {"digest": b"", "role": "reporter", "label": "", "created": 0}
            connection.execute(insert(tokens), [{"id": user, **row} for user in USERS])
            raw = connection.connection.driver_connection
            for number, name in enumerate(("brief", "long")):
                key = find(connection, name).id
                for day in range(7):
                    at = NOW - day * DAY_MS - number * HOUR_MS
                    batch = [
                        Report(key, secrets.token_bytes(16), user, 1, 5 * (k % 2))
                        for k, user in enumerate(USERS)
                    ]
                    quota = [Quota(DAY_MS, 10)] * len(batch)
                    assert store_reports(raw, batch, at, quota) == ["new"] * 6
        yield made


def ages(store: Store, name: str) -> tuple[list[int], int]:
    """The hours of a deployment's reports, and how many are counted."""
    with store.read() as connection:
        key = find(connection, name).id
        at = connection.execute(select(reports.c.at).where(reports.c.deployment == key)).scalars()
        counted = connection.execute(
            select(func.coalesce(func.sum(counts.c.count), 0)).where(counts.c.deployment == key)
        ).scalar_one()
        return sorted({(NOW - t) // HOUR_MS for t in at}), int(counted)


def test_counts_follow_reports(store: Store) -> None:
    with store.write() as connection:
        key = find(connection, "brief").id
        for number, age in enumerate((0, 5)):
            connection.execute(
                insert(balls).values(
                    deployment=key,
                    id=f"{number:036d}",
                    token=USERS[0],
                    version=1,
                    centre=1,
                    at=NOW - age * DAY_MS,
                )
            )
    assert remove_old(store, now=NOW) == 3 * 6
    # Of an hour that has begun three days ago, nothing is gone yet.
    assert ages(store, "brief") == ([0, 24, 48, 72], 24)
    assert ages(store, "long")[1] == 42
    with store.read() as connection:
        assert connection.execute(select(func.count()).select_from(balls)).scalar() == 1
        periods = connection.execute(select(quotas.c.period).distinct()).scalars()
        assert min(periods) == NOW // DAY_MS - 1
    assert remove_old(store, now=NOW) == 0
    assert remove_old(store, now=NOW + HOUR_MS) == 6


def test_the_operator_may_keep_less_than_a_deployment_says(store: Store) -> None:
    remove_old(store, most_days=1, now=NOW)
    assert ages(store, "brief") == ([0, 24], 12)
    assert ages(store, "long") == ([1], 6)


def test_estimates_are_of_what_is_left(store: Store) -> None:
    def look() -> tuple[str, int, np.ndarray]:
        with store.read() as connection:
            row = find(connection, "brief")
            inputs = gather(connection, row, lambda ref: table_file(connection, ref))
            found = compute(inputs)
            return span(connection, row.id), found.reports, np.array(found.share)

    before = look()
    with store.write() as connection:
        # The last days are of one output alone.
        key = find(connection, "brief").id
        late = (reports.c.deployment == key) & (reports.c.at > NOW - 4 * DAY_MS)
        gone = connection.execute(delete(reports).where(late, reports.c.output == 5)).rowcount
        hour = (NOW - 4 * DAY_MS) // HOUR_MS
        connection.execute(
            delete(counts).where(
                counts.c.deployment == key, counts.c.output == 5, counts.c.hour > hour
            )
        )
    assert gone == 12
    remove_old(store, now=NOW)
    after = look()
    assert (before[1], after[1]) == (42, 12)
    # An answer from before is not given again.
    assert before[0] != after[0]
    assert after[2][0] > before[2][0]


def test_counts_that_do_not_fit_stop_the_deletion(store: Store) -> None:
    with store.write() as connection:
        key = find(connection, "brief").id
        oldest = select(func.min(reports.c.at)).where(reports.c.deployment == key)
        at = connection.execute(oldest).scalar_one()
        connection.execute(
            delete(reports).where(
                reports.c.deployment == key, reports.c.at == at, reports.c.output == 5
            )
        )
    with pytest.raises(RuntimeError, match="3 reports of an hour are counted as 6"):
        remove_old(store, now=NOW)
    assert ages(store, "brief")[1] == 42
