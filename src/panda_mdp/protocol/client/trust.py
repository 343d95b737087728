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
from panda_mdp.protocol.messages.keys import Keyring, KeySheet, follow
from panda_mdp.protocol.messages.log import Log, LogHead
from panda_mdp.protocol.messages.merkle import leaf_hash, root_of
from panda_mdp.protocol.messages.service import ServiceInfo
from panda_mdp.protocol.messages.signing import VerifyKey, head_bytes, round_entry

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

    def keyring(self, origin: str, info: ServiceInfo, given: VerifyKey | None) -> Keyring:
        """The keys that signatures must be by: the operator's, and those that it certifies now."""
        sheet = info.keys or KeySheet(operator=info.key.public)
        shown = VerifyKey.from_base64(sheet.operator)
        pinned = given or self.key(origin)
        if pinned is not None and pinned != shown and follow(pinned, sheet.successions) == shown:
            self._replace_key(origin, shown)
            given = shown if given is not None else None
        operator = self.check_key(origin, shown, given)
        return Keyring.of(operator, sheet.certificates)

    def check_key(self, origin: str, shown: VerifyKey, given: VerifyKey | None) -> VerifyKey:
        """The operator's key: the given one, the pinned one, or at first use the one that the
        server shows, which is pinned then."""
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

    def _replace_key(self, origin: str, key: VerifyKey) -> None:
        """Pin the successor of the pinned key; everything else that is known stays."""
        with file_lock(self._lock):
            everything = self._read()
            everything.setdefault(origin, {})["key"] = key.base64
            self._write(everything)

    def _pin_first(self, origin: str, key: VerifyKey) -> VerifyKey:
        with file_lock(self._lock):
            everything = self._read()
            pinned: str = everything.setdefault(origin, {}).setdefault("key", key.base64)
            self._write(everything)
        return VerifyKey.from_base64(pinned)

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
        entry = self._server(origin).get("deployments", {}).get(deployment)
        return None if entry is None else Pin(**entry)

    def head(self, origin: str) -> LogHead | None:
        """The latest head of a server's log that was seen."""
        entry = self._server(origin).get("log")
        return None if entry is None else LogHead(**entry)

    def check_log(self, origin: str, log: Log, keys: Keyring) -> None:
        """Refuse a log that is not what its head says, or not a continuation of the one before."""
        leaves = check_head(log, keys)
        before = self.head(origin)
        if before is None:
            return
        if log.head.size < before.size:
            msg = (
                f"the server's log has {log.head.size} entries and had {before.size} before: an "
                "old backup was restored, or somebody shows you a past state. Do not report, and "
                "ask the operator (`panda-mdp client trust --forget-log` begins anew)"
            )
            raise SignatureError(msg)
        if root_of(leaves[: before.size]).hex() != before.root:
            msg = (
                f"the first {before.size} entries of the server's log are not those of before: "
                "the operator shows different things to different people, or has lost its log. Do "
                "not report, and ask the operator"
            )
            raise SignatureError(msg)

    def pin_log(self, origin: str, head: LogHead) -> None:
        """Remember a head that passed its checks, unless a later one is known."""
        with file_lock(self._lock):
            everything = self._read()
            server = everything.setdefault(origin, {})
            if server.get("log", {}).get("size", -1) < head.size:
                server["log"] = head.model_dump(mode="json")
                self._write(everything)

    def forget_log(self, origin: str) -> None:
        """Forget the log, and with it which statements and tables were the latest."""
        with file_lock(self._lock):
            everything = self._read()
            for name in ("log", "statements", "numbers"):
                everything.get(origin, {}).pop(name, None)
            self._write(everything)

    def check_version(
        self,
        origin: str,
        deployment: str,
        offered: Pin,
        wanted: int | None,
        accept_update: bool,
        number: int = 0,
    ) -> None:
        """Refuse another table than the pinned one unless it is asked for, and always another
        file under a name and version that were seen before. `number` is its place in the log."""
        files = self._server(origin).get("files", {})
        if files.get(_label(offered), offered.sha256) != offered.sha256:
            msg = (
                f"table {offered.table} version {offered.version} has another file than before; "
                "versions never change, so the operator shows different tables: do not report"
            )
            raise SignatureError(msg)
        if wanted is not None and offered.version != wanted:
            msg = f"table {offered.table} is at version {offered.version} and {wanted} is asked for"
            raise ProtocolError(msg)
        pinned = self.pin(origin, deployment)
        if pinned is None or pinned == offered or wanted is not None or accept_update:
            return
        before = self._server(origin).get("numbers", {}).get(pinned.sha256)
        older = ", an older one" if before is not None and number < before else ""
        msg = (
            f"deployment {deployment} now uses table {offered.table} version {offered.version}"
            f"{older}, and {pinned.table} version {pinned.version} is pinned; look at what it "
            "costs and accept it (accept_update=True, `panda-mdp client fetch --accept-update`)"
        )
        raise ProtocolError(msg)

    def pin_version(self, origin: str, deployment: str, offered: Pin, number: int = 0) -> None:
        """Remember a table that passed all checks."""
        with file_lock(self._lock):
            everything = self._read()
            server = everything.setdefault(origin, {})
            server.setdefault("deployments", {})[deployment] = asdict(offered)
            server.setdefault("files", {})[_label(offered)] = offered.sha256
            server.setdefault("numbers", {})[offered.sha256] = number
            self._write(everything)

    def check_statement(self, origin: str, stated: Statement, number: int = 0) -> None:
        """Refuse a statement that is older than one seen before, or another one of its version.
        `number` is its place in the log."""
        before = self._server(origin).get("statements", {}).get(stated.name)
        if before is None:
            return
        older = (stated.version, stated.issued) < (before["version"], before["issued"])
        if older or number < before.get("number", 0):
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

    def pin_statement(self, origin: str, stated: Statement, number: int = 0) -> None:
        """Remember a statement that passed all checks."""
        entry = {
            "version": stated.version,
            "issued": stated.issued,
            "content": content_of(stated),
            "number": number,
        }
        with file_lock(self._lock):
            everything = self._read()
            everything.setdefault(origin, {}).setdefault("statements", {})[stated.name] = entry
            self._write(everything)

    def _server(self, origin: str) -> dict[str, Any]:
        entry: dict[str, Any] = self._read().get(origin, {})
        return entry

    def _read(self) -> dict[str, Any]:
        try:
            data = self._path.read_bytes()
        except FileNotFoundError:
            return {}
        try:
            content: dict[str, Any] = json.loads(data)
            if isinstance(content, dict) and all(isinstance(v, dict) for v in content.values()):
                return content
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


