"""Reports per second and their latency, and a table to many at once, against a real server.

    python benchmarks/protocol_load.py [--seconds 60] [--rate 1000] [--postgresql 20] [--docs]

Starts `panda-mdp serve` (uvicorn, SQLite, its default limits, access log on) and loads it over
loopback from this process. Open loop: `rate` x `seconds` reports are due at random moments (a
Poisson process, seeded), and latency counts from the moment a report was due, so that a stall of
the server is seen by everybody who fell into it. 10,000 tokens, 200 connections, kept alive.
Then the same rate for ten seconds while 50 clients, in a third process, download a 5 MB table.
Afterwards the export must have every acknowledged report exactly once and nothing else, the counts
must add up, and the database must pass its integrity check. `--postgresql SECONDS` does the same on
a PostgreSQL that is started for it, `--servers 3` with three servers on it. `--abuse` lets one
token try every attack of `attacks/abusive.py` during the steady run; its reports are left
out of the checks.

Results: benchmarks/results/protocol/load-*.json, table.md and charts; `--docs` puts them into
docs/reliability.md.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import hashlib
import json
import multiprocessing
import os
import platform
import sqlite3
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import numpy as np
import uvloop

import panda_mdp as pm
from panda_mdp.base.atomic import atomic_file

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))
sys.path.insert(0, str(ROOT / "benchmarks/attacks"))

from abusive import abuse  # noqa: E402
from protocol_load_report import write_report  # noqa: E402
from protocol_servers import Postgres, Running, small_domain  # noqa: E402
from protocol_traffic import (  # noqa: E402
    Crowd,
    Export,
    Timed,
    Told,
    Wire,
    make_reports,
    request_bytes,
)

RESULTS = ROOT / "benchmarks" / "results" / "protocol"
TOKENS, CONNECTIONS, CLIENTS = 10_000, 200, 50
RECORDS, OUTPUTS, EPSILON = 2_700, 800, 3.0
DOWNLOADS_AT_S, BESIDE_S = 3.0, 10.0
PATIENCE_S = 20.0
Result = dict[str, Any]


def table_file(folder: Path) -> bytes:
    """A table whose compact file has 5 MB, made once."""
    path = folder / f"table-{RECORDS}-{OUTPUTS}.pmdp"
    if not path.exists():
        print("making a table of 5 MB ...", flush=True)
        domain = small_domain(RECORDS)
        chosen = np.linspace(0, RECORDS - 1, OUTPUTS).astype(np.int64)
        problem = pm.Problem(domain, chosen, pm.distance_loss(domain, chosen), EPSILON)
        pm.compact(pm.exponential(problem)).save(path)
    return path.read_bytes()


@dataclass
class Site:
    """A server with a deployment that takes reports."""

    running: Running
    host: str
    ports: list[int]
    tokens: list[str]
    outputs: list[int]
    sha256: str
    abuser: str = ""
    """The id of the token that tries everything."""


def prepare(running: Running, table: bytes) -> Site:
    """Publish, deploy, make tokens."""
    admin = running.admin
    kind = {"content-type": "application/octet-stream"}
    info = _made(admin.post("/v1/tables/city", content=table, headers=kind))
    wanted = {"kind": "table", "name": "load", "table": {"name": "city", "version": 1}}
    wanted["reports_per_period"] = 1_000
    _made(admin.post("/v1/deployments", json=wanted))
    made = _made(admin.post("/v1/tokens", json={"role": "reporter", "count": TOKENS}))
    where = urlsplit(running.url)
    chosen = np.linspace(0, RECORDS - 1, OUTPUTS).astype(int).tolist()
    tokens = [entry["token"] for entry in made["tokens"]]
    return Site(running, where.hostname or "", [where.port or 0], tokens, chosen, info["sha256"])


def _made(answer: httpx.Response) -> Any:
    if answer.status_code != 201:
        raise SystemExit(f"the server could not be prepared: {answer.text}")
    return answer.json()


def due_times(rate: float, seconds: float, seed: int) -> np.ndarray:
    """Moments of a Poisson process that has exactly rate x seconds of them."""
    rng = np.random.default_rng(seed)
    return np.sort(rng.uniform(0.0, seconds, round(rate * seconds)))


async def send_reports(site: Site, reports: list[Told], due: np.ndarray) -> Timed:
    """Reports in turn to all servers of a site."""
    count = len(site.ports)
    crowds = [Crowd(site.host, port, CONNECTIONS // count) for port in site.ports]
    for crowd in crowds:
        await crowd.open()
    # What is collected here would be counted as the server's latency.
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        parts = await asyncio.gather(
            *(
                crowd.run([r.request for r in reports[k::count]], due[k::count], PATIENCE_S)
                for k, crowd in enumerate(crowds)
            )
        )
        return merged(parts, len(due))
    finally:
        gc.enable()
        for crowd in crowds:
            await crowd.close()


def merged(parts: list[Timed], total: int) -> Timed:
    """What the servers' shares add up to, in the order of the reports."""
    count = len(parts)
    fields = {}
    for name in ("due", "answered", "status", "sent"):
        first = getattr(parts[0], name)
        fields[name] = np.empty(total, dtype=first.dtype)
        for k, part in enumerate(parts):
            fields[name][k::count] = getattr(part, name)
    return Timed(**fields, began=min(part.began for part in parts))


