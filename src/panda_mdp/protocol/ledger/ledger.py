"""A user's ledger: the books, sealed with a key that stays on the device.

- One writer: looking up, drawing and charging are one exclusive transaction, across processes.
- A missing or damaged ledger is not an empty one: it is refused, and starting over counts the
  running period as spent.

The books are one file, sealed as a whole with the key beside it and replaced as a whole. Keys are
derived from 32 random bytes in a file of mode 0600: memos are keyed hashes under one, and the books
are encrypted with another. Without that file a ledger shows how many entries it has, by its length;
with it, whoever has both can try all records of a domain and finds those that were used in the
running period. So the key file is as secret as the record: it stays on the device, and backups keep
the two files apart. The memos of ended periods are deleted.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from filelock import FileLock, Timeout
from pydantic import TypeAdapter

from panda_mdp.base.atomic import FilePath, read_private, sync_folder, write_private
from panda_mdp.base.text import Facts
from panda_mdp.errors import FileFormatError, LedgerError
from panda_mdp.protocol.ledger.books import (
    DAY_S,
    Allowance,
    Balance,
    Books,
)

LEDGER = "ledger.sealed"
KEY = "ledger.key"
LOCK = "ledger.lock"
COUNT = "ledger.count"
NEW_KEY = "ledger.key.new"
"""The key while a ledger is made: where it is found, that was never finished."""
KEY_BYTES = 32
NONCE_BYTES = 12
REMEDY = (
    "restore the ledger and its key from a backup, or start over with Ledger.start_over or "
    "`panda-mdp client init --start-over`, which counts the running period as spent"
)
_BOOKS = TypeAdapter(Books)


class Vault:
    """Hashes and encrypts under a ledger's key."""

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

    def secret(self, context: Facts) -> bytes:
        """32 bytes of a context that nobody else can compute: HMAC-SHA-256."""
        words = json.dumps(context, sort_keys=True).encode()
        return hmac.digest(self._memo, words, hashlib.sha256)

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


