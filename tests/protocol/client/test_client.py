"""The client trusts nothing that it has not checked, and sends nothing that is not charged."""

from __future__ import annotations

import itertools
import json
import secrets
import subprocess
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import numpy as np
import pytest
from forging import File
from helpers import save_compact
from protocol_standin import (
    NOW,
    TOKEN,
    URL,
    BallParts,
    Standin,
    anchors_deployment,
    ball_rows,
    give,
    refuse,
    without_fsync,
)

import panda_mdp as pm
from panda_mdp.errors import (
    BudgetError,
    ConnectionLostError,
    FileFormatError,
    LedgerError,
    MethodError,
    NotForReleaseError,
    ProtocolError,
    ServerError,
    SignatureError,
    SnapError,
)
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.protocol import Allowance, Client, SigningKey
from panda_mdp.protocol.client.plans import TablePlan
from panda_mdp.protocol.client.rounds import AnchorsPlan, BallPlan, surrogate_row
from panda_mdp.protocol.client.wire import Network, Wire
from panda_mdp.protocol.ledger.books import Entry
from panda_mdp.protocol.ledger.ledger import LEDGER, Ledger
from panda_mdp.protocol.messages.deployments import DeploymentList, RoundRows, TableDeployment
from panda_mdp.protocol.messages.log import CoSigned
from panda_mdp.protocol.messages.types import GuaranteeInfo

VECTORS = Path(__file__).parents[2] / "vectors"
DAY = 86_400
ATTEMPTS = Network().attempts


class Clock:
    def __init__(self) -> None:
        self.now = 20_000.5 * DAY

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def table():
    return pm.load(VECTORS / "city.pmdp")


@pytest.fixture
def server(table):
    return Standin(VECTORS / "city.pmdp", table)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    without_fsync(monkeypatch)


def allowance(**changes: Any) -> Allowance:
    limits: dict[str, Any] = {"epsilon": 10.0, "period_epsilon": 12.0, "delta": 0.01}
    return Allowance(**{**limits, **changes})


@pytest.fixture
def client(server, tmp_path, clock):
    with connect(server, tmp_path, clock) as made:
        yield made


def connect(server: Standin, folder: Path, clock: Clock, **changes: Any) -> Client:
    options: dict[str, Any] = {"allowance": allowance(), "network": server.network}
    return Client(URL, TOKEN, folder, clock=clock, **{**options, **changes})


def paths(server: Standin) -> list[str]:
    return [sent.url.removeprefix(URL + "/v1") for sent in server.sent]


def bodies(server: Standin, ending: str) -> list[dict[str, Any]]:
    posts = [sent for sent in server.sent if sent.method == "POST" and sent.url.endswith(ending)]
    return [json.loads(sent.body) for sent in posts]


def lost(request: httpx.Request) -> httpx.Response | None:
    raise httpx.ReadTimeout("lost", request=request)


def answered_and_lost(server: Standin) -> Any:
    """The server reads and keeps the request, and the answer gets lost."""

    def fault(request: httpx.Request) -> httpx.Response | None:
        server.answer(request)
        raise httpx.ReadTimeout("lost", request=request)

    return fault


def charged(client: Client) -> list[Entry]:
    with client.ledger.books() as books:
        return books.all()


# Tables


def test_a_report_through_the_whole_table(server, client, table):
    plan = client.plan("table")
    assert isinstance(plan, TablePlan)
    assert (plan.cost.epsilon, plan.cost.delta, plan.charge().account) == (4.0, 0.0, "haversine km")
    answer = client.report(
        plan, plan.place(float(table.problem.domain.lat[5]), float(table.problem.domain.lon[5]))
    )
    assert answer.output in table.problem.outputs
    assert answer.where == (
        table.problem.domain.lat[answer.output],
        table.problem.domain.lon[answer.output],
    )
    assert not answer.repeated
    (body,) = bodies(server, "/reports")
    assert body == {"id": body["id"], "table": plan.identity, "output": answer.output}
    assert paths(server) == [
        "",
        "/deployments/table",
        "/log",
        "/tables/city/1/file",
        "/deployments/table/reports",
    ]


def test_what_is_public_is_fetched_without_the_token(server, client):
    client.deployments()
    client.report(client.plan("table"), client.plan("table").record(3))
    for sent in server.sent:
        assert ("Authorization" in dict(sent.headers)) == (sent.method == "POST")


def test_draws_follow_the_row(client, table, monkeypatch):
    """Every output is drawn by its own words of the system: the sampler's exact thresholds."""
    plan = client.plan("table")
    row = table.weights[17]
    edges = np.cumsum(row)
    for column in np.flatnonzero(row):
        for word in (edges[column] - row[column], edges[column] - 1):
            given = int(word).to_bytes(8, "little")
            monkeypatch.setattr(secrets, "token_bytes", lambda _, given=given: given)
            assert plan.draw(plan.record(17)).output == table.problem.outputs[column]


def test_the_same_record_gets_the_same_answer_and_nothing_is_sent(server, client, clock):
    plan = client.plan("table")
    first = client.report(plan, plan.record(3))
    count = len(server.sent)
    for _ in range(5):
        again = client.report(plan, plan.record(3))
        assert again.output == first.output
        assert again.repeated
        assert again.cost.epsilon == 0.0
    assert len(server.sent) == count
    client.report(plan, plan.record(4))
    assert [balance.spent.epsilon for balance in client.ledger.balances()] == [8.0]
    clock.now += DAY
    assert not client.report(plan, plan.record(3)).repeated
    assert len(server.reports) == 3


def test_fresh_draws_are_charged_every_time(server, tmp_path, clock):
    with connect(server, tmp_path, clock, allowance=allowance(repeats="fresh")) as client:
        plan = client.plan("table")
        for _ in range(3):
            assert not client.report(plan, plan.record(3)).repeated
        with pytest.raises(BudgetError):
            client.report(plan, plan.record(3))
        assert len(server.reports) == 3


