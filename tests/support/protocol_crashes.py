"""Servers that are killed again and again under load, and clients that do not give up.

One server, or several on one PostgreSQL, which may be killed too. Reporters send each report until
it is acknowledged, with the same id. Beside them rounds are
opened, filled and solved, and tables are asked for. After every kill the database is looked at
from outside: whatever a client was told is there, once.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import random
import re
import sqlite3
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import psycopg
from protocol_servers import (
    PATIENCE,
    Postgres,
    Running,
    domain_body,
    publish,
    small_domain,
    small_table,
)
from protocol_traffic import Export, Told, Wire, make_reports, request_bytes

OUTPUTS, TOKENS, REPORTERS, USERS = 100, 1_000, 24, 3
ACKNOWLEDGED = 100
"""Reports after the last kill, whatever time they take."""
BROKEN = (OSError, EOFError, TimeoutError, asyncio.IncompleteReadError)
WITHOUT_DATABASE = re.compile(
    r"(reports was not stored|the database does not answer|could not be looked at):? "
)
SELECTION = {"decay": "exponential", "alpha": 0.9, "rate": 0.5, "radius": 2.0}


@dataclass
class Findings:
    """What happened, and what must not have."""

    kills: int = 0
    kills_at_start: int = 0
    servers: int = 1
    database_kills: int = 0
    acknowledged: int = 0
    answered_again: int = 0
    """Reports that were stored although their first sender was not told."""
    retries: int = 0
    unavailable: int = 0
    rounds: int = 0
    uploads: int = 0
    lost: int = 0
    twice: int = 0
    never_sent: int = 0
    start_seconds: list[float] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    """Every other rule that was broken."""

    @property
    def good(self) -> bool:
        return not (self.lost or self.twice or self.never_sent or self.wrong)


class Database:
    """The server's database, seen from outside."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.sqlite = "://" not in address

    def rows(self, *queries: str) -> list[list[tuple[Any, ...]]]:
        """The answers to some queries in one state of the database."""
        if self.sqlite:
            connection = sqlite3.connect(self.address, timeout=PATIENCE, isolation_level=None)
            try:
                connection.execute("BEGIN")
                return [connection.execute(query).fetchall() for query in queries]
            finally:
                connection.close()
        with psycopg.connect(self.address) as postgres:
            postgres.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
            return [postgres.execute(query).fetchall() for query in queries]  # type: ignore[arg-type]

    def users(self) -> list[int]:
        """Processes that have the file open, this one apart."""
        if not self.sqlite:
            return []
        found = set()
        for link in Path("/proc").glob("[0-9]*/fd/*"):
            try:
                target = str(link.readlink())
            except OSError:
                continue
            if target.startswith(self.address) and int(link.parts[2]) != os.getpid():
                found.add(int(link.parts[2]))
        return sorted(found)


