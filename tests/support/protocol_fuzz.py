"""Sends malformed requests to a running server and judges what comes back and what is logged."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
from protocol_malformed import MARK, NAME, Case, Target, cases, target
from protocol_servers import Running, domain_body, small_domain, small_table
from protocol_traffic import read_answer, request_bytes

HANG_S = 20.0
AT_ONCE = 16
ACCESS = re.compile(
    r"\S+ \S+ INFO (GET|HEAD|POST|PUT|PATCH|DELETE|OPTIONS|TRACE|OTHER) (\S+) (\d{3}) [\d.]+ ms"
)
PAGES = {"/", "/operator", "/assets/{path:path}", "/{name}", "/v1/openapi.json", "-"}
BELOW = (
    "WARNING Invalid HTTP request received.",
    "WARNING Unsupported upgrade request.",
    'WARNING No supported WebSocket library detected. Please use "pip install '
    "'uvicorn[standard]'\", or install 'websockets' or 'wsproto' manually.",
    "WARNING a round failed",
)
"""What else may be there: uvicorn about bytes that are not HTTP, and rounds. It quotes nothing."""
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,"
    "response_headers_conformance,response_schema_conformance,negative_data_rejection"
)

CONFIG = """
[dictionaries.names]
values = ["main", "paper", "ball", "city"]
[dictionaries.numbers]
values = [1, 2]
[parameters]
"path.name" = { dictionary = "names", probability = 0.7 }
"path.domain_id" = { dictionary = "names", probability = 0.7 }
"path.version" = { dictionary = "numbers", probability = 0.7 }
"path.number" = { dictionary = "numbers", probability = 0.7 }
[checks.not_a_server_error]
expected-statuses = ["2xx", "3xx", "4xx", "503"]
"""
"""Names that exist, so that not every request ends at 404. Rows of a round that is not solved yet
are answered with 503 and Retry-After."""


@dataclass
class Verdict:
    """What came back, by kind of case, and every rule that was broken."""

    answers: Counter[tuple[str, str]] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    @property
    def sent(self) -> int:
        return sum(self.answers.values())


def prepare(running: Running, folder: Path) -> Target:
    """A server with a deployment of each kind, and a round that is open."""
    admin = running.admin
    domain = small_domain()
    path = small_table(domain).save(folder / "table.pmdp")
    kind = {"content-type": "application/octet-stream"}
    _made(admin.post("/v1/tables/city", content=path.read_bytes(), headers=kind))
    _made(admin.post("/v1/domains", json=domain_body(domain, "city")))
    table = {"table": {"name": "city", "version": 1}}
    _made(
        admin.post(
            "/v1/deployments",
            json={"kind": "table", "name": "main", "reports_per_period": 10_000, **table},
        )
    )
    ball = {
        "kind": "ball",
        "name": "ball",
        **table,
        "epsilon_1": 1.0,
        "edge": 0.5,
        "radius": 3.0,
        "snap": 1.0,
    }
    _made(admin.post("/v1/deployments", json=ball))
    anchors = {"kind": "anchors", "name": "paper", "domain": "city", "outputs": [0, 10, 20]}
    anchors |= {"epsilon": 5.0, "delta": 1e-3, "accept_no_guarantee": True}
    selection = {"decay": "exponential", "alpha": 0.9, "rate": 0.5, "radius": 2.0}
    _made(admin.post("/v1/deployments", json=anchors | {"selection": selection}))
    _made(admin.post("/v1/deployments/paper/rounds", json={}))
    made = _made(admin.post("/v1/tokens", json={"role": "reporter"}))
    compact = admin.get("/v1/tables/city/1/file").content
    return target(running.admin_token, made["tokens"][0]["token"], compact)


def run_cases(running: Running, where: Target, count: int, seed: int) -> Verdict:
    """Send so many malformed requests; the server must refuse each and stay well."""
    verdict = Verdict()
    before = running.admin.get("/v1/deployments/main/counts").json()["reports"]
    asyncio.run(_run(running.url, iter(cases(where, count, seed)), verdict))
    after = running.admin.get("/v1/deployments/main/counts").json()["reports"]
    if after != before:
        verdict.wrong.append(f"{after - before} malformed reports were counted")
    if running.client().get("/readyz").status_code != 200:
        verdict.wrong.append("the server is not well any more")
    return verdict


async def _run(url: str, todo: Iterator[Case], verdict: Verdict) -> None:
    where = urlsplit(url)

    async def work() -> None:
        for case in todo:
            outcome, problem = await judge(where.hostname or "", where.port or 0, case)
            verdict.answers[case.kind, outcome] += 1
            if problem:
                verdict.wrong.append(f"{case.kind}: {problem}")

    await asyncio.gather(*(work() for _ in range(AT_ONCE)))


async def _stalled(url: str, where: Target) -> list[str]:
    route = where.routes[0]
    head = request_bytes(
        "POST", route.path, route.token, b"", "content-type: application/json", "content-length: 50"
    )
    part = b"1\r\n{\r\n"
    chunked = request_bytes("POST", route.path, route.token, b"", "transfer-encoding: chunked")
    place = urlsplit(url)
    wanted = frozenset({422})
    todo = [Case("stalled", (head, b"{"), wanted), Case("stalled chunks", (chunked, part), wanted)]
    found = await asyncio.gather(
        *(judge(place.hostname or "", place.port or 0, case, 90.0) for case in todo)
    )
    return [f"{outcome}: {problem}" for outcome, problem in found if problem]


def stalled_bodies(running: Running, where: Target) -> list[str]:
    """Bodies that never arrive are given up after their time (a minute)."""
    return asyncio.run(_stalled(running.url, where))


async def judge(host: str, port: int, case: Case, hang_s: float = HANG_S) -> tuple[str, str]:
    """Send one case on a connection of its own: what came back, and which rule that breaks."""
    try:
        async with asyncio.timeout(hang_s):
            reader, writer = await asyncio.open_connection(host, port)
            try:
                status, body = await _exchange(reader, writer, case)
            finally:
                writer.transport.abort()
    except TimeoutError:
        return "no answer", "neither an answer nor an end"
    if status is None:
        gone = case.hang_up or case.may_close
        return "closed", "" if gone else "closed without an answer"
    return str(status), _problem(case, status, body)


async def _exchange(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, case: Case
) -> tuple[int | None, bytes]:
    try:
        for part in case.parts:
            writer.write(part)
            await writer.drain()
            if case.pause_s:
                await asyncio.sleep(case.pause_s)
    except ConnectionError:
        # Refused before all was sent; the answer may be there all the same.
        pass
    try:
        async with asyncio.timeout(0.3 if case.hang_up else None):
            return await read_answer(reader)
    except (ConnectionError, asyncio.IncompleteReadError):
        return None, b""
    except TimeoutError:
        if case.hang_up:
            return None, b""
        raise


def _problem(case: Case, status: int, body: bytes) -> str:
    if status not in case.allowed:
        return f"answered with {status}"
    if MARK.encode() in body and not (case.echo and status == 201):
        return f"the answer ({status}) quotes the request"
    if status < 400:
        return ""
    try:
        error = json.loads(body)["error"]
        if set(error) == {"code", "message", "remedy"}:
            return ""
    except (ValueError, KeyError, TypeError):
        if case.plain:
            return ""
    return f"the answer ({status}) has no envelope"


def log_problems(running: Running, where: Target) -> list[str]:
    """Lines of the log that are not what a log line may be."""
    paths = running.client().get("/v1/openapi.json").json()["paths"]
    templates = PAGES | set(paths)
    text = running.log.read_text(errors="replace")
    wrong = []
    for secret in (MARK, NAME, where.admin, where.reporter, *_secrets(where)):
        if secret in text:
            wrong.append("the log has a mark or a token")
    for line in text.splitlines():
        found = ACCESS.fullmatch(line)
        if found is not None and found[2] in templates:
            if found[3].startswith("5") and found[3] != "503":
                wrong.append(f"{found[1]} {found[2]} was answered with {found[3]}")
        elif not line.endswith(BELOW):
            wrong.append(f"an odd line: {line}")
    return wrong


def _secrets(where: Target) -> list[str]:
    return [token.split("_", 2)[2] for token in (where.admin, where.reporter)]


def schemathesis(
    running: Running,
    token: str,
    folder: Path,
    examples: int,
    seed: int,
    phases: str = "examples,coverage,fuzzing",
) -> tuple[bool, str]:
    """Run schemathesis against the served description: whether all is well, and its output."""
    config = folder / "schemathesis.toml"
    config.write_text(CONFIG)
    command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run"]
    command += [f"{running.url}/v1/openapi.json", "--checks", CHECKS, "--seed", str(seed)]
    command += ["--max-examples", str(examples), "--header", f"Authorization: Bearer {token}"]
    command += ["--phases", phases, "--suppress-health-check", "all"]
    command += ["--request-timeout", "300", "--no-color"]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=1_800, cwd=folder, check=False
    )
    return done.returncode == 0, (done.stdout + done.stderr).replace(token, "<token>")


def _made(answer: httpx.Response) -> Any:
    assert answer.status_code == 201, answer.text
    return answer.json()
