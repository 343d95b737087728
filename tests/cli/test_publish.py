"""One command from a table and a map to a survey whose map is not blank."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from protocol_servers import Running
from typer.testing import CliRunner

import panda_mdp as pm
from panda_mdp.cli import app

CSV = """name,lat,lon,kind
Torre,{lat},{lon},landmark
Via Prova,{lat},{lon},
Elsewhere,1,1,street
"""


def test_a_table_a_map_and_a_notice_by_one_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    city = pm.synthetic_city(nodes=300, seed=4)
    domain = city.domain(records=30, seed=4)
    outputs = [0, 7, 14, 21]
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 3.0)
    table = pm.exponential(problem).save(tmp_path / "t.pmdp")
    names = tmp_path / "names.csv"
    names.write_text(CSV.format(lat=float(domain.lat[0]), lon=float(domain.lon[0])))
    road_map = tmp_path / "city.npz"
    city.save(road_map)
    server = Running(str(tmp_path / "panda.db"), tmp_path).start()
    try:
        monkeypatch.setenv("PANDA_MDP_TOKEN", server.admin_token)
        notice = ["--collector", "The city", "--purpose", "Racks", "--until", "2999-01-31"]
        given = [server.url, str(table), "--name", "town", "--map", str(road_map)]
        done = CliRunner().invoke(app, ["publish", *given, "--names", str(names), *notice])
        assert done.exit_code == 0, done.output
        assert "2 names" in done.output
        public = server.client()
        [found] = public.get("/v1/deployments").json()["deployments"]
        stated = json.loads(found["statement"])
        assert (stated["collector"], stated["purpose"]) == ("The city", "Racks")
        streets = public.get(f"/v1/domains/{found['table']['streets']}/streets").json()
        assert len(streets["u"]) > 100
        assert [name["name"] for name in streets["names"]] == ["Torre", "Via Prova"]
        again = CliRunner().invoke(app, ["publish", *given, "--until", "2026-02-30"])
        assert again.exit_code == 2
        assert "until" in again.output
    finally:
        server.stop()