class Crashes:
    """One run: `await Crashes(...).run()`."""

    def __init__(
        self,
        database: str,
        folder: Path,
        kills: int,
        seed: int,
        uptime_s: float = 1.5,
        limit_s: float = math.inf,
        servers: int = 1,
        cluster: Postgres | None = None,
        database_kills: int = 0,
        work: bool = True,
    ) -> None:
        self.fleet = [
            Running(database, folder, log=f"server-{number}.log") for number in range(servers)
        ]
        self.cluster = cluster
        self.database_kills = database_kills
        self.work = work
        self.database = Database(database)
        self.folder = folder
        self.kills = kills
        self.uptime_s = uptime_s
        self.deadline = time.monotonic() + limit_s
        self.random = random.Random(seed)
        self.found = Findings(servers=servers)
        self.told: dict[bytes, Told] = {}
        """Acknowledged reports by their id as it is stored."""
        self.sent: set[tuple[str, int]] = set()
        self.uploads: list[tuple[int, str]] = []
        self.tokens: list[str] = []
        self._ending = False

    async def run(self) -> Findings:
        await asyncio.to_thread(self._prepare)
        reports = iter(self._reports)
        tasks = [asyncio.create_task(self._report(reports)) for _ in range(REPORTERS)]
        if self.work:
            tasks.append(asyncio.create_task(self._rounds()))
        try:
            while not self._enough() and time.monotonic() < self.deadline:
                await self._kill_and_check()
            await self._work_goes_on()
            self._ending = True
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self._kill_if_running()
        return self.found

    async def _work_goes_on(self) -> None:
        """After the last kill as before: wait for reports, and for a round where there are some."""
        before, deadline = len(self.told), time.monotonic() + PATIENCE
        while len(self.told) < before + ACKNOWLEDGED or (self.work and not self.found.rounds):
            if time.monotonic() > deadline:
                self.found.wrong.append("no work is done after the last kill")
                return
            await asyncio.sleep(0.05)

    def _enough(self) -> bool:
        found = self.found
        return found.kills >= self.kills and found.database_kills >= self.database_kills

    @property
    def running(self) -> Running:
        """A server that runs, as far as is known; another one at each time."""
        alive = [server for server in self.fleet if server.process is not None and server.url]
        return self.random.choice(alive or self.fleet)

    # Before

    def _prepare(self) -> None:
        for server in self.fleet:
            self._start(server)
            server.admin_token = self.fleet[0].admin_token
        domain = small_domain(2 * OUTPUTS)
        admin = self.fleet[0].admin
        with tempfile.TemporaryDirectory(dir=self.folder) as scratch:
            publish(admin, small_table(domain, OUTPUTS), "city", Path(scratch))
        _made(admin.post("/v1/domains", json=domain_body(small_domain(30), "small")))
        _made(admin.post("/v1/domains", json=domain_body(domain, "large")))
        wanted = {"kind": "table", "name": "main", "table": {"name": "city", "version": 1}}
        wanted["reports_per_period"] = 1_000_000
        _made(admin.post("/v1/deployments", json=wanted))
        anchors = {"kind": "anchors", "name": "paper", "domain": "small", "outputs": [0, 10, 20]}
        anchors |= {"epsilon": 5.0, "delta": 1e-3, "selection": SELECTION}
        _made(admin.post("/v1/deployments", json=anchors | {"accept_no_guarantee": True}))
        made = _made(admin.post("/v1/tokens", json={"role": "reporter", "count": TOKENS}))
        self.tokens = [entry["token"] for entry in made["tokens"]]
        outputs = list(range(0, 2 * OUTPUTS, 2))
        self._reports = make_reports(TOKENS * OUTPUTS, "main", self.tokens, outputs)

    def _start(self, server: Running) -> None:
        began = time.perf_counter()
        server.start()
        self.found.start_seconds.append(time.perf_counter() - began)

    # Clients

    def _wire(self) -> Wire:
        where = urlsplit(self.running.url)
        return Wire(where.hostname or "", where.port or 0)

    async def _insist(
        self, method: str, path: str, token: str, body: bytes = b""
    ) -> tuple[int, Any]:
        """Ask until there is an answer, whatever happens to the server meanwhile."""
        while True:
            wire = self._wire()
            try:
                status, answer = await wire.ask(request_bytes(method, path, token, body))
                if status != 503:
                    return status, json.loads(answer)
                self.found.unavailable += 1
            except BROKEN:
                self.found.retries += 1
            finally:
                wire.close()
            await asyncio.sleep(0.05)

    async def _report(self, reports: Iterator[Told]) -> None:
        wire = self._wire()
        for report in reports:
            self.sent.add((report.user, report.output))
            while True:
                try:
                    status, body = await wire.ask(report.request)
                except BROKEN:
                    self.found.retries += 1
                    await asyncio.sleep(0.02)
                    wire = self._wire()
                    continue
                if status == 503:
                    self.found.unavailable += 1
                    await asyncio.sleep(0.05)
                    continue
                break
            if status in (200, 201) and json.loads(body) == {"id": report.id, "accepted": True}:
                self.told[bytes.fromhex(report.id.replace("-", ""))] = report
                self.found.answered_again += status == 200
            else:
                self.found.wrong.append(f"a report was answered with {status}")
            if self._ending:
                break
        wire.close()

    async def _rounds(self) -> None:
        """Open, fill, wait for the table, fetch rows, open the next."""
        base = "/v1/deployments/paper/rounds"
        admin = self.running.admin_token
        while not self._ending:
            _, listed = await self._insist("GET", base, "")
            states = {entry["round"]: entry["state"] for entry in listed["rounds"]}
            number = max(states, default=0)
            if states.get(number) not in ("open", "solving"):
                body = json.dumps({"closes_at_users": USERS}).encode()
                # Not idempotent: if the answer was lost, the list shows the round.
                await self._insist("POST", base, admin, body)
                continue
            users = [self.tokens[(USERS * number + k) % TOKENS] for k in range(USERS)]
            for token in users if states[number] == "open" else ():
                anchors = sorted(self.random.sample(range(30), 6))
                await self._upload(f"{base}/{number}/anchors", number, token, anchors)
            await self._solved(base, number, users)

    async def _upload(self, path: str, number: int, token: str, anchors: list[int]) -> None:
        body = json.dumps({"anchors": anchors}).encode()
        status, _ = await self._insist("POST", path, token, body)
        # Another pass through an open round finds the upload of the pass before.
        if status in (200, 201):
            self.uploads.append((number, token.split("_")[1]))
        elif (number, token.split("_")[1]) not in self.uploads or status != 409:
            self.found.wrong.append(f"an upload was answered with {status}")

    async def _solved(self, base: str, number: int, users: list[str]) -> None:
        while True:
            _, info = await self._insist("GET", f"{base}/{number}", "")
            if info["state"] in ("solved", "failed"):
                break
            await asyncio.sleep(0.1)
        if info["state"] != "solved" or info["users"] != USERS:
            self.found.wrong.append(f"round {number} {info['state']} with {info['users']} users")
            return
        for token in users:
            status, rows = await self._insist("GET", f"{base}/{number}/rows", token)
            if status != 200 or rows["round"] != number:
                self.found.wrong.append(f"rows of round {number}: {status}")
        self.found.rounds += 1

    # The killer

    async def _kill_and_check(self) -> None:
        # On a slow machine, workers need longer to get anywhere.
        mean = max(self.uptime_s, 0.5 * statistics.median(self.found.start_seconds))
        await asyncio.sleep(min(mean * self.random.expovariate(1.0), 6 * mean))
        if self.work and self.random.random() < 0.2:
            await self._something_ends()
        if self._database_is_next():
            await asyncio.to_thread(self._kill_database)
        else:
            server = self.random.choice(self.fleet)
            await asyncio.to_thread(server.kill)
            self.found.kills += 1
            # Half of the time the server itself is the first to open what was left.
            if self.random.random() < 0.5:
                await asyncio.to_thread(self._check_database)
            if self.random.random() < 0.15:
                await self._kill_while_starting(server)
            await asyncio.to_thread(self._start, server)
        await asyncio.to_thread(self._check_database)
        print(f"{self.found.kills} kills, {self.found.database_kills} of the database", flush=True)

    def _database_is_next(self) -> bool:
        """Kills of the database are spread among the others."""
        due = self.database_kills * (self.found.kills + 1) / max(1, self.kills)
        return self.found.database_kills < min(due, self.database_kills)

    def _kill_database(self) -> None:
        assert self.cluster is not None
        self.cluster.crash()
        time.sleep(self.random.uniform(0.0, 1.0))
        self.cluster.resume()
        self.found.database_kills += 1

    async def _something_ends(self) -> None:
        """Wait for a round, or the kills would never let one come about."""
        before, deadline = self.found.rounds, time.monotonic() + 30
        while self.found.rounds == before and time.monotonic() < deadline:
            await asyncio.sleep(0.05)

    async def _kill_while_starting(self, server: Running) -> None:
        task = asyncio.create_task(asyncio.to_thread(server.start))
        typical = min(self.found.start_seconds)
        await asyncio.sleep(self.random.uniform(0.2, 1.1) * typical)
        process = server.process
        if process is not None:
            process.kill()
        try:
            await task
        except AssertionError:
            # It never came to say where it listens.
            self.found.kills_at_start += 1
        server.kill()
        self.found.kills += 1

    def _kill_if_running(self) -> None:
        for server in self.fleet:
            if server.process is not None:
                server.kill()

    # Checks

    def _check_database(self) -> None:
        """Everything that was acknowledged before this moment is in the database, once."""
        told, uploads = dict(self.told), list(self.uploads)
        stored, kept, failed, integrity = self.database.rows(
            "SELECT id FROM reports",
            "SELECT round, token FROM uploads",
            "SELECT round FROM rounds WHERE state = 'failed'",
            "PRAGMA integrity_check" if self.database.sqlite else "SELECT 'ok'",
        )
        ids = {bytes(row[0]) for row in stored}
        self.found.lost += len(told.keys() - ids)
        self.found.twice += len(stored) - len(ids)
        if not set(uploads) <= {(int(number), str(token)) for number, token in kept}:
            self.found.wrong.append("an upload is lost")
        if failed:
            self.found.wrong.append("a round failed")
        if integrity != [("ok",)]:
            self.found.wrong.append(f"integrity: {integrity[0][0]}")

    def finish(self) -> Findings:
        """The last look, with a server that is started once more, through its own answers."""
        server = self.fleet[0]
        self._start(server)
        admin = server.admin
        export = Export()
        export.add(admin.get("/v1/deployments/main/reports").content)
        told = {(report.user, report.output) for report in self.told.values()}
        found = self.found
        found.acknowledged, found.uploads = len(told), len(self.uploads)
        found.lost += len(told - export.pairs.keys())
        found.twice += sum(number > 1 for number in export.pairs.values())
        found.never_sent += len(export.pairs.keys() - self.sent)
        counted = admin.get("/v1/deployments/main/counts").json()["reports"]
        if counted != sum(export.pairs.values()):
            found.wrong.append(f"{counted} reports are counted of {sum(export.pairs.values())}")
        code = server.stop()
        if code != 0:
            found.wrong.append(f"the server ended with code {code}")
        self._check_database()
        self._check_nobody_is_left()
        self._check_log()
        return found

    def _check_nobody_is_left(self) -> None:
        deadline = time.monotonic() + PATIENCE
        while self.database.users():
            if time.monotonic() > deadline:
                self.found.wrong.append("a process outlived its server")
                return
            time.sleep(0.1)

    def _check_log(self) -> None:
        text = "".join(server.log.read_text() for server in self.fleet)
        if any(token in text or token.split("_", 2)[2] in text for token in self.tokens):
            self.found.wrong.append("a token is in the log")
        errors = {re.sub(r"^\S+ \S+ ", "", line) for line in text.splitlines() if " ERROR " in line}
        if self.found.database_kills:
            errors = {error for error in errors if not WITHOUT_DATABASE.search(error)}
        self.found.wrong += sorted(errors)


def run_crashes(
    database: str,
    folder: Path,
    kills: int,
    seed: int,
    uptime_s: float = 1.5,
    limit_s: float = math.inf,
    servers: int = 1,
    cluster: Postgres | None = None,
    database_kills: int = 0,
    work: bool = True,
) -> Findings:
    """Kill servers so many times (fewer where the time is up), and say what was found.

    With several `servers`, on a `cluster` that is killed `database_kills` times as well. Without
    `work`, reports are all that goes on.
    """
    crashes = Crashes(
        database, folder, kills, seed, uptime_s, limit_s, servers, cluster, database_kills, work
    )
    try:
        asyncio.run(crashes.run())
        return crashes.finish()
    finally:
        crashes._kill_if_running()


def _made(answer: httpx.Response) -> Any:
    assert answer.status_code == 201, answer.text
    return answer.json()
