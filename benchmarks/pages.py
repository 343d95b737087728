"""Draw the pictures of docs/browser.md: both pages, on a desktop and on a phone.

    python benchmarks/pages.py [--city rome.npz] [--all-of-it] [--only ball]

Starts a server with a deployment of 700 places of a city's centre (a synthetic one unless a city is
given), one of each other kind over 240, and 400 simulated reports around three places, and
photographs both pages in Chromium. `--all-of-it` adds one picture of all places of the city,
`--only` takes one of the page for people alone.
"""

from __future__ import annotations

import argparse
import io
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

import panda_mdp as pm
from panda_mdp.panda.selection import PandaOptions

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
sys.path.insert(0, str(ROOT / "tests" / "support"))
PHONE = {"viewport": {"width": 360, "height": 740}, "device_scale_factor": 2, "has_touch": True}
DARK = {**PHONE, "color_scheme": "dark", "locale": "it-IT"}
DESKTOP = {"viewport": {"width": 1280, "height": 800}}
DESK = {"viewport": {"width": 1280, "height": 960}}
SPAN_KM = 1.6
NOTICE = {"collector": "Ufficio mobilità", "purpose": "Where bicycle racks are missing"}
CROWD = 400
LANDMARKS = {
    "Pantheon": (41.8986, 12.4769),
    "Piazza Venezia": (41.8959, 12.4823),
    "Castel Sant'Angelo": (41.9031, 12.4663),
    "San Pietro": (41.9022, 12.4539),
    "Piazza del Popolo": (41.9107, 12.4764),
    "Fontana di Trevi": (41.9009, 12.4833),
    "Colosseo": (41.8902, 12.4922),
    "Circo Massimo": (41.8861, 12.4851),
    "Termini": (41.9010, 12.5018),
}
"""Names to search for, where the city is Rome."""


def main() -> None:
    """Take all pictures."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--city", type=Path, help="a city as pm.load_city reads it")
    parser.add_argument("--all-of-it", action="store_true", help="the whole city as well")
    parser.add_argument("--only", help="one picture, by name")
    given = parser.parse_args()
    from protocol_browser import open_browser
    from protocol_servers import Running

    city = pm.synthetic_city(nodes=4000, seed=3) if given.city is None else pm.load_city(given.city)
    with tempfile.TemporaryDirectory() as folder:
        server = Running(f"{folder}/panda.db", Path(folder)).start()
        try:
            centre = deploy(server, city, Path(folder))
            names = ["desktop", "phone", "phone-italian", "panda", "point", "ball", "rome"]
            made = server.admin.post("/v1/tokens", json={"role": "reporter", "count": len(names)})
            told = (token["token"] for token in made.json()["tokens"])
            tokens = dict(zip(names, told, strict=True))
            kinds = ["city", "city", "city", "panda", "area", "ball", "whole"]
            screens = [DESKTOP, PHONE, DARK, DESKTOP, DARK, PHONE, DESKTOP]
            with open_browser() as browser:
                for name, kind, screen in zip(names, kinds, screens, strict=True):
                    if given.only not in (None, name):
                        continue
                    if kind == "whole":
                        if not given.all_of_it:
                            continue
                        publish_whole(server, city, Path(folder))
                    link = f"{server.url}/#deployment={kind}&token={tokens[name]}"
                    photograph(browser, link, centre, f"browser-{name}", screen)
                if given.only is None:
                    photograph_desk(browser, server)
        finally:
            server.stop()


def deploy(server: Any, city: pm.City, folder: Path) -> tuple[float, float]:
    """Four deployments, and reports of one of them; the place that is picked."""
    lat, lon = float(np.median(city.lat)), float(np.median(city.lon))
    north = SPAN_KM / 111.2
    east = north / np.cos(np.deg2rad(lat))
    near = (abs(city.lat - lat) < north) & (abs(city.lon - lon) < east)
    rng = np.random.default_rng(1)
    many = rng.choice(np.flatnonzero(near), 700, replace=False)
    domain = pm.Domain.from_points(np.round(city.lat[many], 7), np.round(city.lon[many], 7))
    outputs, streets = np.arange(0, 700, 10), part_of(city, near)
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 3.0)
    table = pm.optimal(problem, gap=0.05)
    pm.compact(table).save(folder / "city.pmdp")
    publish(server, "city", folder / "city.pmdp", domain, streets, kind="table")
    report(server, table, rng)
    chosen = many[:240]
    domain = pm.Domain.from_points(np.round(city.lat[chosen], 7), np.round(city.lon[chosen], 7))
    outputs = np.arange(0, 240, 6)
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 4.0)
    scheme = pm.BallAnchors(1.0).scheme(problem, 1e-2, PandaOptions())
    pm.PandaTable(scheme).save(folder / "panda.pmdp")
    publish(server, "panda", folder / "panda.pmdp", domain, streets, kind="panda")
    table = pm.optimal(problem.with_epsilon(1.5), gap=0.05)
    pm.compact(table).save(folder / "ball.pmdp")
    ball = {"kind": "ball", "epsilon_1": 2.0, "edge": 0.5, "radius": 2.5, "snap": 1.0}
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
    lat, lon = city.lat[keep], city.lon[keep]
    names = [
        {"name": name, "lat": at[0], "lon": at[1], "kind": "landmark"}
        for name, at in LANDMARKS.items()
        if lat.min() <= at[0] <= lat.max() and lon.min() <= at[1] <= lon.max()
    ]
    lat, lon = (np.rint(1e6 * degrees).astype(int).tolist() for degrees in (lat, lon))
    places = {"lat": lat, "lon": lon, "names": names}
    return {**places, "u": u[both].tolist(), "v": v[both].tolist()}


def publish_whole(server: Any, city: pm.City, folder: Path) -> None:
    """All places of the city, whose table is the exponential mechanism's: only its size counts."""
    domain = city.domain()
    outputs = np.linspace(0, domain.size - 1, 100).astype(int)
    table = pm.exponential(pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 5.0))
    pm.compact(table).save(folder / "whole.pmdp")
    streets = part_of(city, np.full(len(city.lat), True))
    publish(server, "whole", folder / "whole.pmdp", domain, streets, kind="table")


