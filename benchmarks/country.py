"""A country from a service: what fetching a ball costs in bytes, loss and seconds, end to end.

    python benchmarks/country.py [--records 100000] [--outputs 100] [--clients 20] [--tables FOLDER]
    python benchmarks/country.py --cities [--records 6000]

Maps and tables are those of `country_tables.py`; tables that FOLDER holds are not solved again.
First the frontier: for every split of epsilon and radius the rows and bytes of a ball and the loss,
from balls cut as the server cuts them, for the same records. Then `panda-mdp serve` is started on
this machine, the table that the split `--served` leaves is deployed by balls, and clients take
part, each with a folder of its own, in `--processes` processes at once: every byte that goes over
the wire is counted, bodies and headers. No client has a map: it draws for its place. Losses are
exact for the ball that was drawn, and means over records; differences to the table are of the same
records.
"""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import closing, suppress
from http.client import HTTPConnection
from pathlib import Path
from resource import RUSAGE_CHILDREN, RUSAGE_SELF, getrusage
from urllib.parse import urlsplit

import httpx
import numpy as np
from country_tables import EPSILON, ROOT, SPLITS, given, tables

import panda_mdp as pm
from panda_mdp.panda.lattice import BallLaw, Centre, radius_for
from panda_mdp.privacy.quantise import TOTAL, SystemBits
from panda_mdp.protocol import Allowance, Client, Network
from panda_mdp.protocol.client.rounds import BallPlan
from panda_mdp.protocol.messages.deployments import BallTerms
from panda_mdp.protocol.server.routes.rounds import PACKING
from panda_mdp.protocol.server.solving import Tiles, ball_facts

sys.path.insert(0, str(ROOT / "tests" / "support"))
from protocol_servers import Running

FREQUENCIES = (1e-1, 1e-2, 1e-3, 1e-5)
"""How often balls of the frontier leave their record out."""
TARGETS = ((1e-7, 1e6, 1.25), (1e-2, 0.5e6, 1.15))
"""(delta, bytes, loss over that of the whole table) that are asked for; here delta is 0."""
PERCENTILES = (50, 90, 99, 100)
THREADS = 16
SPAWNED = multiprocessing.get_context("spawn")


