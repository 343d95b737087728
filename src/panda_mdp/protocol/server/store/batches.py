"""A batch of reports in one transaction: which are new, which are too many, and their counts.

It happens within `Store.reports`, so no other server stores reports meanwhile: what is read here
stays true until the commit. Statements go to the driver as they are, a few for however many reports
there are: building them anew, or sending them one by one, costs more than the database does.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from panda_mdp.protocol.server.failures import Failure

T = TypeVar("T")
Outcome = Literal["new", "known", "conflict", "spent", "failed"]
HOUR_MS = 3_600_000
_ROWS = 64
"""Rows of one SQLite statement; the driver keeps a statement of each number of them."""


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

    def refusal(self, at: int) -> Failure:
        """What is answered to a token that has no more."""
        seconds = max(1, (self.period_ms - at % self.period_ms) // 1000)
        return Failure(
            "rate_limited",
            f"this token has made its {self.most} reports of {self.period_ms // 1000} s",
            f"send it again, with the same id, in {seconds} s",
            {"retry-after": str(seconds)},
        )


def store_reports(
    raw: Any, batch: Sequence[Report], at: int, quotas: Sequence[Quota | None] = ()
) -> list[Outcome]:
    """Insert those that are new, in order, and count them; say what became of each."""
    on_sqlite = isinstance(raw, sqlite3.Connection)
    database: _Database = _Sqlite(raw) if on_sqlite else _Postgres(raw)
    limits: dict[Period, Quota] = {}
    periods: list[Period | None] = []
    for report, quota in zip(batch, quotas or [None] * len(batch), strict=True):
        period = None
        if quota is not None:
            period = Period(report.deployment, report.token, at // quota.period_ms)
            limits[period] = quota
        periods.append(period)
    known, used = database.look(batch, list(limits))
    room = {
        period: quota.most
        + max(0, quota.most - used.get(period._replace(number=period.number - 1), 0))
        - used.get(period, 0)
        for period, quota in limits.items()
    }
    outcomes: list[Outcome] = []
    fresh: list[Report] = []
    taken: Counter[Period] = Counter()
    spent: set[tuple[int, bytes]] = set()
    for report, period in zip(batch, periods, strict=True):
        key = report[:2]
        before = known.get(key)
        if before is not None:
            outcomes.append("known" if before == report else "conflict")
        elif key in spent or (period is not None and room[period] <= taken[period]):
            # What repeats it in this batch repeats something that is not there.
            spent.add(key)
            outcomes.append("spent")
        else:
            known[key] = report
            fresh.append(report)
            if period is not None:
                taken[period] += 1
            outcomes.append("new")
    if fresh:
        hour = at // HOUR_MS
        sums = Counter((r.deployment, r.version, r.output, hour) for r in fresh)
        database.add(fresh, at, sorted(sums.items()), sorted(taken.items()))
    return outcomes


Known = dict[tuple[int, bytes], Report]
Counted = Sequence[tuple[tuple[int, int, int, int], int]]
Taken = Sequence[tuple[Period, int]]


class _Database(Protocol):
    def look(
        self, batch: Sequence[Report], periods: Sequence[Period]
    ) -> tuple[Known, dict[Period, int]]:
        """Reports that are there under the ids of a batch; how many reports tokens have made in
        these periods and in those before."""

    def add(self, fresh: Sequence[Report], at: int, sums: Counted, taken: Taken) -> None:
        """Store reports and add to the counts."""


class _Sqlite:
    def __init__(self, raw: sqlite3.Connection) -> None:
        self._cursor = raw.cursor()

    def look(
        self, batch: Sequence[Report], periods: Sequence[Period]
    ) -> tuple[Known, dict[Period, int]]:
        known: Known = {}
        for deployment, ids in _grouped((report.deployment, report.id) for report in batch):
            for part in _parts(ids):
                text = _one_of(
                    "SELECT deployment, id, token, version, output FROM reports WHERE "
                    "deployment = ? AND id IN",
                    len(part),
                )
                for row in self._cursor.execute(text, [deployment, *part]):
                    known[row[:2]] = Report(*row)
        used: dict[Period, int] = {}
        wanted = _grouped(((p.deployment, p.number), p.token) for p in periods)
        for (deployment, number), tokens in wanted:
            start = [deployment, number - 1, number]
            for part in _parts(tokens):
                text = _one_of(
                    "SELECT deployment, token, period, count FROM quotas WHERE deployment = ? "
                    "AND period IN (?, ?) AND token IN",
                    len(part),
                )
                for row in self._cursor.execute(text, [*start, *part]):
                    used[Period(*row[:3])] = row[3]
        return known, used

    def add(self, fresh: Sequence[Report], at: int, sums: Counted, taken: Taken) -> None:
        self._insert(
            "INSERT INTO reports (deployment, id, token, version, output, at) VALUES",
            [(*report, at) for report in fresh],
        )
        for table, columns, rows in (
            ("counts", "deployment, version, output, hour", sums),
            ("quotas", "deployment, token, period", taken),
        ):
            self._insert(
                f"INSERT INTO {table} ({columns}, count) VALUES",
                [(*key, count) for key, count in rows],
                f"ON CONFLICT ({columns}) DO UPDATE SET count = count + excluded.count",
            )

    def _insert(self, head: str, rows: Sequence[tuple[Any, ...]], tail: str = "") -> None:
        for start in range(0, len(rows), _ROWS):
            part = rows[start : start + _ROWS]
            text = _values(head, len(part), len(part[0]), tail)
            self._cursor.execute(text, [value for row in part for value in row])


def _grouped(pairs: Iterable[tuple[T, Any]]) -> Iterator[tuple[T, list[Any]]]:
    groups: dict[T, list[Any]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    yield from groups.items()


def _parts(values: list[Any]) -> Iterator[list[Any]]:
    """At most so many at a time, in one of four lengths: the last is repeated."""
    for start in range(0, len(values), _ROWS):
        part = values[start : start + _ROWS]
        yield part + part[-1:] * (-len(part) % (_ROWS // 4))


@cache
def _one_of(head: str, count: int) -> str:
    return f"{head} ({', '.join('?' * count)})"


@cache
def _values(head: str, rows: int, columns: int, tail: str) -> str:
    row = f"({', '.join('?' * columns)})"
    return f"{head} {', '.join([row] * rows)} {tail}"


class _Postgres:
    """One question and one change. Lists travel as literals of arrays, columns of a batch."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw

    def look(
        self, batch: Sequence[Report], periods: Sequence[Period]
    ) -> tuple[Known, dict[Period, int]]:
        before = [p._replace(number=p.number - 1) for p in periods]
        rows = self._raw.execute(
            _LOOK,
            [
                *_columns([(r.deployment, r.id.hex()) for r in batch], 2),
                *_columns([*periods, *before], 3),
            ],
            binary=True,
        )
        known: Known = {}
        used: dict[Period, int] = {}
        for deployment, made, token, number, value in rows:
            if made is None:
                used[Period(deployment, token, number)] = value
            else:
                known[deployment, bytes(made)] = Report(
                    deployment, bytes(made), token, number, value
                )
        return known, used

    def add(self, fresh: Sequence[Report], at: int, sums: Counted, taken: Taken) -> None:
        self._raw.execute(
            _ADD,
            [
                *_columns([(*key, count) for key, count in sums], 5),
                *_columns([(*key, count) for key, count in taken], 4),
                at,
                *_columns([(r.deployment, r.id.hex(), *r[2:]) for r in fresh], 5),
            ],
        )