# Downloads


def download_all(host: str, port: int, clients: int, sha256: str, start: float, into: Path) -> None:
    """All clients at once, at a moment of the wall clock; runs in a process of its own."""
    uvloop.run(_download_all(host, port, clients, sha256, start, into))


async def _download_all(
    host: str, port: int, clients: int, sha256: str, start: float, into: Path
) -> None:
    request = request_bytes("GET", "/v1/tables/city/1/file")
    await asyncio.sleep(max(0.0, start - time.time()))
    began, at = time.perf_counter(), time.time()

    async def one() -> tuple[float, int, bytes]:
        status, body = await Wire(host, port).ask(request, 120.0)
        return time.perf_counter() - began, status, body

    got = await asyncio.gather(*(one() for _ in range(clients)))
    total = time.perf_counter() - began
    right = sum(status == 200 and hashlib.sha256(b).hexdigest() == sha256 for _, status, b in got)
    times = sorted(seconds for seconds, _, _ in got)
    found = {
        "clients": clients,
        "bytes_each": len(got[0][2]),
        "verified": right,
        "began": at,
        "seconds": total,
        "first_s": times[0],
        "median_s": times[len(times) // 2],
        "megabytes_per_s": sum(len(body) for _, _, body in got) / total / 1e6,
    }
    into.write_text(json.dumps(found))


def beside_downloads(site: Site, reports: list[Told], due: np.ndarray, folder: Path) -> Any:
    """Reports go on while everybody downloads."""
    into = folder / "downloads.json"
    start = time.time() + 2.0 + DOWNLOADS_AT_S
    args = (site.host, site.ports[0], CLIENTS, site.sha256, start, into)
    process = multiprocessing.get_context("spawn").Process(target=download_all, args=args)
    process.start()
    time.sleep(max(0.0, start - DOWNLOADS_AT_S - time.time()))
    timed = uvloop.run(send_reports(site, reports, due))
    process.join(120)
    return timed, json.loads(into.read_text())


# Afterwards


def check(site: Site, told: list[tuple[list[Told], Timed]]) -> Result:
    """Every acknowledged report is in the export exactly once, and nothing else is."""
    export = Export()
    with site.running.admin.stream("GET", "/v1/deployments/load/reports") as answer:
        export.add(answer.read())
    own = {pair: n for pair, n in export.pairs.items() if pair[0] != site.abuser}
    accepted = {
        (report.user, report.output)
        for reports, timed in told
        for report, status in zip(reports, timed.status.tolist(), strict=True)
        if status in (200, 201)
    }
    counts = site.running.admin.get("/v1/deployments/load/counts").json()
    found = {
        "accepted": len(accepted),
        "exported": sum(export.pairs.values()),
        "missing": len(accepted - export.pairs.keys()),
        "repeated": sum(number > 1 for number in own.values()),
        "not_sent": len(own.keys() - {(r.user, r.output) for part, _ in told for r in part}),
        "counted": counts["reports"],
        "commits": len(export.at),
    }
    wrong = found["missing"] or found["repeated"] or found["not_sent"]
    if wrong or found["counted"] != found["exported"]:
        raise SystemExit(f"the export does not have what was acknowledged: {found}")
    return found


def summarise(timed: Timed, seconds: float) -> Result:
    """Percentiles, over all requests and second by second."""
    latency = 1e3 * timed.latency
    good = np.isin(timed.status, (200, 201))
    statuses, numbers = np.unique(timed.status, return_counts=True)
    marks = {"p50": 50.0, "p90": 90.0, "p99": 99.0, "p99.9": 99.9, "max": 100.0}
    per_second = []
    for second in range(int(np.ceil(seconds))):
        part = latency[(timed.due >= second) & (timed.due < second + 1)]
        if part.size:
            values = {name: float(np.percentile(part, mark)) for name, mark in marks.items()}
            per_second.append({"second": second, "reports": int(part.size), **values})
    return {
        "sent": int(latency.size),
        "accepted": int(good.sum()),
        "accepted_per_s": float(good.sum() / seconds),
        "statuses": {str(s): int(n) for s, n in zip(statuses, numbers, strict=True)},
        "latency_ms": {name: float(np.percentile(latency, mark)) for name, mark in marks.items()},
        "sent_late_ms_p99": float(1e3 * np.percentile(timed.sent - timed.due, 99)),
        "per_second": per_second,
    }


def processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def disk_ms(folder: Path) -> dict[str, float]:
    """How long the disk takes to make 4 kB durable, for comparison."""
    times = []
    with (folder / "probe").open("wb", buffering=0) as stream:
        for _ in range(100):
            stream.write(b"x" * 4096)
            began = time.perf_counter()
            os.fdatasync(stream.fileno())
            times.append(1e3 * (time.perf_counter() - began))
    return {"median": float(np.median(times)), "p99": float(np.percentile(times, 99))}


def integrity(database: str) -> str:
    with sqlite3.connect(database) as connection:
        found = connection.execute("PRAGMA integrity_check").fetchone()[0]
    connection.close()
    return str(found)


def most_memory_mb(pid: int) -> float:
    """The most that a process has had in memory."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return int(line.split()[1]) / 1024
    return 0.0


def start_abuse(site: Site, seconds: float) -> Any:
    """A process in which one token tries everything."""
    made = site.running.admin.post("/v1/tokens", json={"role": "reporter"}).json()["tokens"][0]
    site.abuser = made["id"]
    args = (site.host, site.ports[0], made["token"], "load", time.time() + seconds)
    process = multiprocessing.get_context("spawn").Process(target=abuse, args=args)
    process.start()
    return process


def measure(
    kind: str,
    database: str,
    folder: Path,
    rate: float,
    seconds: float,
    servers: int = 1,
    abused: bool = False,
) -> Result:
    """One database: steady reports, then reports beside downloads, then the checks."""
    # The defaults of `serve`, after what tests set.
    options = ("--token-rate", "50", "--address-rate", "50")
    disk = disk_ms(folder)
    running = Running(database, folder, *options).start()
    fleet = [running]
    try:
        site = prepare(running, table_file(RESULTS))
        for number in range(1, servers):
            other = Running(database, folder, *options, log=f"server-{number}.log").start()
            fleet.append(other)
            site.ports.append(urlsplit(other.url).port or 0)
        due = due_times(rate, seconds, seed=1)
        beside = due_times(rate, BESIDE_S, seed=2)
        steady = make_reports(len(due), "load", site.tokens, site.outputs)
        more = make_reports(len(beside), "load", site.tokens, site.outputs, len(due))
        pid = running.process.pid if running.process is not None else 0
        print(f"{kind}: {len(due)} reports in {seconds:g} s ...", flush=True)
        used = processor_seconds(pid), time.process_time(), time.perf_counter()
        abuser = start_abuse(site, seconds + 5) if abused else None
        timed = uvloop.run(send_reports(site, steady, due))
        spent = time.perf_counter() - used[2]
        shares = {
            "server": (processor_seconds(pid) - used[0]) / spent,
            "generator": (time.process_time() - used[1]) / spent,
        }
        if abuser is not None:
            abuser.join(60)
        print(f"{kind}: {CLIENTS} downloads beside {len(beside)} reports ...", flush=True)
        timed_beside, downloads = beside_downloads(site, more, beside, folder)
        checked = check(site, [(steady, timed), (more, timed_beside)])
        memory = [most_memory_mb(one.process.pid) for one in fleet if one.process is not None]
    finally:
        for one in fleet:
            one.stop()
    log = "".join(one.log.read_text() for one in fleet)
    return {
        "kind": kind,
        "rate": rate,
        "seconds": seconds,
        "servers": servers,
        "abused": abused,
        "memory_mb": memory,
        "tokens": TOKENS,
        "connections": CONNECTIONS,
        "machine": machine(),
        "disk_fdatasync_ms": disk,
        "steady": summarise(timed, seconds),
        "processor_share": shares,
        "downloads": downloads | {"started_at_s": downloads["began"] - timed_beside.began},
        "beside": summarise(timed_beside, BESIDE_S),
        "check": checked,
        "integrity": integrity(database) if kind == "sqlite" else None,
        "log_errors": sum(" ERROR " in line for line in log.splitlines()),
    }


def machine() -> dict[str, Any]:
    model = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.split(": ")[1]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "processor": model,
        "cores": os.cpu_count(),
        "memory_gib": round(memory),
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
    }


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--rate", type=float, default=1_000.0, help="reports per second")
    options.add_argument("--seconds", type=float, default=60.0, help="0 leaves SQLite out")
    options.add_argument("--postgresql", type=float, default=0.0, help="seconds on PostgreSQL")
    options.add_argument("--servers", type=int, default=1, help="on one PostgreSQL")
    options.add_argument(
        "--abuse", action="store_true", help="one token tries everything meanwhile"
    )
    options.add_argument("--docs", action="store_true", help="write into docs/reliability.md")
    options.add_argument("--no-charts", action="store_true", help="only measure")
    options.add_argument("--report", action="store_true", help="only draw what was measured")
    options.add_argument("--folder", type=Path, default=RESULTS, help="where results go")
    args = options.parse_args()
    RESULTS.mkdir(parents=True, exist_ok=True)
    args.folder.mkdir(parents=True, exist_ok=True)
    docs = ROOT / "docs" / "reliability.md" if args.docs else None
    table_file(RESULTS)
    if args.seconds and not args.report:
        with tempfile.TemporaryDirectory(dir=RESULTS) as scratch:
            here = Path(scratch)
            database = str(here / "load.db")
            found = measure("sqlite", database, here, args.rate, args.seconds, 1, args.abuse)
        keep(args.folder, found)
    if args.postgresql and not args.report:
        cluster = Postgres().start()
        try:
            with tempfile.TemporaryDirectory(dir=RESULTS) as scratch:
                database = cluster.database()
                times = (args.rate, args.postgresql, args.servers, args.abuse)
                found = measure("postgresql", database, Path(scratch), *times)
        finally:
            cluster.stop()
        keep(args.folder, found)
    if not args.no_charts:
        write_report(args.folder, docs)


def keep(folder: Path, found: Result) -> None:
    with atomic_file(folder / f"load-{found['kind']}.json") as stream:
        stream.write(json.dumps(found, indent=1).encode())
    print(json.dumps({key: found[key] for key in ("servers", "abused", "memory_mb")}))
    short = {key: found["steady"][key] for key in ("accepted_per_s", "latency_ms", "statuses")}
    print(json.dumps(short), json.dumps(found["processor_share"]))
    print(json.dumps(found["downloads"]), json.dumps(found["beside"]["latency_ms"]))
    print(json.dumps(found["check"]))


if __name__ == "__main__":
    main()
