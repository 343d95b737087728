"""What leaves the device, and what is left on it: searched for the record, byte by byte.

The record sits at a place whose coordinates occur nowhere else. Everything that the client sends,
logs, prints, raises and writes is collected and searched for them in decimal, in hexadecimal, as
binary numbers of all widths, and in base64. A record's index is too short to be searched for: that
it is in no request is shown by users with other records, who send the same bytes.
"""

from __future__ import annotations

import base64
import io
import itertools
import json
import logging
import re
import secrets
import struct
import traceback
import uuid
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from helpers import save_compact
from protocol_standin import TOKEN, URL, Standin, anchors_deployment, without_fsync

import panda_mdp as pm
from panda_mdp.errors import PandaError
from panda_mdp.protocol import Allowance, Client
from panda_mdp.protocol.client.wire import Network
from panda_mdp.protocol.ledger.books import new_id
from panda_mdp.space.area import Area

KINDS = ("table", "ball", "anchors")


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    without_fsync(monkeypatch)


@pytest.fixture(scope="module")
def city(tmp_path_factory):
    """A small city for all three deployments, places of nine digits."""
    rng = np.random.default_rng(6)
    lat = np.round(41.87 + 0.03 * rng.random(40), 7)
    lon = np.round(12.43 + 0.03 * rng.random(40), 7)
    domain = pm.Domain.from_points(lat, lon)
    outputs = np.array([1, 12, 25, 38])
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 2.0)
    path = tmp_path_factory.mktemp("city") / "city.pmdp"
    return path, save_compact(pm.exponential(problem), path)


def standin(city: Any, private: bool = True) -> Standin:
    path, table = city
    made = Standin(path, table)
    made.anchors = anchors_deployment(table.problem.domain, private=private).model_copy(
        update={"outputs": [1, 12, 25, 38]}
    )
    return made


def limits() -> Allowance:
    return Allowance(epsilon=9.0, period_epsilon=9.0, delta=0.5)


def run(
    city: Any,
    folder: Path,
    kind: str,
    record: int | tuple[float, float],
    monkeypatch: pytest.MonkeyPatch,
    seed: int = 1,
) -> Standin:
    """One user who reports once, with given random words and ids."""
    private = kind != "anchors without guarantee"
    server = standin(city, private)
    server.key = pm_key()
    # The operating system's generator gives everybody the same.
    words = np.random.default_rng(seed)
    ids = (f"00000000-0000-4000-8000-{n:012x}" for n in itertools.count())
    with (
        Client(URL, TOKEN, folder, limits(), network=server.network, clock=lambda: 1e9) as user,
        monkeypatch.context() as patch,
    ):
        patch.setattr(secrets, "token_bytes", words.bytes)
        patch.setattr(uuid, "uuid4", lambda: next(ids))
        plan = user.plan(kind.split(maxsplit=1)[0])
        if isinstance(record, int) and kind == "ball":
            # Clients of balls have no records, but places.
            domain = city[1].problem.domain
            record = (float(domain.lat[record]), float(domain.lon[record]))
        sealed = plan.record(record) if isinstance(record, int) else plan.place(*record)
        user.report(plan, sealed, accept_no_guarantee=not private)
    return server


def pm_key() -> Any:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    from panda_mdp.protocol.messages.signing import SigningKey

    return SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(32)))


def stream(server: Standin) -> str:
    """All bytes that the server was sent, in order."""
    return "\n\n".join(sent.text() for sent in server.sent)


def masked(text: str) -> str:
    """The traffic without what was drawn, and without the lengths that follow from it."""
    text = re.sub(r'"output":\d+', '"output":*', text)
    text = re.sub(r'"centre":(\[[^]]*\]|\d+)', '"centre":*', text)
    text = re.sub(r'"anchors":\[[\d,]*\]', '"anchors":*', text)
    return re.sub(r"(?i)content-length: \d+", "content-length: *", text)


@pytest.mark.parametrize("kind", [*KINDS, "anchors without guarantee"])
def test_users_with_other_records_and_the_same_draws_send_the_same_bytes(
    city, kind, tmp_path, monkeypatch
):
    streams = [
        stream(run(city, tmp_path / str(record), kind, record, monkeypatch))
        for record in range(0, 40, 5)
    ]
    assert len({masked(text) for text in streams}) == 1
    assert TOKEN in streams[0]
    if kind == "anchors without guarantee":
        # Here the anchors do follow the record, and nothing else does.
        assert len(set(streams)) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_where_also_the_outcome_is_the_same_not_a_single_byte_differs(
    city, kind, tmp_path, monkeypatch
):
    """Of enough users with the same words some draw the same: nothing tells those apart."""
    by_outcome: dict[tuple[str, ...], set[str]] = {}
    members: dict[tuple[str, ...], int] = {}
    for record in range(0, 40, 3):
        server = run(city, tmp_path / str(record), kind, record, monkeypatch, seed=3)
        outcome = tuple(sent.body.decode() for sent in server.sent if sent.method == "POST")
        by_outcome.setdefault(outcome, set()).add(stream(server))
        members[outcome] = members.get(outcome, 0) + 1
    assert max(members.values()) > 1
    assert all(len(streams) == 1 for streams in by_outcome.values())