def _columns(rows: Sequence[tuple[Any, ...]], count: int) -> list[str]:
    """Columns as arrays: of numbers, tokens and hexadecimal digits, so nothing has to be quoted."""
    return ["{" + ",".join([str(row[k]) for row in rows]) + "}" for k in range(count)]


_LOOK = """
SELECT deployment, id, token, version, output
FROM reports JOIN (
    SELECT deployment, decode(digits, 'hex') AS id
    FROM unnest(%s::int[], %s::text[]) AS g (deployment, digits)
) AS given USING (deployment, id)
UNION ALL
SELECT deployment, NULL, token, period, count
FROM quotas JOIN unnest(%s::int[], %s::text[], %s::int[]) AS given (deployment, token, period)
    USING (deployment, token, period)
"""
_ADD = """
WITH counted AS (
    INSERT INTO counts AS known (deployment, version, output, hour, count)
    SELECT * FROM unnest(%s::int[], %s::int[], %s::int[], %s::int[], %s::int[])
    ON CONFLICT (deployment, version, output, hour)
    DO UPDATE SET count = known.count + excluded.count
), taken AS (
    INSERT INTO quotas AS known (deployment, token, period, count)
    SELECT * FROM unnest(%s::int[], %s::text[], %s::int[], %s::int[])
    ON CONFLICT (deployment, token, period)
    DO UPDATE SET count = known.count + excluded.count
)
INSERT INTO reports (at, deployment, id, token, version, output)
SELECT %s::bigint, deployment, decode(digits, 'hex'), token, version, output
FROM unnest(%s::int[], %s::text[], %s::text[], %s::int[], %s::int[])
    AS given (deployment, digits, token, version, output)
"""