def test_with_fresh_draws_a_lost_report_is_sent_first_whatever_the_record_is_now(
    server, tmp_path, clock
):
    with connect(server, tmp_path, clock, allowance=allowance(repeats="fresh")) as client:
        plan = client.plan("table")
        server.faults = [lost] * ATTEMPTS
        with pytest.raises(ConnectionLostError):
            client.report(plan, plan.record(3))
        client.report(plan, plan.record(4))
        sent = [body["id"] for body in bodies(server, "/reports")]
        assert sent[: ATTEMPTS + 1] == sent[:1] * (ATTEMPTS + 1)
        assert len(set(sent)) == len(server.reports) == 2


def test_fresh_draws_of_balls_are_finished_once_and_then_drawn_anew(server, tmp_path, clock):
    limits = allowance(repeats="fresh", period_epsilon=18.0, period_delta=0.02)
    with connect(server, tmp_path, clock, allowance=limits) as client:
        plan = client.plan("ball")
        server.faults = [lost] * ATTEMPTS
        with pytest.raises(ConnectionLostError):
            client.report(plan, plan.record(3))
        client.report(plan, plan.record(3))
        assert client.ledger.balances()[0].reports == 1
        assert not client.report(plan, plan.record(3)).repeated
        assert client.ledger.balances()[0].reports == 2
        assert len(bodies(server, "/balls")) >= 2


def test_too_much_is_refused_before_anything_is_drawn_or_sent(server, client, monkeypatch):
    plan = client.plan("table")
    for index in range(3):
        client.report(plan, plan.record(index))
    count = len(server.sent)
    monkeypatch.setattr(secrets, "token_bytes", None)
    with pytest.raises(BudgetError, match="epsilon 12 of 12 is spent"):
        client.report(plan, plan.record(3))
    assert len(server.sent) == count


def test_a_deployment_that_costs_too_much_is_refused_before_there_is_a_record(
    server, tmp_path, clock
):
    with (
        connect(server, tmp_path, clock, allowance=allowance(epsilon=3.9)) as client,
        pytest.raises(BudgetError, match=r"epsilon 4 and 3\.9 is allowed"),
    ):
        client.plan("table")


def test_a_lost_answer_is_retried_with_the_same_report(server, client):
    plan = client.plan("table")
    server.faults = [answered_and_lost(server)]
    answer = client.report(plan, plan.record(3))
    first, second = bodies(server, "/reports")
    assert first == second
    assert list(server.reports.values()) == [first]
    assert first["output"] == answer.output


def test_a_server_that_is_gone_for_long_gets_the_same_report_later(server, client, clock, tmp_path):
    plan = client.plan("table")
    server.faults = [lost] * ATTEMPTS
    with pytest.raises(ConnectionLostError, match="kept and sent again"):
        client.report(plan, plan.record(3))
    assert client.ledger.balances()[0].spent.epsilon == 4.0
    with connect(server, tmp_path, clock, allowance=None) as later:
        assert later.retry() == (1, 0)
        assert later.retry() == (0, 0)
        assert client.report(plan, plan.record(3)).repeated
    sent = bodies(server, "/reports")
    assert len(sent) == ATTEMPTS + 1
    assert all(body == sent[0] for body in sent)


def test_a_report_lost_in_one_period_is_sent_unchanged_in_the_next(server, client, clock):
    plan = client.plan("table")
    server.faults = [lost] * ATTEMPTS
    with pytest.raises(ConnectionLostError):
        client.report(plan, plan.record(3))
    clock.now += DAY
    assert client.retry() == (1, 0)
    assert len({json.dumps(body) for body in bodies(server, "/reports")}) == 1


CRASH = """
import os, sys
sys.path[:0] = sys.argv[2:]
import panda_mdp as pm
from pathlib import Path
from protocol_standin import TOKEN, URL, Standin
from panda_mdp.protocol import Allowance, Client

def die(request):
    os._exit(9)

path = Path(sys.argv[1])
server = Standin(Path(sys.argv[3]) / "city.pmdp", pm.load(Path(sys.argv[3]) / "city.pmdp"))
client = Client(URL, TOKEN, path, Allowance(epsilon=10.0, period_epsilon=12.0),
                network=server.network, clock=lambda: 20_000.5 * 86_400)
plan = client.plan("table")
server.faults = [die]
client.report(plan, plan.record(3))
"""


def test_a_crash_between_charge_and_send_sends_the_same_later(server, clock, tmp_path):
    tests = Path(__file__).parents[2] / "support"
    done = subprocess.run(
        [sys.executable, "-c", CRASH, str(tmp_path), str(tests), str(VECTORS)], check=False
    )
    assert done.returncode == 9
    with Ledger.open(tmp_path, clock=clock).books() as books:
        (entry,) = books.pending()
    assert entry.content is not None
    # The stand-in of the dead process signed with a key of its own.
    (tmp_path / "trust.json").unlink()
    with connect(server, tmp_path, clock, allowance=None) as client:
        plan = client.plan("table")
        answer = client.report(plan, plan.record(3))
    assert not answer.repeated
    (body,) = bodies(server, "/reports")
    assert (body["id"], body["output"]) == (entry.content.report, entry.content.output)
    assert Ledger.open(tmp_path, clock=clock).balances()[0].spent.epsilon == 4.0


def test_a_refused_report_is_not_drawn_again(server, client):
    """Otherwise a server could refuse until it likes the answer."""
    plan = client.plan("table")
    for _ in range(5):
        server.faults = [lambda _: refuse(409, "conflict")]
        with pytest.raises(ServerError) as caught:
            client.report(plan, plan.record(3))
        assert caught.value.code == "conflict"
        assert caught.value.status == 409
    assert len({json.dumps(body) for body in bodies(server, "/reports")}) == 1
    assert client.ledger.balances()[0].spent.epsilon == 4.0