OUTSIDE = [(41.885, 12.4449), (41.99, 12.44), (41.87, 13.2), (48.85, 2.35), (-41.9, -167.5)]


@pytest.mark.parametrize("kind", KINDS)
def test_inside_and_outside_the_area_send_the_same_bytes(city, kind, tmp_path, monkeypatch):
    """The first place lies inside; from every other one there is a report all the same."""
    streams = {
        masked(stream(run(city, tmp_path / str(number), kind, place, monkeypatch)))
        for number, place in enumerate(OUTSIDE)
    }
    assert len(streams) == 1 and "/reports" in streams.pop()


@pytest.mark.parametrize("kind", ["table", "anchors"])
def test_a_place_outside_sends_what_the_nearest_point_of_the_area_sends(
    city, kind, tmp_path, monkeypatch
):
    """To the last byte, with the same words of the generator; balls are for places anywhere."""
    domain = city[1].problem.domain
    area = Area.around(domain.lat, domain.lon)
    for number, place in enumerate(OUTSIDE[1:]):
        far, rim = (
            stream(run(city, tmp_path / f"{name}{number}", kind, where, monkeypatch))
            for name, where in (("far", place), ("rim", area.clamp(*place)))
        )
        assert far == rim


def test_the_mask_hides_nothing_else():
    text = 'POST /v1\nContent-Length: 12\n\n{"id":"a","output":17,"anchors":[1,2]}'
    assert masked(text) == 'POST /v1\ncontent-length: *\n\n{"id":"a","output":*,"anchors":*}'


def test_ids_come_from_the_operating_system_alone(monkeypatch):
    """The same bytes of the system make the same id, whatever else there is."""
    monkeypatch.setattr(uuid.os, "urandom", lambda count: bytes(range(count)))
    assert new_id() == "00010203-0405-4607-8809-0a0b0c0d0e0f"


# Searching


class Secrets:
    """A place in every spelling that a leak could have."""

    def __init__(self, *degrees: float) -> None:
        self.spellings: dict[str, bytes] = {}
        for value in degrees:
            self._text(f"{value!r}", repr(value))
            # A leak would hardly keep all digits.
            self._text(f"{value!r} cut", f"{value:.4f}")
            for code in ("<d", ">d", "<f", ">f"):
                self.spellings[f"{value!r} {code}"] = struct.pack(code, value)
            self._number(f"{value!r} in 1e-7", round(value * 1e7))
            self._number(f"{value!r} in 1e-6", round(value * 1e6))

    def _text(self, name: str, text: str) -> None:
        self.spellings[name] = text.encode()
        self.spellings[f"{name} base64"] = base64.b64encode(text.encode()).rstrip(b"=")[:-1]

    def _number(self, name: str, value: int) -> None:
        self._text(name, str(value))
        if value > 0xFFFF:
            self.spellings[f"{name} hexadecimal"] = f"{value:x}".encode()
            for width in (4, 8):
                self.spellings[f"{name} little {width}"] = value.to_bytes(width, "little")
                self.spellings[f"{name} big {width}"] = value.to_bytes(width, "big")

    def found_in(self, data: bytes | str) -> list[str]:
        where = data.encode() if isinstance(data, str) else data
        return [name for name, spelling in self.spellings.items() if spelling in where]


LAT, LON = 41.8899123, 12.4488321


def test_the_search_finds_what_it_looks_for():
    spellings = Secrets(LAT, LON)
    assert spellings.found_in(json.dumps({"lat": LAT}))
    assert spellings.found_in(f"{LAT:.5f}")
    assert spellings.found_in(struct.pack("<2d", LAT, LON))
    assert spellings.found_in(b"xx" + round(LON * 1e6).to_bytes(4, "little"))
    assert spellings.found_in(f"{round(LAT * 1e7)}")
    assert not spellings.found_in(b"nothing to see here, 12345 or 41.9")


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """A table over 300 places, of which one is the user's, far from all outputs."""
    rng = np.random.default_rng(11)
    lat = np.round(41.80 + 0.05 * rng.random(300), 7)
    lon = np.round(12.30 + 0.05 * rng.random(300), 7)
    lat[271], lon[271] = LAT, LON
    domain = pm.Domain.from_points(lat, lon)
    outputs = np.arange(0, 100, 9)
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 1.0)
    path = tmp_path_factory.mktemp("places") / "places.pmdp"
    return path, save_compact(pm.exponential(problem), path)


