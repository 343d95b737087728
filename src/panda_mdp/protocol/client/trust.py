"""What a client believes of a server, and what it remembers: keys, the log, statements, versions.

A client believes what the operator signed and published in its log, and nothing beside it. The key
is pinned at first use; logs that were shortened or rewritten, past statements, two statements about
one version and two files of one version are refused. Nothing signed moves the user's own limits
(`Allowance`).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from panda_mdp.base.atomic import write_whole
from panda_mdp.errors import FileFormatError, ProtocolError, SignatureError
from panda_mdp.protocol.ledger.ledger import file_lock
from panda_mdp.protocol.messages.deployments import AnyDeployment, Statement
from panda_mdp.protocol.messages.log import Log, LogHead
from panda_mdp.protocol.messages.service import ServiceInfo
from panda_mdp.protocol.messages.signing import Keyring, KeySheet, VerifyKey, follow
from panda_mdp.space.domain import Domain

FILE = "trust.json"
LOCK = "trust.lock"


@dataclass(frozen=True)
class Seen:
    """The latest statement about a deployment, whose table the user accepted."""

    stated: Statement
    number: int | None
    """Its place in the log; None where the log was forgotten since."""


@dataclass
class Known:
    """What is remembered of a server."""

    key: str | None = None
    log: LogHead | None = None
    statements: dict[str, Seen] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    """The identity of every version of a table that was seen."""
    witnesses: list[str] = field(default_factory=list)
    """Keys without whose word nothing of the log counts."""

    def pin(self, key: VerifyKey, forget: bool) -> None:
        """Trust a key; where it is another one, forget what the former signed, or keep it."""
        if forget and self.key != key.base64:
            vars(self).update(vars(Known()))
        self.key = key.base64


_SERVERS = TypeAdapter(dict[str, Known])


class Trust:
    """Keys and pins of one server of a user, in a file for all of them. None of it is secret."""

    def __init__(self, folder: Path, origin: str) -> None:
        self._path = folder / FILE
        self._lock = folder / LOCK
        self._origin = origin

    @property
    def key(self) -> VerifyKey | None:
        """The pinned key of the server."""
        text = self.known().key
        return None if text is None else VerifyKey.from_base64(text)

    def keyring(self, info: ServiceInfo, given: VerifyKey | None) -> Keyring:
        """The keys that signatures must be by: the operator's, and those that it certifies now.

        The operator's is the given one, the pinned one or its successor, or at first use the one
        that the server shows, which is pinned then.
        """
        sheet = info.keys or KeySheet(operator=info.key.public)
        shown = VerifyKey.from_base64(sheet.operator)
        # One change, so that of two processes at first use one pins.
        with self._change() as known:
            pinned = given or VerifyKey.from_base64(known.key or shown.base64)
            if shown not in (pinned, follow(pinned, sheet.successions)):
                raise SignatureError(
                    f"{self._origin} shows key {shown.id}, and {pinned.id} is "
                    f"{'given' if given else 'pinned from before'}: another operator, or somebody "
                    "in between. Ask the operator by another way, then replace the pinned key "
                    "(`panda-mdp client trust --key`)"
                )
            # What is known stays where the former key named its successor.
            known.pin(shown, forget=given == shown)
        return Keyring.of(shown, sheet.certificates)

    def pin_key(self, key: VerifyKey) -> None:
        """Trust a key from now on; versions that another key signed are not pinned any more."""
        with self._change() as known:
            known.pin(key, forget=True)

    def check_log(self, log: Log, keys: Keyring) -> None:
        """Refuse a log that is not what its head says, or not a continuation of the one before."""
        log.verify(keys)
        before = self.known().log
        if before is not None:
            _check_continues(
                log,
                before,
                f"the server's log has {log.head.size} entries and had {before.size} before: an "
                "old backup was restored, or somebody shows you a past state. Do not report, and "
                "ask the operator (`panda-mdp client trust --forget-log` begins anew)",
                f"the first {before.size} entries of the server's log are not those of before: "
                "the operator shows different things to different people, or has lost its log. Do "
                "not report, and ask the operator",
            )

    def pin_witness(self, key: VerifyKey) -> None:
        """Believe from now on only what this witness has signed too."""
        with self._change() as known:
            known.witnesses = sorted({*known.witnesses, key.base64})

    def witnessed(self, log: Log) -> Log:
        """The part of a log that every pinned witness has signed."""
        size = len(log.leaves)
        for public in self.known().witnesses:
            key = VerifyKey.from_base64(public)
            seen = next((each for each in log.witnesses if each.public == public), None)
            if seen is None or not log.continues(seen):
                raise SignatureError(
                    f"witness {key.id} has not signed this log; do not report, and ask both"
                )
            seen.verify(key)
            size = min(size, seen.size)
        return log.model_copy(update={"leaves": log.leaves[:size]})

    def pin_log(self, head: LogHead) -> None:
        """Remember a head that passed its checks, unless a later one is known."""
        with self._change() as known:
            if known.log is None or known.log.size < head.size:
                known.log = head

    def forget_log(self) -> None:
        """Forget the log, and with it which statements were the latest."""
        with self._change() as known:
            known.log = None
            for name, seen in known.statements.items():
                known.statements[name] = replace(seen, number=None)

    def check_version(self, stated: Statement, accept_update: bool) -> None:
        """Refuse another table than the pinned one unless it is accepted, and always another
        file under a name and version that were seen before."""
        known = self.known()
        offered = stated.table
        label = _label(stated)
        if offered is None:
            return
        if known.files.get(label, stated.table_identity) != stated.table_identity:
            raise SignatureError(
                f"table {label} is another table than before; versions never change, so the "
                "operator shows different tables: do not report"
            )
        pinned = known.statements.get(stated.name)
        if pinned is None or accept_update:
            return
        before = pinned.stated.table or offered
        if before != offered:
            fell = before.name == offered.name and before.version > offered.version
            older = ", an older one" if fell else ""
            raise ProtocolError(
                f"deployment {stated.name} now uses table {label}{older}, and "
                f"{before.name} version {before.version} is pinned; look at what it costs and "
                "accept it (accept_update=True, `panda-mdp client fetch --accept-update`)"
            )

    def check_statement(self, stated: Statement, number: int) -> None:
        """Refuse a statement that is older than one seen before, or another one of its version.
        `number` is its place in the log."""
        seen = self.known().statements.get(stated.name)
        if seen is None or seen.number is None:
            return
        before = seen.stated
        older = (stated.version, stated.issued) < (before.version, before.issued)
        if older or number < seen.number:
            raise SignatureError(
                f"the server shows version {stated.version} of deployment {stated.name}, which is "
                f"older than version {before.version}, seen before: operators do not go back, "
                "so somebody shows you a past state; do not report"
            )
        if stated.version == before.version and stated.content != before.content:
            raise SignatureError(
                f"the operator signed two different statements about version {stated.version} of "
                f"deployment {stated.name}; do not report"
            )

    def accept(self, stated: Statement, number: int) -> None:
        """Remember a statement, which passed all checks, and its table."""
        with self._change() as known:
            known.statements[stated.name] = Seen(stated, number)
            if stated.table_identity is not None:
                known.files[_label(stated)] = stated.table_identity

    def known(self) -> Known:
        """What is known of the server."""
        return self._read().get(self._origin, Known())

    @contextmanager
    def _change(self) -> Iterator[Known]:
        """What is known of the server, written when it was changed."""
        with file_lock(self._lock):
            everything = self._read()
            yield everything.setdefault(self._origin, Known())
            write_whole(self._path, _SERVERS.dump_json(everything, indent=1))

    def _read(self) -> dict[str, Known]:
        if not self._path.exists():
            return {}
        try:
            return _SERVERS.validate_json(self._path.read_bytes())
        except ValidationError:
            raise ProtocolError(
                f"{self._path}: the pinned keys cannot be read; restore the file, or delete it and "
                "compare the keys with the operators again"
            ) from None


def _label(stated: Statement) -> str:
    """What names a table's file for ever."""
    return "none" if stated.table is None else f"{stated.table.name} version {stated.table.version}"