def check_head(log: Log, keys: Keyring) -> list[bytes]:
    """The leaves of a log, where its head is signed and is theirs."""
    head, leaves = log.head, [bytes.fromhex(leaf) for leaf in log.leaves]
    keys.verify(head_bytes(head.size, head.root, head.at), head.signature)
    if len(leaves) != head.size or root_of(leaves).hex() != head.root:
        msg = "the entries of the server's log are not those that its operator signed"
        raise SignatureError(msg)
    return leaves


def place_in(log: Log, entry: bytes, what: str) -> int:
    """The number of an entry of a log, which must have it."""
    leaf = leaf_hash(entry).hex()
    if leaf not in log.leaves:
        msg = (
            f"{what} is signed and not in the operator's log: it was made for you alone, or is not "
            "published yet; do not report"
        )
        raise SignatureError(msg)
    return log.leaves.index(leaf)


def check_round(log: Log, name: str, number: int | None) -> None:
    """Refuse a round that is not the latest one of a log: its number is in the address of what is
    sent, so one that a server shows to a single user would mark that user."""
    if number is None:
        return
    place_in(log, round_entry(name, number), f"round {number} of deployment {name}")
    if leaf_hash(round_entry(name, number + 1)).hex() in log.leaves:
        msg = f"round {number} of deployment {name} is over by the operator's log; do not report"
        raise SignatureError(msg)


def _label(pin: Pin) -> str:
    return f"{pin.table} {pin.version}"
