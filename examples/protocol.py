"""A server and 50 users: the whole protocol in its three deployments, on this machine.

    python examples/protocol.py [FOLDER]

Starts a real server on loopback in a folder of its own, publishes a synthetic city, lets every user
report through the public table, through balls and through a round of anchors, asks for the
estimate, and ends the server. Draws where people were, what was reported and what the operator can
tell from it (protocol.png).
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from operator import methodcaller
from pathlib import Path
from typing import Any

import httpx
import numpy as np

import panda_mdp as pm
from panda_mdp import plot
from panda_mdp.plot.style import BLUE, GREEN, VERMILION, draw_streets, map_axes, new_figure
from panda_mdp.protocol import Allowance, Client

DEPLOYMENTS = ("table", "ball", "anchors")
EPSILON, EPSILON_1, EDGE, DELTA = 4.0, 1.0, 0.3, 1e-3
RADIUS_KM, SNAP_KM = 6.0, 2.0


@contextmanager
def running_server(folder: Path) -> Iterator[tuple[str, str]]:
    """`panda-mdp serve` on a free port: its address and the first admin token."""
    command = [sys.executable, "-c", "from panda_mdp.cli import main; main()", "serve", "--init"]
    options = ["--port", "0", "--database", str(folder / "panda.db"), "--address-rate", "1000"]
    log = (folder / "server.log").open("wb")
    server = subprocess.Popen(  # noqa: S603
        [*command, *options], stdout=subprocess.PIPE, stderr=log, text=True
    )
    token = url = ""
    try:
        for line in server.stdout or ():
            if "admin token" in line:
                token = line.split(": ")[1].strip()
            if " serves http" in line:
                url = line.split()[-1]
                break
        if not url:
            raise RuntimeError((folder / "server.log").read_text())
        yield url, token
    finally:
        server.terminate()
        server.wait(30)
        if server.stdout is not None:
            server.stdout.close()
        log.close()


class Operator:
    """What an operator does, by the API."""

    def __init__(self, url: str, token: str) -> None:
        headers = {"Authorization": f"Bearer {token}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=60, trust_env=False)

    def post(self, path: str, body: Any) -> Any:
        kind = "content" if isinstance(body, bytes) else "json"
        return self._checked(self._http.post(f"/v1{path}", **{kind: body}))

    def get(self, path: str) -> Any:
        return self._checked(self._http.get(f"/v1{path}"))

    def close(self) -> None:
        self._http.close()

    @staticmethod
    def _checked(answer: httpx.Response) -> Any:
        if answer.is_error:
            raise RuntimeError(answer.text)
        return answer.json()


def publish(operator: Operator, city: pm.City, domain: pm.Domain, folder: Path) -> None:
    """The domain, one table for everyone and one for balls, and the three deployments."""
    streets = {
        "lat": np.rint(1e6 * city.lat).astype(int).tolist(),
        "lon": np.rint(1e6 * city.lon).astype(int).tolist(),
        "u": city.u.tolist(),
        "v": city.v.tolist(),
        "names": [],
    }
    places = {
        "kind": "haversine",
        "unit": "km",
        "lat": domain.lat.tolist(),
        "lon": domain.lon.tolist(),
    }
    known = operator.post("/domains", {"name": "city", **places, "streets": streets})["id"]
    outputs = np.arange(0, domain.size, max(1, domain.size // 20))
    loss = pm.distance_loss(domain, outputs)
    ball_epsilon = EPSILON - EPSILON_1 - EDGE
    for name, epsilon in (("city", EPSILON), ("city-ball", ball_epsilon)):
        table = pm.optimal(pm.Problem(domain, outputs, loss, epsilon), gap=0.05, time_limit=5)
        path = folder / f"{name}.pmdp"
        pm.compact(table).save(path)
        operator.post(f"/tables/{name}?domain={known}", path.read_bytes())
    operator.post(
        "/deployments", {"kind": "table", "name": "table", "table": {"name": "city", "version": 1}}
    )
    operator.post(
        "/deployments",
        {
            "kind": "ball",
            "name": "ball",
            "table": {"name": "city-ball", "version": 1},
            "epsilon_1": EPSILON_1,
            "edge": EDGE,
            "radius": RADIUS_KM,
            "snap": SNAP_KM,
        },
    )
    # Parameters of the paper's selection that fit (epsilon, delta), by search.
    problem = pm.Problem(domain, outputs, loss, EPSILON)
    search = pm.SearchSpace(("candidates", "coins"), decays=("exponential",), rates=(0.01,))
    found = pm.calibrate(problem, DELTA, search, gap=0.1)
    print(found)
    # The whole table loses less here; this deployment shows the paper's rounds.
    fitting = sorted((trial.loss or 0.0, k) for k, trial in enumerate(found.tried) if trial.fits)
    selections = [found.tried[k].selection for _, k in fitting]
    chosen = next((s for s in selections if isinstance(s, pm.BernoulliAnchors)), None)
    if chosen is None:
        raise SystemExit(f"no selection fits: {found.binding}")
    selection = {
        "decay": chosen.decay,
        "alpha": chosen.alpha,
        "rate": chosen.rate,
        "radius": chosen.radius,
        "tail": chosen.tail,
        "candidates": None if chosen.candidates is None else chosen.candidates.tolist(),
        "neighbours": chosen.neighbours,
    }
    operator.post(
        "/deployments",
        {
            "kind": "anchors",
            "name": "anchors",
            "domain": known,
            "outputs": outputs.tolist(),
            "epsilon": EPSILON,
            "delta": DELTA,
            "selection": selection,
        },
    )


class User:
    """Somebody at a place, with a ledger and a token. Only the client ever sees the place."""

    def __init__(self, client: Client, lat: float, lon: float) -> None:
        self.client = client
        self.lat = lat
        self.lon = lon

    def report(self, name: str) -> None:
        plan = self.client.plan(name)
        self.client.report(plan, plan.place(self.lat, self.lon))

    def join(self, name: str) -> None:
        plan = self.client.plan(name)
        self.client.join(plan, plan.place(self.lat, self.lon))


def main(out: Path = Path("out/examples"), users: int = 50, records: int = 60) -> Path:
    start = time.perf_counter()
    city = pm.synthetic_city(nodes=2000, seed=4)
    domain = city.domain(records=records, seed=4)
    rng = np.random.default_rng(0)
    # Half of the people are near one place; the operator is to find that out, and no more.
    crowd = np.flatnonzero(domain.distances(int(rng.integers(domain.size)))[0] <= 1.5)
    at = np.where(
        rng.random(users) < 0.5, rng.choice(crowd, users), rng.integers(0, records, users)
    )
    with (
        tempfile.TemporaryDirectory(prefix="panda-mdp-") as name,
        running_server(Path(name)) as (url, token),
    ):
        folder = Path(name)
        operator = Operator(url, token)
        publish(operator, city, domain, folder)
        print(f"{time.perf_counter() - start:5.1f} s: published")
        made = operator.post("/tokens", {"role": "reporter", "count": users})["tokens"]
        limits = Allowance(
            epsilon=EPSILON, period_epsilon=3 * EPSILON, delta=DELTA, period_delta=0.01
        )
        people = [
            User(
                Client(url, made[n]["token"], folder / f"user-{n}", limits),
                float(domain.lat[at[n]]),
                float(domain.lon[at[n]]),
            )
            for n in range(users)
        ]
        print(f"{time.perf_counter() - start:5.1f} s: {users} users have ledgers")
        operator.post("/deployments/anchors/rounds", {"closes_at_users": users})
        with ThreadPoolExecutor(8) as pool:
            # In the last deployment everybody uploads anchors before anybody gets rows.
            steps = ("report table", "report ball", "join anchors", "report anchors")
            for step in steps:
                action, deployment = step.split()
                list(pool.map(methodcaller(action, deployment), people))
                print(f"{time.perf_counter() - start:5.1f} s: all users {step}")
        shares = {}
        for deployment in DEPLOYMENTS:
            counts = operator.get(f"/deployments/{deployment}/counts")
            print(f"{deployment}: {counts['reports']} reports")
            # Reports of rounds are exported, and have no estimate on the server.
            told = deployment != "anchors"
            estimate = operator.get(f"/deployments/{deployment}/estimate") if told else None
            shares[deployment] = (counts, estimate)
        spent = people[0].client.ledger.balances()[0]
        print(f"one user spent {spent.spent} in {spent.reports} reports")
        for user in people:
            user.client.close()
        operator.close()
    print(f"{time.perf_counter() - start:.0f} s")
    return draw(out / "protocol.png", city, domain, np.bincount(at, minlength=records), shares)


def draw(
    path: Path, city: pm.City, domain: pm.Domain, true: np.ndarray, shares: dict[str, Any]
) -> Path:
    """True places, reports and the estimate, for each deployment."""
    figure = new_figure(9.6, 3.3 * len(shares))
    lat0, lon0 = float(city.lat.mean()), float(city.lon.mean())

    def plane(lat: Any, lon: Any) -> np.ndarray:
        x = np.deg2rad(np.asarray(lon) - lon0) * np.cos(np.deg2rad(lat0))
        return 6371.0088 * np.stack([x, np.deg2rad(np.asarray(lat) - lat0)], axis=1)

    streets, points = plane(city.lat, city.lon), plane(domain.lat, domain.lon)
    grid = figure.subplots(len(shares), 3, squeeze=False)
    for row, (name, (counts, estimate)) in zip(grid, shares.items(), strict=True):
        reported = np.zeros(domain.size)
        reported[counts["outputs"]] = counts["counts"]
        panels = [
            (f"{name}: where people are (nobody knows)", true / true.sum(), BLUE),
            (f"{name}: what was reported", reported / max(reported.sum(), 1), VERMILION),
        ]
        if estimate is None:
            row[-1].set_axis_off()
        else:
            told = np.zeros(domain.size)
            told[estimate["records"]] = estimate["share"]
            panels.append((f"{name}: what the operator can tell", told, GREEN))
        for axes, (title, share, colour) in zip(row, panels, strict=False):
            draw_streets(axes, streets, city.u, city.v)
            axes.scatter(*points.T, s=1400 * share, color=colour, alpha=0.6, linewidths=0, zorder=3)
            map_axes(axes, streets)
            axes.set_title(title, fontsize=9)
    return plot.save_figure(figure, path)


if __name__ == "__main__":
    print("drawn to", main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("out/examples")))