def put_into_force(server: Standin, folder: Path) -> None:
    """Another table for the same records, under the next version."""
    domain, outputs = server.table.problem.domain, server.table.problem.outputs
    problem = pm.Problem(domain, outputs, domain.distances(None, outputs), server.table.epsilon)
    server.path = folder / "other.pmdp"
    server.table = save_compact(pm.exponential(problem), server.path)
    server.version += 1


def test_a_new_version_is_a_new_draw_and_a_new_charge_unless_answered(server, client, tmp_path):
    plan = client.plan("table")
    client.report(plan, plan.record(3))
    server.faults = [lost] * ATTEMPTS
    with pytest.raises(ConnectionLostError):
        client.report(plan, plan.record(4))
    put_into_force(server, tmp_path)
    with pytest.raises(ServerError, match="wrong_version"):
        client.report(plan, plan.record(4))
    with pytest.raises(ProtocolError, match="version 1 is pinned"):
        client.plan("table")
    newer = client.plan("table", accept_update=True)
    assert newer.version == 2
    assert client.report(newer, newer.record(3)).repeated
    assert client.ledger.balances()[0].spent.epsilon == 8.0
    assert not client.report(newer, newer.record(4)).repeated
    assert client.ledger.balances()[0].spent.epsilon == 12.0
    assert client.retry() == (0, 0)


def test_what_a_server_refuses_for_good_is_given_up_after_its_period(
    server, client, clock, tmp_path
):
    plan = client.plan("table")
    server.faults = [lost] * ATTEMPTS
    with pytest.raises(ConnectionLostError):
        client.report(plan, plan.record(4))
    put_into_force(server, tmp_path)
    assert client.retry() == (0, 1)
    clock.now += DAY
    assert client.retry() == (0, 0)
    assert [entry.state for entry in charged(client)] == ["given_up"]


def test_a_charge_that_cannot_be_written_sends_nothing(server, client, monkeypatch, tmp_path):
    plan = client.plan("table")
    count = len(server.sent)
    (tmp_path / LEDGER).rename(tmp_path / "elsewhere")
    with pytest.raises(LedgerError, match="missing"):
        client.report(plan, plan.record(3))
    assert len(server.sent) == count


def test_a_server_that_asks_to_wait_is_waited_for(server, tmp_path, clock):
    pauses: list[float] = []
    network = replace(server.network, pause=pauses.append)
    with connect(server, tmp_path, clock, network=network) as client:
        plan = client.plan("table")
        busy = httpx.Response(429, headers={"Retry-After": "3"}, json={"error": {"code": "x"}})
        server.faults = [lambda _: busy, lambda _: refuse(503, "unavailable")]
        client.report(plan, plan.record(3))
    assert pauses == [3.0, 6.0]


# What is checked


def test_the_operators_key_is_pinned_at_first_use(server, tmp_path, clock):
    with connect(server, tmp_path, clock) as client:
        client.plan("table")
        assert client.trust.key == server.key.public
    server.key = SigningKey.generate()
    with (
        connect(server, tmp_path, clock) as client,
        pytest.raises(SignatureError, match="pinned from before"),
    ):
        client.plan("table")
    # The old key's versions are not those of the new one.
    with connect(server, tmp_path, clock) as client:
        client.trust.pin_key(server.key.public)
        assert client.trust.known().statements == {}
        client.plan("table")


def test_a_given_key_must_be_the_servers(server, tmp_path, clock):
    other = SigningKey.generate().public
    with (
        connect(server, tmp_path, clock, key=other.base64) as client,
        pytest.raises(SignatureError, match="is given"),
    ):
        client.plan("table")
    with connect(server, tmp_path, clock, key=server.key.public) as client:
        client.plan("table")


def test_a_damaged_trust_file_is_refused(server, client, tmp_path):
    (tmp_path / "trust.json").write_text("[]")
    with pytest.raises(ProtocolError, match="compare the keys"):
        client.plan("table")


@pytest.mark.parametrize(
    "change",
    [{"epsilon": 3.0}, {"sha256": "0" * 64}, {"size_bytes": 9}, {"name": "other"}, {"version": 7}],
)
def test_a_changed_description_breaks_the_signature(server, client, change):
    """Also where the log has it."""
    info = server.info().model_copy(update=change)
    server.publish(info.signed)
    described = server.signed(server.deployment("table").model_copy(update={"table": info}))
    server.faults = [lambda _: None, lambda _: give(described)]
    with pytest.raises(SignatureError, match="not one of key"):
        client.plan("table")


def test_a_changed_file_is_refused_and_not_kept(server, client, tmp_path, table):
    broken = bytearray(server.path.read_bytes())
    broken[-40] ^= 1
    server.faults = [
        *[lambda _: None] * 3,
        lambda _: httpx.Response(200, content=bytes(broken)),
    ]
    with pytest.raises(SignatureError, match="damaged or changed"):
        client.plan("table")
    assert not list((tmp_path / "tables").glob("*.pmdp"))
    client.plan("table")


def test_a_signed_table_that_is_not_private_is_refused(
    server, client, tmp_path, table, monkeypatch
):
    """An operator may sign anything: the client's own audit decides."""
    file = File.of(server.path.read_bytes())
    file.header["epsilon"] = 2.0
    forged = tmp_path / "forged.pmdp"
    forged.write_bytes(file.bytes())
    server.path = forged
    names = ("problem", "audit", "loss", "identity")
    server.table = SimpleNamespace(epsilon=2.0, **{name: getattr(table, name) for name in names})
    with pytest.raises(FileFormatError, match="not 2-mDP"):
        client.plan("table")


def test_a_table_of_other_records_than_signed_is_refused(server, client, table):
    original = server.info

    def other_domain() -> Any:
        true = table.problem.domain.fingerprint
        info = original()
        fake = info.model_copy(update={"domain": true[::-1]})
        server.publish(fake.signed)
        return fake.model_copy(update={"signature": server.key.sign(fake.signed)})

    server.info = other_domain
    with pytest.raises(ProtocolError, match="not what its description says"):
        client.plan("table")


