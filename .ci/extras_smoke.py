"""Uses every extra once: pictures, frames, zones and maps, the service, the paper's page.

    python .ci/extras_smoke.py

For an environment in which the extras are installed at the lowest versions that are declared.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import panda_mdp as pm
from panda_mdp import plot

SPOTS = ((41.0, 12.0), (41.01, 12.0), (41.01, 12.01), (41.005, 12.005))
NODES = "".join(
    f'<node id="{i}" lat="{lat}" lon="{lon}"/>' for i, (lat, lon) in enumerate(SPOTS, 1)
)
WAY = '<way id="{0}{1}"><nd ref="{0}"/><nd ref="{1}"/><tag k="highway" v="residential"/></way>'
WAYS = "".join(WAY.format(i, j) for i in range(1, 5) for j in range(1, i))
MAP = f'<?xml version="1.0"?><osm version="0.6">{NODES}{WAYS}</osm>'


def pictures(folder: Path) -> None:
    """Each map and chart of a small city."""
    city = pm.synthetic_city(200, seed=0)
    domain, outputs = city.domain(records=60, seed=0), np.arange(8)
    loss = pm.travel_loss(city, domain, outputs, [9])
    table = pm.exponential(pm.Problem(domain, outputs, loss, 3.0))
    for figure in (
        plot.draw_city(city, domain=domain),
        plot.draw_record(table, 3, city=city),
        plot.draw_local_epsilon(table, city=city),
        plot.draw_expected_loss(table, city=city),
    ):
        plot.save_figure(figure, folder / "picture.png")


def frames(table: pm.Mechanism) -> None:
    """A table of PyArrow, perturbed."""
    import pyarrow

    domain = table.problem.domain
    frame = pyarrow.table({"lat": domain.lat[:5], "lon": domain.lon[:5]})
    if pm.perturb(frame, table).num_rows != 5:
        sys.exit("frames: five rows went in")


def maps(folder: Path) -> None:
    """Polygons, an OpenStreetMap file."""
    corners = [[0, 0], [0.005, 0], [0.005, 0.005], [0, 0.005], [0, 0]]
    zones = [[[12 + i / 100 + x, 41 + y] for x, y in corners] for i in range(4)]
    shapes = [{"type": "Polygon", "coordinates": [zone]} for zone in zones]
    features = [{"type": "Feature", "properties": {}, "geometry": shape} for shape in shapes]
    collection = {"type": "FeatureCollection", "features": features}
    (folder / "zones.geojson").write_text(json.dumps(collection), encoding="utf-8")
    pm.load_places(folder / "zones.geojson")
    (folder / "town.osm").write_text(MAP, encoding="utf-8")
    pm.load_city(folder / "town.osm")


def service(table: pm.Mechanism, folder: Path) -> None:
    """A server takes a table and opens a deployment."""
    import httpx

    command = (sys.executable, "-c", "from panda_mdp.cli import main; main()", "serve", "--init")
    where = ("--database", str(folder / "db"), "--key", str(folder / "key"), "--port", "0")
    with subprocess.Popen([*command, *where], stdout=subprocess.PIPE, text=True) as server:
        token = url = ""
        for line in server.stdout or ():
            token = line.split(": ")[1].strip() if "admin token" in line else token
            if " serves http" in line:
                url = line.split()[-1]
                break
        with httpx.Client(base_url=url, timeout=60) as client:
            client.headers["authorization"] = f"Bearer {token}"
            data = table.save(folder / "table.pmdp").read_bytes()
            kind = {"content-type": "application/octet-stream"}
            client.post("/v1/tables/t", content=data, headers=kind).raise_for_status()
            wanted = {"kind": "table", "name": "main", "table": {"name": "t", "version": 1}}
            wanted["reports_per_period"] = 10
            client.post("/v1/deployments", json=wanted).raise_for_status()
        server.terminate()


def main() -> None:
    """All of them, one after the other."""
    rng = np.random.default_rng(0)
    domain = pm.Domain.from_points(41.8 + 0.1 * rng.random(40), 12.4 + 0.1 * rng.random(40))
    outputs = np.arange(8)
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 3.0)
    table = pm.exponential(problem)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pictures(folder)
        frames(table)
        maps(folder)
        service(table, folder)
    import panda_paper.tables  # noqa: F401

    print("every extra works at these versions")


if __name__ == "__main__":
    main()
