"""One-use tokens end to end: quotas hold, and nothing that a report shows was seen before."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from protocol_servers import Running, domain_body, error_of, publish, small_domain, small_table
from protocol_standin import TOKEN, URL, Standin, give
from sqlalchemy import select
from typer.testing import CliRunner, Result

import panda_mdp as pm
from panda_mdp.cli import app
from panda_mdp.errors import (
    BudgetError,
    ConnectionLostError,
    ProtocolError,
    ServerError,
    SignatureError,
)
from panda_mdp.protocol import Allowance, Client, Network
from panda_mdp.protocol.messages.blind import (
    EXPONENT,
    Issuer,
    OneUse,
    from_block,
    new_issuer,
    sign_all,
    to_block,
)
from panda_mdp.protocol.messages.log import Log, LogHead, leaf_hash, root_of
from panda_mdp.protocol.messages.signing import SigningKey, signed_bytes
from panda_mdp.protocol.server.store.database import Store
from panda_mdp.protocol.server.store.reports import HOUR_MS, remove_old
from panda_mdp.protocol.server.store.schema import IssuerRow, QuotaRow, now_ms

CITY = Path(__file__).parents[2] / "vectors" / "city.pmdp"
MAIN = "/v1/deployments/main"
LIMITS = Allowance(epsilon=3.5, period_epsilon=100.0, repeats="fresh")


@dataclass
class Seen(httpx.HTTPTransport):
    """What a server sees of somebody, who may lose answers."""

    requests: list[tuple[str, str | None, bytes]] = field(default_factory=list)
    lost: str = ""

    def __post_init__(self) -> None:
        super().__init__()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        given = request.headers.get("authorization")
        self.requests.append((request.url.path, given, request.read()))
        answer = super().handle_request(request)
        if self.lost and request.url.path.endswith(self.lost):
            self.lost = ""
            raise httpx.ReadTimeout("lost", request=request)
        return answer

    def of(self, end: str) -> list[tuple[str | None, Any]]:
        found = [each for each in self.requests if each[0].endswith(end)]
        return [(given, json.loads(body or b"null")) for _, given, body in found]


@pytest.fixture
def site(server: Running, tmp_path: Path) -> Iterator[Running]:
    """A deployment that takes two reports of a person in a day, with one-use tokens."""
    domain = small_domain()
    if server.admin.get(MAIN).status_code == 404:
        server.admin.post("/v1/domains", json=domain_body(domain, "city"))
        publish(server.admin, small_table(domain), "city", tmp_path)
        wanted = {"kind": "table", "name": "main", "table": {"name": "city", "version": 1}}
        wanted |= {"one_use": True, "reports_per_period": 2}
        made = server.admin.post("/v1/deployments", json=wanted)
        assert made.status_code == 201, made.text
    yield server


def person(site: Running, folder: Path, seen: Seen | None = None, token: bool = True) -> Client:
    made = site.admin.post("/v1/tokens", json={"role": "reporter"}).json()["tokens"][0]["token"]
    network = Network(transport=seen or Seen(), attempts=1)
    return Client(site.url, made if token else None, folder, LIMITS, network=network)


def test_reports_show_nothing_that_was_seen_when_tokens_were_collected(
    site: Running, tmp_path: Path
) -> None:
    seen = Seen()
    with person(site, tmp_path / "user", seen) as client:
        plan = client.plan("main")
        with pytest.raises(BudgetError, match="collect"):
            client.report(plan, plan.record(3))
        assert client.collect(plan) == 2
        answers = [client.report(plan, plan.record(index)) for index in (3, 4)]
        assert client.collect(plan) == 0, "the period's are used"
        with pytest.raises(BudgetError):
            client.report(plan, plan.record(5))
    (bearer, asked), sent = seen.of("/issue")[0], seen.of("/reports")
    assert len(seen.of("/issue")) == 1 and bearer is not None and len(sent) == 2
    shown = json.dumps([body for _, body in sent])
    for given, body in sent:
        assert given is None and set(body) == {"id", "table", "output", "proof"}
        assert set(body["proof"]) == {"period", "signature"}
        assert not {body["id"], body["proof"]["signature"]} & set(asked["blinded"])
    assert not any(hidden in shown for hidden in asked["blinded"])
    assert bearer.removeprefix("Bearer ") not in shown
    export = site.admin.get(f"{MAIN}/reports").text.splitlines()
    users = {json.loads(line)["user"] for line in export}
    assert len(users) == len(export), "each report is of somebody else"
    assert not any(answer.receipt in line for answer in answers for line in export)
    done = site.admin.post("/v1/removals", json={"action": "erase", "receipt": answers[0].receipt})
    assert done.json() == {"reports": 1, "tokens": 0}
    assert len(site.admin.get(f"{MAIN}/reports").text.splitlines()) == len(export) - 1


def test_a_lost_answer_is_asked_for_again_and_gives_the_same_tokens(
    site: Running, tmp_path: Path
) -> None:
    seen = Seen(lost="/issue")
    with person(site, tmp_path / "user", seen) as client:
        plan = client.plan("main")
        with pytest.raises(ConnectionLostError):
            client.collect(plan)
        assert client.collect(plan) == 2
        first, second = seen.of("/issue")
        assert first == second
        seen.lost = "/reports"
        with pytest.raises(ConnectionLostError):
            client.report(plan, plan.record(3))
        assert client.retry() == (1, 0)
        lost, again = seen.of("/reports")
        assert lost == again and again[0] is None


def test_the_quota_is_of_tokens_signed(site: Running, tmp_path: Path) -> None:
    seen = Seen()
    with person(site, tmp_path / "user", seen) as client:
        plan = client.plan("main")
        client.collect(plan)
        client.report(plan, plan.record(3))
    (bearer, asked), (_, report) = seen.of("/issue")[0], seen.of("/reports")[0]
    own = {"authorization": str(bearer)}

    def issue(body: dict[str, Any]) -> tuple[int, str]:
        return error_of(httpx.post(f"{site.url}{MAIN}/issue", json=body, headers=own))

    other = {**asked, "blinded": asked["blinded"][::-1]}
    assert issue(other) == (429, "rate_limited"), "one request in a period"
    assert issue({**asked, "blinded": asked["blinded"] * 2}) == (422, "invalid")
    assert issue({**asked, "period": asked["period"] + 1}) == (422, "invalid")

    def send(body: dict[str, Any], **headers: str) -> httpx.Response:
        return httpx.post(f"{site.url}{MAIN}/reports", json=body, headers=headers)

    assert send(report).status_code == 200, "the same again"
    outputs = {line["output"] for line in exported(site)} | {0, 5}
    changed = {**report, "output": (outputs - {report["output"]}).pop()}
    assert error_of(send(changed)) == (409, "conflict"), "a token is good for one output"
    fresh = {**report, "id": "00000000-0000-4000-8000-000000000000"}
    assert error_of(send(fresh)) == (422, "invalid"), "a signature is of one id"
    proof = {**report["proof"], "period": report["proof"]["period"] - 1}
    assert error_of(send({**report, "proof": proof})) == (422, "invalid")
    assert error_of(send({**report, "proof": None})) == (422, "invalid")
    assert error_of(send(report, **own)) == (403, "forbidden"), "a token would name its bearer"
    erased = site.admin.post("/v1/removals", json={"action": "erase", "receipt": report["id"]})
    assert erased.json() == {"reports": 1, "tokens": 0}
    assert error_of(send(changed)) == (429, "rate_limited"), "what was erased does not come back"
    anonymous = httpx.post(f"{site.url}{MAIN}/issue", json=asked)
    assert error_of(anonymous) == (401, "unauthorised")


def exported(site: Running) -> list[Any]:
    return [json.loads(line) for line in site.admin.get(f"{MAIN}/reports").text.splitlines()]


def test_whoever_is_revoked_collects_no_more(site: Running, tmp_path: Path) -> None:
    with person(site, tmp_path / "user") as client:
        plan = client.plan("main")
        for row in site.admin.get("/v1/tokens?limit=10000").json()["tokens"]:
            if row["role"] == "reporter":
                site.admin.delete(f"/v1/tokens/{row['id']}")
        with pytest.raises(ServerError, match="revoked"):
            client.collect(plan)


@pytest.mark.parametrize("kind", ["ball", "anchors"])
def test_kinds_that_send_more_than_a_report_have_none(site: Running, kind: str) -> None:
    wanted: dict[str, Any] = {"kind": kind, "name": "other", "one_use": True}
    if kind == "ball":
        wanted |= {"table": {"name": "city", "version": 1}}
        wanted |= {"epsilon_1": 1.0, "edge": 0.5, "radius": 2.0, "snap": 1.0}
    else:
        selection = {"decay": "power", "alpha": 0.9, "rate": 0.5, "radius": 1.5}
        wanted |= {"domain": "city", "outputs": [0, 5], "epsilon": 3.0, "selection": selection}
        wanted |= {"delta": 0.01}
    refused = site.admin.post("/v1/deployments", json=wanted)
    assert error_of(refused) == (422, "invalid") and "one_use" in refused.text


def log_size(site: Running) -> int:
    return int(site.admin.get("/v1/log").json()["head"]["size"])


def test_the_log_does_not_grow_by_whoever_asks(site: Running) -> None:
    """It has every key for ever: of periods of an hour or more, and of what is open."""
    table = {"name": "city", "version": 1}
    wanted = {"kind": "table", "name": "short", "table": table, "one_use": True}
    refused = site.admin.post("/v1/deployments", json=wanted | {"period_s": 3_599})
    assert error_of(refused) == (422, "invalid") and "period_s of 3600" in refused.text
    made = site.admin.post("/v1/deployments", json=wanted | {"period_s": 3_600})
    assert made.status_code == 201, made.text
    assert site.admin.patch("/v1/deployments/short", json={"open": False}).is_success
    before = log_size(site)
    closed = httpx.get(f"{site.url}/v1/deployments/short/issuer")
    assert error_of(closed) == (409, "round_closed") and log_size(site) == before


def test_a_deployment_without_them_says_so(site: Running, tmp_path: Path) -> None:
    wanted = {"kind": "table", "name": "plain", "table": {"name": "city", "version": 1}}
    site.admin.post("/v1/deployments", json=wanted)
    assert error_of(httpx.get(f"{site.url}/v1/deployments/plain/issuer")) == (404, "not_found")
    assert error_of(httpx.post(f"{site.url}/v1/deployments/plain/reports", json={})) == (
        401,
        "unauthorised",
    )
    with person(site, tmp_path / "user") as client, pytest.raises(ProtocolError, match="alone"):
        client.collect(client.plan("plain"))


def test_the_server_lets_old_keys_go(site: Running, tmp_path: Path) -> None:
    httpx.get(f"{site.url}{MAIN}/issuer")
    with Store.open(site.database) as store:
        with store.read() as session:
            before = list(session.scalars(select(IssuerRow.period)))
        remove_old(store, now=now_ms() + 72 * HOUR_MS)
        with store.read() as session:
            left = [*session.scalars(select(IssuerRow.period)), *session.scalars(select(QuotaRow))]
    assert len(before) >= 2 and max(before) == now_ms() // (24 * HOUR_MS) + 1
    assert not left


# What a server may try


KEY = SigningKey.generate()


def log_of(*entries: bytes) -> Log:
    leaves = [leaf_hash(entry) for entry in entries]
    head = LogHead.by(KEY, size=len(leaves), root=root_of(leaves).hex(), at=time.time_ns() // 10**6)
    return Log(head=head, leaves=[leaf.hex() for leaf in leaves])


def test_a_key_for_one_person_is_refused() -> None:
    """A server that signs with another key for each person would know every report again."""
    mine, theirs = (Issuer(period=7, modulus=to_block(number)) for number in (35, 77))
    period = signed_bytes("issuer", "main", "7")
    of_mine, of_theirs = (signed_bytes("issuer", "main", "7", i.modulus) for i in (mine, theirs))
    log_of(b"other", period, of_mine).check_issuer("main", mine)
    with pytest.raises(SignatureError, match="made for you alone"):
        log_of(period, of_mine).check_issuer("main", theirs)
    for both in (
        log_of(period, of_mine, of_theirs),
        log_of(period, of_mine, period, of_theirs),
        log_of(of_theirs, period, of_mine),
    ):
        with pytest.raises(SignatureError, match="not the only one"):
            both.check_issuer("main", theirs)


@dataclass
class OneKey(Standin):
    """Signs one-use tokens of every period with one key."""

    pair: tuple[str, str] = field(default_factory=new_issuer)
    day: int = 20_000
    asked: list[list[str]] = field(default_factory=list)

    def deployment(self, name: str) -> Any:
        wanted = {"one_use": True, "reports_per_period": 2}
        return super().deployment(name).model_copy(update=wanted)

    def answer(self, request: httpx.Request) -> httpx.Response:
        if request.url.path.endswith("/issuer"):
            period = str(self.day)
            self.publish(signed_bytes("issuer", "table", period))
            self.publish(signed_bytes("issuer", "table", period, self.pair[0]))
            return give(Issuer(period=self.day, modulus=self.pair[0]))
        if request.url.path.endswith("/issue"):
            self.asked.append(json.loads(request.content)["blinded"])
            return give(sign_all(*self.pair, self.asked[-1]))
        return super().answer(request)

    def client(self, folder: Path) -> Client:
        allowed = Allowance(10.0, 100.0, snap_km=5.0)
        clock = lambda: (self.day + 0.5) * 86_400  # noqa: E731
        return Client(URL, TOKEN, folder, allowed, network=self.network, clock=clock)


def test_one_key_for_two_periods_does_not_join_their_tokens(tmp_path: Path) -> None:
    """A server that had both asked for in the same words would know one person's reports again."""
    server = OneKey(CITY, pm.load(CITY))
    modulus = from_block(server.pair[0])
    found: list[dict[str, OneUse]] = []
    with server.client(tmp_path / "user") as client:
        for server.day in (20_000, 20_001):
            plan = client.plan("table")
            assert client.collect(plan) == 2
            with client.ledger.books() as books:
                found.append(books.tokens(plan.charge()) or {})
    assert len(found[0] | found[1]) == 4, "ids of their own"
    # What a report shows is message and salt; beside what was asked for, the factor is left.
    factors = []
    for blinded, tokens in zip(server.asked, found, strict=True):
        signatures = [from_block(each.signature) for each in tokens.values()]
        shown = [pow(each, EXPONENT, modulus) for each in signatures]
        hidden = [from_block(each) for each in blinded]
        factors.append({a * pow(b, -1, modulus) % modulus for a in hidden for b in shown})
    assert not factors[0] & factors[1]


