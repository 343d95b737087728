"""A real server and a real PostgreSQL for tests, started and ended by them."""

from __future__ import annotations

import os
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

import copied
import httpx
import numpy as np
import psycopg
import pytest
from outside import left_out

import panda_mdp as pm

SQLITE_ONLY = pytest.mark.parametrize("server", ["sqlite"], indirect=True)
"""For what has been seen on PostgreSQL elsewhere, or does not depend on the database."""
COMMAND = (sys.executable, "-c", "from panda_mdp.cli import main; main()")
MEASURING = "PYTEST_VERSION" not in os.environ
"""Benchmarks start a server as its operator does; tests need it soon."""

PATIENCE = 300
"""Seconds after which something that always comes is missing, on the busiest machine too."""

NO_TLS = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""Reading the system's authorities takes longer than a request, and no server here has TLS."""


class Running:
    """`panda-mdp serve` in a process of its own. Its log is a file that tests can search."""

    def __init__(self, database: str, folder: Path, *options: str, log: str = "server.log") -> None:
        self.database = database
        self.folder = folder
        self.options = options
        self.log = folder / log
        self.admin_token = ""
        self.url = ""
        self.process: subprocess.Popen[str] | copied.Copied | None = None
        self._clients: dict[str | None, httpx.Client] = {}

    def start(self) -> Running:
        where = ("--database", self.database, "--port", "0")
        key = ("--key", str(self.folder / "operator.key"))
        rates = ("--token-rate", "5000", "--address-rate", "5000")
        args = ["serve", "--init", *where, *key, *rates, *self.options]
        with self.log.open("ab") as log:
            self.process = (
                subprocess.Popen([*COMMAND, *args], stdout=subprocess.PIPE, stderr=log, text=True)
                if MEASURING
                else copied.start(args, log)
            )
        for line in self.process.stdout or ():
            if "admin token" in line:
                self.admin_token = line.split(": ")[1].strip()
            if " serves http" in line:
                self.url = line.split()[-1]
                return self
        self.process.wait()
        raise AssertionError(self.log.read_text())

    def kill(self) -> None:
        """End it as a power cut would."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """End it as an operator would; the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        for client in self._clients.values():
            client.close()
        self._clients.clear()
        if self.process is None:
            return 0
        self.process.send_signal(how)
        code = self.process.wait(PATIENCE)
        if self.process.stdout is not None:
            self.process.stdout.close()
        self.process = None
        return code

    def client(self, token: str | None = None) -> httpx.Client:
        """The client of a token: one each, for tests ask for it at every look at the server."""
        client = self._clients.get(token)
        if client is None or client.is_closed:
            headers = {} if token is None else {"authorization": f"Bearer {token}"}
            client = httpx.Client(
                base_url=self.url, headers=headers, timeout=PATIENCE, verify=NO_TLS
            )
            self._clients[token] = client
        return client

    @property
    def admin(self) -> httpx.Client:
        return self.client(self.admin_token)

    def reporters(self, count: int) -> list[httpx.Client]:
        made = self.admin.post("/v1/tokens", json={"role": "reporter", "count": count})
        assert made.status_code == 201, made.text
        return [self.client(token["token"]) for token in made.json()["tokens"]]


class Postgres:
    """A cluster in a folder of its own, reached by a socket in it."""

    def __init__(self) -> None:
        self.bin = _binaries()
        self.folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
        self._made = 0
        # PostgreSQL refuses to run as root.
        self._user: dict[str, Any] = {}
        if os.geteuid() == 0:
            shutil.chown(self.folder, "nobody")
            self._user = {"user": "nobody", "cwd": self.folder}

    def start(self) -> Postgres:
        data = str(self.folder / "data")
        self._call("initdb", "-D", data, "-U", "panda", "-A", "trust", "-E", "UTF8")
        return self.resume()

    def resume(self) -> Postgres:
        """Start it on what is there."""
        data = str(self.folder / "data")
        options = f"-k {self.folder} -c listen_addresses= -c max_connections=100"
        log = str(self.folder / "log")
        self._call(
            "pg_ctl", "-D", data, "-o", options, "-l", log, "-w", "-t", str(PATIENCE), "start"
        )
        return self

    def crash(self) -> None:
        """End it at once: no checkpoint, no farewell to clients."""
        self._call("pg_ctl", "-D", str(self.folder / "data"), "-m", "immediate", "stop")

    def stop(self) -> None:
        self.crash()
        shutil.rmtree(self.folder)

    def database(self, options: str = "") -> str:
        """The URL of a new, empty database."""
        self._made += 1
        name = f"test{self._made}"
        where = f"host={self.folder} user=panda dbname=postgres"
        with psycopg.connect(where, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name} {options}")  # type: ignore[arg-type]
        return f"postgresql://panda@/{name}?host={self.folder}"

    def _call(self, program: str, *args: str) -> None:
        subprocess.run(
            [str(self.bin / program), *args],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            timeout=PATIENCE,
            **self._user,
        )


def _binaries() -> Path:
    found = shutil.which("initdb")
    if found is not None:
        return Path(found).parent
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    if not places:
        left_out("PostgreSQL", "install the Debian package postgresql")
    return places[-1].parent


def new_id() -> str:
    return str(uuid.uuid4())


def small_domain(records: int = 40, seed: int = 0) -> pm.Domain:
    """Places in a few kilometres."""
    rng = np.random.default_rng(seed)
    return pm.Domain.from_points(
        41.85 + 0.06 * rng.random(records), 12.45 + 0.08 * rng.random(records)
    )


def small_table(domain: pm.Domain, outputs: int = 8, epsilon: float = 3.0) -> pm.Mechanism:
    """A table of a small domain."""
    chosen = np.arange(0, domain.size, domain.size // outputs)[:outputs]
    problem = pm.Problem(domain, chosen, pm.distance_loss(domain, chosen), epsilon)
    return pm.exponential(problem)


def domain_body(domain: pm.Domain, name: str) -> dict[str, Any]:
    """The request that publishes a domain of places."""
    return {
        "name": name,
        "kind": "haversine",
        "unit": "km",
        "lat": domain.lat.tolist(),
        "lon": domain.lon.tolist(),
    }


def publish(client: httpx.Client, mechanism: pm.Mechanism, name: str, folder: Path) -> Any:
    """Publish a table from its file; the server's answer."""
    path = mechanism.save(folder / f"{name}.pmdp")
    answer = client.post(
        f"/v1/tables/{name}",
        content=path.read_bytes(),
        headers={"content-type": "application/octet-stream"},
    )
    assert answer.status_code == 201, answer.text
    return answer.json()


def error_of(answer: httpx.Response) -> tuple[int, str]:
    """Status and code of a refusal, whose envelope must be ours."""
    body = answer.json()
    assert set(body) == {"error"}, body
    assert set(body["error"]) == {"code", "message", "remedy"}, body
    return answer.status_code, body["error"]["code"]
