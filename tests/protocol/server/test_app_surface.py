"""The edges: every error in one envelope, the API's description, pages, commands."""

from __future__ import annotations

import json
import re
import secrets
import signal
import socket
import stat
import time
from collections.abc import Callable
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import copied
import pytest
from protocol_servers import PATIENCE, Running, error_of, publish, small_domain, small_table

from panda_mdp.protocol.server.app import POLICY
from panda_mdp.protocol.server.context import LOOK_SECONDS


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A server on SQLite."""
    folder = tmp_path_factory.mktemp("surface")
    running = Running(str(folder / "panda.db"), folder).start()
    publish(running.admin, small_table(small_domain()), "city", folder)
    body = {"kind": "table", "name": "main", "table": {"name": "city", "version": 1}}
    body["reports_per_period"] = 1_000
    assert running.admin.post("/v1/deployments", json=body).status_code == 201
    yield running
    running.stop()


@pytest.mark.parametrize(
    ("method", "path", "expected"),
    [
        ("GET", "/nothing", (404, "not_found")),
        ("GET", "/v1/nothing", (404, "not_found")),
        ("GET", "/v1/tables/x", (405, "method_not_allowed")),
        ("GET", "/v1/tables/x/1/", (404, "not_found")),
        ("GET", "/v1/tables/x/0", (422, "invalid")),
        ("GET", "/v1/tables/x/one", (422, "invalid")),
        ("GET", "/v1/tables/x/99999999999999999999", (422, "invalid")),
        ("GET", "/v1/tables/%2e%2e/1", (422, "invalid")),
        ("GET", "/v1/domains/" + "x" * 65, (422, "invalid")),
        ("GET", "/v1/deployments/main/reports?after=-1", (422, "invalid")),
        ("GET", "/v1/deployments/main/reports?after=x", (422, "invalid")),
        ("PUT", "/v1", (405, "method_not_allowed")),
        ("DELETE", "/v1/deployments/main", (405, "method_not_allowed")),
        ("DELETE", "/v1/tokens/nonsense", (422, "invalid")),
        ("GET", "/assets/%2e%2e/%2e%2e/server/app.py", (404, "not_found")),
        ("GET", "/assets/..%2f..%2fserver/app.py", (404, "not_found")),
    ],
)
def test_every_error_has_the_envelope(
    here: Running, method: str, path: str, expected: tuple[int, str]
) -> None:
    assert error_of(here.admin.request(method, path)) == expected


def test_a_wrong_method_is_told_the_right_ones(here: Running) -> None:
    assert "GET" in here.admin.put("/v1").headers["allow"]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"null",
        b"[]",
        b'"text"',
        b"{}",
        b"\xff\xfe",
        b"[" * 20_000,
        b'{"id": 1e999}',
        b'{"id": NaN, "output": 5}',
        b'{"output": 1, "output": 2}',
        b'{"id":"00000000-0000-4000-8000-000000000000","output":0,"output":5}',
        b'{"id":"' + b"9" * 10_000 + b'"}',
        b'{"id":"00000000-0000-4000-8000-000000000000","output":' + b"9" * 5_000 + b"}",
        b'{"id":"00000000-0000-4000-8000-000000000000","output":true}',
        b'{"id":"00000000-0000-4000-8000-000000000000","output":"5"}',
        b'{"id":"00000000-0000-4000-8000-000000000000","output":5,"lat":41.9}',
        b'{"id":"\xd8\x00","output":5}',
    ],
)
def test_malformed_reports_are_refused(here: Running, body: bytes) -> None:
    (client,) = here.reporters(1)
    headers = {"content-type": "application/json"}
    url = "/v1/deployments/main/reports"
    answer = client.post(url, content=body, headers=headers)
    assert error_of(answer) == (422, "invalid")
    assert "41.9" not in answer.text and "9999" not in answer.text
    assert error_of(client.post("/v1/deployments/main/balls", content=body)) == (422, "invalid")


def test_other_content_types_are_refused(here: Running) -> None:
    (client,) = here.reporters(1)
    for path in ("reports", "balls"):
        answer = client.post(
            f"/v1/deployments/main/{path}", content=b"{}", headers={"content-type": "text/plain"}
        )
        assert error_of(answer) == (422, "invalid")


def test_random_bodies_never_break_the_server(here: Running) -> None:
    """A few hundred here; the load tests send ten thousand."""
    (client,) = here.reporters(1)
    rng = secrets.SystemRandom()
    paths = [
        ("POST", "/v1/deployments/main/reports"),
        ("POST", "/v1/deployments/main/balls"),
        ("POST", "/v1/deployments/main/rounds/1/anchors"),
        ("POST", "/v1/domains"),
        ("POST", "/v1/tokens"),
        ("POST", "/v1/deployments"),
        ("PATCH", "/v1/deployments/main"),
    ]
    pieces = ["{", "}", "[", "]", ":", ",", '"id"', '"name"', "1e5", "-0", "null", '"\\ud800"']
    for n in range(240):
        method, path = paths[n % len(paths)]
        text = "".join(rng.choice(pieces) for _ in range(rng.randrange(12)))
        body = text.encode() if n % 3 else rng.randbytes(40)
        caller = client if path.startswith("/v1/deployments/main/") else here.admin
        answer = caller.request(method, path, content=body)
        assert answer.status_code in (404, 409, 422), (path, answer.status_code)
        assert set(answer.json()) == {"error"}


def test_oversized_bodies_are_refused(here: Running) -> None:
    (client,) = here.reporters(1)
    answer = client.post("/v1/deployments/main/reports", content=b" " * 70_000)
    assert error_of(answer) == (413, "too_large")

    def chunks() -> Any:
        for _ in range(20):
            yield b" " * 10_000

    answer = client.post("/v1/deployments/main/reports", content=chunks())
    assert error_of(answer) == (413, "too_large")
    assert here.client().get("/readyz").status_code == 200


def test_half_a_request_holds_up_nobody(here: Running) -> None:
    """Whoever says that a megabyte comes and sends nothing waits alone."""
    host, port = here.url.removeprefix("http://").split(":")
    token = here.admin_token
    with socket.create_connection((host, int(port))) as half:
        half.sendall(
            b"POST /v1/domains HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n"
            + f"Authorization: Bearer {token}\r\n\r\n".encode()
        )
        assert here.client().get("/readyz").status_code == 200
        half.settimeout(0)
        with pytest.raises(BlockingIOError):
            half.recv(1)  # still waiting: the others were answered first


def resolve(document: dict[str, Any], node: Any) -> None:
    """Every reference leads somewhere."""
    if isinstance(node, dict):
        if "$ref" in node:
            place: Any = document
            for step in node["$ref"].removeprefix("#/").split("/"):
                place = place[step]
        for value in node.values():
            resolve(document, value)
    if isinstance(node, list):
        for value in node:
            resolve(document, value)


def test_the_description_is_complete(here: Running) -> None:
    document = here.client().get("/v1/openapi.json").json()
    assert document["openapi"].startswith("3.")
    resolve(document, document)
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            answers = operation["responses"]
            assert operation["description"], path
            refused = answers["default"]["content"]["application/json"]["schema"]
            assert refused == {"$ref": "#/components/schemas/ErrorBody"}, path
            assert any(status.startswith("2") for status in answers), path
            asks_who = re.search(r"^/v1/(tokens|actions)|/(balls|anchors|rows|close)$", path)
            assert "security" in operation or not asks_who, path
            if method in ("post", "patch") and not re.search(r"/close$", path):
                assert operation["requestBody"]["required"], path
    assert "ReportRequest" in document["components"]["schemas"]


def test_pages_are_served_under_a_strict_policy(here: Running) -> None:
    client = here.client()
    for path in ("/", "/operator"):
        answer = client.get(path)
        if answer.status_code == 200:
            assert answer.headers["content-security-policy"] == POLICY
            assert answer.headers["content-type"].startswith("text/html")
            assert not re.search(r"<script(?![^>]*\bsrc=)", answer.text)
    assert "unsafe" not in POLICY and "default-src 'self'" in POLICY


def test_cors_is_off(here: Running) -> None:
    answer = here.client().get("/v1", headers={"origin": "https://elsewhere.example"})
    assert "access-control-allow-origin" not in answer.headers


def test_cors_can_be_allowed_for_named_origins(make_server: Callable[..., Running]) -> None:
    client = make_server(None, "--cors", "https://friend.example").client()
    friend = client.get("/v1", headers={"origin": "https://friend.example"})
    assert friend.headers["access-control-allow-origin"] == "https://friend.example"
    other = client.get("/v1", headers={"origin": "https://elsewhere.example"})
    assert "access-control-allow-origin" not in other.headers
    asked = client.options(
        "/v1/deployments/x/reports",
        headers={"origin": "https://friend.example", "access-control-request-method": "POST"},
    )
    assert asked.status_code == 200
    # Refusals too, or a page could not tell its user why.
    reports = "/v1/deployments/x/reports"
    for method, path, status in (("POST", reports, 404), ("GET", "/v1/tokens", 401)):
        refused = client.request(method, path, headers={"origin": "https://friend.example"})
        assert refused.status_code == status
        assert refused.headers["access-control-allow-origin"] == "https://friend.example"


# Commands


@pytest.fixture
def run(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., CompletedProcess[str]]:
    folder = tmp_path_factory.mktemp("output")
    return lambda *args: copied.run(list(args), folder)


def test_a_server_is_made_once_and_ends_cleanly(tmp_path: Path) -> None:
    running = Running(str(tmp_path / "panda.db"), tmp_path).start()
    first = running.admin_token
    assert re.fullmatch(r"pmt_[0-9a-f]{12}_[A-Za-z0-9_-]{43}", first)
    key = running.client().get("/v1").json()["key"]
    assert running.stop() == 0
    running.admin_token = ""
    running.start()
    # The second time there is an admin already: no other token, the same key.
    assert running.admin_token == ""
    assert running.client().get("/v1").json()["key"] == key
    assert running.client(first).get("/v1/tokens").status_code == 200
    assert running._end(signal.SIGINT) in (0, 130)
    for path in tmp_path.iterdir():
        if path.name != "server.log":
            assert stat.S_IMODE(path.stat().st_mode) & 0o077 == 0, path.name


def test_tokens_are_made_and_revoked_beside_a_running_server(
    here: Running, run: Callable[..., CompletedProcess[str]]
) -> None:
    made = run("token", "--database", here.database, "--role", "admin", "--count", "2")
    assert made.returncode == 0, made.stderr
    first, second = made.stdout.split()
    assert here.client(first).get("/v1/tokens").status_code == 200
    assert here.client(second).get("/v1/tokens").status_code == 200
    gone = run("token", "--database", here.database, "--revoke", first.split("_")[1])
    assert (gone.returncode, gone.stdout) == (0, "revoked\n")
    # One look is enough (test_auth.py), and looks are a second apart.
    assert LOOK_SECONDS <= 1.0
    deadline = time.monotonic() + PATIENCE
    while here.client(first).get("/v1/tokens").status_code == 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert here.client(second).get("/v1/tokens").status_code == 200


def test_commands_say_what_is_wrong(
    tmp_path: Path, run: Callable[..., CompletedProcess[str]]
) -> None:
    missing = run("serve", "--database", str(tmp_path / "none.db"))
    assert missing.returncode == 2 and "--init" in missing.stderr
    assert run("token", "--role", "king").returncode == 2
    revoked = run("token", "--database", str(tmp_path / "none.db"), "--revoke", "0" * 12)
    assert revoked.returncode == 2
    assert run("serve", "--log-level", "loud").returncode == 2


def test_a_key_that_others_can_read_is_refused(
    tmp_path: Path, run: Callable[..., CompletedProcess[str]]
) -> None:
    running = Running(str(tmp_path / "panda.db"), tmp_path).start()
    running.stop()
    (tmp_path / "operator.key").chmod(0o644)
    found = run(
        "serve",
        "--database",
        running.database,
        "--key",
        str(tmp_path / "operator.key"),
        "--port",
        "0",
    )
    assert found.returncode == 2 and "chmod 600" in found.stderr


def test_the_log_of_all_this_has_no_token(here: Running) -> None:
    (client,) = here.reporters(1)
    token = client.headers["authorization"].removeprefix("Bearer ")
    client.get(f"/v1/{token}")
    client.post("/v1/tokens", content=json.dumps({"role": token}))
    log = here.log.read_text()
    assert token not in log and here.admin_token not in log
    assert "pmt_" not in log
    assert "unhandled" not in log