def test_one_version_has_one_file(server, client, tmp_path, table):
    client.plan("table")
    problem = pm.Problem(
        table.problem.domain,
        table.problem.outputs,
        pm.distance_loss(table.problem.domain, table.problem.outputs),
        4.0,
    )
    server.path = tmp_path / "other.pmdp"
    server.table = save_compact(pm.exponential(problem), server.path)
    with pytest.raises(SignatureError, match="two different statements"):
        client.plan("table", accept_update=True)


def test_other_metrics_must_be_allowed(server, tmp_path, clock):
    domain = pm.Domain.from_matrix([[0.0, 1.0, 2.0], [1.0, 0.0, 1.0], [2.0, 1.0, 0.0]], unit="km")
    problem = pm.Problem(domain, [0, 2], domain.distances(None, [0, 2]), 4.0)
    server.path = tmp_path / "matrix.pmdp"
    server.table = save_compact(pm.exponential(problem), server.path)
    with (
        connect(server, tmp_path / "a", clock) as client,
        pytest.raises(BudgetError, match="the server says how far"),
    ):
        client.plan("table")
    allowed = allowance(metrics=("haversine", "matrix"))
    with connect(server, tmp_path / "b", clock, allowance=allowed) as client:
        plan = client.plan("table")
        assert client.report(plan, plan.record(1)).where is None
        with pytest.raises(Exception, match="needs places"):
            plan.place(41.9, 12.5)
        assert client.ledger.balances()[0].account.startswith("matrix km ")


def test_a_table_is_fetched_once(server, client, clock, tmp_path):
    client.plan("table")
    client.plan("table")
    with connect(server, tmp_path, clock) as other:
        other.plan("table")
    assert paths(server).count("/tables/city/1/file") == 1


def test_a_kept_file_that_was_damaged_is_fetched_again(server, client, tmp_path):
    client.plan("table")
    (kept,) = (tmp_path / "tables").glob("*.pmdp")
    kept.write_bytes(b"damaged")
    client.plan("table")
    assert paths(server).count("/tables/city/1/file") == 2


def test_a_broken_download_is_fetched_again_whole(server, client):
    data = server.path.read_bytes()

    class Broken(httpx.SyncByteStream):
        def __iter__(self):
            yield data[:1000]
            raise httpx.ReadError("broken")

    broken = [lambda _: httpx.Response(200, stream=Broken())] * 2
    server.faults = [lambda _: None] * 3 + broken
    client.plan("table")
    asked = [dict(sent.headers) for sent in server.sent if sent.url.endswith("/file")]
    assert len(asked) == 3 and not any("Range" in headers for headers in asked)


def test_a_download_that_never_ends_well_stops(server, client):
    def cut(_: httpx.Request) -> httpx.Response:
        raise httpx.ReadError("broken")

    server.faults = [lambda _: None] * 3 + [cut] * 50
    with pytest.raises(ConnectionLostError):
        client.plan("table")


# Places


def test_places_outside_report_from_the_nearest_point_of_the_area(server, client, table):
    plan, domain = client.plan("table"), table.problem.domain
    north = int(domain.lat.argmax())
    for beyond_km in (0.0, 0.2, 5.0, 500.0):
        place = plan.place(float(domain.lat[north]) + beyond_km / 111.2, float(domain.lon[north]))
        assert place.unseal(domain, lambda index: index) == north
    assert plan.area.hole_km(domain.lat, domain.lon) == plan.snap_km
    both = 2 * plan.snap_km
    assert f"epsilon (d + {both:.3g} km)" in plan.snapping
    assert f"{both * plan.cost.epsilon:.3g} nats more" in plan.snapping


def test_a_deployment_with_holes_is_refused_before_any_place_is_known(
    server, tmp_path, clock, client
):
    hole = client.plan("table").snap_km
    for km, allowed in ((1.01 * hole, True), (0.99 * hole, False)):
        limits = allowance(snap_km=km)
        with connect(server, tmp_path / f"{km}", clock, allowance=limits) as user:
            if allowed:
                user.plan("table")
                continue
            with pytest.raises(BudgetError, match="from every place"):
                user.plan("table")


def test_a_record_of_another_plan_is_refused(server, client, table):
    plan = client.plan("table")
    other = pm.Domain.from_points([41.9, 41.91], [12.5, 12.5])
    from panda_mdp.protocol.client.plans import seal_index

    with pytest.raises(MethodError, match="another domain"):
        client.report(plan, seal_index(other, 0))


# Balls


def holds(plan: BallPlan, centre: Any) -> bool:
    """Whether a centre is one that the server takes."""
    low, high = plan.law.box
    return bool((low <= centre).all() and (high >= centre).all())


def test_a_ball(server, client, table):
    plan = client.plan("ball")
    assert isinstance(plan, BallPlan)
    assert plan.cost.epsilon == server.epsilon_1 + table.epsilon + server.edge
    assert plan.cost.delta == 0
    answer = client.report(plan, plan.record(3))
    assert answer.output in table.problem.outputs
    (asked,) = bodies(server, "/balls")
    assert set(asked) == {"centre"}
    assert holds(plan, asked["centre"])
    assert client.report(plan, plan.record(3)).repeated
    assert client.ledger.balances()[0].spent.epsilon == 5.5


def test_a_lost_ball_is_asked_for_again_with_the_same_centre(server, client):
    plan = client.plan("ball")
    server.faults = [lost] * ATTEMPTS
    with pytest.raises(ConnectionLostError):
        client.report(plan, plan.record(3))
    assert client.retry() == (0, 1)
    client.report(plan, plan.record(3))
    assert len({json.dumps(body) for body in bodies(server, "/balls")}) == 1
    assert client.ledger.balances()[0].spent.epsilon == 5.5


def test_an_output_drawn_from_a_ball_is_kept_before_it_is_sent(server, client):
    plan = client.plan("ball")
    server.faults = [lambda _: None] + [lost] * ATTEMPTS
    with pytest.raises(ConnectionLostError):
        client.report(plan, plan.record(3))
    assert client.retry() == (1, 0)
    assert len({json.dumps(body) for body in bodies(server, "/reports")}) == 1
    assert len(bodies(server, "/balls")) == 1


