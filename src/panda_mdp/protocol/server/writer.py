"""Reports to the disk: many requests share one commit, and each is told only after it.

One thread takes whatever waits, writes it in one transaction and then wakes all that waited for it.
While a commit is under way the next batch gathers, so batches grow with the load by themselves.
A report that is there already counts once: the same content is accepted again, other content under
the same id is refused.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from sqlalchemy import Connection, Table, insert, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import SQLAlchemyError

from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.store.database import Store, now_ms
from panda_mdp.protocol.server.store.schema import counts, reports
from panda_mdp.protocol.server.store.schema import quotas as spent

Outcome = Literal["new", "known", "conflict", "spent", "failed"]
_log = logging.getLogger("panda_mdp.server")
_IN_ONE_QUERY = 500
HOUR_MS = 3_600_000
LINGER_S = 0.003
FEW = 32
BUSY = Failure(
    "unavailable", "too many reports wait for the disk", "try again", {"retry-after": "1"}
)
NOT_STORED = Failure(
    "unavailable",
    "the report could not be stored",
    "try again with the same id; it counts once",
    {"retry-after": "1"},
)


class Report(NamedTuple):
    """A report on its way. Its repr would show the output, so it is never printed."""

    deployment: int
    id: bytes
    token: str
    version: int
    output: int


@dataclass(frozen=True, slots=True)
class Quota:
    """`most` reports of one token in a period; what the period before left may be caught up."""

    period_ms: int
    most: int

    def refusal(self, at: int) -> Failure:
        """What is answered to a token that has no more."""
        seconds = max(1, (self.period_ms - at % self.period_ms) // 1000)
        return Failure(
            "rate_limited",
            f"this token has made its {self.most} reports of {self.period_ms // 1000} s",
            f"send it again, with the same id, in {seconds} s",
            {"retry-after": str(seconds)},
        )


@dataclass(slots=True)
class _Waiting:
    report: Report
    quota: Quota | None
    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[Outcome]


class ReportWriter:
    """The thread that writes reports. `start` before use, `stop` writes what is left and ends."""

    def __init__(self, store: Store, batch: int = 1_000, waiting: int = 20_000) -> None:
        self._store = store
        self._batch = batch
        self._most = waiting
        self._queue: queue.SimpleQueue[_Waiting | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="report writer", daemon=True)
        self.commits = 0
        self.stored = 0
        self.failed = 0

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def stop(self) -> None:
        """Write what waits, then end."""
        self._queue.put(None)
        self._thread.join()

    @property
    def waiting(self) -> int:
        """Reports that wait for the disk."""
        return self._queue.qsize()

    @property
    def running(self) -> bool:
        """Whether what is given to `write` will be looked at."""
        return self._thread.is_alive()

    async def write(self, report: Report, quota: Quota | None = None) -> Outcome:
        """Store a report; returns once it is durable, or says that it is not."""
        if self._queue.qsize() >= self._most:
            raise BUSY
        loop = asyncio.get_running_loop()
        waiting = _Waiting(report, quota, loop, loop.create_future())
        self._queue.put(waiting)
        outcome = await waiting.future
        if outcome == "failed":
            raise NOT_STORED
        return outcome

    def _run(self) -> None:
        while True:
            batch, last = self._gather()
            if batch:
                self._serve(batch)
            if last:
                return

    def _gather(self) -> tuple[list[_Waiting], bool]:
        """Everything that waits now, at least one, up to a batch."""
        batch: list[_Waiting] = []
        entry = self._queue.get()
        if self._queue.qsize() < FEW:
            # A commit costs the same for one and for many: let a few more arrive.
            time.sleep(LINGER_S)
        while entry is not None:
            batch.append(entry)
            if len(batch) >= self._batch:
                return batch, False
            try:
                entry = self._queue.get_nowait()
            except queue.Empty:
                return batch, False
        return batch, True

    def _serve(self, batch: list[_Waiting]) -> None:
        outcomes: list[Outcome]
        try:
            with self._store.write(reports=True) as connection:
                outcomes = store_reports(
                    connection,
                    [entry.report for entry in batch],
                    now_ms(),
                    self._store.sqlite,
                    [entry.quota for entry in batch],
                )
            self.commits += 1
            self.stored += outcomes.count("new")
        except SQLAlchemyError as error:
            # Nothing of the batch is stored, and nobody is told otherwise.
            _log.error("a batch of %d reports was not stored: %s", len(batch), _name(error))
            outcomes = ["failed"] * len(batch)
            self.failed += 1
            time.sleep(0.05)
        loops: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Outcome], Outcome]]] = {}
        for entry, outcome in zip(batch, outcomes, strict=True):
            loops.setdefault(entry.loop, []).append((entry.future, outcome))
        for loop, results in loops.items():
            _wake(loop, _settle(results))


def store_reports(
    connection: Connection,
    batch: list[Report],
    at: int,
    on_sqlite: bool,
    quotas: Sequence[Quota | None] = (),
) -> list[Outcome]:
    """Insert those that are new, in order, and count them; say what became of each."""
    known = _known(connection, batch)
    outcomes: list[Outcome] = []
    first: dict[tuple[int, bytes], int] = {}
    for place, report in enumerate(batch):
        key = (report.deployment, report.id)
        before = known.get(key)
        if before is None:
            known[key] = report
            first[key] = place
            outcomes.append("new")
        else:
            outcomes.append("known" if before == report else "conflict")
    limited = {place: quotas[place] for place in first.values() if quotas and quotas[place]}
    for place in _beyond(connection, batch, limited, at, on_sqlite):
        outcomes[place] = "spent"
        # What repeats it in this batch repeats something that is not there.
        for later in range(place + 1, len(batch)):
            same = batch[later][:2] == batch[place][:2]
            outcomes[later] = "spent" if same else outcomes[later]
    fresh = [report for report, outcome in zip(batch, outcomes, strict=True) if outcome == "new"]
    if fresh:
        connection.execute(insert(reports), [{**report._asdict(), "at": at} for report in fresh])
        hour = at // HOUR_MS
        sums = Counter((r.deployment, r.version, r.output, hour) for r in fresh)
        _add(connection, counts, ("deployment", "version", "output", "hour"), sums, on_sqlite)
    return outcomes


def _beyond(
    connection: Connection,
    batch: list[Report],
    limited: Mapping[int, Quota | None],
    at: int,
    on_sqlite: bool,
) -> list[int]:
    """The reports of a batch that are more than their tokens may make; the others are counted."""
    if not limited:
        return []
    names = ("deployment", "token", "period")
    wanted: dict[tuple[int, str, int], list[int]] = {}
    limits: dict[tuple[int, str, int], Quota] = {}
    for place, quota in limited.items():
        if quota is not None:
            report = batch[place]
            key = (report.deployment, report.token, at // quota.period_ms)
            wanted.setdefault(key, []).append(place)
            limits[key] = quota
    # Counted before it is looked at: the rows are then this transaction's alone.
    _add(connection, spent, names, Counter({k: len(v) for k, v in wanted.items()}), on_sqlite)
    used = _used(connection, list(wanted))
    beyond: dict[tuple[int, str, int], list[int]] = {}
    for key, places in wanted.items():
        most, (deployment, token, period) = limits[key].most, key
        unused = max(0, most - used.get((deployment, token, period - 1), 0))
        room = most + unused - (used[key] - len(places))
        if room < len(places):
            beyond[key] = places[max(0, room) :]
    if beyond:
        back = Counter({key: -len(places) for key, places in beyond.items()})
        _add(connection, spent, names, back, on_sqlite)
    return sorted(place for places in beyond.values() for place in places)


def _used(
    connection: Connection, keys: list[tuple[int, str, int]]
) -> dict[tuple[int, str, int], int]:
    """Reports of tokens in the periods of the keys and in those before."""
    used: dict[tuple[int, str, int], int] = {}
    for deployment, period in sorted({(key[0], key[2]) for key in keys}):
        tokens = [key[1] for key in keys if (key[0], key[2]) == (deployment, period)]
        for start in range(0, len(tokens), _IN_ONE_QUERY):
            rows = connection.execute(
                select(spent).where(
                    spent.c.deployment == deployment,
                    spent.c.token.in_(tokens[start : start + _IN_ONE_QUERY]),
                    spent.c.period.in_((period - 1, period)),
                )
            )
            for row in rows:
                key = (int(row.deployment), str(row.token), int(row.period))
                used[key] = int(row._mapping["count"])
    return used


def _known(connection: Connection, batch: list[Report]) -> dict[tuple[int, bytes], Report]:
    by_deployment: dict[int, list[bytes]] = {}
    for report in batch:
        by_deployment.setdefault(report.deployment, []).append(report.id)
    stored: dict[tuple[int, bytes], Report] = {}
    columns = [reports.c[name] for name in Report._fields]
    for deployment, ids in by_deployment.items():
        for start in range(0, len(ids), _IN_ONE_QUERY):
            part = ids[start : start + _IN_ONE_QUERY]
            rows = connection.execute(
                select(*columns).where(reports.c.deployment == deployment, reports.c.id.in_(part))
            )
            for row in rows:
                key = (int(row.deployment), bytes(row.id))
                stored[key] = Report(*key, row.token, row.version, row.output)
    return stored


def _add(
    connection: Connection,
    table: Table,
    names: tuple[str, ...],
    sums: Mapping[tuple[Any, ...], int],
    on_sqlite: bool,
) -> None:
    make = sqlite.insert if on_sqlite else postgresql.insert
    statement = make(table)
    statement = statement.on_conflict_do_update(
        index_elements=list(names), set_={"count": table.c.count + statement.excluded.count}
    )
    rows = [
        {**dict(zip(names, key, strict=True)), "count": count}
        for key, count in sorted(sums.items())
    ]
    connection.execute(statement, rows)


def _settle(results: Iterable[tuple[asyncio.Future[Outcome], Outcome]]) -> Callable[[], None]:
    def settle() -> None:
        for future, outcome in results:
            # Whoever hung up waits no longer; the report is stored all the same.
            if not future.done():
                future.set_result(outcome)

    return settle


def _wake(loop: asyncio.AbstractEventLoop, settle: Callable[[], None]) -> None:
    try:
        loop.call_soon_threadsafe(settle)
    except RuntimeError:
        # The loop has ended; nobody waits.
        return


def _name(error: SQLAlchemyError) -> str:
    cause = getattr(error, "orig", None)
    return type(error if cause is None else cause).__name__
