"""What the attacks have in common: a stand-in for a malicious server, and a real one to attack."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import panda_mdp as pm

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from protocol_servers import (  # noqa: E402
    Running,
    domain_body,
    new_id,
    publish,
    small_domain,
    small_table,
)
from protocol_standin import TOKEN, URL, Standin, give  # noqa: E402

from panda_mdp.protocol import Allowance, Client  # noqa: E402

__all__ = [
    "KM",
    "TOKEN",
    "URL",
    "Running",
    "Standin",
    "client",
    "deployed",
    "domain_body",
    "give",
    "judge",
    "new_id",
    "rogue",
    "small_domain",
]
KM = 1 / 111.2


def rogue(folder: Path) -> Standin:
    """A server whose operator signs whatever it likes."""
    domain = small_domain(12)
    outputs = np.array([1, 5, 9])
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 2.0)
    path = folder / "city.pmdp"
    table = pm.compact(pm.exponential(problem))
    table.save(path)
    return Standin(path, table)


def client(server: Standin, folder: Path, **limits: Any) -> Client:
    """A careful user of it."""
    allowed = Allowance(**{"epsilon": 5.0, "period_epsilon": 50.0, **limits})
    return Client(URL, TOKEN, folder, allowed, network=server.network)


def judge(promises: dict[str, bool]) -> None:
    """Say which promises held; the script ends with 1 where one did not."""
    for words, held in promises.items():
        print(f"{'held' if held else 'BROKEN'}: {words}")
    sys.exit(not all(promises.values()))


def deployed(**advice: Any) -> Running:
    """A real server with a table that takes reports."""
    folder = Path(tempfile.mkdtemp(prefix="panda-mdp-attack-"))
    running = Running(str(folder / "panda.db"), folder, "--token-rate", "50").start()
    publish(running.admin, small_table(small_domain()), "city", folder)
    body = {"kind": "table", "name": "main", "table": {"name": "city", "version": 1}, **advice}
    made = running.admin.post("/v1/deployments", json=body)
    made.raise_for_status()
    return running