def test_a_lattice_that_is_too_fine_to_be_sent_of_costs_nothing(server, client):
    """Whether a centre could be sent would depend on the draw, after it was charged."""
    server.epsilon_1 = 1e9
    with pytest.raises(ProtocolError, match="finer than centres can be sent of"):
        client.plan("ball")
    assert not charged(client)


@pytest.mark.parametrize(("terms", "draws"), [((0.1, 3.1), 2), ((3.0, 0.2), 1)])
def test_a_ball_is_finished_under_the_terms_that_it_was_charged_for(
    server, tmp_path, clock, terms, draws
):
    """The table stays: what a centre and the edge cost is the deployment's, and can change."""
    server.epsilon_1, server.edge = 3.0, 0.2
    limits = allowance(period_epsilon=30.0)
    with connect(server, tmp_path, clock, allowance=limits) as client:
        plan = client.plan("ball")
        server.faults = [lost] * ATTEMPTS
        with pytest.raises(ConnectionLostError):
            client.report(plan, plan.record(3))
        (server.epsilon_1, server.edge), server.version = terms, 2
        newer = client.plan("ball", accept_update=True)
        assert newer.identity == plan.identity and newer.version == 2
        client.report(newer, newer.record(3))
        asked = [tuple(body["centre"]) for body in bodies(server, "/balls")]
        assert len(set(asked)) == draws == len(charged(client)) and holds(newer, asked[-1])
        assert [entry.state for entry in charged(client)] == ["given_up", "accepted"][-draws:]
        assert client.ledger.balances()[0].spent.epsilon == pytest.approx(7.2 * draws)


def revealing(parts: BallParts) -> BallParts:
    """One record's row all but names it."""
    weights = parts.weights.copy()
    weights[0] = 1
    weights[0, 0] = TOTAL - weights.shape[1] + 1
    return replace(parts, weights=weights)


def a_record_less(parts: BallParts) -> BallParts:
    return replace(parts, places=parts.places[1:], weights=parts.weights[1:])


def moved(parts: BallParts) -> BallParts:
    """A record is said to be elsewhere in its tile."""
    places = parts.places.copy()
    places[0, 0] += 1e-6
    return replace(parts, places=places)


def far_away(parts: BallParts) -> BallParts:
    return replace(parts, places=parts.places + 1)


def rows_exchanged(parts: BallParts) -> BallParts:
    """As private as before, and not the table that was published."""
    return replace(parts, weights=parts.weights[::-1])


def less_proof(parts: BallParts) -> BallParts:
    return replace(parts, proof=parts.proof[44:])


def more_proof(parts: BallParts) -> BallParts:
    return replace(parts, proof="AAAA" + parts.proof)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (revealing, "not those of the table"),
        (rows_exchanged, "not those of the table"),
        (less_proof, "not those of the table"),
        (more_proof, "not those of the table"),
        (a_record_less, "not those of the table"),
        (moved, "not those of the table"),
        (far_away, "other tiles"),
    ],
)
def test_rows_of_a_ball_that_are_not_right_are_not_used(server, client, change, why):
    server.radius = 0.5
    plan = client.plan("ball")
    # A centre that is drawn may have no records near it, and then there is nothing to change.
    beside = plan.law.places[3] * plan.law.exponent
    centre = (round(beside[0]), round(beside[1]))
    rows = ball_rows(server, centre, change)
    with pytest.raises(ProtocolError, match=why):
        plan.check(centre, rows)
    plan.check(centre, ball_rows(server, centre))


def test_a_ball_without_records_needs_no_proof_and_takes_none(server, client):
    """What is drawn there is the row of everybody outside; surplus bytes are no answer to it."""
    plan = client.plan("ball")
    low, _ = plan.law.box
    centre = (int(low[0]), int(low[1]))
    assert holds(plan, centre)
    rows = ball_rows(server, centre)
    places, _ = plan.check(centre, rows)
    assert not rows.proof and not len(places)
    for proof in ("AAAA", "?"):
        with pytest.raises(ProtocolError, match=r"not those of the table|cannot be read"):
            plan.check(centre, rows.model_copy(update={"proof": proof}))


def test_nothing_is_reported_from_rows_that_are_refused(server, client):
    plan = client.plan("ball")
    # Also where the ball that is drawn has no records.
    server.version = 2
    with pytest.raises(ProtocolError, match="version 2"):
        client.report(plan, plan.record(3))
    assert not server.reports
    server.version = 1
    client.report(plan, plan.record(3))


@pytest.mark.parametrize(
    ("more", "why"), [("lat", "other tiles"), ("floors", "another number of outputs")]
)
def test_rows_of_another_size_are_not_unpacked(server, client, more, why):
    """A few bytes may unpack to many: only as many as a ball has are, and these cannot be."""

    def fault(request: httpx.Request) -> httpx.Response:
        rows = ball_rows(server, json.loads(request.content)["centre"])
        changes: dict[str, Any] = {"floors": [*rows.floors, "0"]}
        if more == "lat":
            changes = {"lat": [lat + 1 for lat in rows.lat]}
        return give(rows.model_copy(update=changes | {"blocks": ["AAAA"] * len(rows.tiles)}), 201)

    plan = client.plan("ball")
    server.faults = [fault]
    with pytest.raises(ProtocolError, match=why):
        client.report(plan, plan.record(3))
    assert not server.reports


def test_rows_that_tell_more_than_their_operator_signed_are_not_used(server, client, tmp_path):
    """A table whose file and root are signed, by an operator who says a smaller epsilon of it."""
    # All records lie deep inside, wherever the centre is: their rows are nearly the table's.
    server.radius = 1e3
    plan = client.plan("ball")
    table = plan.info.table.model_copy(update={"epsilon": plan.info.table.epsilon / 2})
    told = replace(plan, info=plan.info.model_copy(update={"table": table}))
    with pytest.raises(ProtocolError, match="-mDP and not"):
        client.report(told, told.record(3))
    assert not server.reports


