"""Tables on a client's disk: fetched whole, resumed where broken off, checked, audited, kept.

A file counts as a table only after its SHA-256, the operator's signature and an audit of all pairs
of records with the client's own distances. What was audited once is recognised by its SHA-256.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from panda_mdp.errors import ConnectionLostError, ProtocolError, SignatureError
from panda_mdp.panda.file.decode import load_panda
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.protocol.client.wire import Wire
from panda_mdp.protocol.ledger.locking import file_lock
from panda_mdp.protocol.messages.catalogue import TableInfo
from panda_mdp.protocol.messages.keys import Keyring
from panda_mdp.protocol.messages.signing import VerifyKey, table_entry
from panda_mdp.table.everywhere import EverywhereMechanism
from panda_mdp.table.pmdc.archive import load_compact
from panda_mdp.table.pmdc.compact import CompactTable
from panda_mdp.table.pmdp.decode import load

RESUMPTIONS = 8
LARGEST_FILE = 1 << 30


def check_signature(info: TableInfo, key: Keyring | VerifyKey) -> None:
    """Raise unless the operator signed this table's name, version, file and claim."""
    key.verify(table_entry(info), info.signature)


class TableCache:
    """Verified tables in a folder, by their SHA-256."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def get(
        self, wire: Wire, info: TableInfo, key: Keyring | VerifyKey
    ) -> CompactTable | EverywhereMechanism:
        """The plain table, from disk or from the server; see `file`."""
        with self.file(wire, info, key, ".pmdc") as path:
            return self._load(path, info)

    def get_panda(self, wire: Wire, info: TableInfo, key: Keyring | VerifyKey) -> PandaTable:
        """The table of PAnDA, every claim of which this client computed again; see `file`."""
        with self.file(wire, info, key, ".pmdp") as path:
            table = load_panda(path)
        problem = table.problem
        claims = (problem.domain.fingerprint, table.epsilon, problem.outputs_count, problem.size)
        self._check(claims, info)
        return table

    @contextmanager
    def file(
        self, wire: Wire, info: TableInfo, key: Keyring | VerifyKey, suffix: str
    ) -> Iterator[Path]:
        """The table, from disk or from the server, with an audit that this client made.

        Raises `SignatureError`, `FileFormatError` (damage, or an audit that does not hold) or
        `ProtocolError` (contents that are not what was signed).
        """
        check_signature(info, key)
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{info.sha256}{suffix}"
        # Two processes that want the same table fetch it once.
        with file_lock(self.folder / f"{info.sha256}.lock", timeout_s=600.0):
            if not (path.exists() and _digest(path) == info.sha256):
                self._fetch(wire, info, path)
            yield path

    def _load(self, path: Path, info: TableInfo) -> CompactTable | EverywhereMechanism:
        with path.open("rb") as stream:
            zipped = stream.read(2) == b"PK"
        if zipped:
            return self._load_points(path, info)
        table = load_compact(path)
        claims = (table.domain.fingerprint, table.epsilon, len(table.outputs), table.domain.size)
        self._check(claims, info)
        return table

    def _load_points(self, path: Path, info: TableInfo) -> EverywhereMechanism:
        points = load(path)
        if not isinstance(points, EverywhereMechanism):
            msg = f"table {info.name} is no table that this client draws from; tell the operator"
            raise ProtocolError(msg)
        problem = points.problem
        claims = (problem.domain.fingerprint, points.epsilon, problem.outputs_count, problem.size)
        self._check(claims, info)
        return points

    @staticmethod
    def _check(claims: tuple[str, float, int, int], info: TableInfo) -> None:
        if claims != (info.domain, info.epsilon, info.outputs, info.records):
            msg = (
                f"table {info.name} version {info.version} is not what its description says: other "
                "records, outputs or another epsilon; do not report, and tell the operator"
            )
            raise ProtocolError(msg)

    def _fetch(self, wire: Wire, info: TableInfo, path: Path) -> None:
        """Download the whole file; what is there of an earlier attempt is not fetched again."""
        if info.size_bytes > LARGEST_FILE:
            msg = f"the table has {info.size_bytes} bytes; this client takes up to {LARGEST_FILE}"
            raise ProtocolError(msg)
        part = path.with_suffix(".part")
        for resumption in range(RESUMPTIONS + 1):
            start = part.stat().st_size if part.exists() else 0
            if start >= info.size_bytes:
                break
            try:
                self._append(wire, info, part, start)
            except ConnectionLostError:
                if resumption == RESUMPTIONS:
                    raise
        if part.stat().st_size != info.size_bytes or _digest(part) != info.sha256:
            # A broken start must not spoil every later attempt.
            part.unlink()
            msg = (
                f"the file of table {info.name} version {info.version} is not the one that was "
                "signed; it was damaged or changed on the way: fetch it again"
            )
            raise SignatureError(msg)
        part.replace(path)

    def _append(self, wire: Wire, info: TableInfo, part: Path, start: int) -> None:
        address = ("tables", info.name, str(info.version), "file")
        with wire.stream(start, info.sha256, *address) as response:
            if response.headers.get("Content-Encoding", "identity") != "identity":
                msg = "the server sent a table in another encoding than asked for"
                raise ProtocolError(msg)
            resumed = response.status_code == httpx.codes.PARTIAL_CONTENT
            if resumed:
                _check_range(response.headers.get("Content-Range"), start, info.size_bytes)
            with part.open("ab" if resumed else "wb") as target:
                for piece in response.iter_bytes():
                    target.write(piece)
                    if target.tell() > info.size_bytes:
                        break


def _check_range(header: str | None, start: int, size: int) -> None:
    if header != f"bytes {start}-{size - 1}/{size}":
        msg = f"the server resumed with {header!r}, not at byte {start} of {size}; fetch again"
        raise ProtocolError(msg)


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
