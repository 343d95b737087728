"""What a ledger keeps of a release: what was drawn, encrypted by a key that stays on the device.

Keys are derived from 32 random bytes in a file of mode 0600: memos are keyed hashes under one, and
what was drawn is encrypted with another. Without that file a ledger shows when something was
charged, to which deployment and what it cost, and how often the record changed within a period;
with it, whoever has both can try all records of a domain and finds those that were used. So the key
file is as secret as the record: it stays on the device, and backups keep the two files apart. The
memos of ended periods are deleted.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, Self, TypeVar

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from filelock import FileLock, Timeout
from pydantic import Field, TypeAdapter, ValidationError

from panda_mdp.base.atomic import read_private
from panda_mdp.errors import FileFormatError, LedgerError
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.protocol.messages.signing import canonical_json
from panda_mdp.protocol.messages.types import ClientId, Index, Message, Sha256, Version

KEY_BYTES = 32
NONCE_BYTES = 12
OVERHEAD_BYTES = NONCE_BYTES + 16
"""What nonce and tag add to the length of a box."""


class Drawn(Message):
    """A report from a whole table; the others begin with less and end as one."""

    report: ClientId
    """The id of the report, made with the draw, so that sending it again is safe."""
    version: Version
    table: Sha256 | None = None
    """The table's SHA-256; None for rounds of anchors."""
    output: Index | None = None
    """None until it is drawn."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(<hidden>)"

    __str__ = __repr__

    def but(self, **changes: Any) -> Self:
        """The same with other fields."""
        return self.model_copy(update=changes)


class BallDrawn(Drawn):
    """A centre, whose ball is asked for under an id of its own."""

    ball: ClientId
    centre: Index


class AnchorsDrawn(Drawn):
    """An anchor set, the round that it was aimed at, and whether it is known to have arrived."""

    anchors: Annotated[str, Field(pattern=r"^([0-9a-f]{2})*$")]
    upload: ClientId | None = None
    round: Version | None = None
    uploaded: bool = False


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


@dataclass(frozen=True)
class Entry:
    """One charge. `content` is what was drawn and must be sent; its repr shows the cost only."""

    id: str
    period: int
    at: int
    charge: Charge
    state: State
    content: Drawn | None

    @property
    def cost(self) -> Guarantee:
        """What was charged."""
        return self.charge.cost

    @property
    def facts(self) -> tuple[str | int | float, ...]:
        """What is in clear: the columns of an entry from `id` to `unit`."""
        paid, cost = self.charge, self.charge.cost
        where = (paid.account, paid.server, paid.deployment)
        return self.id, self.period, self.at, *where, cost.epsilon, cost.delta, cost.unit

    @property
    def label(self) -> str:
        """What a box is bound to: nobody can move it to an entry that cost less."""
        return canonical_json([repr(fact) for fact in self.facts]).decode()

    def drawn(self, kind: type[D]) -> D:
        """What was drawn, of the kind that a deployment draws."""
        if self.content is None:
            msg = "what this entry released was erased from the ledger; it cannot be sent again"
            raise LedgerError(msg)
        if not isinstance(self.content, kind):
            msg = "an entry of the ledger was drawn for another kind of deployment"
            raise LedgerError(msg)
        return self.content

    @property
    def output(self) -> int:
        """What is reported, once it is drawn."""
        output = self.drawn(Drawn).output
        if output is None:
            msg = "an entry of the ledger has no output yet; report again"
            raise LedgerError(msg)
        return output

    def __repr__(self) -> str:
        return f"Entry({self.charge.deployment}, period {self.period}, {self.state}, {self.cost})"


class Vault:
    """Hashes and encrypts under a ledger's key. Its repr shows nothing.

    >>> vault = Vault(bytes(32))
    >>> drawn = Drawn(report="3f2b8c1e-9d4a-4c6b-8e2f-0a1b2c3d4e5f", version=1, output=7)
    >>> box = vault.lock(drawn, "entry 1", size=256)
    >>> vault.unlock(box, "entry 1") == drawn
    True
    """

    def __init__(self, key: bytes) -> None:
        self._memo = _derived(key, b"memo")
        self._tally = _derived(key, b"tally")
        self._cipher = AESGCM(_derived(key, b"box"))
        self.check = _derived(key, b"check").hex()
        """A public word that tells whether a ledger and a key belong together."""

    @classmethod
    def load(cls, path: Path) -> Vault:
        """The key of a file that nobody else may read."""
        try:
            key = read_private(path, "ledger's key")
        except FileFormatError as error:
            raise LedgerError(str(error)) from None
        if len(key) != KEY_BYTES:
            msg = f"{path}: the ledger's key has {len(key)} bytes and not {KEY_BYTES}; restore it"
            raise LedgerError(msg)
        return cls(key)

    def memo(self, index: int, context: dict[str, Any]) -> bytes:
        """A keyed hash of a record in its context (deployment, period): HMAC-SHA-256.

        The period is part of it, so that memos of two periods cannot be told to be of one record.
        """
        message = canonical_json({**context, "record": index})
        return hmac.new(self._memo, message, hashlib.sha256).digest()

    def tally(self, count: int, last: int) -> str:
        """A seal over how many entries there are and which is the last: none goes unnoticed."""
        text = f"{count} {last}"
        seal = hmac.new(self._tally, text.encode(), hashlib.sha256).hexdigest()
        return f"{text} {seal}"

    def lock(self, drawn: Drawn, about: str, size: int) -> bytes:
        """Encrypt, padded to `size` bytes so that the length tells nothing; bound to `about`."""
        plain = drawn.model_dump_json().encode()
        if len(plain) > size:
            msg = f"an entry of {len(plain)} bytes does not fit into {size}; the plan is too small"
            raise LedgerError(msg)
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, plain.ljust(size), about.encode())

    def unlock(self, box: bytes, about: str) -> Drawn:
        """Decrypt; raise `LedgerError` where box or entry were changed."""
        try:
            plain = self._cipher.decrypt(box[:NONCE_BYTES], box[NONCE_BYTES:], about.encode())
            return _ANY_DRAWN.validate_json(plain)
        except (InvalidTag, ValidationError, ValueError):
            # Outside, so that no frame of the error holds what was decrypted.
            pass
        msg = "an entry of the ledger does not match its seal; the ledger is damaged"
        raise LedgerError(msg)

    def __repr__(self) -> str:
        return "Vault(<hidden>)"

    def __reduce_ex__(self, _: Any) -> NoReturn:
        msg = "a ledger's key is not pickled"
        raise TypeError(msg)


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
        msg = (
            f"{path}: another process has held this lock for {timeout_s:g} s; wait for it to end, "
            "and do not delete the file while it runs"
        )
        raise LedgerError(msg) from None