def test_a_record_outside_its_ball_reports_too(server, client):
    """The common row, drawn as any other; an empty ball has one as well."""
    server.radius = 0.01
    plan = client.plan("ball")
    answer = client.report(plan, plan.record(3))
    assert answer.output in server.table.problem.outputs


def test_nothing_is_asked_for_but_what_everybody_asks_for(server, client):
    """The map stays where it is, and a place that is no record of the table reports too."""
    plan = client.plan("ball")
    lat, lon = plan.domain.lat.mean(), plan.domain.lon.mean()
    lat, lon = round(float(lat), 4), round(float(lon), 4)
    client.report(plan, plan.place(lat, lon))
    assert client.report(plan, plan.place(lat + 4e-5, lon)).repeated, "the same cell of the grid"
    assert not any("/domains" in path for path in paths(server))
    # So does who is far away, from the pole on.
    assert client.report(plan, plan.place(89.9, 0.0)).output in plan.info.outputs
    with pytest.raises(SnapError, match="not a latitude"):
        plan.place(91.0, 0.0)


def test_what_is_shown_of_a_balls_records_is_signed(server, client):
    places = server.deployment("ball").places
    assert client.key
    for changed in (
        {"places": places.model_copy(update={"lat": [places.lat[0] + 1, *places.lat[1:]]})},
        {"tiles": 99},
        {"snap": 1.0},
    ):
        said = server.signed(server.deployment("ball")).model_copy(update=changed)
        server.faults = [partial(lambda info, _: give(info), said)]
        with pytest.raises(SignatureError, match="other things"):
            client.plan("ball")


def test_records_that_are_farther_than_what_is_signed_are_not_reported_from(server, client):
    plan = client.plan("ball")
    centre = tuple(np.rint(plan.law.places[3] * plan.law.exponent).astype(int).tolist())
    places, weights = plan.check(centre, ball_rows(server, list(centre)))
    at = places[0]
    inside, _, own = plan.fade(centre, places, weights, at)
    np.testing.assert_array_equal(own, weights[0])
    assert inside < TOTAL
    near = replace(plan, info=plan.info.model_copy(update={"snap": 1e-3}))
    assert near.fade(centre, places, weights, at + np.array([1e-4, 0]))[0] == TOTAL


# Anchors


@pytest.fixture(scope="module")
def small():
    rng = np.random.default_rng(4)
    domain = pm.Domain.from_points(
        np.round(41.9 + 0.02 * rng.random(14), 7), np.round(12.5 + 0.02 * rng.random(14), 7)
    )
    problem = pm.Problem(domain, [0, 3, 5], domain.distances(None, [0, 3, 5]), 4.0)
    return pm.exponential(problem)


@pytest.fixture
def rounds(small, tmp_path):
    path = tmp_path / "small.pmdp"
    table = save_compact(small, path)
    made = Standin(path, table)
    made.anchors = anchors_deployment(table.problem.domain, private=True)
    return made


@pytest.fixture
def member(rounds, tmp_path, clock):
    with connect(rounds, tmp_path / "user", clock) as made:
        yield made


def test_a_round(rounds, member):
    plan = member.plan("anchors")
    assert isinstance(plan, AnchorsPlan)
    assert plan.reasons == ()
    assert (plan.cost.epsilon, plan.cost.delta) == (3.0, 1e-3)
    member.join(plan, plan.record(3))
    assert not rounds.reports
    answer = member.report(plan, plan.record(3))
    assert answer.output in rounds.anchors.outputs
    first, again = bodies(rounds, "/anchors")
    assert set(first) == {"anchors"} and first == again
    (report,) = bodies(rounds, "/reports")
    assert set(report) == {"id", "output"}
    assert member.report(plan, plan.record(3)).repeated
    assert member.ledger.balances()[0].spent.epsilon == 3.0


def test_who_drew_no_anchor_reports_every_output_alike(member):
    """No error, which would tell that nothing was drawn, and the same row for every record."""
    plan = member.plan("anchors")
    outputs = plan.outputs.tolist()
    sent = RoundRows.model_construct(anchors=[], outputs=outputs, weights=[])
    weights, none = plan.check([], sent), np.zeros(0, dtype=np.int64)
    rows = [surrogate_row(plan.domain, none, weights, record) for record in (0, 5, 9)]
    assert all((row == rows[0]).all() for row in rows)
    assert rows[0].sum() == TOTAL and np.ptp(rows[0]) <= 2


def test_joining_and_reporting_is_one_draw_also_with_fresh_draws(rounds, tmp_path, clock):
    with connect(rounds, tmp_path / "user", clock, allowance=allowance(repeats="fresh")) as member:
        plan = member.plan("anchors")
        member.join(plan, plan.record(3))
        member.report(plan, plan.record(3))
        assert member.ledger.balances()[0].reports == 1
        assert len({json.dumps(body) for body in bodies(rounds, "/anchors")}) == 1


def test_anchors_are_drawn_once_whatever_gets_lost(rounds, member):
    plan = member.plan("anchors")
    # The first attempt asks which round is open; later ones know.
    for before in ([lambda _: None], [], []):
        rounds.faults = before + [lost] * ATTEMPTS
        with pytest.raises(ConnectionLostError):
            member.join(plan, plan.record(3))
    member.report(plan, plan.record(3))
    assert len({json.dumps(body) for body in bodies(rounds, "/anchors")}) == 1


def test_an_upload_whose_answer_got_lost_counts_though_the_round_has_closed(rounds, member):
    plan = member.plan("anchors")
    rounds.faults = [lambda _: None] + [answered_and_lost(rounds)] * ATTEMPTS
    with pytest.raises(ConnectionLostError):
        member.join(plan, plan.record(3))
    rounds.anchors = rounds.anchors.model_copy(update={"round": None})
    member.report(plan, plan.record(3))
    assert len(rounds.reports) == 1
    assert len({json.dumps(body) for body in bodies(rounds, "/anchors")}) == 1


