"""Signatures are over canonical bytes, keys are their owner's alone."""

from __future__ import annotations

import hashlib
import pickle
import stat

import pytest

from panda_mdp.base.text import canonical
from panda_mdp.errors import FileFormatError, SignatureError
from panda_mdp.protocol.messages.catalogue import TableInfo
from panda_mdp.protocol.messages.signing import (
    SigningKey,
    VerifyKey,
    rows_digest,
    signed_bytes,
)


def test_signed_bytes_of_a_table_are_those_of_the_contract():
    facts = {"name": "rome", "version": 3, "sha256": "a" * 64, "size_bytes": 2_700_000}
    facts |= {"domain": "b" * 64, "epsilon": 0.1, "identity": "c" * 64}
    data = TableInfo.model_construct(**facts).signed
    lines = ["panda-mdp table 1", "rome", "3", "a" * 64, "2700000", "b" * 64, "0.1", "c" * 64]
    assert data == ("\n".join(lines) + "\n").encode()


def test_signed_bytes_of_rows_are_those_of_the_contract():
    data = signed_bytes("rows", "city", 2, rows_digest([1, 5], [0, 9], [["1", "2"], ["3", "4"]]))
    content = b'{"anchors":[1,5],"outputs":[0,9],"weights":[["1","2"],["3","4"]]}'
    digest = hashlib.sha256(content).hexdigest()
    assert data == f"panda-mdp rows 1\ncity\n2\n{digest}\n".encode()


def test_canonical_json_refuses_what_is_no_json():
    assert canonical({"b": "é", "a": 1.5}) == b'{"a":1.5,"b":"\\u00e9"}'
    with pytest.raises(ValueError, match="JSON compliant"):
        canonical([float("nan")])


@pytest.mark.parametrize("name", ["rome\n2", "ro\tme", "rømé"])
def test_a_field_cannot_hold_a_line_break(name):
    with pytest.raises(SignatureError):
        signed_bytes("table", name, 1, "a" * 64, 1, "b" * 64, 1.0)


def test_another_key_another_content_or_another_signature_is_refused():
    key, other = SigningKey.generate(), SigningKey.generate()
    signature = key.sign(b"content")
    key.public.verify(b"content", signature)
    with pytest.raises(SignatureError, match="another operator"):
        other.public.verify(b"content", signature)
    with pytest.raises(SignatureError):
        key.public.verify(b"Content", signature)
    with pytest.raises(SignatureError):
        key.public.verify(b"content", other.sign(b"content"))
    for damaged in ("", "!!", signature[:-4], "é"):
        with pytest.raises(SignatureError):
            key.public.verify(b"content", damaged)


def test_a_known_signature():
    """RFC 8032, test 2."""
    public = bytes.fromhex("3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c")
    import base64

    signature = base64.b64encode(
        bytes.fromhex(
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
            "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00"
        )
    ).decode()
    key = VerifyKey(public)
    key.verify(b"\x72", signature)
    assert key.id == hashlib.sha256(public).hexdigest()[:16]
    assert VerifyKey.from_base64(key.base64) == key
    assert hash(VerifyKey(public)) == hash(key)
    with pytest.raises(SignatureError, match="32 bytes"):
        VerifyKey(public[:-1])


def test_key_files_are_private_and_never_replaced(tmp_path):
    path = tmp_path / "keys" / "operator.pem"
    made = SigningKey.create(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = SigningKey.load(path)
    assert again.id == made.id
    made.public.verify(b"x", again.sign(b"x"))
    with pytest.raises(FileExistsError):
        SigningKey.create(path)
    path.chmod(0o640)
    with pytest.raises(FileFormatError, match="chmod 600"):
        SigningKey.load(path)


def test_a_file_that_is_no_key_is_refused(tmp_path):
    path = tmp_path / "key.pem"
    path.write_bytes(b"nothing")
    path.chmod(0o600)
    with pytest.raises(FileFormatError, match="PEM"):
        SigningKey.load(path)
    with pytest.raises(FileNotFoundError):
        SigningKey.load(tmp_path / "none.pem")


def test_a_private_key_does_not_leak_through_repr_or_pickle():
    key = SigningKey.generate()
    assert str(vars(key)["_key"].private_bytes_raw()) not in repr(key)
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(key)