class Ledger:
    """The books of one user in one folder. Any number of processes may use them at once."""

    def __init__(self, folder: Path, clock: Callable[[], float], busy_s: float = 30.0) -> None:
        self.folder = folder
        self._clock = clock
        self._busy_s = busy_s

    @classmethod
    def open(
        cls,
        folder: FilePath,
        allowance: Allowance | None = None,
        *,
        clock: Callable[[], float] = time.time,
        busy_s: float = 30.0,
    ) -> Ledger:
        """Open the ledger of a folder; with an allowance, make it where there is none.

        `busy_s` is how long another process may hold it. Raises `LedgerError` where ledger or key
        are missing or damaged, or where the allowance is not the one that the ledger keeps
        (`change_allowance` changes it).
        """
        ledger = cls(Path(folder), clock, busy_s)
        place = ledger.folder
        if allowance is not None and not (place / KEY).exists():
            place.mkdir(parents=True, exist_ok=True, mode=0o700)
            with file_lock(place / LOCK, busy_s):
                if not (place / LEDGER).exists() or (place / NEW_KEY).exists():
                    ledger._create(Books(allowance))
        if not (place / LEDGER).exists() and not (place / KEY).exists():
            raise LedgerError(
                f"{place}: there is no ledger; give an Allowance, or `panda-mdp client init`"
            )
        if allowance not in (None, ledger.allowance):
            raise LedgerError(
                f"{place}: the ledger keeps other limits than the ones given; open it without, or "
                "change them with change_allowance"
            )
        return ledger

    @classmethod
    def start_over(
        cls,
        folder: FilePath,
        allowance: Allowance,
        *,
        clock: Callable[[], float] = time.time,
    ) -> Ledger:
        """Throw the ledger and its key away and begin another, in the next period.

        What was spent in the running period is unknown from now on, so nothing more is allowed in
        it. Reports that were not accepted yet are given up.
        """
        ledger = cls(Path(folder), clock)
        ledger.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        try:
            before = ledger.allowance.period_s
        except LedgerError:
            before = DAY_S
        # A shorter period would begin anew while the old one still runs.
        ends = (int(clock() // length + 1) * length for length in (before, allowance.period_s))
        with file_lock(ledger.folder / LOCK):
            ledger._create(Books(allowance, blocked_until=max(ends)))
        return ledger

    @property
    def allowance(self) -> Allowance:
        """The limits, as they are now."""
        with self.books() as books:
            return books.allowance

    @contextmanager
    def books(self) -> Iterator[Books]:
        """One exclusive transaction: committed with a full fsync, or nothing of it happened."""
        with file_lock(self.folder / LOCK, self._busy_s):
            books, vault, before = self._read()
            books.begin(vault.secret, self._clock())
            yield books
            if hash(_BOOKS.dump_json(books)) != before:
                self._write(books, vault)

    def _read(self) -> tuple[Books, Vault, int]:
        """What is kept, and a hash of it: no frame of an error holds what was decrypted."""
        path, key, counted = (self.folder / name for name in (LEDGER, KEY, COUNT))
        for needed, what in ((path, "ledger"), (key, "ledger's key"), (counted, "ledger's count")):
            if not needed.exists():
                raise LedgerError(
                    f"{needed}: the {what} is missing, so what was spent is unknown; {REMEDY}"
                )
        vault = Vault.load(key)
        seen = int(vault.unlock(counted, COUNT))
        books = _BOOKS.validate_json(vault.unlock(path, LEDGER))
        if books.count < seen:
            raise LedgerError(
                f"{path}: it has {books.count} entries and {seen} were charged: an older copy was "
                f"put back; {REMEDY}"
            )
        return books, vault, hash(_BOOKS.dump_json(books))

    def _write(self, books: Books, vault: Vault) -> None:
        try:
            _replace(self.folder / LEDGER, vault.lock(_BOOKS.dump_json(books), LEDGER))
            # Afterwards: a crash in between leaves it too low, which refuses nothing.
            _replace(self.folder / COUNT, vault.lock(str(books.count).encode(), COUNT))
        except OSError as error:
            raise LedgerError(
                f"{self.folder}: the ledger could not be written ({error.strerror}); nothing was "
                "sent. Make room on the disk or repair its permissions, and try again"
            ) from None

    def _create(self, books: Books) -> None:
        """A new ledger in place of whatever is there; its key gets its name at the end, so that
        one that was not finished is not taken for the old one either."""
        secret = secrets.token_bytes(KEY_BYTES)
        _replace(self.folder / NEW_KEY, secret)
        self._write(books, Vault(secret))
        (self.folder / NEW_KEY).replace(self.folder / KEY)
        sync_folder(self.folder)

    def balances(self) -> list[Balance]:
        """Every account: the running period, and all of them together."""
        with self.books() as books:
            return books.balances()

    def forget(self) -> int:
        """Erase all memos and all that was drawn; the charges stay. Returns how many entries.

        A record that was answered before is drawn for and charged again. Reports that were not
        accepted are given up.
        """
        with self.books() as books:
            return books.forget()

    def change_allowance(self, allowance: Allowance) -> None:
        """Other limits from now on. The period's length and the rule for repeats stay."""
        with self.books() as books:
            changed = [
                name
                for name in ("period_s", "unit", "repeats")
                if getattr(allowance, name) != getattr(books.allowance, name)
            ]
            if changed:
                raise LedgerError(
                    f"{', '.join(changed)} cannot be changed in a ledger that is in use; start "
                    "over (Ledger.start_over) in the next period"
                )
            books.allowance = allowance


def _replace(path: Path, data: bytes) -> None:
    """Put a file of mode 0600 in the place of one that is overwritten before it is let go."""
    fresh = path.with_name(f"{path.name}.part")
    fresh.unlink(missing_ok=True)
    write_private(fresh, data)
    if path.exists() and os.name == "posix":
        with path.open("r+b") as old:
            fresh.replace(path)
            old.write(bytes(os.fstat(old.fileno()).st_size))
            os.fsync(old.fileno())
    else:
        fresh.replace(path)
    sync_folder(path.parent)
