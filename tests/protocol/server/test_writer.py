"""Group commit: acknowledged means stored, once, and counted once."""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from sqlalchemy import select
from sqlalchemy.exc import OperationalError
from sqlalchemy.orm import Session

from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.reports import (
    Ball,
    Outcome,
    Quota,
    Report,
    count_reports,
    store_reports,
)
from panda_mdp.protocol.server.store.schema import ReportRow
from panda_mdp.protocol.server.writer import ReportWriter

PLENTY = Quota(1_000, 10_000)


@pytest.fixture
def store(database: str) -> Iterator[Store]:
    with Store.create(database) as made:
        yield made


def report(output: int = 1, *, key: bytes | None = None, token: str = "a" * 12) -> Report:
    return Report(1, key or secrets.token_bytes(16), token, 1, output)


def stored(store: Store) -> Counter[tuple[int, int]]:
    with store.read() as session:
        rows = session.execute(select(ReportRow.deployment, ReportRow.output))
        return Counter((row[0], row[1]) for row in rows)


def counted(store: Store) -> int:
    with store.read() as session:
        return sum(count_reports(session, each, frozenset()).reports for each in (1, 2))


def write(
    store: Store, batch: Sequence[Report], at: int = 0, quota: Quota = PLENTY
) -> list[Outcome]:
    """What becomes of reports that come together."""
    with store.reports() as session:
        return store_reports(session, [(each, quota) for each in batch], at)


def test_what_becomes_of_reports(store: Store) -> None:
    known = report(3)
    assert write(store, [known]) == ["new"]
    twice = report(4)
    batch = [
        known,
        known._replace(output=5),
        known._replace(token="b" * 12),
        known._replace(version=2),
        twice,
        twice,
        twice._replace(output=5),
        # The same id in another deployment is another report.
        known._replace(deployment=2),
    ]
    assert write(store, batch, 3_600_000) == [
        "known",
        "conflict",
        "conflict",
        # What was accepted stays so, whichever version is in force by then.
        "known",
        "new",
        "known",
        "conflict",
        "new",
    ]
    assert stored(store) == Counter({(1, 3): 1, (1, 4): 1, (2, 3): 1})


def test_many_at_once_share_commits(store: Store) -> None:
    writer = ReportWriter(store, batch=100)
    writer.start()

    async def send() -> list[str]:
        return list(
            await asyncio.gather(*(writer.write(report(n % 7), PLENTY) for n in range(1_000)))
        )

    outcomes = asyncio.run(send())
    writer.stop()
    assert outcomes == ["new"] * 1_000
    assert 10 <= writer.commits < 100
    assert writer.stored == 1_000
    assert stored(store).total() == counted(store)
    assert sum(stored(store).values()) == 1_000


def test_balls_are_counted_in_the_commit_of_reports(store: Store) -> None:
    writer, quota = ReportWriter(store), Quota(1_000, 1)

    async def send() -> list[str]:
        sent = [each for _ in range(6) for each in (Ball(1, "a", 7), report(), Ball(1, "b", 7))]
        waiting = [asyncio.create_task(writer.write(each, quota)) for each in sent]
        await asyncio.sleep(0)
        writer.start()
        return list(await asyncio.gather(*waiting))

    outcomes = asyncio.run(send())
    writer.stop()
    # Four of each token's six balls are handed out; of reports one of the period is taken, and one
    # of the period before.
    assert outcomes[::3] == outcomes[2::3] == ["new"] * 4 + ["spent"] * 2
    assert Counter(outcomes[1::3]) == {"new": 2, "spent": 4}
    assert (writer.commits, writer.stored) == (1, 2)


def test_nobody_is_told_before_the_commit(store: Store) -> None:
    """Every acknowledgement is checked against what another connection can see by then."""
    writer = ReportWriter(store)
    writer.start()

    async def send(n: int) -> None:
        sent = report(n)
        await writer.write(sent, PLENTY)
        with store.read() as session:
            assert session.scalar(select(ReportRow.output).where(ReportRow.id == sent.id)) == n

    async def many() -> None:
        await asyncio.gather(*(send(n) for n in range(50)))

    asyncio.run(many())
    writer.stop()


