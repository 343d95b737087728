"""The secret behind draws that repeat: made, kept in a file of its own, destroyed.

    u(person, period, record) = first 62 bits of ChaCha20(draw key, nonce, counter = record)
    nonce(person, period)     = 96 bits of BLAKE2b(tag key, person, period)

Both keys are derived from the secret for one table by BLAKE2b, so that another table draws
independently. To whoever lacks the key, u is uniform and independent for every (person, period,
record), as far as these functions are pseudo-random; to whoever has it, reports are no secret.
"""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from panda_mdp.base.atomic import FilePath, read_private, write_private
from panda_mdp.errors import FileFormatError, InvalidInputError

HEAD = b"panda-mdp key for repeated draws, version 1\n"
KEY_BYTES = 32
Words = npt.NDArray[np.uint32]


class DrawKey:
    """A secret of 32 bytes from the operating system's generator. Its repr shows none of it.

    >>> DrawKey.fresh()
    DrawKey(<hidden>)
    """

    def __init__(self, secret: bytes) -> None:
        if len(secret) != KEY_BYTES:
            raise InvalidInputError(f"a key has {KEY_BYTES} bytes; DrawKey.make(path) makes one")
        self._secret = bytes(secret)

    def __repr__(self) -> str:
        return "DrawKey(<hidden>)"

    @classmethod
    def fresh(cls) -> DrawKey:
        """A key that lives only in this process: reports repeat within it and never again."""
        return cls(secrets.token_bytes(KEY_BYTES))

    @classmethod
    def make(cls, path: FilePath) -> DrawKey:
        """A new key, written to a file that only its owner reads; an existing file is refused."""
        key = cls.fresh()
        write_private(Path(path), HEAD + key._secret.hex().encode() + b"\n")
        return key

    @classmethod
    def load(cls, path: FilePath) -> DrawKey:
        """The key of a file that `make` wrote. Others must not be able to read it."""
        source = Path(path)
        content = read_private(source, "key for repeated draws")
        digits = content.removeprefix(HEAD).strip()
        if not content.startswith(HEAD) or len(digits) != 2 * KEY_BYTES:
            raise FileFormatError(
                f"{source.name} is no key for repeated draws; DrawKey.make(path) makes one"
            )
        try:
            return cls(bytes.fromhex(digits.decode("ascii")))
        except ValueError:
            pass
        raise FileFormatError(f"{source.name} is a damaged key")

    @staticmethod
    def destroy(path: FilePath) -> None:
        """Overwrite and remove a key's file: from then on no report can be drawn again.

        Copies, backups and what a drive keeps of overwritten blocks are beyond this.
        """
        DrawKey.load(path)
        with Path(path).open("r+b") as stream:
            stream.write(HEAD + secrets.token_hex(KEY_BYTES).encode())
            stream.flush()
            os.fsync(stream.fileno())
        Path(path).unlink()

    def draw_key(self, table: bytes) -> Words:
        """The key of ChaCha20 for one table, as 8 words."""
        return np.frombuffer(self._derived(table, b"panda draw"), dtype="<u4").astype(np.uint32)

    def nonces(self, table: bytes, pairs: Iterable[tuple[Any, Any]]) -> Words:
        """Three words for each pair of a person and a period."""
        tag_key = self._derived(table, b"panda tag")
        tags = [
            hashlib.blake2b(_framed(person) + _framed(period), key=tag_key, digest_size=12).digest()
            for person, period in pairs
        ]
        return np.frombuffer(b"".join(tags), dtype="<u4").astype(np.uint32).reshape(-1, 3)

    def _derived(self, table: bytes, purpose: bytes) -> bytes:
        made = hashlib.blake2b(table, key=self._secret, digest_size=KEY_BYTES, person=purpose)
        return made.digest()


def _framed(value: Any) -> bytes:
    """A value's text behind its length, so that no two pairs of values read alike.

    A whole number that a frame turned into a float, beside missing values, stays the same person.
    """
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    text = str(value).encode()
    return len(text).to_bytes(8, "little") + text
