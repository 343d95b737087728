"""A country from a service: what fetching a ball costs in bytes, loss and seconds, end to end.

    python benchmarks/country.py [--records 100000] [--outputs 100] [--clients 20] [--tables FOLDER]

Records are scattered over 400 x 400 km in 400 towns of Pareto size, some of them to report; the
loss is the distance. Two tables are solved, with all of epsilon and with what a ball leaves, and
kept in FOLDER. Then `panda-mdp serve` is started on this machine, the second table is deployed by
balls, and clients take part one after the other, each with a folder of its own: every byte that
goes over the wire is counted, bodies and headers, the map of all records apart. Losses are exact
for the ball that was drawn, and means over clients; differences to the table are of the same
records.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import httpx
import numpy as np

import panda_mdp as pm
from panda_mdp.panda.lattice import radius_for
from panda_mdp.privacy.quantise import TOTAL, SystemBits
from panda_mdp.protocol import Allowance, Client, Network
from panda_mdp.protocol.client.plans import BallPlan
from panda_mdp.protocol.messages.deployments import BallRequest, BallRows, BallTerms
from panda_mdp.protocol.server.solving import ball_table, cut_ball
from panda_mdp.space.tiles import order_in_space

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))
from protocol_servers import Running  # noqa: E402

KM = 1 / 111.2
FIRST, EDGE = 1.0, 0.2
"""What the centre and the fading at the edge cost, of epsilon 5 per km."""
EPSILON = 5.0
CUTS = 40


def country(records: int, outputs: int) -> tuple[pm.Domain, np.ndarray]:
    """Places in towns, in an order in which near ones have near numbers; those to report."""
    rng = np.random.default_rng(0)
    towns = rng.random((400, 2)) * 400
    size = rng.pareto(1.2, len(towns)) + 1
    home = rng.choice(len(towns), records, p=size / size.sum())
    east, north = (towns[home] + rng.normal(size=(records, 2)) * 4 - 200).T * KM
    lat = np.round(42 + north, 6)
    lon = np.round(12 + east / np.cos(np.deg2rad(42)), 6)
    places = np.unique(np.stack([lat, lon], axis=1), axis=0)
    domain = pm.Domain.from_points(*places.T)
    order, _ = order_in_space(domain.metric.embedding, 64)
    chosen = np.sort(rng.choice(domain.size, outputs, replace=False))
    return domain.take(order), chosen


def table(domain: pm.Domain, outputs: np.ndarray, epsilon: float, folder: Path) -> Path:
    """The compact table, solved once."""
    path = folder / f"country-{domain.size}-{len(outputs)}-{epsilon:g}.pmdp"
    if not path.exists():
        problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), epsilon)
        began = time.perf_counter()
        made = pm.optimal(problem, 0.03, time_limit=3_600)
        print(f"solved at {epsilon:g} per km in {time.perf_counter() - began:.0f} s: {made!r}")
        pm.compact(made).save(path)
    return path


class Counting(httpx.HTTPTransport):
    """Counts what goes over the wire, by the first words of paths."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes: dict[str, int] = {}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """One request and its answer, headers included."""
        sent = len(request.read()) + sum(len(a) + len(b) + 4 for a, b in request.headers.raw)
        answer = super().handle_request(request)
        got = len(answer.read()) + sum(len(a) + len(b) + 4 for a, b in answer.headers.raw)
        kind = "map" if "/domains/" in request.url.path else "rest"
        self.bytes[kind] = self.bytes.get(kind, 0) + sent + got
        return answer


def served(path: Path, domain: pm.Domain, radius: float, clients: int) -> list[list[float]]:
    """Bytes, seconds and losses of clients, one after the other."""
    found = pm.load(path)
    losses, rng = found.problem.loss, np.random.default_rng(3)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        server = Running(f"{folder}/panda.db", Path(folder)).start()
        try:
            admin = server.admin
            places = {"lat": domain.lat.tolist(), "lon": domain.lon.tolist()}
            for url, body in (
                ("/v1/domains", {"json": {"name": "country", "kind": "haversine", **places}}),
                ("/v1/tables/country", {"content": path.read_bytes()}),
                (
                    "/v1/deployments",
                    {
                        "json": {"kind": "ball", "name": "ball"}
                        | {"table": {"name": "country", "version": 1}}
                        | {"epsilon_1": FIRST, "edge": EDGE, "radius": radius}
                    },
                ),
            ):
                began = time.perf_counter()
                admin.post(url, **body, timeout=1_200).raise_for_status()
                print(f"{url}: {time.perf_counter() - began:.0f} s", flush=True)
            made = admin.post("/v1/tokens", json={"role": "reporter", "count": clients})
            tokens = [each["token"] for each in made.raise_for_status().json()["tokens"]]
            allowed = Allowance(epsilon=EPSILON, period_epsilon=EPSILON, snap_km=500.0)
            for k, token in enumerate(tokens):
                record, wire = int(rng.integers(domain.size)), Counting()
                began = time.process_time()
                with Client(
                    server.url, token, f"{folder}/{k}", allowed, network=Network(transport=wire)
                ) as user:
                    plan = user.plan("ball")
                    user.report(plan, plan.record(record))
                    spent = time.process_time() - began
                    sent = dict(wire.bytes)
                    if not isinstance(plan, BallPlan):
                        raise SystemExit("the deployment is not one of balls")
                    # What this client would expect of another draw, exactly for its ball.
                    centre = plan.law.draw(record, SystemBits())
                    message = BallRequest(centre=centre)
                    rows_of = user.wire.post(BallRows, message, "deployments", "ball", "balls")
                    ball, weights = plan.check(centre, rows_of)
                shares, common = plan.law.fade(plan.law.depths(centre), weights)
                cost = losses[np.array([record])][0]
                own = np.asarray(found.weights[np.array([record])])[0] / TOTAL
                lost = float(cost @ (common / TOTAL - own)) * shares[record] / TOTAL
                rows.append([sent["rest"], sent["map"], spent, lost, len(ball)])
        finally:
            server.stop()
    return rows


def main() -> None:
    """Solve, serve, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--records", type=int, default=100_000)
    parser.add_argument("--outputs", type=int, default=100)
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--missed", type=float, default=1e-3)
    parser.add_argument("--beyond", type=float, default=2.0, help="km more than `missed` asks")
    parser.add_argument("--tables", type=Path, default=ROOT / "out")
    given = parser.parse_args()
    given.tables.mkdir(parents=True, exist_ok=True)
    domain, outputs = country(given.records, given.outputs)
    whole = table(domain, outputs, EPSILON, given.tables)
    part = table(domain, outputs, EPSILON - FIRST - EDGE, given.tables)
    best, left = pm.load(whole), pm.load(part)
    radius = radius_for(FIRST, given.missed) + given.beyond
    size = whole.stat().st_size
    print(f"{domain.size:,} records, {len(outputs)} outputs, epsilon {EPSILON:g} per km")
    print(f"whole table: {size:,} bytes, loses {best.loss:.4f} km")
    print(f"what balls leave: {left.loss:.4f} km; radius {radius:.1f} km", flush=True)
    balls = part.read_bytes(), BallTerms(epsilon_1=FIRST, edge=EDGE, radius=radius)
    _, law, *_ = ball_table(*balls)
    rng, began = np.random.default_rng(4), time.process_time()
    for record in rng.choice(domain.size, CUTS, replace=False).tolist():
        centre = law.draw(record, SystemBits())
        BallRows(version=1, centre=centre, **cut_ball(*balls, centre)).model_dump_json()
    print(f"server: {CUTS / (time.process_time() - began):.0f} new balls a second of one core")
    found = np.array(served(part, domain, radius, given.clients))
    mean, most = found.mean(axis=0), found.max(axis=0)
    print(f"{given.clients} clients, {mean[4]:,.0f} rows in a ball on average")
    print(f"a report: {mean[0]:,.0f} bytes on average, {most[0]:,.0f} at most")
    print(f"the map of all records, fetched for a plan: {mean[1]:,.0f} bytes")
    print(f"{mean[2]:.2f} s of the client's processor from nothing to a sent report")
    error = 1000 * found[:, 3].std() / len(found) ** 0.5
    print(f"{1000 * mean[3]:.1f} m lost beyond the table (standard error {error:.1f} m)")


if __name__ == "__main__":
    main()