class Full(Store):
    """A store whose disk is full for a while."""

    full = True

    @contextmanager
    def reports(self) -> Iterator[Session]:
        with super().reports() as session:
            yield session
            if self.full:
                raise OperationalError("COMMIT", {}, RuntimeError("disk full"))


def test_a_failed_commit_is_said_and_leaves_nothing(database: str) -> None:
    with Full.create(database) as store:
        writer = ReportWriter(store)
        writer.start()
        sent = report()
        with pytest.raises(Failure) as caught:
            asyncio.run(writer.write(sent, PLENTY))
        assert caught.value.code == "unavailable"
        store.full = False
        # The thread lives on, and the same id can be sent again.
        assert asyncio.run(writer.write(sent, PLENTY)) == "new"
        writer.stop()
        assert sum(stored(store).values()) == 1


def test_too_many_waiting_is_said_at_once(store: Store) -> None:
    writer = ReportWriter(store, waiting=0)
    with pytest.raises(Failure) as caught:
        asyncio.run(writer.write(report(), PLENTY))
    assert caught.value.code == "unavailable"
    assert "retry-after" in caught.value.headers


def test_stop_stores_what_waits(store: Store) -> None:
    writer = ReportWriter(store)

    async def send() -> list[str]:
        waiting = [asyncio.create_task(writer.write(report(n), PLENTY)) for n in range(20)]
        await asyncio.sleep(0)
        # Everything is queued before the thread even starts.
        writer.start()
        await asyncio.get_running_loop().run_in_executor(None, writer.stop)
        return list(await asyncio.gather(*waiting))

    assert asyncio.run(send()) == ["new"] * 20
    assert sum(stored(store).values()) == 20


def test_quotas_hold_over_batches_and_periods(store: Store) -> None:
    """Two a period; what the period before left may be caught up; a repeat takes nothing."""
    quota = Quota(1_000, 2)

    def send(batch: list[Report], at: int) -> list[Outcome]:
        return write(store, batch, at, quota)

    first, other = report(1), report(1, token="b" * 12)
    assert send([first, first, report(2), other], 10_500) == ["new", "known", "new", "new"]
    late = report(3)
    more = [late, report(4), report(5), late, late._replace(output=9)]
    assert send(more, 10_900) == ["new", "new", "spent", "known", "conflict"]
    # What is refused is not there, nor is what repeats it.
    again = report(6)
    assert send([again, again, first], 10_999) == ["spent", "spent", "known"]
    # The period before had none left, of the other token one.
    batch = [report(n) for n in range(3)] + [report(n, token="b" * 12) for n in range(4)]
    outcomes = ["new", "new", "spent", "new", "new", "new", "spent"]
    assert send(batch, 11_000) == outcomes
    assert stored(store).total() == counted(store)
    assert sum(stored(store).values()) == 1 + 1 + 1 + 2 + 2 + 3


def test_a_batch_that_breaks_leaves_nothing_and_the_next_is_stored(store: Store) -> None:
    with pytest.raises(RuntimeError), store.reports() as session:
        assert store_reports(session, [(report(1), PLENTY)], 0) == ["new"]
        raise RuntimeError
    assert not stored(store)
    assert write(store, [report(2)]) == ["new"]
    assert stored(store) == Counter({(1, 2): 1})


@pytest.mark.parametrize("count", [1, 63, 64, 65, 200])
def test_batches_of_any_length(store: Store, count: int) -> None:
    batch = [report(n, token=f"{n % 90:012x}") for n in range(count)]
    assert write(store, batch, 0, Quota(1_000, 5)) == ["new"] * count
    assert write(store, batch, 0, Quota(1_000, 5)) == ["known"] * count
    assert stored(store).total() == counted(store)
    assert sum(stored(store).values()) == count
