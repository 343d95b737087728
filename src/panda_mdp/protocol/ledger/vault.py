"""What a ledger keeps of a release: what was drawn, encrypted by a key that stays on the device.

Keys are derived from 32 random bytes in a file of mode 0600: memos are keyed hashes under one, and
the ledger is encrypted with another. Without that file a ledger shows how many entries it has, by
its length; with it, whoever has both can try all records of a domain and finds those that were used
in the running period. So the key file is as secret as the record: it stays on the device, and
backups keep the two files apart. The memos of ended periods are deleted.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NoReturn, Self, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from filelock import FileLock, Timeout
from pydantic import TypeAdapter

from panda_mdp.base.atomic import read_private
from panda_mdp.base.text import Facts
from panda_mdp.errors import FileFormatError, LedgerError
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.protocol.messages.blind import OneUse
from panda_mdp.protocol.messages.signing import canonical_json
from panda_mdp.protocol.messages.types import ClientId, Index, Indices, Message, Sha256, Version

KEY_BYTES = 32
NONCE_BYTES = 12
REMEDY = (
    "restore the ledger and its key from a backup, or start over with Ledger.start_over or "
    "`panda-mdp client forget --start-over`, which counts the running period as spent"
)


class Drawn(Message):
    """A report from a whole table; the others begin with less and end as one."""

    report: ClientId
    """The id of the report, made with the draw, so that sending it again is safe."""
    version: Version
    table: Sha256 | None = None
    """The table's SHA-256; None for rounds of anchors."""
    output: Index | None = None
    """None until it is drawn."""
    proof: OneUse | None = None
    """Sent in place of the token, where tokens are used once."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<hidden>)"

    __str__ = __repr__

    def but(self, **changes: Any) -> Self:
        """The same with other fields."""
        return self.model_copy(update=changes)


class BallDrawn(Drawn):
    """A centre, whose ball is asked for."""

    centre: tuple[int, int]
    epsilon_1: float
    """What the centre tells."""


class AnchorsDrawn(Drawn):
    """An anchor set, and the round that it was aimed at."""

    anchors: Indices
    round: Version | None = None


_ANY_DRAWN: TypeAdapter[AnchorsDrawn | BallDrawn | Drawn] = TypeAdapter(
    AnchorsDrawn | BallDrawn | Drawn
)


State = Literal["charged", "accepted", "given_up"]
D = TypeVar("D", bound=Drawn)


@dataclass(frozen=True)
class Charge:
    """What a release costs, and whose account pays for what."""

    account: str
    server: str
    deployment: str
    cost: Guarantee
    accept_no_guarantee: bool = False
    """Charge also what nothing bounds, which spends all that is left of the period."""
    quota: int | None = None
    """Reports that the deployment takes in `quota_s` seconds; no more are drawn."""
    quota_s: int = 86_400

    @property
    def purse(self) -> str:
        """What quotas are kept by."""
        return f"{self.server} {self.deployment}"


@dataclass(frozen=True)
class Entry:
    """One charge; its repr shows the cost only."""

    id: str
    period: int
    at: int
    charge: Charge
    state: State
    memo: str | None = None
    """A keyed hash of the record, while the period lasts."""
    box: str | None = None
    """What was drawn and must be sent, with blanks: all of a deployment are as long."""

    @property
    def cost(self) -> Guarantee:
        """What was charged."""
        return self.charge.cost

    @property
    def content(self) -> Drawn | None:
        """What was drawn and must be sent."""
        return None if self.box is None else _ANY_DRAWN.validate_json(self.box)

    def drawn(self, kind: type[D]) -> D:
        """What was drawn, of the kind that a deployment draws."""
        content = self.content
        if not isinstance(content, kind):
            raise LedgerError(
                "what this entry released was erased from the ledger, or is of another kind of "
                "deployment; it cannot be sent again"
            )
        return content

    @property
    def output(self) -> int:
        """What is reported, once it is drawn."""
        output = self.drawn(Drawn).output
        if output is None:
            raise LedgerError("an entry of the ledger has no output yet; report again")
        return output

    def __repr__(self) -> str:
        return f"Entry({self.charge.deployment}, period {self.period}, {self.state}, {self.cost})"


class Vault:
    """Hashes and encrypts under a ledger's key. Its repr shows nothing."""

    def __init__(self, key: bytes) -> None:
        self._memo = _derived(key, b"memo")
        self._cipher = AESGCM(_derived(key, b"box"))

    @classmethod
    def load(cls, path: Path) -> Vault:
        """The key of a file that nobody else may read."""
        try:
            key = read_private(path, "ledger's key")
        except FileFormatError as error:
            raise LedgerError(str(error)) from None
        if len(key) != KEY_BYTES:
            raise LedgerError(
                f"{path}: the ledger's key has {len(key)} bytes and not {KEY_BYTES}; restore it"
            )
        return cls(key)

    def memo(self, index: int, context: Facts) -> str:
        """A keyed hash of a record in its context (deployment, period): HMAC-SHA-256.

        The period is part of it, so that memos of two periods cannot be told to be of one record.
        """
        return self.secret({**context, "record": index}).hex()

    def secret(self, context: Facts) -> bytes:
        """32 bytes of a context that nobody else can compute."""
        return hmac.digest(self._memo, canonical_json(context), hashlib.sha256)

    def lock(self, text: bytes, name: str) -> bytes:
        """The text encrypted; bound to the name of its file."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, text, name.encode())

    def unlock(self, path: Path, name: str) -> bytes:
        """What was locked in a file; `LedgerError` where another key did, or it was changed."""
        box = path.read_bytes()
        try:
            return self._cipher.decrypt(box[:NONCE_BYTES], box[NONCE_BYTES:], name.encode())
        except (InvalidTag, ValueError):
            raise LedgerError(
                f"{path}: it is damaged, or the key beside it is not this ledger's; {REMEDY}"
            ) from None

    def __repr__(self) -> str:
        return "Vault(<hidden>)"

    def __reduce_ex__(self, _: Any) -> NoReturn:
        raise TypeError("a ledger's key is not pickled")


def _derived(key: bytes, purpose: bytes) -> bytes:
    return hmac.new(key, b"panda-mdp ledger 1 " + purpose, hashlib.sha256).digest()


@contextmanager
def file_lock(path: Path, timeout_s: float = 30.0) -> Iterator[None]:
    """Hold an exclusive lock on a file beside the data, which the operating system releases when
    its holder dies; raise after `timeout_s` seconds."""
    try:
        with FileLock(path, timeout=timeout_s, mode=0o600).acquire(poll_interval=0.02):
            yield
    except Timeout:
        raise LedgerError(
            f"{path}: another process has held this lock for {timeout_s:g} s; wait for it to end, "
            "and do not delete the file while it runs"
        ) from None
