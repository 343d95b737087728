"""A server in memory behind httpx's transport seam, which keeps every byte that it was sent."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.text import Facts
from panda_mdp.protocol import Network
from panda_mdp.protocol.messages.catalogue import DomainDetail, Places, TableInfo
from panda_mdp.protocol.messages.deployments import (
    AnchorsDeployment,
    AnyDeployment,
    BallDeployment,
    BallRows,
    BallTerms,
    DeploymentList,
    RoundInfo,
    RoundRows,
    SelectionInfo,
    Statement,
    TableDeployment,
)
from panda_mdp.protocol.messages.log import Log, LogHead, leaf_hash, root_of
from panda_mdp.protocol.messages.service import KeyInfo, ServiceInfo
from panda_mdp.protocol.messages.signing import (
    SigningKey,
    rows_digest,
    signed_bytes,
    statement_bytes,
)
from panda_mdp.protocol.messages.types import GuaranteeInfo
from panda_mdp.protocol.server.solving import Tiles, ball_facts
from panda_mdp.table.blocks import decode_block, encode_block, spanning_order

URL = "http://127.0.0.1:1"
TOKEN = f"pmt_{'0' * 12}_{'s' * 43}"
NOW = datetime(2026, 1, 1, tzinfo=UTC)
Fault = Callable[[httpx.Request], httpx.Response | None]


UNSIGNED: dict[str, Any] = {"reports_per_period": 1_000, "statement": "{}", "signature": "A" * 88}


@dataclass(frozen=True)
class Sent:
    """One request as it went over the wire."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def text(self) -> str:
        lines = [f"{self.method} {self.url}", *(f"{k}: {v}" for k, v in self.headers)]
        return "\n".join(lines) + "\n\n" + self.body.decode()


@dataclass(frozen=True)
class BallParts:
    """What the one tile of a ball is made of."""

    version: int
    places: FloatArray
    weights: IntArray
    proof: str


@dataclass
class Standin:
    """Answers as the contract says; `faults` are asked first, each once."""

    path: Path
    table: pm.Mechanism
    key: SigningKey = field(default_factory=SigningKey.generate)
    version: int = 1
    epsilon_1: float = 1.0
    edge: float = 0.5
    radius: float = 4.0
    snap: float = 4.0
    anchors: AnchorsDeployment | None = None
    mechanism: pm.Mechanism | None = None
    sent: list[Sent] = field(default_factory=list)
    reports: dict[str, dict[str, Any]] = field(default_factory=dict)
    uploads: dict[str, list[int]] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    round_state: str = "solved"
    entries: list[bytes] = field(default_factory=list)
    """The log."""

    def publish(self, entry: bytes) -> None:
        if entry not in self.entries:
            self.entries.append(entry)

    def log(self) -> Log:
        if self.anchors is not None and self.anchors.round is not None:
            self.publish(signed_bytes("round", "anchors", self.anchors.round))
        leaves = [leaf_hash(entry) for entry in self.entries]
        size, root, at = len(leaves), root_of(leaves).hex(), 1_800_000_000_000
        signature = self.key.sign(signed_bytes("log", size, root, at))
        head = LogHead(size=size, root=root, at=at, signature=signature)
        return Log(head=head, leaves=[leaf.hex() for leaf in leaves])

    @property
    def balls(self) -> tuple[bytes, BallTerms]:
        """What balls are cut from."""
        names = ("epsilon_1", "edge", "radius", "snap")
        return self.path.read_bytes(), BallTerms(**{name: getattr(self, name) for name in names})

    @property
    def network(self) -> Network:
        """What gives a client this server, without pauses."""
        return Network(transport=httpx.MockTransport(self.handle), first_pause_s=0.0)

    def info(self) -> TableInfo:
        data = self.path.read_bytes()
        sha256 = hashlib.sha256(data).hexdigest()
        domain = self.table.problem.domain
        file = (sha256, len(data), domain.fingerprint, self.table.epsilon)
        signed = signed_bytes("table", "city", self.version, *file, self.table.identity)
        self.publish(signed)
        return TableInfo(
            name="city",
            version=self.version,
            domain=domain.fingerprint,
            unit=domain.unit,
            records=domain.size,
            outputs=self.table.problem.outputs_count,
            epsilon=self.table.epsilon,
            audited_epsilon=self.table.audit.epsilon,
            loss=self.table.loss,
            loss_cost=0.0,
            size_bytes=len(data),
            sha256=sha256,
            identity=self.table.identity,
            signature=self.key.sign(signed),
            key_id=self.key.id,
            created=NOW,
        )

    def deployment(self, name: str) -> TableDeployment | BallDeployment | AnchorsDeployment:
        table, unit = self.info(), self.table.problem.domain.unit
        shared: dict[str, Any] = {
            "name": name,
            "version": self.version,
            "open": True,
            "created": NOW,
            **UNSIGNED,
        }
        if name == "ball":
            said, _ = cut_table(*self.balls)
            return BallDeployment(
                table=table,
                places=Places(**said["places"]),
                outputs=said["outputs"],
                rows=said["rows"],
                tiles=said["tiles"],
                guarantee=GuaranteeInfo(**said["guarantee"]),
                **self.balls[1].model_dump(),
                **shared,
            )
        if name == "anchors":
            assert self.anchors is not None
            return self.anchors
        return TableDeployment(
            table=table, guarantee=GuaranteeInfo(epsilon=table.epsilon, unit=unit), **shared
        )

    def signed(self, info: AnyDeployment, **changes: Any) -> AnyDeployment:
        """A description with the operator's statement about it, or about something else."""
        domain = self.table.problem.domain
        said = {
            "kind": info.kind,
            "issued": 1_800_000_000 + self.version,
            "metric": domain.metric.kind,
            "unit": domain.unit,
            "domain": domain.fingerprint,
            **info.stated(),
            **changes,
        }
        text = Statement(**said).model_dump_json()
        self.publish(statement_bytes(info.name, text))
        signature = self.key.sign(statement_bytes(info.name, text))
        return info.model_copy(update={"statement": text, "signature": signature})

    def handle(self, request: httpx.Request) -> httpx.Response:
        body = request.read()
        headers = tuple((k.decode(), v.decode()) for k, v in request.headers.raw)
        self.sent.append(Sent(request.method, str(request.url), headers, body))
        if self.faults:
            answer = self.faults.pop(0)(request)
            if answer is not None:
                return answer
        return self.answer(request)

    def answer(self, request: httpx.Request) -> httpx.Response:
        public = request.method == "GET" and not request.url.path.endswith("/rows")
        token = request.headers.get("Authorization")
        if public == (token is not None):
            return refuse(401, "unauthorised")
        for pattern, answer_of in ROUTES:
            found = re.fullmatch(
                f"{request.method} /v1{pattern}", f"{request.method} {request.url.path}"
            )
            if found and pattern_method(answer_of) == request.method:
                return answer_of(self, request, *found.groups())
        return refuse(404, "not_found")