def test_a_key_that_was_shown_once_cannot_be_taken_back(tmp_path: Path) -> None:
    """Otherwise one for a single person could be in the log for as long as that person looks."""
    server = OneKey(CITY, pm.load(CITY))
    with server.client(tmp_path / "user") as client:
        plan = client.plan("table")
        honest = list(server.entries)
        client.collect(plan)
        server.entries, server.pair = honest, new_issuer()
        server.answer(httpx.Request("GET", f"{URL}/v1/deployments/table/issuer"))
        with pytest.raises(SignatureError, match="not those of before"):
            client.plan("table")


def test_a_key_of_another_period_is_refused(site: Running, tmp_path: Path) -> None:
    late = Client(site.url, None, tmp_path / "late", LIMITS, clock=lambda: time.time() + 2 * 86_400)
    with late, pytest.raises(ProtocolError, match="another period"):
        late.collect(late.plan("main"))


def test_the_commands_of_the_documentation(
    make_server: Callable[..., Running], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = make_server()
    monkeypatch.setenv("PANDA_MDP_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PANDA_MDP_TOKEN", server.admin_token)
    small_table(small_domain()).save(tmp_path / "rome.pmdp")

    def call(*typed: str, place: str = "") -> Result:
        return CliRunner().invoke(app, list(typed), input=place)

    made = call("publish", server.url, str(tmp_path / "rome.pmdp"), "--name", "rome", "--one-use")
    assert made.exit_code == 0, made.output
    token = server.admin.post("/v1/tokens", json={"role": "reporter"}).json()["tokens"][0]["token"]
    call("client", "init", "--epsilon", "5", "--period-epsilon", "10")
    monkeypatch.delenv("PANDA_MDP_TOKEN")
    early = call("client", "report", server.url, "rome", place="41.9,12.5\n")
    assert early.exit_code == 2 and "client collect" in early.output
    assert call("client", "collect", server.url, "rome").exit_code == 2, "it needs the token"
    monkeypatch.setenv("PANDA_MDP_TOKEN", token)
    collected = call("client", "collect", server.url, "rome")
    assert collected.exit_code == 0 and collected.stdout.startswith("1 one-use tokens")
    monkeypatch.delenv("PANDA_MDP_TOKEN")
    sent = call("client", "report", server.url, "rome", place="41.9,12.5\n")
    assert sent.exit_code == 0 and "receipt" in sent.output
    assert server.admin.get("/v1/deployments/rome/counts").json()["reports"] == 1
