"""PAnDA as a service: a file is published, clients verify it, run both phases and report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from forging import File
from protocol_servers import Running
from typer.testing import CliRunner

import panda_mdp as pm
from panda_mdp.cli import app
from panda_mdp.errors import BudgetError
from panda_mdp.panda.selection import PandaOptions
from panda_mdp.protocol import Allowance, Client
from panda_mdp.protocol.client.plans import TablePlan

OUTPUTS = [0, 5, 9, 21]


def tables() -> dict[str, pm.PandaTable]:
    rng = np.random.default_rng(3)
    domain = pm.Domain.from_points(41.9 + 0.05 * rng.random(30), 12.5 + 0.05 * rng.random(30))
    problem = pm.Problem(domain, OUTPUTS, pm.distance_loss(domain, OUTPUTS), 3.0)
    selections = {
        "balls": pm.BallAnchors(1.0),
        "candidates": pm.BernoulliAnchors.alike(domain, 8, 1e-2),
    }
    return {
        name: pm.PandaTable(selection.scheme(problem, 1e-2, PandaOptions()))
        for name, selection in selections.items()
    }


class Site:
    def __init__(self, running: Running, folder: Path) -> None:
        self.running, self.folder, self.tables = running, folder, tables()
        self.files = {n: t.save(folder / f"{n}.pmdp") for n, t in self.tables.items()}
        for name, path in self.files.items():
            made = self.post(f"/tables/{name}", content=path.read_bytes())
            assert made.status_code == 201, made.text
            table = {"name": name, "version": 1}
            wanted = {"kind": "panda", "name": name, "table": table, "reports_per_period": 9}
            made = self.post("/deployments", json=wanted)
            assert made.status_code == 201, made.text

    def post(self, path: str, **body: Any) -> Any:
        return self.running.admin.post(f"/v1{path}", **body)

    def get(self, path: str) -> Any:
        return self.running.admin.get(f"/v1{path}").json()

    def token(self) -> str:
        token: str = self.post("/tokens", json={"role": "reporter"}).json()["tokens"][0]["token"]
        return token

    def user(self, name: str, **changes: Any) -> Client:
        limits: dict[str, Any] = {"epsilon": 5.0, "period_epsilon": 9.0, "delta": 0.01}
        limits["period_delta"] = 0.03
        folder = self.folder / f"user-{name}"
        return Client(self.running.url, self.token(), folder, Allowance(**{**limits, **changes}))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    running = Running(str(folder / "panda.db"), folder).start()
    try:
        yield Site(running, folder)
    finally:
        running.stop()


@pytest.mark.parametrize("kind", ["balls", "candidates"])
def test_both_phases_run_at_the_client_and_one_report_arrives(site, kind):
    with site.user(kind) as user:
        plan = user.plan(kind)
        assert isinstance(plan, TablePlan)
        delta = {"balls": 0.0, "candidates": 0.01}[kind]
        assert plan.cost == pm.Guarantee(3.0, delta, "km") == site.tables[kind].guarantee
        answer = user.report(plan, plan.record(11))
        assert answer.output in OUTPUTS
        assert answer.cost == plan.cost
        assert user.report(plan, plan.record(11)).repeated
        user.report(plan, plan.record(12))
    assert site.get(f"/deployments/{kind}/counts")["reports"] == 2
    shares = site.get(f"/deployments/{kind}/estimate")["share"]
    assert sum(shares) == pytest.approx(1.0, abs=1e-6)
    said = site.get(f"/deployments/{kind}")
    assert said["guarantee"] == {"epsilon": 3.0, "delta": delta, "unit": "km"}


def test_the_ledger_charges_delta_too(site):
    with site.user("strict", delta=1e-3) as user, pytest.raises(BudgetError, match="delta"):
        user.plan("candidates")
    with site.user("short", period_delta=0.015) as user:
        plan = user.plan("candidates")
        user.report(plan, plan.record(1))
        with pytest.raises(BudgetError, match="delta"):
            user.report(plan, plan.record(2))


def test_it_is_no_plain_table_and_a_plain_one_has_no_phases(site):
    wrong = {"kind": "table", "name": "wrong", "table": {"name": "balls", "version": 1}}
    refused = site.post("/deployments", json=wrong)
    assert refused.status_code == 422
    assert "a file of kind panda" in refused.json()["error"]["message"]
    assert refused.json()["error"]["remedy"] == "use kind panda, or publish another file"
    plain = pm.exponential(site.tables["balls"].problem).save(site.folder / "plain.pmdp")
    assert site.post("/tables/plain", content=plain.read_bytes()).status_code == 201
    refused = site.post(
        "/deployments",
        json={"kind": "panda", "name": "wrong", "table": {"name": "plain", "version": 1}},
    )
    assert refused.status_code == 422
    assert "a file of kind plain" in refused.json()["error"]["message"]


def test_a_forged_file_is_not_published(site):
    archive = File.of(site.files["balls"].read_bytes())
    archive.header["selection"]["epsilon"] *= 1.1
    refused = site.post("/tables/forged", content=archive.bytes())
    assert refused.status_code == 422


def test_one_command_publishes_it(site, tmp_path):
    token = tmp_path / "token"
    token.write_text(site.running.admin_token)
    token.chmod(0o600)
    command = ["publish", site.running.url, str(site.files["candidates"])]
    done = CliRunner().invoke(app, [*command, "--name", "again", "--token-file", str(token)])
    assert done.exit_code == 0, done.output
    assert site.get("/deployments/again")["kind"] == "panda"
