"""What a report is checked against, in memory: deployments, the version in force, its outputs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from cachetools import LRUCache
from sqlalchemy import Connection, Row, select

from panda_mdp.protocol.messages.catalogue import TableRef
from panda_mdp.protocol.messages.reports import ReportRequest
from panda_mdp.protocol.server.failures import Failure
from panda_mdp.protocol.server.store.batches import Quota
from panda_mdp.protocol.server.store.catalogue import table_file, table_info, table_outputs
from panda_mdp.protocol.server.store.database import Store, now_ms
from panda_mdp.protocol.server.store.deployments import (
    Request,
    anchors_request,
    current_table,
    no_deployment,
    request_of,
    solved_round,
)
from panda_mdp.protocol.server.store.schema import deployment_versions, deployments, uploads

MOST_TABLES = 200


@dataclass(frozen=True, slots=True)
class Live:
    """A deployment as reports see it."""

    id: int
    name: str
    kind: str
    open: bool
    version: int
    """The version or round that reports must name; 0 where no round is solved yet."""
    outputs: frozenset[int]
    users: frozenset[str] | None
    """Tokens that have rows in the round in force; None where everybody may report."""
    quota: Quota
    versions: frozenset[int] = frozenset()
    """Versions with the table in force: limits alone have changed since, and what was drawn under
    one of them is as good as ever."""
    table: str | None = None
    """The SHA-256 of the table in force, which reports name."""
    ends_ms: int | None = None
    """When the last day of collecting is over."""

    def problem(self, report: ReportRequest, token: str) -> Failure | None:
        """Why a report is not accepted, or None."""
        if not self.open:
            return Failure("round_closed", "this deployment is closed", "ask the operator")
        if self.ends_ms is not None and now_ms() >= self.ends_ms:
            return Failure(
                "round_closed", "the last day of this deployment is over", "ask the operator"
            )
        old = report.table is not None and report.table != self.table
        named = report.version
        if not (named is None or named in self.versions) or not self.version or old:
            return Failure(
                "wrong_version",
                f"reports are accepted for version {self.version} of this deployment"
                if self.version
                else "no round of this deployment is solved yet",
                "fetch the deployment, draw from what is in force now, and report that",
            )
        if self.users is not None and token not in self.users:
            return Failure(
                "wrong_version",
                "this token has no rows in the round in force: it uploaded no anchors, or they "
                "were left out",
                "take part in the next round",
            )
        if report.output not in self.outputs:
            return Failure(
                "invalid",
                "output: not one of the outputs of the version in force",
                "report an output of the table",
            )
        return None


class LiveDeployments:
    """Deployments by name, read once and again after every change."""

    def __init__(self, store: Store, files: Cache) -> None:
        self._store = store
        self._files = files
        self._known: dict[str, Live] = {}
        self._outputs: LRUCache[str, frozenset[int]] = LRUCache(MOST_TABLES)
        self._changes = 0
        self._counted = store.value("deployment_changes")
        self._lock = threading.Lock()

    def cached(self, name: str) -> Live | None:
        """A deployment, if it is known without asking the store."""
        return self._known.get(name)

    def get(self, name: str) -> Live:
        """A deployment; after a change one caller reads it, and the others share what it found."""
        with self._lock:
            known = self._known.get(name)
            return known if known is not None else self.fetch(name)

    def fetch(self, name: str) -> Live:
        """A deployment from the store."""
        changes = self._changes
        with self._store.read() as connection:
            live = self._read(connection, name)
        if changes == self._changes:
            self._known[name] = live
        return live

    def forget(self) -> None:
        """Read everything again when it is next asked for."""
        self._changes += 1
        self._known = {}

    def refresh(self, counted: str | None) -> None:
        """Forget everything where another process has changed a deployment."""
        if counted != self._counted:
            self._counted = counted
            self.forget()

    def _read(self, connection: Connection, name: str) -> Live:
        row = connection.execute(select(deployments).where(deployments.c.name == name)).first()
        if row is None:
            raise no_deployment()
        if row.kind == "anchors":
            return self._round(connection, row)
        ref = current_table(connection, row)
        same = connection.execute(
            select(deployment_versions.c.version).where(
                deployment_versions.c.deployment == row.id,
                deployment_versions.c.table_name == ref.name,
                deployment_versions.c.table_version == ref.version,
            )
        ).scalars()
        outputs = self._table_outputs(connection, ref)
        wanted = request_of(row)
        return Live(
            id=row.id,
            name=name,
            kind=row.kind,
            open=row.open,
            version=row.version,
            outputs=outputs,
            users=None,
            quota=_quota(wanted),
            versions=frozenset(same),
            table=table_info(connection, ref).sha256,
            ends_ms=_ends_ms(wanted),
        )

    def _table_outputs(self, connection: Connection, ref: TableRef) -> frozenset[int]:
        key = f"{ref.name}/{ref.version}"
        known = self._outputs.get(key)
        if known is not None:
            return known
        data = self._files.get(key, lambda: table_file(connection, ref))
        outputs = table_outputs(data)
        # A version never changes, so this is read once.
        self._outputs[key] = outputs
        return outputs

    @staticmethod
    def _round(connection: Connection, row: Row[Any]) -> Live:
        key, number = row.id, solved_round(connection, row.id)
        users = connection.execute(
            select(uploads.c.token).where(
                uploads.c.deployment == key,
                uploads.c.round == number,
                uploads.c.state == "served",
            )
        ).scalars()
        wanted = anchors_request(row)
        return Live(
            id=key,
            name=row.name,
            kind="anchors",
            open=row.open,
            version=number,
            outputs=frozenset(wanted.outputs),
            users=frozenset(users),
            quota=_quota(wanted),
            versions=frozenset({number}),
            ends_ms=_ends_ms(wanted),
        )


def _quota(request: Request) -> Quota:
    return Quota(1000 * request.period_s, request.reports_per_period)


def _ends_ms(request: Request) -> int | None:
    if request.until is None:
        return None
    last = datetime.fromisoformat(request.until).replace(tzinfo=UTC)
    return int(1000 * (last + timedelta(days=1)).timestamp())


class Cache:
    """Byte strings in memory, the least recently used leave first."""

    def __init__(self, most_bytes: int) -> None:
        self._entries: LRUCache[str, bytes] = LRUCache(most_bytes, getsizeof=len)
        self._lock = threading.Lock()

    def peek(self, key: str) -> bytes | None:
        """The entry of a key, if there is one."""
        with self._lock:
            return self._entries.get(key)

    def get(self, key: str, make: Callable[[], bytes]) -> bytes:
        """The entry of a key, or what is made now."""
        entry = self.peek(key)
        return entry if entry is not None else self.put(key, make())

    def put(self, key: str, data: bytes) -> bytes:
        """Remember something, unless it is larger than all there is room for."""
        if len(data) <= self._entries.maxsize:
            with self._lock:
                self._entries[key] = data
        return data