class Counting(httpx.HTTPTransport):
    """Counts what goes over the wire."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """One request and its answer, headers included."""
        sent = len(request.read()) + sum(len(a) + len(b) + 4 for a, b in request.headers.raw)
        answer = super().handle_request(request)
        content = b"".join(answer.iter_raw())
        got = len(content) + sum(len(a) + len(b) + 4 for a, b in answer.headers.raw)
        self.bytes += sent + got
        return httpx.Response(answer.status_code, headers=answer.headers, content=content)


def lost(
    found: pm.Mechanism, law: BallLaw, snap: float, centre: tuple[int, int], record: int
) -> float:
    """What who is at a record loses beyond its own row by fading and misses, exactly for a ball."""
    depth = law.depths(centre)
    inside = found.weights[np.flatnonzero(depth > 0)]
    share, common = law.fade(np.minimum(depth[[record]], snap), inside)
    own = np.asarray(found.weights[np.array([record])])[0]
    cost = found.problem.loss[np.array([record])][0]
    return float(cost @ ((common - own) / TOTAL)) * float(share[0]) / TOTAL


def frontier(
    paths: dict[float, Path], whole: pm.Mechanism, records: np.ndarray, snap: float
) -> None:
    """Rows of balls, bytes as they travel, and the loss, by split and radius."""
    print("| centre | edge | missed | radius, km | rows | bytes of rows, mean | most | loss, km |"
          " over the whole table's | new balls a second of a core |")  # fmt: skip
    print("|---|---|---|---|---|---|---|---|---|---|")
    points = []
    for first, edge in SPLITS:
        path = paths.get(EPSILON - first - edge)
        if path is None:
            continue
        terms = BallTerms(epsilon_1=first, edge=edge, radius=1.0, snap=snap)
        # In a process that ends: reading a table takes more memory than having it.
        with ProcessPoolExecutor(1, SPAWNED) as pool:
            _, packed = pool.submit(ball_facts, path.read_bytes(), terms).result()
        left = pm.load(path)
        for missed in FREQUENCIES:
            terms = terms.model_copy(update={"radius": radius_for(first, missed)})
            law = terms.law(left.problem.domain, left.epsilon)
            tiles = Tiles(packed, law)
            centres = [law.draw(record, SystemBits()) for record in records.tolist()]
            rows, began = [], time.process_time()
            for centre in centres:
                message = tiles.ball(1, centre)
                size = len(gzip.compress(message.model_dump_json().encode(), PACKING))
                rows.append((len(message.lat), size, centre))
            spent = time.process_time() - began
            more = np.mean(
                [lost(left, law, snap, c, r) for r, (*_, c) in zip(records, rows, strict=True)]
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


def take_part(url: str, folder: str, users: list[tuple[str, float, float]]) -> list[list[float]]:
    """Clients of one process: bytes, and processor seconds."""
    found = []
    allowed = Allowance(epsilon=EPSILON, period_epsilon=EPSILON, snap_km=100.0)
    for token, lat, lon in users:
        wire, began = Counting(), time.process_time()
        network = Network(transport=wire, timeout_s=600)
        with Client(url, token, f"{folder}/{token[:16]}", allowed, network=network) as user:
            plan = user.plan("ball")
            if not isinstance(plan, BallPlan):
                raise SystemExit("the deployment is not one of balls")
            user.report(plan, plan.place(lat, lon))
        found.append([wire.bytes, time.process_time() - began])
    return found


def asked(url: str, tokens: list[str], centres: list[Centre]) -> None:
    """Ask for balls, over as many connections as there are threads, and read what comes."""

    def ask(part: int) -> None:
        with closing(HTTPConnection(urlsplit(url).netloc, timeout=600)) as wire:
            for token, centre in zip(tokens[part::THREADS], centres[part::THREADS], strict=True):
                headers = {"authorization": f"Bearer {token}", "accept-encoding": "gzip"}
                headers |= {"content-type": "application/json"}
                body = json.dumps({"centre": centre})
                wire.request("POST", "/v1/deployments/ball/balls", body, headers)
                answer = wire.getresponse()
                if answer.status != 200 or not answer.read():
                    raise SystemExit(f"a ball was refused: {answer.status}")

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(ask, range(THREADS)))


def processor(process: int) -> float:
    """Seconds of the processor that a process and its children have had."""
    of = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            of[int(folder.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    mine = {process}
    while more := {each for each, (parent, _) in of.items() if parent in mine} - mine:
        mine |= more
    return sum(of[each][1] for each in mine) / os.sysconf("SC_CLK_TCK")


def rate(server: Running, tokens: list[str], centres: list[Centre]) -> None:
    """How many balls a second a server hands out, new ones and once more the same."""
    number = server.process.pid  # type: ignore[union-attr]
    for what in ("new balls", "the same again"):
        spent, began = processor(number), time.perf_counter()
        with ProcessPoolExecutor(1, SPAWNED) as pool:
            pool.submit(asked, server.url, tokens, centres).result()
        seconds, spent = time.perf_counter() - began, processor(number) - spent
        print(
            f"{len(centres):,} {what}: {len(centres) / seconds:.0f} a second by the clock", end=""
        )
        print(f", {len(centres) / spent:.0f} a second of the server's processor ({spent:.1f} s)")


def served(
    path: Path, terms: dict[str, float], places: np.ndarray, processes: int, centres: list[Centre]
) -> None:
    """Deploy a table by balls, ask for some, and have clients at some places report."""
    with tempfile.TemporaryDirectory() as folder:
        server = Running(f"{folder}/panda.db", Path(folder)).start()
        try:
            admin = server.admin
            table = {"name": "country", "version": 1}
            for url, body in (
                ("/v1/tables/country", {"content": path.read_bytes()}),
                (
                    "/v1/deployments",
                    {"json": {"kind": "ball", "name": "ball", "table": table, **terms}},
                ),
            ):
                began = time.perf_counter()
                admin.post(url, **body, timeout=1_200).raise_for_status()
                print(f"{url}: {time.perf_counter() - began:.0f} s", flush=True)
            count = len(places) + len(centres)
            made = admin.post("/v1/tokens", json={"role": "reporter", "count": count})
            tokens = [each["token"] for each in made.raise_for_status().json()["tokens"]]
            rate(server, tokens[len(places) :], centres)
            users = list(zip(tokens, *places.T.tolist(), strict=False))
            began = time.perf_counter()
            with ProcessPoolExecutor(processes, SPAWNED) as pool:
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
    spent = ", ".join(f"{np.percentile(found[:, 1], p):.2f} s ({p} %)" for p in PERCENTILES)
    print(f"processor of a client from nothing to a sent report: {spent}", flush=True)


def main() -> None:
    """Solve, serve, print."""
    parser = given()
    parser.add_argument("--clients", type=int, default=20)
    parser.add_argument("--balls", type=int, default=1_000, help="asked for one after the other")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--cuts", type=int, default=40, help="balls of every point of the frontier")
    parser.add_argument("--served", type=int, default=0, help="which of the splits is served")
    parser.add_argument("--snap", type=float, default=3.0, help="km to the record of a place")
    parser.add_argument("--missed", type=float, default=1e-5, help="by balls that are served")
    options = parser.parse_args()
    paths = tables(options)
    whole = pm.load(paths[EPSILON])
    size = paths[EPSILON].stat().st_size
    print(f"whole table: {size:,} bytes, loses {whole.loss:.4f} km", flush=True)
    rng = np.random.default_rng(4)
    if options.cuts:
        records = rng.choice(whole.problem.size, options.cuts, replace=False)
        frontier(paths, whole, records, options.snap)
        most = [getrusage(who).ru_maxrss >> 10 for who in (RUSAGE_SELF, RUSAGE_CHILDREN)]
        print(f"memory: {most[0]:,} MB at most, and {most[1]:,} MB where tables are cut")
    if options.clients:
        domain = whole.problem.domain
        some = rng.choice(domain.size, options.clients)
        first, edge = SPLITS[options.served]
        radius = radius_for(first, options.missed)
        terms = {"epsilon_1": first, "edge": edge, "radius": radius, "snap": options.snap}
        places = np.stack([domain.lat, domain.lon], axis=1)[some]
        law = BallTerms(**terms).law(domain, EPSILON - first - edge)
        homes = rng.choice(domain.size, options.balls)
        centres = [law.draw(home, SystemBits()) for home in homes.tolist()]
        served(paths[EPSILON - first - edge], terms, places, options.processes, centres)


if __name__ == "__main__":
    main()
