"""A country from a service: what fetching a ball costs in bytes, loss and seconds, end to end.

    python benchmarks/country.py [--records 100000] [--outputs 100] [--clients 20] [--tables FOLDER]
    python benchmarks/country.py --cities --splits 4 --clients 0

Maps and tables are those of `country_tables.py`; tables that FOLDER holds are not solved again.
First the frontier: for every split of epsilon and radius the rows and bytes of a ball and the loss,
from balls cut as the server cuts them, for the same records. Then `panda-mdp serve` is started on
this machine, the table that the first split leaves is deployed by balls, and clients take part,
each with a folder of its own, in `--processes` processes at once: every byte that goes over the
wire is counted, bodies and headers, the map of all records apart. Losses are exact for the ball
that was drawn, and means over records; differences to the table are of the same records.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import httpx
import numpy as np
from country_tables import EPSILON, ROOT, SPLITS, given, tables

import panda_mdp as pm
from panda_mdp.panda.lattice import BallLaw, radius_for
from panda_mdp.privacy.quantise import TOTAL, SystemBits
from panda_mdp.protocol import Allowance, Client, Network
from panda_mdp.protocol.client.plans import BallPlan
from panda_mdp.protocol.messages.deployments import BallRows, BallTerms
from panda_mdp.protocol.server.solving import ball_table, cut_ball

sys.path.insert(0, str(ROOT / "tests" / "support"))
from protocol_servers import Running

FREQUENCIES = (1e-1, 1e-2, 1e-3, 1e-5)
"""How often balls of the frontier leave their record out."""
TARGETS = ((1e-7, 1e6, 1.25), (1e-2, 0.5e6, 1.15))
"""(delta, bytes, loss over that of the whole table) that are asked for; here delta is 0."""
PERCENTILES = (50, 90, 99, 100)


class Counting(httpx.HTTPTransport):
    """Counts what goes over the wire, by the first words of paths."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = {"map": 0, "rest": 0}

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """One request and its answer, headers included."""
        sent = len(request.read()) + sum(len(a) + len(b) + 4 for a, b in request.headers.raw)
        answer = super().handle_request(request)
        content = b"".join(answer.iter_raw())
        got = len(content) + sum(len(a) + len(b) + 4 for a, b in answer.headers.raw)
        self.bytes["map" if "/domains/" in request.url.path else "rest"] += sent + got
        return httpx.Response(answer.status_code, headers=answer.headers, content=content)


def lost(found: pm.Mechanism, law: BallLaw, centre: tuple[int, int], record: int) -> float:
    """What a record loses beyond its own row by fading and misses, exactly for a ball."""
    depth = law.depths(centre)
    share, common = law.fade(depth[[record]], found.weights[np.flatnonzero(depth > 0)])
    own = np.asarray(found.weights[np.array([record])])[0]
    cost = found.problem.loss[np.array([record])][0]
    return float(cost @ ((common - own) / TOTAL)) * float(share[0]) / TOTAL


def frontier(paths: dict[float, Path], whole: pm.Mechanism, records: np.ndarray) -> None:
    """Rows and bytes of balls, and the loss, by split and radius."""
    print("| centre | edge | missed | radius, km | rows | bytes of rows, mean | most | loss, km |"
          " over the whole table's | new balls a second of a core |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|")
    points = []
    for first, edge in SPLITS:
        path = paths.get(EPSILON - first - edge)
        if path is None:
            continue
        left, file = pm.load(path), path.read_bytes()
        for missed in FREQUENCIES:
            terms = BallTerms(epsilon_1=first, edge=edge, radius=radius_for(first, missed))
            _, law, *_ = ball_table(file, terms)
            rows, began = [], time.process_time()
            for record in records.tolist():
                centre = law.draw(record, SystemBits())
                message = BallRows(version=1, centre=centre, **cut_ball(file, terms, centre))
                rows.append((len(message.records), len(message.model_dump_json()), centre))
            spent = time.process_time() - began
            more = np.mean(
                [lost(left, law, c, r) for r, (*_, c) in zip(records, rows, strict=True)]
            )
            count, size, _ = zip(*rows, strict=True)
            loss = left.loss + float(more)
            ratio = loss / whole.loss
            points.append((max(size), ratio))
            cells = (
                f"{first:g} | {edge:g} | {missed:g} | {terms.radius:.1f} | {np.mean(count):,.0f}",
                f"{np.mean(size):,.0f} | {max(size):,} | {loss:.4f} | {ratio:.4f}",
                f"{len(rows) / spent:.0f}",
            )
            print(f"| {' | '.join(cells)} |", flush=True)
    for delta, most, ratio in TARGETS:
        meets = sum(size <= most and worse <= ratio for size, worse in points)
        print(f"at most {most:,.0f} bytes of rows in every ball that was cut, and {ratio:g} of the")
        print(f"loss (asked for at delta {delta:g}; here it is 0): {meets} of {len(points)}")


