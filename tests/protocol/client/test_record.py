"""A record is sealed: nothing that shows, stores, copies or fails gives it away."""

from __future__ import annotations

import copy
import dataclasses
import io
import json
import logging
import pickle
import pprint
import re
import subprocess
import sys
import traceback
from pathlib import Path

import pytest
from pydantic import ValidationError

import panda_mdp as pm
from panda_mdp.errors import MethodError, SnapError
from panda_mdp.protocol.client import plans as plans_module
from panda_mdp.protocol.client.plans import Record, seal_index, seal_place
from panda_mdp.protocol.ledger.books import new_id
from panda_mdp.protocol.messages.deployments import AnchorsRequest, BallRequest, ReportRequest
from panda_mdp.space.area import Area

SECRET = 7_654
LAT, LON = 41.87654321, 12.49876543
SOURCE = Path(plans_module.__file__).parents[2]


@pytest.fixture(scope="module")
def domain():
    return pm.Domain.from_vectors([[float(k)] for k in range(9_000)], unit="km")


@pytest.fixture(scope="module")
def places():
    return pm.Domain.from_points([41.9, 41.91, 41.92], [12.49, 12.50, 12.51])


@pytest.fixture
def secret(domain):
    return seal_index(domain, SECRET)


def test_no_representation_shows_it(secret):
    stream = io.StringIO()
    logger = logging.getLogger("test.record")
    logger.addHandler(logging.StreamHandler(stream))
    logger.warning("%s %r %s", secret, secret, {"record": secret})
    shown = [
        repr(secret),
        str(secret),
        f"{secret}",
        f"{secret:>9}",
        f"{secret!r:_^40}",
        pprint.pformat([secret]),
        stream.getvalue(),
        repr(dir(secret)),
    ]
    assert all(str(SECRET) not in text for text in shown)


def test_it_is_no_number_and_has_nothing_to_look_into(secret):
    for convert in (int, float, hex, bytes, list, dict, vars, dataclasses.asdict, json.dumps):
        with pytest.raises(TypeError):
            convert(secret)
    with pytest.raises(TypeError):
        [0][secret]
    for name in ("index", "value", "record", "_index", "__dict__"):
        assert not hasattr(secret, name)


def test_it_is_neither_pickled_nor_copied(secret):
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        with pytest.raises(TypeError, match="memory only"):
            pickle.dumps(secret, protocol)
    for copied in (copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="memory only"):
            copied(secret)


def test_two_records_are_equal_only_if_they_are_the_same_object(domain, secret):
    """Equality by value would let anybody find a record by trying all."""
    assert secret != seal_index(domain, SECRET)
    assert hash(secret) != hash(SECRET)


def test_it_has_no_subclasses():
    with pytest.raises(TypeError, match="no subclasses"):
        type("Leaky", (Record,), {})


@pytest.mark.parametrize(
    "build",
    [
        lambda record: ReportRequest(id=new_id(), output=record),
        lambda record: BallRequest(centre=(record, record)),
        lambda record: AnchorsRequest(anchors=[record]),
        lambda record: ReportRequest(id=record, output=0),
    ],
)
def test_no_message_takes_it(secret, build):
    with pytest.raises(ValidationError) as caught:
        build(secret)
    assert str(SECRET) not in str(caught.value)


MISTAKES = """
from panda_mdp.protocol.messages.deployments import AnchorsRequest, BallRequest
from panda_mdp.protocol.messages.deployments import ReportRequest
from panda_mdp.protocol.client.plans import Record

def leak(record: Record) -> None:
    ReportRequest(id="", output=record)
    BallRequest(centre=(record, record))
    AnchorsRequest(anchors=[record])
    ReportRequest(id="", output=int(record))
    record.index
"""


def test_a_type_checker_refuses_every_way_to_send_it(tmp_path):
    pytest.importorskip("mypy")
    (tmp_path / "leak.py").write_text(MISTAKES)
    done = subprocess.run(
        [sys.executable, "-m", "mypy", str(tmp_path / "leak.py")],
        # The settings of this project, and what `make check` has looked at already.
        cwd=SOURCE.parents[1],
        capture_output=True,
        text=True,
        check=False,
    )
    assert re.findall(r"leak\.py:(\d+): error", done.stdout) == ["7", "8", "9", "10", "11"], done


def frames_of(error: BaseException) -> str:
    """A traceback with the local variables of all frames, as error trackers collect it."""
    stack = traceback.TracebackException.from_exception(error, capture_locals=True)
    return "".join(stack.format())


def library_frames(error: BaseException) -> str:
    """The same, without this test's own frame, which knows the secret."""
    trace = error.__traceback__
    while trace is not None and "panda_mdp" not in trace.tb_frame.f_code.co_filename:
        trace = trace.tb_next
    return frames_of(error.with_traceback(trace))


@pytest.mark.parametrize("failure", [ValueError, KeyError, MethodError, RuntimeError, OSError])
def test_errors_behind_the_door_lose_message_and_frames(domain, secret, failure):
    def draw(index: int) -> int:
        text = f"record {index}"
        if failure is MethodError:
            text = "a silent message"
        raise failure(text)

    with pytest.raises(MethodError) as caught:
        secret.unseal(domain, draw)
    assert caught.value.__cause__ is None
    assert caught.value.__context__ is None
    assert str(SECRET) not in library_frames(caught.value)


def test_an_interrupt_behind_the_door_stays_one(domain, secret):
    def draw(index: int) -> int:
        raise KeyboardInterrupt(index)

    with pytest.raises(KeyboardInterrupt) as caught:
        secret.unseal(domain, draw)
    assert str(SECRET) not in library_frames(caught.value)


def test_a_record_of_another_domain_is_refused(places, secret):
    with pytest.raises(MethodError, match="another domain"):
        secret.unseal(places, lambda index: index)


@pytest.mark.parametrize("wrong", [90_001, -1, 1.5, "x", None])
def test_a_wrong_index_is_not_shown(domain, wrong):
    with pytest.raises(MethodError) as caught:
        seal_index(domain, wrong)
    assert "90001" not in library_frames(caught.value)
    assert "90_001" not in library_frames(caught.value)


def test_what_is_no_place_is_refused_without_it(places):
    with pytest.raises(SnapError) as caught:
        seal_place(places, Area.around(places.lat, places.lon), 141.87654321, LON)
    text = library_frames(caught.value)
    assert "41.87654321" not in text
    assert "12.49876543" not in text
    assert "not a latitude" in str(caught.value)


def test_ties_go_to_the_lowest_record():
    domain = pm.Domain.from_points([45.0, 45.0, 44.0], [9.5, 9.0, 9.0])
    # Inside the area the place itself counts.
    tied = seal_place(domain, Area.around(domain.lat, domain.lon), 44.9, 9.25)
    assert tied.unseal(domain, lambda index: index) == 0


def test_only_the_draws_open_it():
    """The one door is for draws and the memo: whoever adds a use has to change this test."""
    users = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        if re.search(r"\bunseal\b", path.read_text())
    }
    modules = ("client", "plans", "rounds")
    assert users == {f"protocol/client/{name}.py" for name in modules}