def read_statement(info: AnyDeployment, key: Keyring) -> Statement:
    """The statement about a deployment; raises unless it is signed and says what `info` says."""
    info.verify(key)
    try:
        stated = Statement.model_validate_json(info.statement)
    except ValidationError:
        raise SignatureError(
            f"what the operator signed about deployment {info.name} is no statement"
        ) from None
    said = {"kind": info.kind, **info.stated()}
    differing = [name for name, value in said.items() if getattr(stated, name) != value]
    if differing:
        raise SignatureError(
            f"the server says other things about deployment {info.name} than its operator signed "
            f"({', '.join(differing)}); do not report, and tell the operator"
        )
    return stated


def check_domain(stated: Statement, domain: Domain) -> None:
    """Raise unless a domain is the one that the statement is about."""
    derived = (domain.fingerprint, domain.metric.kind, domain.unit)
    if derived != (stated.domain, stated.metric, stated.unit):
        raise SignatureError(
            f"the records of deployment {stated.name} are not those that its operator signed"
        )


def check_heads(text: str, log: Log, keys: Keyring) -> int:
    """How many heads, one a line, are of this log; `SignatureError` where one is of another.

    A server that shows two people two logs can keep that up only as long as they never compare: a
    head that one of them was shown is not a beginning of the other's log, and both are signed.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    for line in lines:
        try:
            head = LogHead.model_validate_json(line)
        except ValidationError:
            raise FileFormatError(
                "a line is not a head; `panda-mdp client heads` prints one"
            ) from None
        head.verify(keys)
        _check_continues(
            log,
            head,
            f"somebody was shown a log of {head.size} entries and you one of {log.head.size}: "
            "compare again in a minute; if it stays so, you are shown a past state",
            f"somebody was shown another log of {head.size} entries than you: the operator shows "
            "different things to different people. Both heads are signed; keep them as proof, and "
            "do not report",
        )
    return len(lines)


def _check_continues(log: Log, head: LogHead, shorter: str, another: str) -> None:
    """Refuse, by these words, a log that is shorter than a head says, or another one."""
    if not log.continues(head):
        raise SignatureError(shorter if log.head.size < head.size else another)