@pytest.fixture
def everything() -> Iterator[io.StringIO]:
    """All that is logged, at every level, by every library."""
    kept = io.StringIO()
    handler = logging.StreamHandler(kept)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(1)
    yield kept
    root.removeHandler(handler)
    root.setLevel(level)


def trouble(server: Standin) -> list[Any]:
    """Everything that can go wrong with a request, one after the other."""

    def lost(request: httpx.Request) -> httpx.Response | None:
        raise httpx.ReadTimeout("lost", request=request)

    def echo(request: httpx.Request) -> httpx.Response:
        error = {"code": "invalid", "message": request.content.decode()[:500], "remedy": ""}
        return httpx.Response(422, json={"error": error})

    def nonsense(_: httpx.Request) -> httpx.Response:
        return httpx.Response(200, content=b"{}")

    attempts = Network().attempts
    return [[lost] * attempts, [echo], [nonsense], [lambda _: None, echo], []]


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_leaves_or_stays_holds_the_record(
    places, kind, tmp_path, everything, monkeypatch
):
    """With every fault, all levels of logging, and local variables of all frames."""
    table = places[1]
    server = standin(places)
    server.anchors = anchors_deployment(table.problem.domain, private=True).model_copy(
        update={"outputs": table.problem.outputs.tolist()}
    )
    printed = io.StringIO()
    raised: list[str] = []
    spellings = Secrets(LAT, LON)
    with (
        redirect_stdout(printed),
        redirect_stderr(printed),
        Client(URL, TOKEN, tmp_path, limits(), network=server.network) as user,
    ):
        plan = user.plan(kind)
        # Public and equal for everyone, and it names all places.
        fetched = set(tmp_path.rglob("*.pmdp"))
        record = plan.place(LAT, LON)
        print(record, [record], {"r": record}, plan, user, user.ledger)
        for faults in trouble(server):
            server.faults = list(faults)
            try:
                answer = user.report(plan, record)
                print(answer)
            except PandaError as error:
                raised.append(collected(error))
        for wrong in ((LAT + 1, LON), (LAT, 400.0), (LAT, float("nan"))):
            try:
                plan.place(*wrong)
            except PandaError as error:
                raised.append(collected(error))
        with user.ledger.books() as books:
            print(books.balances(), books.pending())
    assert len(raised) >= 5
    for sent in server.sent:
        assert not spellings.found_in(sent.url)
        assert not spellings.found_in(sent.text()), sent.url
    assert not spellings.found_in(everything.getvalue())
    assert not spellings.found_in(printed.getvalue())
    assert not spellings.found_in("".join(raised))
    assert TOKEN[20:] not in everything.getvalue() + printed.getvalue() + "".join(raised)
    for file in tmp_path.rglob("*"):
        if file.is_file() and file not in fetched:
            assert not spellings.found_in(file.read_bytes()), file.name


def collected(error: BaseException) -> str:
    """An error as trackers collect it: message, chain, and the locals of the library's frames."""
    text = [repr(error), str(error), repr(vars(error))]
    seen: BaseException | None = error
    while seen is not None:
        trace = seen.__traceback__
        # The test's own frames know the place.
        while trace is not None and "panda_mdp" not in trace.tb_frame.f_code.co_filename:
            trace = trace.tb_next
        inner = traceback.StackSummary.extract(traceback.walk_tb(trace), capture_locals=True)
        text += inner.format()
        seen = seen.__cause__ or seen.__context__
    return "".join(text)


def test_the_search_sees_locals_of_frames():
    namespace: dict[str, Any] = {}
    code = "def leak():\n    place = 41.8899123\n    raise ValueError('x')\n"
    exec(compile(code, "panda_mdp/leak.py", "exec"), namespace)  # noqa: S102
    try:
        namespace["leak"]()
    except ValueError as error:
        assert Secrets(LAT).found_in(collected(error))


def test_reports_do_not_depend_on_where_the_record_was_snapped_from(places, tmp_path, monkeypatch):
    """Two places at one record are one record: the same memo, the same answer."""
    server = standin(places)
    with Client(URL, TOKEN, tmp_path, limits(), network=server.network) as user:
        plan = user.plan("table")
        first = user.report(plan, plan.place(LAT, LON))
        again = user.report(plan, plan.place(LAT + 1e-4, LON - 1e-4))
    assert again.repeated
    assert again.output == first.output
