"""Tables for every point of an area through the service: published whole, drawn at the point."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from protocol_servers import Running

import panda_mdp as pm
from panda_mdp.errors import BudgetError
from panda_mdp.protocol import Allowance, Client
from panda_mdp.protocol.client.plans import EverywherePlan

AREA = (41.896, 12.486, 41.904, 12.496)
HERE = (41.9003, 12.4921)


class Site:
    def __init__(self, running: Running, folder: Path) -> None:
        self.running, self.folder = running, folder
        domain = pm.Domain.from_area(AREA, spacing=0.2)
        assert domain.mesh is not None
        outputs = np.flatnonzero(domain.mesh.inside)[::4]
        problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 2.0)
        self.table = pm.optimal_everywhere(problem, gap=0.2)
        self.file = self.table.save(folder / "area.pmdp").read_bytes()
        made = running.admin.post("/v1/tables/area", content=self.file)
        assert made.status_code == 201, made.text
        self.info = made.json()

    def deploy(self, **fields: Any) -> Any:
        wanted = {"name": "area", "table": {"name": "area", "version": 1}, **fields}
        return self.running.admin.post("/v1/deployments", json=wanted)

    def user(self) -> Client:
        made = self.running.admin.post("/v1/tokens", json={"role": "reporter"}).json()
        limits = Allowance(epsilon=2.0, period_epsilon=5.0)
        return Client(self.running.url, made["tokens"][0]["token"], self.folder / "user", limits)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("everywhere")
    running = Running(str(folder / "panda.db"), folder).start()
    try:
        made = Site(running, folder)
        assert made.deploy(kind="table", reports_per_period=9).status_code == 201
        yield made
    finally:
        running.stop()


def test_the_file_keeps_its_promise_for_every_point(site):
    served = site.running.admin.get("/v1/tables/area/1/file").content
    assert served == site.file
    assert site.info["audited_epsilon"] == site.table.everywhere.epsilon


def test_a_place_is_drawn_at_and_every_report_pays(site):
    with site.user() as user:
        plan = user.plan("area")
        assert isinstance(plan, EverywherePlan)
        assert plan.snap_km == site.table.everywhere.resolution_km < 1e-6
        here = plan.place(*HERE)
        for _ in range(2):
            answer = user.report(plan, here)
            assert answer.output in site.table.problem.outputs
            # A repeated answer would tell that the same vertex was drawn again.
            assert not answer.repeated
            assert answer.cost == pm.Guarantee(2.0, 0.0, "km")
        with pytest.raises(BudgetError, match="epsilon 4 of 5 is spent"):
            user.report(plan, here)
    found = site.running.admin.get("/v1/deployments/area/counts").json()
    assert found["reports"] == 2
    shares = site.running.admin.get("/v1/deployments/area/estimate").json()["share"]
    assert sum(shares) == pytest.approx(1.0, abs=1e-6)


def test_each_opening_draws_a_vertex_of_the_triangle(site):
    with site.user() as user:
        plan = user.plan("area")
    here = plan.place(*HERE)
    drawn = {here.unseal(plan.domain, lambda vertex: vertex) for _ in range(200)}
    located = site.table.mesh.locate(*(np.array([value]) for value in HERE))
    assert drawn == set(located.vertices[0].tolist())


def test_a_place_outside_is_the_nearest_point_of_the_area(site):
    with site.user() as user:
        plan = user.plan("area")
    mesh = site.table.mesh
    for place in ((41.95, 12.6), (-41.0, -167.0), (80.0, 12.0)):
        lat, lon = plan.area.clamp(*place)
        located = mesh.locate(np.array([lat]), np.array([lon]))
        assert located.inside.all()
        found = {plan.place(*place).unseal(plan.domain, lambda vertex: vertex) for _ in range(60)}
        assert found <= set(located.vertices[0].tolist())


def test_it_has_no_balls(site):
    refused = site.deploy(kind="ball", name="ball", epsilon_1=0.5, edge=0.1, radius=1.0, snap=1.0)
    assert refused.status_code in (409, 422)
    refused = site.deploy(kind="panda", name="phased")
    assert refused.status_code == 422
