"""Which keys sign for an operator: a key that stays offline certifies short-lived ones of servers.

    panda-mdp key 1\\n{public key}\\n{from}\\n{until}\\n      signed by the operator's key
    panda-mdp successor 1\\n{the successor's public key}\\n  signed by the key that it follows

Clients pin the operator's key. What servers sign is checked against all keys that it certifies now,
so that an old and a new one overlap. A pinned key that has a successor is followed there. Where an
operator has no offline key, the server's own key is the operator's.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from pydantic import Field, ValidationError

from panda_mdp.base.atomic import atomic_file
from panda_mdp.errors import FileFormatError, SignatureError
from panda_mdp.protocol.messages.signing import SigningKey, VerifyKey, joined
from panda_mdp.protocol.messages.types import Base64, Count, Message

MOST_DAYS = 400


class Certificate(Message):
    """The operator's word for a server's key. Times are seconds since 1970."""

    public: Base64
    since: Count
    until: Count
    signature: Base64

    @property
    def signed(self) -> bytes:
        """What the operator's key signs."""
        return joined(("panda-mdp key 1", self.public, str(self.since), str(self.until)))


class Succession(Message):
    """An operator's key and the one that takes its place, signed by the former."""

    old: Base64
    new: Base64
    signature: Base64

    @property
    def signed(self) -> bytes:
        """What the old key signs."""
        return joined(("panda-mdp successor 1", self.new))


class KeySheet(Message):
    """What an operator publishes about keys; a file beside the server's key."""

    operator: Base64
    certificates: list[Certificate] = Field(default_factory=list, max_length=100)
    successions: list[Succession] = Field(default_factory=list, max_length=100)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> KeySheet:
        """Read a sheet."""
        try:
            return cls.model_validate_json(Path(path).read_bytes())
        except ValidationError:
            msg = f"{path}: not a sheet of keys; `panda-mdp signing certify` writes one"
            raise FileFormatError(msg) from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a sheet; nothing in it is secret."""
        with atomic_file(Path(path)) as stream:
            stream.write(json.dumps(self.model_dump(mode="json"), indent=1).encode())


class Keyring:
    """The operator's key and the keys that sign for it now."""

    def __init__(self, operator: VerifyKey, keys: Sequence[VerifyKey]) -> None:
        self.operator = operator
        self.keys = tuple(keys)

    @classmethod
    def of(
        cls, operator: VerifyKey, certificates: Sequence[Certificate], now: float | None = None
    ) -> Keyring:
        """The operator's own key, and those of certificates that are valid now; raises where one
        is not the operator's."""
        at = time.time() if now is None else now
        keys = [operator]
        for certificate in certificates:
            operator.verify(certificate.signed, certificate.signature)
            if certificate.since <= at < certificate.until:
                keys.append(VerifyKey.from_base64(certificate.public))
        return cls(operator, keys)

    @property
    def id(self) -> str:
        """The id of the operator's key."""
        return self.operator.id

    def verify(self, data: bytes, signature: str) -> None:
        """Raise `SignatureError` unless one of the keys signed `data`."""
        for key in self.keys[:-1]:
            try:
                key.verify(data, signature)
            except SignatureError:
                continue
            return
        self.keys[-1].verify(data, signature)

    def __repr__(self) -> str:
        return f"Keyring({self.id}, {len(self.keys)} keys)"


def certify(
    operator: SigningKey, public: str, days: float, now: float | None = None
) -> Certificate:
    """The operator's word for a server's key, for some days."""
    since = int(time.time() if now is None else now)
    VerifyKey.from_base64(public)
    bare = Certificate(
        public=public, since=since, until=since + int(86_400 * days), signature="AAAA"
    )
    return bare.model_copy(update={"signature": operator.sign(bare.signed)})


def succeed(old: SigningKey, new: str) -> Succession:
    """The word of an operator's key for the one that takes its place."""
    VerifyKey.from_base64(new)
    bare = Succession(old=old.public.base64, new=new, signature="AAAA")
    return bare.model_copy(update={"signature": old.sign(bare.signed)})


def follow(pinned: VerifyKey, successions: Sequence[Succession]) -> VerifyKey:
    """The key that a pinned one leads to, each step signed by the one before."""
    at = pinned
    for _ in successions:
        following = next((step for step in successions if step.old == at.base64), None)
        if following is None:
            break
        at.verify(following.signed, following.signature)
        at = VerifyKey.from_base64(following.new)
    return at