def test_a_round_that_no_witness_has_signed_gets_no_anchors(rounds, member):
    plan, witness, log = member.plan("anchors"), SigningKey.generate(), rounds.log()
    facts = {"size": log.head.size, "root": log.head.root, "at": log.head.at}
    seen = CoSigned.by(witness, public=witness.public.base64, **facts)
    member.trust.pin_witness(witness.public)
    rounds.anchors = rounds.anchors.model_copy(update={"round": 2})
    shown = rounds.log().model_copy(update={"witnesses": [seen]})
    rounds.faults = [lambda _: None, lambda _: give(shown)]
    with pytest.raises(SignatureError, match=r"round 2 .* not in the operator's log"):
        member.join(plan, plan.record(3))
    assert not rounds.uploads


def test_the_same_anchors_go_to_the_next_round_where_one_closed_or_failed(rounds, member):
    plan = member.plan("anchors")
    rounds.faults = [lambda _: None, lambda _: refuse(409, "round_closed")]
    with pytest.raises(ServerError, match="round_closed"):
        member.join(plan, plan.record(3))
    rounds.anchors = rounds.anchors.model_copy(update={"round": 2})
    rounds.faults = [lambda _: refuse(409, "round_closed")]
    member.join(plan, plan.record(3))
    rounds.round_state = "failed"
    with pytest.raises(ProtocolError, match="round 2 failed"):
        member.report(plan, plan.record(3))
    rounds.round_state = "solved"
    rounds.anchors = rounds.anchors.model_copy(update={"round": 3})
    member.report(plan, plan.record(3))
    uploads = bodies(rounds, "/anchors")
    assert len({tuple(upload["anchors"]) for upload in uploads}) == 1
    assert len(rounds.reports) == 1
    assert member.ledger.balances()[0].spent.epsilon == 3.0


def test_a_round_takes_one_set_of_a_user(rounds, member):
    plan = member.plan("anchors")
    member.join(plan, plan.record(3))
    count = len(rounds.sent)
    with pytest.raises(ProtocolError, match="one set of a user"):
        member.join(plan, plan.record(4))
    assert len(rounds.sent) == count
    assert member.ledger.balances()[0].reports == 1


def test_a_round_that_is_not_solved_is_waited_for(rounds, member):
    plan = member.plan("anchors")
    rounds.round_state = "solving"
    with pytest.raises(ProtocolError, match=r"not solved after 0\.3 s"):
        member.report(plan, plan.record(3), wait_s=0.3)
    rounds.round_state = "solved"
    member.report(plan, plan.record(3))


def test_a_round_that_is_not_the_logs_latest_marks_nobody(rounds, member):
    """Its number is in the address of the upload, so it must be the same for everybody."""
    from panda_mdp.protocol.messages.signing import signed_bytes

    plan = member.plan("anchors")
    honest, shown, before = rounds.log, rounds.anchors, rounds.log()
    rounds.log = lambda: before
    rounds.anchors = shown.model_copy(update={"round": 77})
    with pytest.raises(SignatureError, match=r"round 77 .* not in the operator's log"):
        member.plan("anchors")
    with pytest.raises(SignatureError, match="round 77"):
        member.report(plan, plan.record(3))
    assert not bodies(rounds, "/anchors")
    # A past one is no better.
    rounds.anchors = shown
    rounds.publish(signed_bytes("round", "anchors", 2))
    rounds.log = honest
    with pytest.raises(SignatureError, match=r"round 1 .* is over"):
        member.plan("anchors")


def test_no_open_round_is_said(rounds, member):
    rounds.anchors = rounds.anchors.model_copy(update={"round": None})
    plan = member.plan("anchors")
    with pytest.raises(ProtocolError, match="no round"):
        member.join(plan, plan.record(3))


def test_rounds_without_guarantee_are_refused_unless_accepted(rounds, member, small):
    rounds.anchors = anchors_deployment(small.problem.domain, private=False).model_copy(
        update={"guarantee": GuaranteeInfo(epsilon=3.0, delta=1e-3, unit="km")}
    )
    plan = member.plan("anchors")
    # The server claims one, and the client's own certificate does not find it.
    assert plan.guarantee is None
    assert plan.reasons
    count = len(rounds.sent)
    for attempt in (member.join, member.report):
        with pytest.raises(NotForReleaseError, match="accept_no_guarantee=True"):
            attempt(plan, plan.record(3))
    assert len(rounds.sent) == count
    answer = member.report(plan, plan.record(3), accept_no_guarantee=True)
    assert answer.cost.epsilon == float("inf")
    with pytest.raises(BudgetError):
        other = member.plan("table")
        member.report(other, other.record(3))


def test_rows_beyond_the_budgets_are_not_used(rounds, member, small):
    """A selection that looks at the record leaves small budgets; identical columns tell apart."""
    plan = member.plan("anchors")
    assert plan.budgets is not None
    anchors = list(range(14))
    from panda_mdp.protocol.messages.deployments import RoundRows

    half = TOTAL // 2
    fair = [str(half), str(half // 2), str(half // 2)]
    base: dict[str, Any] = {
        "round": 1,
        "anchors": anchors,
        "outputs": [0, 3, 5],
        "signature": "AAAA",
    }
    plan.check(anchors, RoundRows(weights=[fair] * 14, **base))
    for other in ([str(TOTAL - 2), "1", "1"], [str(half), str(half), "0"]):
        with pytest.raises(ProtocolError, match="more than the budgets"):
            plan.check(anchors, RoundRows(weights=[fair] * 13 + [other], **base))
    with pytest.raises(ProtocolError, match="other anchors"):
        plan.check(anchors[:-1], RoundRows(weights=[fair] * 14, **base))


# Addresses, tokens, answers


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("http://panda.example", "not encrypted"),
        ("ftp://panda.example", "not the address"),
        ("panda.example", "not the address"),
        ("https://user:secret@panda.example", "user name or password"),
        ("https://panda.example/?place=1", "not the address"),
    ],
)
def test_addresses(url, why, tmp_path):
    with pytest.raises(ProtocolError, match=why):
        Client(url, TOKEN, tmp_path, allowance())


