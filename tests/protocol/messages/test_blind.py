"""Blind signatures: the vectors of RFC 9474, and what a server may try with its key."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import pytest

from panda_mdp.errors import ProtocolError, SignatureError
from panda_mdp.protocol.messages.blind import (
    BITS,
    EXPONENT,
    Envelope,
    Issuer,
    blind,
    finish,
    from_block,
    is_signed,
    new_issuer,
    one_use_message,
    sign_all,
    sign_blinded,
    to_block,
)

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "blind.json").read_text())
STORED = new_issuer()
MODULUS, PRIVATE = map(from_block, STORED)
ISSUER = Issuer(period=7, modulus=STORED[0])
SECRET = hashlib.sha256(b"of this device").digest()


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: str(vector["name"]))
def test_the_vectors_of_the_rfc(vector: dict[str, Any]) -> None:
    n, e, d, inverse, blinded, signature, plain = (
        int(vector[name], 16) for name in ("n", "e", "d", "inv", "blinded_msg", "blind_sig", "sig")
    )
    message, salt = bytes.fromhex(vector["input_msg"]), bytes.fromhex(vector["salt"])
    factor = pow(inverse, -1, n)
    assert e == EXPONENT
    assert blind(message, salt, factor, n) == blinded
    assert sign_blinded(n, d, blinded) == signature
    assert signature * inverse % n == plain
    if salt:
        assert finish(message, signature, factor, n) == plain
    else:
        assert not is_signed(message, plain, n), "this protocol has salts of 48 bytes alone"


def test_a_token_is_signed_and_is_of_its_message_alone() -> None:
    made = [Envelope.of(SECRET, number, "city", ISSUER) for number in range(3)]
    issued = sign_all(*STORED, [to_block(each.blinded) for each in made])
    opened = [each.opened(s, ISSUER) for each, s in zip(made, issued.signatures, strict=True)]
    assert len({each.id for each in made}) == len(set(opened)) == 3
    for number, (each, signature) in enumerate(zip(made, map(from_block, opened), strict=True)):
        assert is_signed(one_use_message("city", 7, each.id), signature, MODULUS)
        assert not is_signed(one_use_message("city", 8, each.id), signature, MODULUS)
        assert not is_signed(one_use_message("town", 7, each.id), signature, MODULUS)
        assert not is_signed(made[number - 1].message, signature, MODULUS)
        assert not is_signed(each.message, signature ^ 1, MODULUS)


def test_every_request_could_have_been_for_every_report() -> None:
    """For each hidden message and each token there is one factor that joins them: what the server
    has seen of both is the same whichever it was."""
    made = [Envelope.of(SECRET, number, "city", ISSUER) for number in range(4)]
    signed = [sign_blinded(MODULUS, PRIVATE, each.blinded) for each in made]
    plain = [
        from_block(each.opened(to_block(s), ISSUER)) for each, s in zip(made, signed, strict=True)
    ]
    for hidden, signature in zip(made, signed, strict=True):
        for token in plain:
            factor = signature * pow(token, -1, MODULUS) % MODULUS
            assert math.gcd(factor, MODULUS) == 1
            assert pow(token * factor, EXPONENT, MODULUS) == hidden.blinded


def test_envelopes_depend_on_the_secret_the_key_and_the_number_and_are_made_again_alike() -> None:
    one = Envelope.of(SECRET, 0, "city", ISSUER)
    again = Envelope.of(SECRET, 0, "city", ISSUER)
    assert (one.id, one.factor, one.blinded) == (again.id, again.factor, again.blinded)
    others = [Envelope.of(SECRET, 1, "city", ISSUER), Envelope.of(SECRET[::-1], 0, "city", ISSUER)]
    assert all(other.id != one.id and other.factor != one.factor for other in others)
    assert one.id not in repr(one) and str(one.factor) not in repr(one)


@pytest.mark.parametrize("change", [lambda s: s ^ 1, lambda s: 0, lambda s: MODULUS - 1])
def test_what_the_server_did_not_sign_is_refused(change: Any) -> None:
    made = Envelope.of(SECRET, 0, "city", ISSUER)
    signature = sign_blinded(MODULUS, PRIVATE, made.blinded)
    with pytest.raises(SignatureError, match="did not sign"):
        made.opened(to_block(change(signature)), ISSUER)


def test_a_key_that_tells_requests_apart_signs_nothing() -> None:
    """Where the exponent divides p - 1, a hidden message has the residue class of the plain one, by
    which it could be found again; then it has no root, or all classes are that of roots."""
    p = next(p for p in primes(BITS // 2) if (p - 1) % EXPONENT == 0)
    q = next(q for q in primes(BITS // 2, 1) if (p * q).bit_length() == BITS)
    issuer = Issuer(period=7, modulus=to_block(p * q))
    made = Envelope.of(SECRET, 0, "city", issuer)
    classes = pow(made.blinded, (p - 1) // EXPONENT, p)
    assert classes != 1, "one in 65,537 has a root"
    with pytest.raises(SignatureError):
        made.opened(to_block(pow(made.blinded, 12_345, p * q)), issuer)


def primes(bits: int, step: int = EXPONENT) -> Any:
    """Numbers that are prime but with probability 4^-8, one more than multiples of a step."""
    number = (3 << (bits - 2)) // (2 * step) * 2 * step + 1
    while True:
        number += 2 * step
        if all(pow(base, number - 1, number) == 1 for base in (2, 3, 5, 7, 11, 13, 17, 19)):
            yield number


# The key is drawn anew in every process: it is no name of a test.
@pytest.mark.parametrize(
    "modulus", [MODULUS - 1, MODULUS >> 8, 3, 0], ids=["even", "short", "tiny", "none"]
)
def test_a_key_of_another_size_is_refused(modulus: int) -> None:
    with pytest.raises(SignatureError, match="is none"):
        Envelope.of(SECRET, 0, "city", Issuer(period=7, modulus=to_block(modulus)))


def test_a_number_above_the_modulus_is_not_signed() -> None:
    with pytest.raises(ProtocolError, match="blinded"):
        sign_blinded(MODULUS, PRIVATE, MODULUS)
