"""Ed25519 signatures of the operator, over canonical bytes.

A checksum finds damage; a signature says who published. What is signed names the purpose, so that
a signature of one thing is never one of another:

    panda-mdp table 1\\n{name}\\n{version}\\n{sha256}\\n{size}\\n{domain}\\n{epsilon}\\n
    panda-mdp log 1\\n{size}\\n{root}\\n{time}\\n
    panda-mdp round 1\\n{deployment}\\n{round}\\n           an entry of the log
    panda-mdp removal 1\\n{deployment}\\n{number}\\n        another: something was removed, not what
    panda-mdp deployment 1\\n{name}\\n{sha256 of the statement's text}\\n
    panda-mdp rows 1\\n{deployment}\\n{round or version}\\n{sha256 of the canonical JSON}\\n

    panda-mdp witness 1\\n{size}\\n{root}\\n{time}\\n        signed by a witness of the log
    panda-mdp key 1\\n{public key}\\n{from}\\n{until}\\n      signed by the operator's key
    panda-mdp successor 1\\n{the successor's public key}\\n  signed by the key that it follows

Clients pin the operator's key, which may stay offline and certify short-lived ones of servers. What
servers sign is checked against all keys that it certifies now, so that an old and a new one
overlap. A pinned key that has a successor is followed there. Where an operator has no offline key,
the server's own key is the operator's.

A signature proves no privacy. Clients audit what they are given, whoever signed it.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from pydantic import Field, ValidationError

from panda_mdp.base.atomic import FilePath, read_private, write_private, write_whole
from panda_mdp.base.text import canonical
from panda_mdp.errors import FileFormatError, SignatureError
from panda_mdp.protocol.messages.types import Base64, Count, Message

Purpose = Literal[
    "table",
    "log",
    "round",
    "deployment",
    "rows",
    "key",
    "successor",
    "removal",
    "witness",
    "issuer",
    "report",
]


def signed_bytes(purpose: Purpose, *fields: str | float) -> bytes:
    """What is signed of a thing: lines of its purpose and its fields, each ended by a line feed.

    >>> signed_bytes("table", "rome", 1, "ab", 10, "cd", 5.0)
    b'panda-mdp table 1\\nrome\\n1\\nab\\n10\\ncd\\n5.0\\n'
    """
    lines = (f"panda-mdp {purpose} 1", *map(str, fields))
    for line in lines:
        # A line break inside a field would let one statement pass for another.
        if not line.isascii() or not line.isprintable():
            raise SignatureError("a signed field holds a character that is not printable ASCII")
    return "".join(f"{line}\n" for line in lines).encode()


def statement_bytes(name: str, text: str) -> bytes:
    """What is signed of a deployment: its name and the very text of its statement.

    >>> statement_bytes("rome", "{}")[:40]
    b'panda-mdp deployment 1\\nrome\\n44136fa355b3'
    """
    return signed_bytes("deployment", name, hashlib.sha256(text.encode()).hexdigest())


def digest_of(value: Any) -> str:
    """The SHA-256 of a value's canonical JSON."""
    return hashlib.sha256(canonical(value)).hexdigest()


def rows_digest(
    anchors: Sequence[int], outputs: Sequence[int], weights: Sequence[Sequence[str]]
) -> str:
    """The SHA-256 of the rows of a round's anchors, which is signed with deployment and round."""
    return digest_of({"anchors": anchors, "outputs": outputs, "weights": weights})


@dataclass(frozen=True, repr=False)
class VerifyKey:
    """The operator's public key.

    >>> key = SigningKey.generate()
    >>> key.public.verify(b"data", key.sign(b"data"))
    >>> VerifyKey.from_base64(key.public.base64) == key.public
    True
    """

    raw: bytes

    def __post_init__(self) -> None:
        if len(self.raw) != 32:
            raise SignatureError(f"an Ed25519 public key has 32 bytes; got {len(self.raw)}")

    @classmethod
    def from_base64(cls, text: str) -> VerifyKey:
        """The key of its base64 text, as GET /v1 shows it."""
        return cls(_decoded(text, "the public key"))

    @property
    def base64(self) -> str:
        """The key as base64 text."""
        return base64.b64encode(self.raw).decode("ascii")

    @property
    def id(self) -> str:
        """The first 16 hexadecimal digits of the key's SHA-256: a name, not a proof."""
        return hashlib.sha256(self.raw).hexdigest()[:16]

    def verify(self, data: bytes, signature: str) -> None:
        """Raise `SignatureError` unless `signature` (base64) is this key's over `data`."""
        key = Ed25519PublicKey.from_public_bytes(self.raw)
        try:
            key.verify(_decoded(signature, "the signature"), data)
        except InvalidSignature:
            raise SignatureError(
                f"the signature is not one of key {self.id} over this content; it was changed on "
                "the way, or another operator made it: fetch it again, and compare the key"
            ) from None

    def __repr__(self) -> str:
        return f"VerifyKey({self.id})"


