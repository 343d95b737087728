"""Drills of an operator: first steps, a full disk, TLS. `make test-operate`."""

from __future__ import annotations

import os
import re
import shutil
import socket
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from protocol_servers import (
    COMMAND,
    PATIENCE,
    Running,
    domain_body,
    new_id,
    publish,
    small_domain,
    small_table,
)

from panda_mdp.protocol import Allowance, Client, Network

ROOT = Path(__file__).parents[3]
TUTORIAL = ROOT / "docs" / "tutorials" / "operator.md"
CADDY = os.environ.get("CADDY", "") or shutil.which("caddy")
TABLE = {"kind": "table", "name": "city", "table": {"name": "city", "version": 1}}


def test_one_command_ends_in_a_report_and_an_estimate(tmp_path: Path) -> None:
    folder = tmp_path / "quick"
    command = [*COMMAND, "quickstart", "--folder", str(folder), "--no-page"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=True)
    assert re.search(r"report was accepted: place [0-9]+, epsilon 4\n", done.stdout)
    assert re.search(r"estimate of 1 report: [0-9]+ zones", done.stdout)
    assert (folder / "admin.token").stat().st_mode & 0o077 == 0
    again = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert again.returncode == 2 and "is there already" in again.stderr


def empty_environment(folder: Path) -> None:
    """A checkout, and nothing installed but Python: the tutorial's own line installs into it."""
    for name in ("src", "verify", "pyproject.toml", "README.md", "LICENSE"):
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__")
            )
        else:
            shutil.copy2(ROOT / name, folder / name)


def this_environment(folder: Path) -> None:
    """What the tests run in, by the names that the tutorial types."""
    for name, command in (("panda-mdp", f"-c '{COMMAND[2]}'"), ("python", "")):
        (folder / name).write_text(f'#!/bin/sh\nexec {COMMAND[0]} {command} "$@"\n')
        (folder / name).chmod(0o755)


@pytest.mark.parametrize("empty", [False, True], ids=["here", "in an empty environment"])
def test_the_tutorial_word_by_word(empty: bool, tmp_path: Path) -> None:
    """Everything that operator.md says to type, but the port; with `PANDA_MDP_INSTALL`, which needs
    a network, in an empty environment that its first line makes."""
    if empty and not os.environ.get("PANDA_MDP_INSTALL"):
        pytest.skip("PANDA_MDP_INSTALL=1 installs from the network (make test-operate)")
    home = {"HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    environment = {
        name: text for name, text in os.environ.items() if name != "PYTHONPATH" or not empty
    }
    environment |= home
    (empty_environment if empty else this_environment)(tmp_path)
    blocks = re.findall(
        r"```python\n(.*?)```|((?:^    [^\n]*\n)+)", TUTORIAL.read_text(), re.M | re.S
    )
    url, code, said = "", "", ""

    def run(*command: str) -> str:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=4 * PATIENCE,
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr[-2_000:])
        return done.stdout + done.stderr

    with ExitStack() as ending:
        for python, commands in blocks:
            code += python
            if commands and code:
                assert "Mechanism" in run("python", "-c", code)
                code = ""
            for line in commands.splitlines():
                typed = line.strip().partition("  #")[0].replace("http://127.0.0.1:8321", url)
                if "pip install" in typed:
                    if empty:
                        environment["PATH"] = run("bash", "-c", f"{typed} && echo $PATH").split()[
                            -1
                        ]
                        assert str(tmp_path) in run("bash", "-c", "command -v panda-mdp")
                elif " serve " in typed:
                    served = ["bash", "-c", f"exec {typed} --port 0"]
                    server = ending.enter_context(
                        subprocess.Popen(
                            served,
                            cwd=tmp_path,
                            env=environment,
                            stdout=subprocess.PIPE,
                            text=True,
                        )
                    )
                    ending.callback(server.terminate)
                    lines = server.stdout or iter(())
                    environment["PANDA_MDP_TOKEN"] = next(lines).split(": ")[1].strip()
                    url = next(lines).split()[-1]
                else:
                    said = run("bash", "-c", typed)
    assert re.search(
        r"^[0-9.]+,[0-9.]+\nspent epsilon [0-9.]+ per km.*; receipt [0-9a-f-]{36}", said
    )


def survey(admin: httpx.Client, folder: Path, reports: int) -> str:
    """Open a deployment; the token of a reporter."""
    domain = small_domain()
    assert admin.post("/v1/domains", json=domain_body(domain, "city")).status_code == 201
    publish(admin, small_table(domain), "city", folder)
    wanted = {**TABLE, "reports_per_period": reports}
    made = admin.post("/v1/deployments", json=wanted)
    assert made.status_code == 201, made.text
    made = admin.post("/v1/tokens", json={"role": "reporter"})
    return str(made.json()["tokens"][0]["token"])


