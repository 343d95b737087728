"""The secret of a ledger: memos are keyed hashes under it, and what was drawn is encrypted with it.

Both keys are derived from 32 random bytes in a file of mode 0600. Without that file a ledger shows
when something was charged, to which deployment and what it cost, and how often the record changed
within a period; with it, whoever has both can try all records of a domain and finds those that were
used. So the key file is as secret as the record: it stays on the device, and backups keep the two
files apart. The memos of ended periods are deleted.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from pathlib import Path
from typing import Any, NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from panda_mdp.errors import FileFormatError, LedgerError
from panda_mdp.protocol.messages.signing import canonical_json, read_private

KEY_BYTES = 32
NONCE_BYTES = 12
OVERHEAD_BYTES = NONCE_BYTES + 16
"""What nonce and tag add to the length of a box."""


class Vault:
    """Hashes and encrypts under a ledger's key. Its repr shows nothing.

    >>> vault = Vault(bytes(32))
    >>> box = vault.lock(b"7", "entry 1", size=64)
    >>> vault.unlock(box, "entry 1"), len(box) == len(vault.lock(b"77", "entry 2", size=64))
    (b'7', True)
    """

    def __init__(self, key: bytes) -> None:
        self._memo = _derived(key, b"memo")
        self._tally = _derived(key, b"tally")
        self._cipher = AESGCM(_derived(key, b"box"))
        self.check = _derived(key, b"sealed").hex()
        """A public word that tells whether a ledger and a key belong together, and that the number
        of its entries is sealed."""
        self.unsealed = _derived(key, b"check").hex()
        """The word of ledgers from before. Whoever lacks the key cannot make one of the other."""

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

    def lock(self, plain: bytes, about: str, size: int) -> bytes:
        """Encrypt, padded to `size` bytes so that the length tells nothing; bound to `about`."""
        if len(plain) > size:
            msg = f"an entry of {len(plain)} bytes does not fit into {size}; the plan is too small"
            raise LedgerError(msg)
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._cipher.encrypt(nonce, plain.ljust(size), about.encode())

    def unlock(self, box: bytes, about: str) -> bytes:
        """Decrypt, without the padding; raise `LedgerError` where box or entry were changed."""
        try:
            plain = self._cipher.decrypt(box[:NONCE_BYTES], box[NONCE_BYTES:], about.encode())
        except (InvalidTag, ValueError):
            msg = "an entry of the ledger does not match its seal; the ledger is damaged"
            raise LedgerError(msg) from None
        return plain.rstrip(b" ")

    def __repr__(self) -> str:
        return "Vault(<hidden>)"

    def __reduce_ex__(self, _: Any) -> NoReturn:
        msg = "a ledger's key is not pickled"
        raise TypeError(msg)


def _derived(key: bytes, purpose: bytes) -> bytes:
    return hmac.new(key, b"panda-mdp ledger 1 " + purpose, hashlib.sha256).digest()