def take_part(url: str, folder: str, users: list[tuple[str, int]]) -> list[list[float]]:
    """Clients of one process: bytes without the map, of the map, processor seconds, rows."""
    found = []
    allowed = Allowance(epsilon=EPSILON, period_epsilon=EPSILON, snap_km=3_000.0)
    for token, record in users:
        wire, began = Counting(), time.process_time()
        network = Network(transport=wire, timeout_s=600)
        with Client(url, token, f"{folder}/{token[:16]}", allowed, network=network) as user:
            plan = user.plan("ball")
            if not isinstance(plan, BallPlan):
                raise SystemExit("the deployment is not one of balls")
            user.report(plan, plan.record(record))
        spent = time.process_time() - began
        found.append([wire.bytes["rest"], wire.bytes["map"], spent])
    return found


def served(path: Path, radius: float, records: np.ndarray, processes: int) -> None:
    """Deploy a table by balls, and have clients report."""
    domain = pm.load(path).problem.domain
    first, edge = SPLITS[0]
    with tempfile.TemporaryDirectory() as folder:
        server = Running(f"{folder}/panda.db", Path(folder)).start()
        try:
            admin = server.admin
            places = {"lat": domain.lat.tolist(), "lon": domain.lon.tolist()}
            terms = {"epsilon_1": first, "edge": edge, "radius": radius}
            table = {"name": "country", "version": 1}
            for url, body in (
                ("/v1/domains", {"json": {"name": "country", "kind": "haversine", **places}}),
                ("/v1/tables/country", {"content": path.read_bytes()}),
                (
                    "/v1/deployments",
                    {"json": {"kind": "ball", "name": "ball", "table": table, **terms}},
                ),
            ):
                began = time.perf_counter()
                admin.post(url, **body, timeout=1_200).raise_for_status()
                print(f"{url}: {time.perf_counter() - began:.0f} s", flush=True)
            made = admin.post("/v1/tokens", json={"role": "reporter", "count": len(records)})
            tokens = [each["token"] for each in made.raise_for_status().json()["tokens"]]
            users = list(zip(tokens, records.tolist(), strict=True))
            began = time.perf_counter()
            with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
                parts = [users[k::processes] for k in range(processes)]
                work = [pool.submit(take_part, server.url, folder, part) for part in parts]
                found = np.array([row for done in work for row in done.result()])
            seconds = time.perf_counter() - began
            used = Path(f"/proc/{server.process.pid}/status").read_text()  # type: ignore[union-attr]
            memory = next(line.split()[1] for line in used.splitlines() if "VmHWM" in line)
        finally:
            server.stop()
    mean, most = found.mean(axis=0), found.max(axis=0)
    print(f"{len(found):,} clients in {processes} processes: {seconds:.0f} s", end=", ")
    print(f"{len(found) / seconds:.1f} a second; server's process {int(memory) >> 10:,} MB")
    print(f"a report: {mean[0]:,.0f} bytes on average, {most[0]:,.0f} at most")
    print(f"the map of all records, fetched for a plan: {mean[1]:,.0f} bytes")
    spent = ", ".join(f"{np.percentile(found[:, 2], p):.2f} s ({p} %)" for p in PERCENTILES)
    print(f"processor of a client from nothing to a sent report: {spent}", flush=True)


def main() -> None:
    """Solve, serve, print."""
    parser = given()
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--cuts", type=int, default=40, help="balls of every point of the frontier")
    parser.add_argument("--missed", type=float, default=1e-5, help="by balls that are served")
    options = parser.parse_args()
    paths = tables(options)
    whole = pm.load(paths[EPSILON])
    size = paths[EPSILON].stat().st_size
    print(f"whole table: {size:,} bytes, loses {whole.loss:.4f} km", flush=True)
    rng = np.random.default_rng(4)
    if options.cuts:
        frontier(paths, whole, rng.choice(whole.problem.size, options.cuts, replace=False))
    if options.clients:
        records = rng.choice(whole.problem.size, options.clients)
        path = paths[EPSILON - sum(SPLITS[0])]
        served(path, radius_for(SPLITS[0][0], options.missed), records, options.processes)


if __name__ == "__main__":
    main()
