"""The short way of reports: the same answers as the ordinary way, whatever comes on the wire."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from protocol_servers import Running, new_id, publish, small_domain, small_table

URL = "/v1/deployments/main/reports"
Answer = tuple[int, dict[str, str], bytes]


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("express")
    running = Running(str(folder / "panda.db"), folder).start()
    publish(running.admin, small_table(small_domain()), "city", folder)
    wanted: dict[str, object] = {"kind": "table", "name": "main"}
    wanted["table"] = {"name": "city", "version": 1}
    wanted["reports_per_period"] = 1_000
    assert running.admin.post("/v1/deployments", json=wanted).status_code == 201
    yield running
    running.stop()


@contextmanager
def line(running: Running) -> Iterator[socket.socket]:
    where = urlsplit(running.url)
    made = socket.create_connection((where.hostname or "", where.port or 0), timeout=60)
    with closing(made):
        yield made


def token(running: Running) -> str:
    made = running.admin.post("/v1/tokens", json={"role": "reporter"})
    return str(made.json()["tokens"][0]["token"])


def body(key: str | None = None, output: int = 5, **more: object) -> bytes:
    return json.dumps({"id": key or new_id(), "output": output, **more}).encode()


def post(secret: str, content: bytes, *lines: str, path: str = URL) -> bytes:
    head = [f"POST {path} HTTP/1.1", "host: x", f"authorization: Bearer {secret}", *lines]
    return "\r\n".join([*head, f"content-length: {len(content)}", "", ""]).encode() + content


def read(sock: socket.socket) -> Answer:
    got = b""
    while b"\r\n\r\n" not in got:
        part = sock.recv(65_536)
        assert part, got
        got += part
    head, _, rest = got.partition(b"\r\n\r\n")
    names = [text.split(": ", 1) for text in head.decode().split("\r\n")[1:]]
    headers = dict(names)
    assert len(headers) == len(names), "a header is there twice"
    while len(rest) < int(headers["content-length"]):
        rest += sock.recv(65_536)
    return int(head[9:12]), headers, rest


def ask(running: Running, request: bytes) -> Answer:
    with line(running) as sock:
        sock.sendall(request)
        return read(sock)


def both(running: Running, secret: str, content: bytes, *lines: str) -> list[Answer]:
    """The short way and, by a query string that changes nothing, the ordinary one."""
    answers = [
        ask(running, post(secret, content, *lines, path=path)) for path in (URL, f"{URL}?x=1")
    ]
    for _, headers, _ in answers:
        headers.pop("date")
        headers.pop("retry-after", None)
    return answers


def test_both_ways_answer_alike(deployed: Running) -> None:
    secret, known, free = token(deployed), new_id(), new_id()
    assert ask(deployed, post(secret, body(known)))[0] == 201
    for content, status in (
        (body(known), 200),
        (body(known, 0), 409),
        (body(free, 999), 422),
        (body(free, 4), 422),
        (body(free, version=9), 409),
        (body(free, table="0" * 64), 409),
        (body(free, more=1), 422),
        (b'{"id": "%s", "output": 5, "output": 5}' % free.encode(), 422),
        (b"{", 422),
        (b"", 422),
    ):
        short, ordinary = both(deployed, secret, content)
        assert short == ordinary
        assert short[0] == status, content
    for wrong in ("pmt_000000000000_" + "x" * 43, secret[:-1] + "!", deployed.admin_token):
        short, ordinary = both(deployed, wrong, body(free))
        assert short == ordinary
        assert short[0] in (401, 403)
    for kind, status in (("text/plain", 422), ("application/json; charset=utf-8", 200)):
        short, ordinary = both(deployed, secret, body(known), f"content-type: {kind}")
        assert short == ordinary
        assert short[0] == status
    first = ask(deployed, post(secret, body(new_id())))
    other = ask(deployed, post(secret, body(new_id()), path=f"{URL}?x=1"))
    assert first[0] == other[0] == 201
    assert set(first[1]) == set(other[1])


def test_requests_that_follow_each_other_at_once_are_answered_in_order(deployed: Running) -> None:
    secret, keys = token(deployed), [new_id() for _ in range(6)]
    requests = [post(secret, body(key)) for key in keys]
    requests.insert(3, b"GET /v1 HTTP/1.1\r\nhost: x\r\n\r\n")
    with line(deployed) as sock:
        sock.sendall(b"".join(requests))
        stream = b""
        while stream.count(b'"accepted":true') < 6:
            part = sock.recv(65_536)
            assert part
            stream += part
    places = [stream.index(key.encode()) for key in keys]
    assert places == sorted(places)
    assert places[2] < stream.index(b'"panda-mdp"') < places[3]


def test_a_body_may_come_in_pieces_and_late(deployed: Running) -> None:
    secret, key = token(deployed), new_id()
    request = post(secret, body(key))
    with line(deployed) as sock:
        for start in range(0, len(request), 40):
            sock.sendall(request[start : start + 40])
            time.sleep(0.002)
        assert read(sock)[0] == 201
        # The connection goes on.
        sock.sendall(request)
        assert read(sock)[0] == 200
        sock.sendall(b"GET /v1/health HTTP/1.1\r\nhost: x\r\n\r\n")
        assert read(sock)[0] == 200


def test_who_hangs_up_is_counted_all_the_same(deployed: Running) -> None:
    secret, key = token(deployed), new_id()
    with line(deployed) as sock:
        sock.sendall(post(secret, body(key)))
    deadline = time.monotonic() + 60
    while ask(deployed, post(secret, body(key)))[0] != 200:
        assert time.monotonic() < deadline
    with line(deployed) as sock:
        sock.sendall(post(secret, body())[:-5])
    assert ask(deployed, post(secret, body()))[0] == 201


def test_the_short_way_counts_against_the_rate_and_is_logged(tmp_path: Path) -> None:
    running = Running(str(tmp_path / "x.db"), tmp_path, "--token-rate", "1", "--log-json").start()
    try:
        publish(running.admin, small_table(small_domain()), "city", tmp_path)
        wanted = {"kind": "table", "name": "main", "table": {"name": "city", "version": 1}}
        wanted["reports_per_period"] = 1_000
        assert running.admin.post("/v1/deployments", json=wanted).status_code == 201
        secret = token(running)
        with line(running) as sock:
            statuses = []
            for _ in range(12):
                sock.sendall(post(secret, body()))
                statuses.append(read(sock)[0])
        assert statuses[:4] == [201] * 4
        assert set(statuses[4:]) <= {201, 429}
        assert 429 in statuses
        lines = [json.loads(text) for text in running.log.read_text().splitlines()]
        mine = [entry for entry in lines if entry.get("route") == "/v1/deployments/{name}/reports"]
        accepted = statuses.count(201)
        assert [entry["status"] for entry in mine] == [201] * accepted
        metrics = running.admin.get("/metrics").text
        assert f'{{name}}/reports",status="201"}} {float(accepted)}' in metrics
        refused = float(len(statuses) - accepted)
        assert f'panda_mdp_refusals_total{{code="rate_limited"}} {refused}' in metrics
    finally:
        running.stop()