def without_fsync(patch: pytest.MonkeyPatch) -> None:
    """Let ledgers skip the disk's part of a commit, which these tests are not about."""

    class Quick(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
            return super().execute(sql.replace("synchronous = EXTRA", "synchronous = OFF"), *values)

    patch.setattr(sqlite3, "connect", partial(sqlite3.connect, factory=Quick))


def pattern_method(answer_of: Callable[..., httpx.Response]) -> str:
    return "POST" if answer_of.__name__.startswith("post") else "GET"


def refuse(status: int, code: str) -> httpx.Response:
    error = {"code": code, "message": "the stand-in refuses", "remedy": "none"}
    return httpx.Response(status, json={"error": error})


def give(message: Any, status: int = 200) -> httpx.Response:
    return httpx.Response(
        status,
        content=message.model_dump_json().encode(),
        headers={"Content-Type": "application/json"},
    )


def get_service(server: Standin, request: httpx.Request) -> httpx.Response:
    public = server.key.public
    return give(ServiceInfo(version="0", key=KeyInfo(id=public.id, public=public.base64)))


def get_log(server: Standin, request: httpx.Request) -> httpx.Response:
    return give(server.log())


def get_deployments(server: Standin, request: httpx.Request) -> httpx.Response:
    return give(DeploymentList(deployments=[server.deployment("table"), server.deployment("ball")]))


def get_deployment(server: Standin, request: httpx.Request, name: str) -> httpx.Response:
    return give(server.signed(server.deployment(name)))


def get_domain(server: Standin, request: httpx.Request, name: str) -> httpx.Response:
    domain = server.table.problem.domain
    return give(
        DomainDetail(
            id=name,
            name=name,
            kind="haversine",
            unit="km",
            lat=domain.lat.tolist(),
            lon=domain.lon.tolist(),
            records=domain.size,
            fingerprint=domain.fingerprint,
            created=NOW,
        )
    )


def get_file(server: Standin, request: httpx.Request, name: str, version: str) -> httpx.Response:
    assert "Range" not in request.headers
    return httpx.Response(200, content=server.path.read_bytes())


def post_report(server: Standin, request: httpx.Request, name: str) -> httpx.Response:
    body = json.loads(request.content)
    assert set(body) == {"id", "output"} | ({"table"} if name != "anchors" else set())
    before = server.reports.get(body["id"])
    if before is not None and before != body:
        return refuse(409, "conflict")
    if name == "table" and body["table"] != server.table.identity:
        return refuse(409, "wrong_version")
    server.reports[body["id"]] = body
    answer = {"id": body["id"], "accepted": True}
    return httpx.Response(201 if before is None else 200, json=answer)


@lru_cache(maxsize=4)
def cut_table(file: bytes, terms: BallTerms) -> tuple[Facts, Tiles]:
    """What a deployment of balls of a table says, and what hands them out."""
    facts, packed = ball_facts(file, terms)
    epsilon = facts["guarantee"]["epsilon"] - terms.epsilon_1 - terms.edge
    return facts, Tiles(packed, terms.law(Places(**facts["places"]).domain(), epsilon))


def post_ball(server: Standin, request: httpx.Request, name: str) -> httpx.Response:
    return give(ball_rows(server, json.loads(request.content)["centre"]))


def ball_rows(
    server: Standin,
    centre: list[int],
    change: Callable[[BallParts], BallParts] = lambda parts: parts,
) -> BallRows:
    """The ball around a centre; `change` is applied to what is proved of its first tile."""
    _, tiles = cut_table(*server.balls)
    rows = tiles.ball(server.version, (centre[0], centre[1]))
    if not rows.tiles:
        return rows
    size = rows.sizes[0]
    floors = np.array([int(floor) for floor in rows.floors])
    weights = decode_block(base64.b64decode(rows.blocks[0]), size, floors)
    places = np.array([rows.lat, rows.lon]).T
    parts = change(BallParts(server.version, places[:size], weights, rows.proof))
    along, parent = spanning_order(np.linalg.norm(parts.places[:, None] - parts.places, axis=2))
    block = encode_block(parts.weights[along], parent, floors)
    lat, lon = np.concatenate([parts.places[along], places[size:]]).T.tolist()
    changes = {
        "version": parts.version,
        "proof": parts.proof,
        "lat": lat,
        "lon": lon,
        "sizes": [len(along), *rows.sizes[1:]],
        "blocks": [base64.b64encode(block).decode(), *rows.blocks[1:]],
    }
    return rows.model_copy(update=changes)


def post_anchors(server: Standin, request: httpx.Request, name: str, number: str) -> httpx.Response:
    body = json.loads(request.content)
    server.uploads[number] = body["anchors"]
    answer = {"round": int(number), "accepted": True}
    return httpx.Response(201, json=answer)


def get_round(server: Standin, request: httpx.Request, name: str, number: str) -> httpx.Response:
    state: Any = server.round_state
    return give(RoundInfo(round=int(number), state=state, users=1, opened=NOW))


def get_rows(server: Standin, request: httpx.Request, name: str, number: str) -> httpx.Response:
    """Equal rows for all anchors, which keep any budget."""
    assert server.anchors is not None
    anchors, outputs = server.uploads[number], server.anchors.outputs
    share = (1 << 62) // len(outputs)
    row = [str(share)] * (len(outputs) - 1) + [str((1 << 62) - share * (len(outputs) - 1))]
    weights = [row] * len(anchors)
    signed = signed_bytes("rows", name, int(number), rows_digest(anchors, outputs, weights))
    return give(
        RoundRows(
            round=int(number),
            anchors=anchors,
            outputs=outputs,
            weights=weights,
            signature=server.key.sign(signed),
        )
    )


ROUTES: tuple[tuple[str, Callable[..., httpx.Response]], ...] = (
    (r"", get_service),
    (r"/log", get_log),
    (r"/deployments", get_deployments),
    (r"/deployments/([\w-]+)", get_deployment),
    (r"/domains/([\w-]+)", get_domain),
    (r"/tables/([\w-]+)/(\d+)/file", get_file),
    (r"/deployments/([\w-]+)/reports", post_report),
    (r"/deployments/([\w-]+)/balls", post_ball),
    (r"/deployments/([\w-]+)/rounds/(\d+)/anchors", post_anchors),
    (r"/deployments/([\w-]+)/rounds/(\d+)", get_round),
    (r"/deployments/([\w-]+)/rounds/(\d+)/rows", get_rows),
)


def anchors_deployment(
    domain: pm.Domain, *, private: bool, epsilon: float = 3.0
) -> AnchorsDeployment:
    """A deployment whose certificate holds (everybody's anchors are all candidates, nearly), or
    parameters whose Phase I costs too much."""
    selection = SelectionInfo(decay="power", alpha=0.9, rate=0.5, radius=1.5)
    if private:
        selection = SelectionInfo(
            decay="exponential",
            alpha=1 - 1e-3 / 4,
            rate=0.0,
            radius=domain.diameter,
            neighbours=domain.size,
        )
    return AnchorsDeployment(
        name="anchors",
        version=1,
        open=True,
        created=NOW,
        **UNSIGNED,
        domain="city",
        outputs=[0, 3, 5],
        epsilon=epsilon,
        delta=1e-3,
        selection=selection,
        guarantee=None,
        round=1,
    )
