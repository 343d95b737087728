"""Draw the pictures of docs/browser.md that show PAnDA, balls and every point in the page.

    python benchmarks/pages.py [--city rome.npz]

Starts a server with three deployments over 240 places of a city's centre (a synthetic one unless a
city is given) and photographs the page in Chromium: a desktop, and a phone in dark and in Italian.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import panda_mdp as pm
from panda_mdp.panda.selection import PandaOptions

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
sys.path.insert(0, str(ROOT / "tests" / "support"))
PHONE = {"viewport": {"width": 390, "height": 844}, "device_scale_factor": 2, "has_touch": True}
DESKTOP = {"viewport": {"width": 1280, "height": 800}}
SPAN_KM = 1.6


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--city", type=Path, help="a city as pm.load_city reads it")
    given = parser.parse_args()
    from protocol_browser import open_browser
    from protocol_servers import Running

    city = pm.synthetic_city(nodes=4000, seed=3) if given.city is None else pm.load_city(given.city)
    with tempfile.TemporaryDirectory() as folder:
        server = Running(f"{folder}/panda.db", Path(folder)).start()
        try:
            centre = deploy(server, city, Path(folder))
            made = server.admin.post("/v1/tokens", json={"role": "reporter", "count": 3}).json()
            tokens = [token["token"] for token in made["tokens"]]
            with open_browser() as browser:
                photograph(
                    browser, server.url, "panda", tokens[0], centre, "browser-panda", DESKTOP
                )
                dark = {**PHONE, "color_scheme": "dark", "locale": "it-IT"}
                photograph(browser, server.url, "area", tokens[1], centre, "browser-point", dark)
                photograph(browser, server.url, "ball", tokens[2], centre, "browser-ball", PHONE)
        finally:
            server.stop()


def deploy(server: Any, city: pm.City, folder: Path) -> tuple[float, float]:
    """The three deployments; the place that is picked."""
    lat, lon = float(np.median(city.lat)), float(np.median(city.lon))
    north = SPAN_KM / 111.2
    east = north / np.cos(np.deg2rad(lat))
    near = (abs(city.lat - lat) < north) & (abs(city.lon - lon) < east)
    rng = np.random.default_rng(1)
    chosen = rng.choice(np.flatnonzero(near), 240, replace=False)
    domain = pm.Domain.from_points(np.round(city.lat[chosen], 7), np.round(city.lon[chosen], 7))
    outputs = np.arange(0, 240, 6)
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 4.0)
    streets = part_of(city, near)
    scheme = pm.BallAnchors(1.0).scheme(problem, 1e-2, PandaOptions())
    pm.PandaTable(scheme).save(folder / "panda.pmdp")
    publish(server, "panda", folder / "panda.pmdp", domain, streets, kind="panda")
    table = pm.optimal(problem.with_epsilon(1.5), gap=0.05)
    pm.compact(table).save(folder / "ball.pmdp")
    ball = {"kind": "ball", "epsilon_1": 2.0, "edge": 0.5, "radius": 2.5}
    publish(server, "ball", folder / "ball.pmdp", domain, streets, **ball)
    box = (lat - 0.6 * north, lon - 0.6 * east, lat + 0.6 * north, lon + 0.6 * east)
    area = pm.Domain.from_area(box, spacing=0.12)
    if area.mesh is None:
        raise SystemExit("an area has a mesh")
    inside = np.flatnonzero(area.mesh.inside)[::5]
    points = pm.Problem(area, inside, pm.distance_loss(area, inside), 4.0)
    pm.optimal_everywhere(points, gap=0.05).save(folder / "area.pmdp")
    publish(server, "area", folder / "area.pmdp", area, streets, kind="table")
    return lat + 0.13 * north, lon - 0.11 * east


def part_of(city: pm.City, near: Any) -> dict[str, Any]:
    """The streets around the chosen places."""
    keep = np.flatnonzero(near)
    place = np.full(len(city.lat), -1)
    place[keep] = np.arange(len(keep))
    u, v = place[city.u], place[city.v]
    both = (u >= 0) & (v >= 0)
    lat, lon = city.lat[keep].tolist(), city.lon[keep].tolist()
    return {"lat": lat, "lon": lon, "u": u[both].tolist(), "v": v[both].tolist()}


def publish(
    server: Any, name: str, path: Path, domain: pm.Domain, streets: dict[str, Any], **kind: Any
) -> None:
    """A domain with streets, a table and a deployment, all of one name."""
    places = {"lat": domain.lat.tolist(), "lon": domain.lon.tolist(), "streets": streets}
    body = {"name": name, "kind": "haversine", "unit": "km", **places}
    known = server.admin.post("/v1/domains", json=body)
    known.raise_for_status()
    made = server.admin.post(
        f"/v1/tables/{name}?domain={known.json()['id']}", content=path.read_bytes()
    )
    made.raise_for_status()
    wanted = {"name": name, "table": {"name": name, "version": 1}, "reports_per_period": 3, **kind}
    notice = {"collector": "Ufficio mobilità", "purpose": "Where bicycle racks are missing"}
    server.admin.post("/v1/deployments", json={**wanted, **notice}).raise_for_status()


def photograph(
    browser: Any,
    url: str,
    name: str,
    token: str,
    place: tuple[float, float],
    picture: str,
    screen: dict[str, Any],
) -> None:
    """Report from a place, and keep what the page then shows, in 200 colours."""
    from protocol_browser import visit

    with visit(browser, f"{url}/#deployment={name}&token={token}", **screen) as at:
        at.ready()
        at.pick(*place)
        at.send()
        at.page.evaluate("document.getElementById('spread').scrollIntoView()")
        at.page.wait_for_timeout(3500)
        data = at.page.screenshot(full_page=False)
    image = Image.open(io.BytesIO(data)).convert("RGB")
    if "device_scale_factor" in screen:
        image = image.resize((image.width // 2, image.height // 2))
    image.quantize(200).save(IMAGES / f"{picture}.png", optimize=True)
    print(IMAGES / f"{picture}.png", flush=True)


if __name__ == "__main__":
    main()
