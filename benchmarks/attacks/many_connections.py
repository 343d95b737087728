"""One address opens more connections than the server takes; balls beyond a quota; charged refusals.

python benchmarks/attacks/many_connections.py
"""

from __future__ import annotations

import resource
import socket
import tempfile
from pathlib import Path
from urllib.parse import urlsplit

import httpx
from stage import client, deployed, domain_body, judge, rogue, small_domain

from panda_mdp.errors import PandaError

CONNECTIONS = 4_100


def main() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (10_000, 10_000))
    running = deployed()
    try:
        where = urlsplit(running.url)
        held = [
            socket.create_connection((where.hostname or "", where.port or 0))
            for _ in range(CONNECTIONS)
        ]
        # Another address of this machine.
        other = httpx.HTTPTransport(local_address="127.0.0.2")
        with httpx.Client(transport=other, base_url=running.url, timeout=5) as somebody:
            try:
                code = somebody.get("/healthz").status_code
            except httpx.HTTPError as error:
                code = type(error).__name__
        print(f"{CONNECTIONS} connections of one address; another one is answered: {code}")
        for connection in held:
            connection.close()
        running.admin.post("/v1/domains", json=domain_body(small_domain(), "city"))
        ball = {"kind": "ball", "name": "ball", "table": {"name": "city", "version": 1}}
        body = {**ball, "epsilon_1": 1.0, "edge": 0.5, "radius": 3.0, "snap": 2.0}
        running.admin.post("/v1/deployments", json=body).raise_for_status()
        (reporter,) = running.reporters(1)
        url = "/v1/deployments/ball/balls"
        asked = [
            reporter.post(url, json={"centre": [n % 8, n // 8]}).status_code for n in range(40)
        ]
        print(f"balls for a quota of 1 report: {asked.count(200)} of {len(asked)}")
    finally:
        running.stop()
    folder = Path(tempfile.mkdtemp())
    server = rogue(folder)
    honest = server.deployment
    two = {"reports_per_period": 2}
    server.deployment = lambda name: honest(name).model_copy(update=two)  # type: ignore[method-assign]
    with client(server, folder / "user", repeats="fresh") as user:
        plan, drawn = user.plan("table"), 0
        for _ in range(5):
            try:
                user.report(plan, plan.record(3))
                drawn += 1
            except PandaError:
                pass
        (balance,) = user.ledger.balances()
    print(f"five reports with a signed quota of 2: {drawn} accepted, {balance.reports} charged")
    judge(
        {
            "one address does not shut the others out": code == 200,
            "balls have a quota": asked.count(200) < len(asked),
            "nothing is charged that the signed quota refuses": balance.reports == 2,
        }
    )


if __name__ == "__main__":
    main()
