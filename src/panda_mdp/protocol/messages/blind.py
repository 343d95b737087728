"""One-use tokens that are signed blindly, and their messages: a report with one names nobody.

RSABSSA-SHA384-PSS-Deterministic of RFC 9474. A client hides a message by a random factor, the
server signs what it cannot read, and the client takes the factor away: what is left is an RSA-PSS
signature that belongs to every request alike. The message has 122 random bits, so it needs no
further ones. A key that was made to tell requests apart signs nothing that `finish` accepts.
"""

from __future__ import annotations

import base64
import hashlib
import math
import secrets
import uuid
from dataclasses import dataclass
from typing import Annotated

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric import padding, rsa
from cryptography.hazmat.primitives.hashes import SHA384
from pydantic import Field

from panda_mdp.errors import ProtocolError, SignatureError
from panda_mdp.protocol.messages.signing import signed_bytes
from panda_mdp.protocol.messages.types import Count, Message

BITS = 2048
EXPONENT = 65_537
SALT_BYTES = HASH_BYTES = 48
MOST_ONE_USE = 100
"""Tokens of one person in a period."""
_PSS = padding.PSS(padding.MGF1(SHA384()), SALT_BYTES)

Block = Annotated[str, Field(pattern=r"^[A-Za-z0-9+/]{342}==$")]
"""A number of 2048 bits, base64."""
Blocks = Annotated[list[Block], Field(min_length=1, max_length=MOST_ONE_USE)]


class Issuer(Message):
    """GET /v1/deployments/{name}/issuer: the key of a period; the log has one for each."""

    period: Count
    modulus: Block


class IssueRequest(Message):
    """POST /v1/deployments/{name}/issue: hidden messages of the running period, all at once."""

    period: Count
    blinded: Blocks


class Issued(Message):
    """The signatures, in the order of the messages."""

    signatures: Blocks


class OneUse(Message):
    """What a report shows in place of a token: a signature over its id and its period."""

    period: Count
    signature: Block


def to_block(number: int) -> str:
    """A number as it travels."""
    return base64.b64encode(number.to_bytes(BITS // 8)).decode("ascii")


def from_block(block: str) -> int:
    """The number again."""
    return int.from_bytes(base64.b64decode(block))


def one_use_message(deployment: str, period: int, report: str) -> bytes:
    """What is signed: the id of one report of a deployment in a period."""
    return signed_bytes("report", deployment, period, report)


def encode_pss(message: bytes, salt: bytes, bits: int) -> int:
    """EMSA-PSS of RFC 8017 with SHA-384, as a number of so many bits."""
    digest = hashlib.sha384(bytes(8) + hashlib.sha384(message).digest() + salt).digest()
    length = -(-bits // 8) - HASH_BYTES - 1
    blocks = range(-(-length // HASH_BYTES))
    mask = b"".join(hashlib.sha384(digest + i.to_bytes(4)).digest() for i in blocks)
    padded = int.from_bytes(b"\x01" + salt) ^ int.from_bytes(mask[:length])
    encoded = int.from_bytes(padded.to_bytes(length) + digest + b"\xbc")
    return encoded & ((1 << bits) - 1)


def blind(message: bytes, salt: bytes, factor: int, modulus: int) -> int:
    """The message, hidden by a random factor."""
    encoded = encode_pss(message, salt, modulus.bit_length() - 1)
    if math.gcd(encoded * factor, modulus) != 1:
        raise SignatureError("the key of one-use tokens is none; do not report")
    return encoded * pow(factor, EXPONENT, modulus) % modulus


def finish(message: bytes, signature: int, factor: int, modulus: int) -> int:
    """The signature over the message, of the one over its hidden form; raises where it is none."""
    plain = signature * pow(factor, -1, modulus) % modulus
    if not is_signed(message, plain, modulus):
        raise SignatureError("the server did not sign the one-use tokens that it was asked for")
    return plain


def is_signed(message: bytes, signature: int, modulus: int) -> bool:
    """Whether a signature is that of a message."""
    try:
        key = rsa.RSAPublicNumbers(EXPONENT, modulus).public_key()
        key.verify(signature.to_bytes((key.key_size + 7) // 8), message, _PSS, SHA384())
    except (InvalidSignature, ValueError, OverflowError):
        return False
    return True


def sign_blinded(modulus: int, exponent: int, blinded: int) -> int:
    """Sign what is hidden with the private exponent. The number is multiplied by a random one
    first, so that the time that it takes tells nothing of the key."""
    if blinded >= modulus:
        raise ProtocolError("blinded: a number is not below the modulus of the key")
    factor = secrets.randbelow(modulus - 2) + 2
    hidden = blinded * pow(factor, EXPONENT, modulus) % modulus
    signature = pow(hidden, exponent, modulus) * pow(factor, -1, modulus) % modulus
    if pow(signature, EXPONENT, modulus) != blinded:
        # A fault of the machine, by which somebody could factor the modulus.
        raise ProtocolError("a signature came out wrong; ask again")
    return signature


def new_issuer() -> tuple[str, str]:
    """Modulus and private exponent of a new key."""
    numbers = rsa.generate_private_key(EXPONENT, BITS).private_numbers()
    return to_block(numbers.public_numbers.n), to_block(numbers.d)


def sign_all(modulus: str, exponent: str, blinded: list[str]) -> Issued:
    """The signatures over hidden messages. Runs in a worker process."""
    key = from_block(modulus), from_block(exponent)
    return Issued(signatures=[to_block(sign_blinded(*key, from_block(each))) for each in blinded])


@dataclass(frozen=True, repr=False)
class Envelope:
    """A one-use token before it is signed. Made of a secret of the device alone, so that a lost
    answer is asked for again in the same words."""

    id: str
    message: bytes
    factor: int
    blinded: int

    @classmethod
    def of(cls, secret: bytes, number: int, deployment: str, issuer: Issuer) -> Envelope:
        """The one of a number, under a key; `secret` is for this key and period alone."""
        modulus = from_block(issuer.modulus)
        if modulus.bit_length() != BITS or not modulus % 2:
            raise SignatureError("the key of one-use tokens is none; do not report")
        drawn = hashlib.shake_256(secret + number.to_bytes(4)).digest(16 + SALT_BYTES + BITS // 4)
        report = str(uuid.UUID(bytes=drawn[:16], version=4))
        message = one_use_message(deployment, issuer.period, report)
        factor = int.from_bytes(drawn[16 + SALT_BYTES :]) % modulus
        hidden = blind(message, drawn[16 : 16 + SALT_BYTES], factor, modulus)
        return cls(report, message, factor, hidden)

    def opened(self, signature: str, issuer: Issuer) -> str:
        """The signature over the message, of the one over its hidden form."""
        modulus = from_block(issuer.modulus)
        return to_block(finish(self.message, from_block(signature), self.factor, modulus))