def test_plain_http_is_for_this_machine_or_by_name(tmp_path):
    for url in ("http://localhost:1", "http://127.0.0.1:1", "http://[::1]:1"):
        Client(url, TOKEN, tmp_path, allowance()).close()
    Client("http://panda.lan", TOKEN, tmp_path, allowance(), allow_plain_http=True).close()


def test_tokens(server, tmp_path, clock):
    with pytest.raises(ProtocolError, match="pmt_") as caught:
        Client(URL, "my secret", tmp_path, allowance())
    assert "my secret" not in str(caught.value)
    with Client(URL, None, tmp_path, network=server.network, clock=clock) as client:
        plan = client.plan("table")
        with pytest.raises(ProtocolError, match="need a token"):
            client.report(plan, plan.record(3))
        assert charged(client) == []
    assert TOKEN not in repr(client)


def test_redirects_are_not_followed(server, client):
    elsewhere = httpx.Response(307, headers={"Location": "http://evil.example/v1"})
    plan = client.plan("table")
    server.faults = [lambda _: elsewhere]
    with pytest.raises(ServerError, match="status 307"):
        client.report(plan, plan.record(3))
    assert all(sent.url.startswith(URL) for sent in server.sent)


def test_cookies_are_not_kept(server, client):
    def with_cookie(request: httpx.Request) -> httpx.Response:
        return httpx.Response(
            200,
            content=DeploymentList(deployments=[]).model_dump_json(),
            headers={"Set-Cookie": "who=me"},
        )

    server.faults = [with_cookie]
    client.deployments()
    client.plan("table")
    assert not any("cookie" in name.lower() for sent in server.sent for name, _ in sent.headers)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b"{}",
        b'{"deployments": [{"kind": "table"}]}',
        b"\xff",
        b'{"deployments": 1}',
    ],
)
def test_answers_of_another_form_are_refused(server, client, body):
    server.faults = [lambda _: httpx.Response(200, content=body)]
    with pytest.raises(ProtocolError, match="not of this protocol's form"):
        client.deployments()


def test_an_endless_answer_is_not_read_to_its_end(server, tmp_path, clock):
    class Endless(httpx.SyncByteStream):
        def __iter__(self):
            for _ in itertools.count():
                yield b" " * 1000

    network = replace(server.network, most_bytes=10_000)
    server.faults = [lambda _: httpx.Response(200, stream=Endless())]
    with (
        connect(server, tmp_path, clock, network=network) as client,
        pytest.raises(ProtocolError, match="longer than"),
    ):
        client.deployments()


def test_a_servers_words_cannot_rewrite_a_terminal(server, client):
    error = {"code": "invalid", "message": "\x1b[2Jgone\r\n" + "x" * 900, "remedy": ""}
    server.faults = [lambda _: httpx.Response(422, json={"error": error})]
    with pytest.raises(ServerError) as caught:
        client.deployments()
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


def test_another_deployment_or_report_than_asked_for_is_refused(server, client):
    server.faults = [lambda _: None, lambda _: give(server.deployment("other"))]
    with pytest.raises(ProtocolError, match="another deployment"):
        client.plan("table")
    plan = client.plan("table")
    answer = {"id": "3f2b8c1e-9d4a-4c6b-8e2f-0a1b2c3d4e5f", "accepted": True}
    server.faults = [lambda _: httpx.Response(201, json=answer)]
    with pytest.raises(ProtocolError, match="another report"):
        client.report(plan, plan.record(3))


def test_a_closed_deployment_is_refused_before_anything_is_drawn(server, client):
    closed = server.signed(server.deployment("table").model_copy(update={"open": False}))
    server.faults = [lambda _: None, lambda _: give(closed)]
    plan = client.plan("table")
    with pytest.raises(ProtocolError, match="closed"):
        client.report(plan, plan.record(3))
    assert charged(client) == []


def test_names_are_safe_in_addresses(client):
    for name in ("../admin", "a b", "", "a/b", "a?b", "a%2f"):
        with pytest.raises(ProtocolError, match="characters that names do not have"):
            client.plan(name)


def test_only_messages_are_sent():
    with pytest.raises(ProtocolError, match="only messages"):
        Wire(URL, TOKEN).post(DeploymentList, {"record": 3}, "deployments")


def test_a_plan_of_another_server_is_refused(server, client, tmp_path, clock):
    plan = client.plan("table")
    other = Client("http://localhost:2", TOKEN, tmp_path, network=server.network, clock=clock)
    with pytest.raises(ProtocolError, match="another server"):
        other.report(plan, plan.record(3))


def test_reprs_say_what_a_plan_costs(server, client):
    assert repr(client.plan("table")) == (
        "TablePlan(table, version 1, Guarantee(epsilon 4 per km, delta 0))"
    )
    assert isinstance(server.deployment("table"), TableDeployment)
    assert NOW.year == 2026


LEAN = """
import sys

class Blocked:
    names = {"fastapi", "starlette", "uvicorn", "sqlalchemy"}
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

sys.meta_path.insert(0, Blocked())
import panda_mdp
assert not {"pydantic", "httpx", "cryptography"} & set(sys.modules)
from panda_mdp.protocol import Client
assert not Blocked.names & set(sys.modules)
Blocked.names = Blocked.names | {"httpx"}
for name in [name for name in sys.modules if name.startswith(("panda_mdp", "httpx"))]:
    del sys.modules[name]
from panda_mdp.errors import MissingDependencyError
try:
    from panda_mdp.protocol import Client
except MissingDependencyError as error:
    assert "panda-mdp[client]" in str(error)
    print("lean")
"""


def test_the_client_needs_no_part_of_the_server():
    done = subprocess.run([sys.executable, "-c", LEAN], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "lean", done.stderr