class SigningKey:
    """The operator's private key."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        raw = key.public_key().public_bytes(
            serialization.Encoding.Raw, serialization.PublicFormat.Raw
        )
        self.public = VerifyKey(raw)

    @classmethod
    def generate(cls) -> SigningKey:
        """A new key from the operating system's generator."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load(cls, path: FilePath) -> SigningKey:
        """Read a key file (PEM, PKCS 8), which nobody but its owner may read."""
        data = read_private(Path(path), "key file")
        try:
            key = serialization.load_pem_private_key(data, password=None)
        except (ValueError, TypeError):
            key = None
        if not isinstance(key, Ed25519PrivateKey):
            raise FileFormatError(
                f"{path}: not an Ed25519 key in PEM form; SigningKey.create writes one"
            )
        return cls(key)

    @classmethod
    def create(cls, path: FilePath) -> SigningKey:
        """A new key in a new file with mode 0600. Refuses to replace a file."""
        made = cls.generate()
        data = made._key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        write_private(Path(path), data)
        return made

    def sign(self, data: bytes) -> str:
        """The signature over `data`, base64."""
        return base64.b64encode(self._key.sign(data)).decode("ascii")

    def signed(self, data: bytes, signature: str) -> bool:
        """Whether a signature over `data` is this key's."""
        try:
            self.public.verify(data, signature)
        except SignatureError:
            return False
        return True

    @property
    def id(self) -> str:
        """The id of the public key."""
        return self.public.id

    def __reduce__(self) -> str:
        raise TypeError("a private key is not pickled; load it from its file")


class Signed(Message):
    """A message that carries a signature over `signed`."""

    signature: Base64

    @property
    def signed(self) -> bytes:
        """What the signature is over."""
        raise NotImplementedError

    def verify(self, key: VerifyKey | Keyring) -> None:
        """Raise `SignatureError` unless the key, or one of the keys, signed this."""
        key.verify(self.signed, self.signature)

    @classmethod
    def by(cls, key: SigningKey, **facts: Any) -> Self:
        """These facts, signed by a key."""
        return cls(**facts, signature=key.sign(cls.model_construct(**facts).signed))


class Certificate(Signed):
    """The operator's word for a server's key. Times are seconds since 1970."""

    public: Base64
    since: Count
    until: Count

    @property
    def signed(self) -> bytes:
        """What the operator's key signs."""
        return signed_bytes("key", self.public, self.since, self.until)


class Succession(Signed):
    """An operator's key and the one that takes its place, signed by the former."""

    old: Base64
    new: Base64

    @property
    def signed(self) -> bytes:
        """What the old key signs."""
        return signed_bytes("successor", self.new)


class KeySheet(Message):
    """What an operator publishes about keys; a file beside the server's key."""

    operator: Base64
    certificates: list[Certificate] = Field(default_factory=list, max_length=100)
    successions: list[Succession] = Field(default_factory=list, max_length=100)

    @classmethod
    def load(cls, path: FilePath) -> KeySheet:
        """Read a sheet."""
        try:
            return cls.model_validate_json(Path(path).read_bytes())
        except ValidationError:
            raise FileFormatError(
                f"{path}: not a sheet of keys; `panda-mdp signing certify` writes one"
            ) from None

    def save(self, path: FilePath) -> None:
        """Write a sheet; nothing in it is secret."""
        write_whole(Path(path), self.model_dump_json(indent=1))


@dataclass(frozen=True, repr=False)
class Keyring:
    """The operator's key and the keys that sign for it now."""

    operator: VerifyKey
    keys: Sequence[VerifyKey]

    @classmethod
    def of(
        cls, operator: VerifyKey, certificates: Sequence[Certificate], now: float | None = None
    ) -> Keyring:
        """The operator's own key, and those of certificates that are valid now; raises where one
        is not the operator's."""
        at = time.time() if now is None else now
        keys = [operator]
        for certificate in certificates:
            certificate.verify(operator)
            if certificate.since <= at < certificate.until:
                keys.append(VerifyKey.from_base64(certificate.public))
        return cls(operator, keys)

    @property
    def id(self) -> str:
        """The id of the operator's key."""
        return self.operator.id

    def verify(self, data: bytes, signature: str) -> None:
        """Raise `SignatureError` unless one of the keys signed `data`."""
        *others, last = self.keys
        for key in others:
            with suppress(SignatureError):
                return key.verify(data, signature)
        return last.verify(data, signature)

    def __repr__(self) -> str:
        return f"Keyring({self.id}, {len(self.keys)} keys)"


def certify(
    operator: SigningKey, public: str, days: float, now: float | None = None
) -> Certificate:
    """The operator's word for a server's key, for some days."""
    since = int(time.time() if now is None else now)
    VerifyKey.from_base64(public)
    return Certificate.by(operator, public=public, since=since, until=since + int(86_400 * days))


def succeed(old: SigningKey, new: str) -> Succession:
    """The word of an operator's key for the one that takes its place."""
    VerifyKey.from_base64(new)
    return Succession.by(old, old=old.public.base64, new=new)


def follow(pinned: VerifyKey, successions: Sequence[Succession]) -> VerifyKey:
    """The key that a pinned one leads to, each step signed by the one before."""
    for _ in successions:
        for step in successions:
            if step.old == pinned.base64:
                step.verify(pinned)
                pinned = VerifyKey.from_base64(step.new)
                break
    return pinned


def _decoded(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise SignatureError(f"{what} is not base64; it was damaged on the way") from None