def report(server: Any, table: Any, rng: np.random.Generator) -> None:
    """Reports of a made-up crowd around three places."""
    domain = table.problem.domain
    around = rng.choice(domain.size, 3, replace=False)
    made = server.admin.post("/v1/tokens", json={"role": "reporter", "count": CROWD}).json()
    client = server.client()
    for k, token in enumerate(made["tokens"]):
        near = np.argsort(domain.distances([around[k % 3]])[0])[:12]
        body = {"id": str(uuid.uuid4()), "output": int(table.sample(int(rng.choice(near))))}
        headers = {"authorization": f"Bearer {token['token']}"}
        client.post("/v1/deployments/city/reports", json=body, headers=headers).raise_for_status()


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
    server.admin.post("/v1/deployments", json={**wanted, **NOTICE}).raise_for_status()


def photograph(
    browser: Any, link: str, place: tuple[float, float], picture: str, screen: dict[str, Any]
) -> None:
    """Report from a place, and keep what the page then shows; `browser-phone` before it is sent."""
    from protocol_browser import visit

    narrow = screen["viewport"]["width"] < 500
    with visit(browser, link, **screen) as at:
        at.ready()
        at.page.evaluate("document.getElementById('by-list').open = true")
        at.page.fill("#numbers", "{:.5f}, {:.5f}".format(*place))
        at.page.press("#numbers", "Enter")
        at.page.wait_for_selector("#next:not([disabled])" if narrow else "#spread:visible")
        if narrow:
            at.page.click("#next")
        if picture != "browser-phone":
            if narrow:
                at.page.click("#next")
            at.send()
            at.page.evaluate("document.getElementById('spread').scrollIntoView()")
        at.page.wait_for_timeout(3500)
        keep(at.page, picture, screen)


def photograph_desk(browser: Any, server: Any) -> None:
    """The operator's page: the maps, what an operator can do, and both on a phone."""
    from protocol_browser import visit

    for picture, screen in (("desktop", DESK), ("acts", DESK), ("phone", PHONE)):
        with visit(browser, f"{server.url}/operator", **screen) as at:
            at.page.fill("#token", server.admin_token)
            at.page.press("#token", "Enter")
            at.page.locator("#deployments >> text=city").first.click()
            at.page.wait_for_selector("#maps-said:has-text('penalised')", timeout=600_000)
            at.page.wait_for_timeout(1500)
            if picture == "acts":
                at.page.evaluate("document.querySelector('#acts-title').scrollIntoView()")
                at.page.mouse.wheel(0, -24)
                at.page.wait_for_timeout(500)
            keep(at.page, f"operator-{picture}", screen)


def keep(page: Any, picture: str, screen: dict[str, Any]) -> None:
    """What a page shows, in 200 colours."""
    image = Image.open(io.BytesIO(page.screenshot(full_page=False))).convert("RGB")
    if "device_scale_factor" in screen:
        image = image.resize((image.width // 2, image.height // 2))
    image.quantize(200).save(IMAGES / f"{picture}.png", optimize=True)
    print(IMAGES / f"{picture}.png", flush=True)


if __name__ == "__main__":
    main()
