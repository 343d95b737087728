"""Whatever a server answers, the client ends with an answer or an error of its own."""

from __future__ import annotations

import json
import random
from typing import Any

import httpx
import numpy as np
import pytest
from helpers import save_compact
from protocol_standin import TOKEN, URL, Standin, anchors_deployment, without_fsync

import panda_mdp as pm
from panda_mdp.errors import PandaError
from panda_mdp.protocol import Allowance, Client

VALUES = (
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63,
    1e308,
    -0.0,
    "",
    "x",
    "\x00",
    "9" * 40,
    [],
    {},
    [[]],
    [None],
)
ROUNDS = 30


@pytest.fixture(scope="module")
def city(tmp_path_factory):
    rng = np.random.default_rng(2)
    domain = pm.Domain.from_points(
        np.round(41.9 + 0.02 * rng.random(14), 7), np.round(12.5 + 0.02 * rng.random(14), 7)
    )
    problem = pm.Problem(domain, [0, 3, 5], domain.distances(None, [0, 3, 5]), 2.0)
    path = tmp_path_factory.mktemp("city") / "city.pmdp"
    return path, save_compact(pm.exponential(problem), path)


def places(node: Any) -> list[tuple[Any, Any]]:
    """Every spot of a document where another value could be put."""
    found: list[tuple[Any, Any]] = []
    keys = node.keys() if isinstance(node, dict) else range(len(node))
    for key in list(keys):
        found.append((node, key))
        if isinstance(node[key], dict | list):
            found += places(node[key])
    return found


def mutated(data: bytes, chance: random.Random) -> bytes:
    """A document with one value changed, removed or repeated, or bytes changed."""
    if chance.random() < 0.2 or not data.startswith(b"{"):
        broken = bytearray(data or b"x")
        for _ in range(chance.randint(1, 4)):
            broken[chance.randrange(len(broken))] = chance.randrange(256)
        return bytes(
            broken[: chance.randrange(1, len(broken) + 1)] if chance.random() < 0.3 else broken
        )
    document = json.loads(data)
    holder, key = chance.choice(places(document))
    kind = chance.randrange(4)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, list):
        holder.append(holder[key])
    elif kind == 2 and isinstance(holder[key], int | float) and not isinstance(holder[key], bool):
        holder[key] = holder[key] + chance.choice((-1, 1, 0.5, 1e-9, 1000))
    else:
        holder[key] = chance.choice(VALUES)
    return json.dumps(document).encode()


@pytest.mark.parametrize("kind", ["table", "ball", "anchors"])
def test_whatever_a_server_answers_the_client_ends_with_its_own_errors(
    city, kind, tmp_path, monkeypatch
):
    without_fsync(monkeypatch)
    chance = random.Random(7)
    path, table = city
    outcomes: dict[str, int] = {}
    for number in range(ROUNDS):
        server = Standin(path, table)
        server.anchors = anchors_deployment(table.problem.domain, private=True)
        target = chance.randrange(8)

        def fault(request: httpx.Request, server: Standin = server) -> httpx.Response:
            good = server.answer(request)
            status = (
                good.status_code if chance.random() < 0.9 else chance.choice((200, 206, 404, 500))
            )
            return httpx.Response(status, content=mutated(good.content, chance))

        server.faults = [lambda _: None] * target + [fault]
        limits = Allowance(epsilon=9.0, period_epsilon=99.0, delta=0.5)
        with Client(URL, TOKEN, tmp_path / str(number), limits, network=server.network) as user:
            try:
                plan = user.plan(kind)
                user.report(plan, plan.record(3), wait_s=0.0)
                outcome = "answered"
            except PandaError as error:
                outcome = type(error).__name__
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
        for report in server.reports.values():
            assert report["output"] in (0, 3, 5)
    assert outcomes["answered"] > 1
    assert outcomes["ProtocolError"] > 5
