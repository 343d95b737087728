"""An offline key, short-lived keys of servers, overlap and succession."""

from __future__ import annotations

from pathlib import Path

import pytest

from panda_mdp.errors import FileFormatError, SignatureError
from panda_mdp.protocol.messages.signing import (
    Keyring,
    KeySheet,
    SigningKey,
    certify,
    follow,
    succeed,
)

DAY = 86_400


@pytest.fixture(scope="module")
def keys() -> list[SigningKey]:
    return [SigningKey.generate() for _ in range(4)]


def test_certified_keys_overlap_and_run_out(keys: list[SigningKey]) -> None:
    operator, first, second, stranger = keys
    sheet = [
        certify(operator, first.public.base64, 30, now=0),
        certify(operator, second.public.base64, 30, now=20 * DAY),
    ]
    signed = [key.sign(b"data") for key in (operator, first, second, stranger)]

    def good(day: float) -> list[bool]:
        ring = Keyring.of(operator.public, sheet, now=day * DAY)
        found = []
        for signature in signed:
            try:
                ring.verify(b"data", signature)
                found.append(True)
            except SignatureError:
                found.append(False)
        return found

    assert good(1) == [True, True, False, False]
    assert good(25) == [True, True, True, False]
    assert good(30) == [True, False, True, False]
    assert good(50) == [True, False, False, False]


def test_a_certificate_of_somebody_else_is_refused(keys: list[SigningKey]) -> None:
    operator, server, other, _ = keys
    made = certify(operator, server.public.base64, 1, now=0)
    for forged in (
        certify(other, server.public.base64, 1, now=0),
        made.model_copy(update={"until": made.until + 1}),
        made.model_copy(update={"public": other.public.base64}),
    ):
        with pytest.raises(SignatureError):
            Keyring.of(operator.public, [forged], now=1)


def test_a_pinned_key_is_followed_step_by_step(keys: list[SigningKey]) -> None:
    first, second, third, other = keys
    steps = [succeed(second, third.public.base64), succeed(first, second.public.base64)]
    assert follow(first.public, steps) == third.public
    assert follow(other.public, steps) == other.public
    forged = succeed(other, third.public.base64).model_copy(update={"old": first.public.base64})
    with pytest.raises(SignatureError):
        follow(first.public, [forged])
    # Two keys that name each other lead nowhere for ever.
    circle = [succeed(first, second.public.base64), succeed(second, first.public.base64)]
    assert follow(first.public, circle) in (first.public, second.public)


def test_a_sheet_is_a_file(tmp_path: Path, keys: list[SigningKey]) -> None:
    operator, server, *_ = keys
    sheet = KeySheet(
        operator=operator.public.base64,
        certificates=[certify(operator, server.public.base64, 1)],
    )
    sheet.save(tmp_path / "keys.json")
    assert KeySheet.load(tmp_path / "keys.json") == sheet
    (tmp_path / "keys.json").write_text("{}")
    with pytest.raises(FileFormatError, match="not a sheet of keys"):
        KeySheet.load(tmp_path / "keys.json")
