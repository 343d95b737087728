"""The client and its commands against a running server."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from helpers import save_compact
from protocol_servers import Running
from typer.testing import CliRunner, Result

import panda_mdp as pm
from panda_mdp.cli import app
from panda_mdp.errors import BudgetError, ConnectionLostError, ProtocolError, ServerError
from panda_mdp.protocol import Allowance, Client, Network

LAT, LON = 41.9123457, 12.5123457
"""One of the records; its digits occur nowhere else."""


class Site:
    """A running server with a city of 30 places in three deployments."""

    def __init__(self, running: Running, folder: Path) -> None:
        self.running = running
        self.folder = folder
        rng = np.random.default_rng(3)
        lat, lon = (np.round(base + 0.03 * rng.random(30), 6) for base in (41.9, 12.5))
        lat[17], lon[17] = LAT, LON
        self.domain = pm.Domain.from_points(lat, lon)
        self.outputs = [0, 5, 9, 21]
        places = {"lat": lat.tolist(), "lon": lon.tolist()}
        self.post("/domains", {"name": "city", "kind": "haversine", **places})
        self.publish(3.0)
        table = {"name": "city", "version": 1}
        self.post("/deployments", {"kind": "table", "name": "table", "table": table})
        self.post(
            "/deployments",
            {
                "kind": "ball",
                "name": "ball",
                "table": table,
                "epsilon_1": 2.0,
                "edge": 0.5,
                "radius": 3.0,
                "snap": 2.0,
            },
        )
        selection = {
            "decay": "exponential",
            "alpha": 1 - 1e-3 / 4,
            "rate": 0.0,
            "radius": self.domain.diameter,
            "neighbours": 30,
        }
        known = "city"
        anchors = {"domain": known, "outputs": self.outputs, "epsilon": 3.0, "delta": 1e-3}
        anchors["kind"] = "anchors"
        self.post("/deployments", {"name": "anchors", "selection": selection, **anchors})
        paper = {"decay": "power", "alpha": 0.9, "rate": 0.5, "radius": 1.5}
        study = {"name": "paper", "selection": paper, "accept_no_guarantee": True}
        self.post("/deployments", {**study, **anchors})
        self.users = 0

    def publish(self, epsilon: float) -> None:
        loss = pm.distance_loss(self.domain, self.outputs)
        mechanism = pm.exponential(pm.Problem(self.domain, self.outputs, loss, epsilon))
        path = self.folder / "city.pmdp"
        save_compact(mechanism, path)
        made = self.running.admin.post("/v1/tables/city", content=path.read_bytes())
        assert made.status_code == 201, made.text

    def post(self, path: str, body: Any) -> Any:
        made = self.running.admin.post(f"/v1{path}", json=body)
        assert made.is_success, made.text
        return made.json()

    def get(self, path: str) -> Any:
        return self.running.admin.get(f"/v1{path}").json()

    def token(self) -> str:
        made = self.post("/tokens", {"role": "reporter"})
        token: str = made["tokens"][0]["token"]
        return token

    def user(self, network: Network | None = None, **changes: Any) -> Client:
        self.users += 1
        limits: dict[str, Any] = {"epsilon": 10.0, "period_epsilon": 20.0, "delta": 0.01}
        folder = self.folder / f"user-{self.users}"
        allowed = Allowance(**{**limits, **changes})
        return Client(self.running.url, self.token(), folder, allowed, network=network)


class Losing(httpx.HTTPTransport):
    """Loses reports before they are sent, while it is told to."""

    losing = True

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if self.losing and request.url.path.endswith("/reports"):
            raise httpx.ReadTimeout("lost", request=request)
        return super().handle_request(request)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    running = Running(str(folder / "panda.db"), folder).start()
    try:
        yield Site(running, folder)
    finally:
        running.stop()


@pytest.mark.parametrize("kind", ["table", "ball"])
def test_reports_arrive_and_are_counted_once(site, kind):
    before = site.get(f"/deployments/{kind}/counts")["reports"]
    with site.user() as user:
        plan = user.plan(kind)
        answer = user.report(plan, plan.place(LAT, LON))
        assert answer.output in site.outputs
        assert user.report(plan, plan.place(LAT, LON)).repeated
        assert user.retry() == (0, 0)
    assert site.get(f"/deployments/{kind}/counts")["reports"] == before + 1


WORKER = """
import sys
from panda_mdp.protocol import Client

with Client(sys.argv[1], sys.argv[2], sys.argv[3]) as user:
    plan = user.plan("table")
    print("ready", flush=True)
    sys.stdin.readline()
    print(user.report(plan, plan.record(11)).output)
