"""Whom a client trusts: the operator's key and the versions of tables, pinned at first use."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from panda_mdp.base.atomic import atomic_file
from panda_mdp.errors import ProtocolError, SignatureError
from panda_mdp.protocol.client.statements import content_of
from panda_mdp.protocol.ledger.locking import file_lock
from panda_mdp.protocol.messages.deployments import Statement
from panda_mdp.protocol.messages.signing import VerifyKey

FILE = "trust.json"
LOCK = "trust.lock"


@dataclass(frozen=True)
class Pin:
    """The table that a user accepted for a deployment."""

    table: str
    version: int
    sha256: str


class Trust:
    """Keys and pins of all servers of one user, in one file. None of it is secret."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._lock = folder / LOCK

    def key(self, origin: str) -> VerifyKey | None:
        """The pinned key of a server."""
        text = self._server(origin).get("key")
        return None if text is None else VerifyKey.from_base64(text)

    def check_key(self, origin: str, shown: VerifyKey, given: VerifyKey | None) -> VerifyKey:
        """The key that signatures must be by: the given one, the pinned one, or at first use the
        one that the server shows, which is pinned then."""
        pinned = given or self.key(origin)
        if pinned is None:
            # Another process may have pinned one since: the first stands.
            pinned = self._pin_first(origin, shown)
        if shown != pinned:
            msg = (
                f"{origin} shows key {shown.id}, and {pinned.id} is "
                f"{'given' if given else 'pinned from before'}: another operator, or somebody in "
                "between. Ask the operator by another way, then replace the pinned key "
                "(`panda-mdp client trust --key`)"
            )
            raise SignatureError(msg)
        if given is not None:
            self.pin_key(origin, given)
        return pinned

    def _pin_first(self, origin: str, key: VerifyKey) -> VerifyKey:
        with file_lock(self._lock):
            everything = self._read()
            kept: str = everything.setdefault(origin, {}).setdefault("key", key.base64)
            self._write(everything)
        return VerifyKey.from_base64(kept)

    def pin_key(self, origin: str, key: VerifyKey) -> None:
        """Trust a key from now on; versions that another key signed are not pinned any more."""
        with file_lock(self._lock):
            everything = self._read()
            before = everything.get(origin, {})
            if before.get("key") != key.base64:
                everything[origin] = {"key": key.base64}
                self._write(everything)

    def pin(self, origin: str, deployment: str) -> Pin | None:
        """The table that is pinned for a deployment."""
        found = self._server(origin).get("deployments", {}).get(deployment)
        return None if found is None else Pin(**found)

    def check_version(
        self, origin: str, deployment: str, found: Pin, wanted: int | None, accept_update: bool
    ) -> None:
        """Refuse another table than the pinned one unless it is asked for, and always another
        file under a name and version that were seen before."""
        files = self._server(origin).get("files", {})
        if files.get(_label(found), found.sha256) != found.sha256:
            msg = (
                f"table {found.table} version {found.version} has another file than before; "
                "versions never change, so the operator shows different tables: do not report"
            )
            raise SignatureError(msg)
        if wanted is not None and found.version != wanted:
            msg = f"table {found.table} is at version {found.version} and {wanted} is asked for"
            raise ProtocolError(msg)
        pinned = self.pin(origin, deployment)
        if pinned is None or pinned == found or wanted is not None or accept_update:
            return
        msg = (
            f"deployment {deployment} now uses table {found.table} version {found.version}, and "
            f"{pinned.table} version {pinned.version} is pinned; look at what it costs and accept "
            "it (accept_update=True, `panda-mdp client fetch --accept-update`)"
        )
        raise ProtocolError(msg)

    def pin_version(self, origin: str, deployment: str, found: Pin) -> None:
        """Remember a table that passed all checks."""
        with file_lock(self._lock):
            everything = self._read()
            server = everything.setdefault(origin, {})
            server.setdefault("deployments", {})[deployment] = asdict(found)
            server.setdefault("files", {})[_label(found)] = found.sha256
            self._write(everything)

    def check_statement(self, origin: str, stated: Statement) -> None:
        """Refuse a statement that is older than one seen before, or another one of its version."""
        before = self._server(origin).get("statements", {}).get(stated.name)
        if before is None:
            return
        if (stated.version, stated.issued) < (before["version"], before["issued"]):
            msg = (
                f"the server shows version {stated.version} of deployment {stated.name}, which is "
                f"older than version {before['version']}, seen before: operators do not go back, "
                "so somebody shows you a past state; do not report"
            )
            raise SignatureError(msg)
        if stated.version == before["version"] and content_of(stated) != before["content"]:
            msg = (
                f"the operator signed two different statements about version {stated.version} of "
                f"deployment {stated.name}; do not report"
            )
            raise SignatureError(msg)

    def pin_statement(self, origin: str, stated: Statement) -> None:
        """Remember a statement that passed all checks."""
        entry = {
            "version": stated.version,
            "issued": stated.issued,
            "content": content_of(stated),
        }
        with file_lock(self._lock):
            everything = self._read()
            everything.setdefault(origin, {}).setdefault("statements", {})[stated.name] = entry
            self._write(everything)

    def _server(self, origin: str) -> dict[str, Any]:
        found: dict[str, Any] = self._read().get(origin, {})
        return found

    def _read(self) -> dict[str, Any]:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        try:
            found: dict[str, Any] = json.loads(data)
            if isinstance(found, dict) and all(isinstance(v, dict) for v in found.values()):
                return found
        except ValueError:
            pass
        msg = (
            f"{self._path}: the pinned keys cannot be read; restore the file, or delete it and "
            "compare the keys with the operators again"
        )
        raise ProtocolError(msg)

    def _write(self, everything: dict[str, Any]) -> None:
        with atomic_file(self._path) as stream:
            stream.write(json.dumps(everything, indent=1, sort_keys=True).encode())


def _label(pin: Pin) -> str:
    return f"{pin.table} {pin.version}"