@contextmanager
def small_disk(folder: Path) -> Iterator[tuple[httpx.Client, Path]]:
    """A server on a file system of 16 MB that it alone has; its admin, and the way to it."""
    folder.mkdir()
    serve = f"serve --init --port 0 --database {folder}/panda.db --token-rate 5000"
    mount = f"mount -t tmpfs -o size=16m none {folder} && exec"
    line = f"{mount} {COMMAND[0]} -c '{COMMAND[2]}' {serve}"
    command = ["unshare", "--mount", "sh", "-c", line]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            said = [line for _, line in zip(range(2), server.stdout or (), strict=False)]
            if len(said) < 2:
                pytest.skip("this system lets nobody mount a small disk")
            token = said[0].split(": ")[1].strip()
            headers = {"authorization": f"Bearer {token}"}
            with httpx.Client(base_url=said[1].split()[-1], headers=headers, timeout=60) as admin:
                yield admin, Path(f"/proc/{server.pid}/root{folder}")
        finally:
            server.terminate()


def test_a_full_disk_refuses_and_loses_nothing(tmp_path: Path) -> None:
    if os.geteuid() or shutil.which("unshare") is None:
        pytest.skip("mounting a small disk needs root")
    with small_disk(tmp_path / "disk") as (admin, disk):
        token = survey(admin, tmp_path, 10_000)
        headers = {"authorization": f"Bearer {token}"}

        def report() -> int:
            body = {"id": new_id(), "output": 0}
            sent = admin.post("/v1/deployments/city/reports", json=body, headers=headers)
            return sent.status_code

        accepted = [report() for _ in range(5)]
        with suppress(OSError), (disk / "ballast").open("wb", buffering=0) as ballast:
            while ballast.write(bytes(4096)):
                pass
        full = [report()]
        # What was written already has some room left.
        while full[-1] == 201 and len(full) < 1_000:
            full.append(report())
        assert full[-1] == 503, "nothing is acknowledged where nothing can be written"
        (disk / "ballast").unlink()
        freed = [report() for _ in range(5)]
        assert freed == [201] * 5
        stored = admin.get("/v1/deployments/city/counts").json()["reports"]
        assert stored == (accepted + full + freed).count(201)
        assert admin.get("/readyz").status_code == 200


@pytest.mark.skipif(not CADDY, reason="Caddy is not installed, nor named by CADDY")
def test_a_report_through_a_proxy_with_tls(tmp_path: Path) -> None:
    server = Running(str(tmp_path / "panda.db"), tmp_path, "--proxy", "127.0.0.1").start()
    try:
        token = survey(server.admin, tmp_path, 3)
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        config = tmp_path / "Caddyfile"
        config.write_text(
            "{\n\tadmin off\n\tskip_install_trust\n\tauto_https disable_redirects\n}\n"
            f"https://localhost:{port} {{\n\tbind 127.0.0.1\n\ttls internal\n"
            f"\treverse_proxy {server.url}\n}}\n"
        )
        command = [str(CADDY), "run", "--config", str(config), "--adapter", "caddyfile"]
        homes = {"HOME": str(tmp_path), "XDG_DATA_HOME": str(tmp_path / "data")}
        root = tmp_path / "data/caddy/pki/authorities/local/root.crt"
        with subprocess.Popen(command, env=os.environ | homes, stderr=subprocess.DEVNULL) as proxy:
            try:
                report_by_tls(root, port, token, tmp_path / "ledger")
            finally:
                proxy.terminate()
        assert server.admin.get("/v1/deployments/city/counts").json()["reports"] == 1
    finally:
        server.stop()


def report_by_tls(root: Path, port: int, token: str, folder: Path) -> None:
    """One report that trusts the proxy's own authority alone; none without it."""
    url, limits = f"https://localhost:{port}", Allowance(epsilon=5.0, period_epsilon=10.0)
    for _ in range(300):
        if root.exists():
            break
        time.sleep(0.1)
    trusting = httpx.HTTPTransport(verify=ssl.create_default_context(cafile=str(root)), retries=20)
    network = Network(transport=trusting, attempts=20)
    with Client(url, token, folder, limits, network=network) as client:
        plan = client.plan("city")
        assert client.report(plan, plan.record(7)).receipt
    with pytest.raises(httpx.ConnectError, match="certificate"):
        httpx.get(f"{url}/v1")