"""


def test_processes_that_report_the_same_record_at_once_make_one_report(site):
    before = site.get("/deployments/table/counts")["reports"]
    with site.user() as user:
        folder, token = str(user.folder), site.token()
        workers = [
            subprocess.Popen(
                [sys.executable, "-c", WORKER, user.server, str(token), folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for _ in range(3)
        ]
        for worker in workers:
            assert worker.stdout is not None
            assert worker.stdout.readline() == "ready\n"
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
        outputs = {worker.communicate(timeout=300)[0] for worker in workers}
        assert len(outputs) == 1
        assert user.ledger.balances()[0].reports == 1
    assert site.get("/deployments/table/counts")["reports"] == before + 1


def test_a_round_with_late_and_silent_users(site):
    users = [site.user() for _ in range(4)]
    plans = [user.plan("anchors") for user in users]
    with pytest.raises(ProtocolError, match="no round"):
        users[0].join(plans[0], plans[0].record(0))
    site.post("/deployments/anchors/rounds", {"closes_at_users": 3})
    plans = [user.plan("anchors") for user in users]
    assert plans[0].guarantee is not None
    for n in range(3):
        users[n].join(plans[n], plans[n].record(n))
    with pytest.raises((ServerError, ProtocolError)):
        users[3].join(plans[3], plans[3].record(3))
    # The third never reports.
    answers = [users[n].report(plans[n], plans[n].record(n)) for n in range(2)]
    assert all(answer.output in site.outputs for answer in answers)
    number = site.post("/deployments/anchors/rounds", {"closes_at_users": 1})["round"]
    late = users[3].report(plans[3], plans[3].record(3))
    assert late.output in site.outputs
    assert number == 2
    assert site.get("/deployments/anchors/counts")["reports"] == 3
    for user in users:
        assert user.ledger.balances()[0].spent.epsilon == 3.0
        user.close()


def test_a_deployment_without_guarantee_is_refused(site):
    from panda_mdp.errors import NotForReleaseError

    with site.user() as user:
        plan = user.plan("paper")
        assert plan.guarantee is None
        with pytest.raises(NotForReleaseError):
            user.report(plan, plan.record(3))


def test_errors_of_the_server_have_their_codes(site):
    with site.user() as user:
        with pytest.raises(ServerError) as caught:
            user.plan("nothing")
        assert (caught.value.code, caught.value.status) == ("not_found", 404)
        plan = user.plan("table")
        wrong = f"pmt_{'0' * 12}_{'x' * 43}"
        with (
            Client(user.server, wrong, user.folder) as other,
            pytest.raises(ServerError) as caught,
        ):
            other.report(plan, plan.record(3))
        assert (caught.value.code, caught.value.status) == ("unauthorised", 401)
        # The same report goes out once the token is right.
        assert user.retry() == (1, 0)


def test_a_new_version_in_force(site):
    with site.user() as user:
        plan = user.plan("table")
        site.publish(2.5)
        patched = site.running.admin.patch(
            "/v1/deployments/table", json={"table": {"name": "city", "version": 2}}
        )
        assert patched.is_success, patched.text
        with pytest.raises(ServerError) as caught:
            user.report(plan, plan.record(3))
        assert caught.value.code == "wrong_version"
        with pytest.raises(ProtocolError, match="version 1 is pinned"):
            user.plan("table")
        newer = user.plan("table", accept_update=True)
        assert newer.cost.epsilon == 2.5
        user.report(newer, newer.record(3))
        # Both draws are charged: a charge is never taken back.
        assert user.ledger.balances()[0].spent.epsilon == 5.5


def test_other_limits_cost_nobody_a_draw(site):
    """The version changes with the limits, the table does not: what waits is sent, once."""
    transport = Losing()
    with site.user(Network(transport=transport, attempts=1)) as user:
        plan = user.plan("table")
        record = plan.record(3)
        with pytest.raises(ConnectionLostError):
            user.report(plan, record)
        transport.losing = False
        for limit in (40, 41):
            patch = {"reports_per_period": limit}
            patched = site.running.admin.patch("/v1/deployments/table", json=patch)
            assert patched.is_success, patched.text
        assert user.retry() == (1, 0)
        newer = user.plan("table")
        assert newer.version == plan.version + 2
        # The same answer, at no further cost.
        assert user.report(newer, record).repeated
        assert user.ledger.balances()[0].spent.epsilon == plan.cost.epsilon


# Commands


@pytest.fixture
def home(site, tmp_path, monkeypatch):
    monkeypatch.setenv("PANDA_MDP_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PANDA_MDP_TOKEN", site.token())
    return tmp_path / "home"


def call(*arguments: str, place: str = "") -> Result:
    return CliRunner().invoke(app, ["client", *arguments], input=place)


def make(*more: str) -> None:
    done = call("init", "--epsilon", "9", "--period-epsilon", "6", "--delta", "0.01", *more)
    assert done.exit_code == 0, done.output


def test_commands_from_first_to_last(site, home, tmp_path):
    url = site.running.url
    make()
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    done = call("status", url, "--json", str(tmp_path / "status.json"))
    assert done.exit_code == 0, done.output
    offers = {
        o["name"]: o for o in json.loads((tmp_path / "status.json").read_text())["deployments"]
    }
    assert offers["table"]["allowed"]
    assert offers["ball"]["allowed"] and not offers["paper"]["allowed"]
    done = call("fetch", url, "table", "--json", str(tmp_path / "plan.json"))
    assert done.exit_code == 0, done.output
    assert "over 435 pairs" in done.output
    assert "indistinguishable" in done.output
    report = ("report", url, "table", "--json", str(tmp_path / "report.json"))
    first = call(*report, place=f"{LAT},{LON}\n")
    assert first.exit_code == 0, first.output
    answer = json.loads((tmp_path / "report.json").read_text())
    assert answer["output"] in site.outputs
    assert not answer["repeated"]
    second = call(*report, place=f"{LAT},{LON}\n")
    assert "the same place was reported before" in second.output
    assert call("retry", url).output == "0 accepted, 0 remain\n"
    done = call("ledger", "--json", str(tmp_path / "ledger.json"))
    assert "per km" in done.output
    (balance,) = json.loads((tmp_path / "ledger.json").read_text())
    assert balance["reports"] == 1
    for result in (first, second, done):
        assert "41.9123" not in result.output.replace(answer_text(answer), "")
    assert call("forget").output == "1 entries erased; what they cost stays\n"
    again = call("init", "--start-over", "--epsilon", "9", "--period-epsilon", "6")
    assert "counts as spent" in again.output
    done = call(*report, place=f"{LAT},{LON}\n")
    assert done.exit_code == 2
    assert "started over" in done.output


def answer_text(answer: dict[str, Any]) -> str:
    return f"{answer['lat']:.7f},{answer['lon']:.7f}"


def test_the_place_is_never_an_argument(site, home):
    make()
    done = call("report", site.running.url, "table", f"{LAT},{LON}")
    assert done.exit_code == 2
    assert "standard input" in done.output
    assert str(LAT) not in done.output


@pytest.mark.parametrize("line", ["", "x", "41.9123457", "95.9123457,12", "99"])
def test_a_wrong_line_is_not_shown(site, home, line):
    make()
    done = call("report", site.running.url, "table", place=line + "\n")
    assert done.exit_code == 2
    assert "9123457" not in done.output
    assert "panda_mdp.protocol" not in done.output


def test_limits_are_kept_and_changed(site, home):
    make("--reports", "1")
    make("--reports", "2")
    done = call("init", "--epsilon", "9", "--period-epsilon", "6", "--period", "1")
    assert done.exit_code == 2
    assert "period_s" in done.output
    assert call("init", "--epsilon", "9", "--period-epsilon", "6", "--period", "0").exit_code == 2


def test_a_token_is_needed_and_never_shown(site, home, monkeypatch, tmp_path):
    make()
    monkeypatch.delenv("PANDA_MDP_TOKEN")
    done = call("report", site.running.url, "table", place="3\n")
    assert done.exit_code == 2
    assert "--token-file" in done.output
    kept = tmp_path / "token"
    kept.write_text("not a token\n")
    done = call("report", site.running.url, "table", "--token-file", str(kept), place="3\n")
    assert "not a token" not in done.output
    kept.write_text(site.token() + "\n")
    done = call("report", site.running.url, "table", "--token-file", str(kept), place="3\n")
    assert done.exit_code == 0, done.output


def test_keys_are_shown_and_pinned_by_hand(site, home):
    url = site.running.url
    assert "no key" in call("trust", url).output
    key = site.get("")["key"]
    done = call("trust", url, "--key", key["public"])
    assert done.output == f"{key['id']} {key['public']}\n"
    assert call("trust", url, "--key", "xx").exit_code == 2


def test_without_a_ledger_the_remedy_is_said(site, home):
    done = call("ledger")
    assert done.exit_code == 2
    assert "client init" in done.output


def test_what_remains_is_said_by_the_exit_code(site, home):
    make("--delta", "0.01")
    done = call("report", site.running.url, "anchors", "--wait", "0", place="3\n")
    assert done.exit_code == 2
    done = call("retry", site.running.url)
    assert done.exit_code == 1
    assert "1 remain" in done.output


def test_budgets_end(site):
    with site.user(period_epsilon=3.0) as user:
        plan = user.plan("table")
        user.report(plan, plan.record(1))
        with pytest.raises(BudgetError):
            user.report(plan, plan.record(2))


def test_the_servers_log_holds_no_record_and_no_token(site):
    """Last in this file: everything above has been logged."""
    log = site.running.log.read_text()
    assert "POST" in log
    for secret in ("9123457", "5123457", "pmt_"):
        assert secret not in log
