"""Keys: made, kept, destroyed, and never shown."""

from __future__ import annotations

import os
import pickle
import stat
from pathlib import Path

import pyarrow as pa
import pytest

from panda_mdp import DrawKey
from panda_mdp.errors import FileFormatError, InvalidInputError
from panda_mdp.frames.drawing import people_of

TABLE = bytes(64)
PAIRS = [("ann", "1"), ("ann", "2"), ("bob", "1"), (7, "1"), ("an", "n1")]


def test_a_key_is_made_once_and_read_again(tmp_path: Path) -> None:
    path = tmp_path / "draws.key"
    key = DrawKey.make(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    again = DrawKey.load(path)
    assert (again.draw_key(TABLE) == key.draw_key(TABLE)).all()
    assert (again.nonces(TABLE, PAIRS) == key.nonces(TABLE, PAIRS)).all()
    with pytest.raises(FileExistsError):
        DrawKey.make(path)
    assert (pickle.loads(pickle.dumps(key)).draw_key(TABLE) == key.draw_key(TABLE)).all()


def test_a_destroyed_key_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "draws.key"
    DrawKey.make(path)
    twin = tmp_path / "link"
    os.link(path, twin)
    before = twin.read_bytes()
    DrawKey.destroy(path)
    assert not path.exists()
    # The same blocks under another name: the secret was overwritten, not only unlinked.
    assert twin.read_bytes() != before and len(twin.read_bytes()) == len(before)
    with pytest.raises(FileNotFoundError):
        DrawKey.destroy(path)


def test_what_is_no_key_is_refused_and_not_destroyed(tmp_path: Path) -> None:
    path = tmp_path / "photo.jpg"
    for content in (b"", b"something else", b"panda-mdp key for repeated draws, version 1\nzz\n"):
        path.write_bytes(content)
        path.chmod(0o600)
        for use in (DrawKey.load, DrawKey.destroy):
            with pytest.raises(FileFormatError, match=r"photo\.jpg"):
                use(path)
        assert path.read_bytes() == content
    DrawKey.make(tmp_path / "open.key")
    for mode in (0o644, 0o640, 0o604, 0o620, 0o602, 0o610, 0o601):
        (tmp_path / "open.key").chmod(mode)
        with pytest.raises(FileFormatError, match="others may use it"):
            DrawKey.load(tmp_path / "open.key")
    with pytest.raises(InvalidInputError, match="32 bytes"):
        DrawKey(b"short")


def test_the_fifth_day_is_not_the_fifth_week() -> None:
    person, fifth = pa.array(["a", "a"]), pa.array([5, 5])
    day, week = (people_of(person, fifth, step)[1] for step in ("day", "week"))
    assert len(day) == len(week) == 1 and day != week


def test_people_periods_and_tables_have_their_own_words() -> None:
    key = DrawKey.fresh()
    nonces = {tuple(nonce) for nonce in key.nonces(TABLE, PAIRS).tolist()}
    assert len(nonces) == len(PAIRS)
    other = {tuple(nonce) for nonce in key.nonces(bytes([1] * 64), PAIRS).tolist()}
    assert not nonces & other
    assert key.draw_key(TABLE).tolist() != key.draw_key(bytes([1] * 64)).tolist()
    # A whole number that a frame turned into a float is the same person.
    assert (key.nonces(TABLE, [(7, "1")]) == key.nonces(TABLE, [(7.0, "1")])).all()


def test_a_key_shows_nothing() -> None:
    key = DrawKey(bytes(range(32)))
    assert repr(key) == str(key) == "DrawKey(<hidden>)"
