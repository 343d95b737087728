"""`kill -9` of the server at random moments under load, and what is left of what it promised.

    python benchmarks/protocol_crash.py [--kills 50] [--seed 1] [--postgresql] [--name X] [--docs]

24 clients report without pause, each report until it is acknowledged, with the same id; rounds are
opened, filled and solved. The server is killed after random times (seeded;
some kills fall into its start) and started again on the same database. After each kill the database
is read from outside and must pass its integrity check; at the end the export must have every
acknowledged report exactly once. `--postgresql` does it on a PostgreSQL that is started for it;
`--servers 3 --database-kills 10` with three servers on it, one of which is killed at a time, and
with the database killed as well.
Runs with other names are kept beside each other.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import numpy as np

from panda_mdp.base.atomic import atomic_file

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))

from protocol_crashes import Findings, run_crashes  # noqa: E402
from protocol_load_report import NAMES, put  # noqa: E402
from protocol_servers import Postgres  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "protocol"
COLUMNS = {
    "kills": "kills",
    "kills_at_start": "while starting",
    "servers": "servers",
    "database_kills": "kills of the database",
    "acknowledged": "reports acknowledged",
    "lost": "lost",
    "twice": "counted twice",
    "never_sent": "never sent",
    "answered_again": "stored, but the sender learned it only by a retry",
    "rounds": "rounds solved",
    "uploads": "anchor sets",
}


def table(results: dict[str, Findings]) -> str:
    """The findings in markdown."""
    lines = [
        "| | " + " | ".join(results) + " |",
        "|---|" + "---|" * len(results),
    ]
    for name, words in COLUMNS.items():
        values = (f"{getattr(found, name):,}" for found in results.values())
        lines.append(f"| {words} | " + " | ".join(values) + " |")
    starts = (f"{np.median(found.start_seconds):.1f} s" for found in results.values())
    lines.append("| from start to first answer, median | " + " | ".join(starts) + " |")
    wrong = (str(len(found.wrong)) for found in results.values())
    lines.append("| other rules broken | " + " | ".join(wrong) + " |")
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--kills", type=int, default=50)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--uptime", type=float, default=1.5, help="seconds between kills, mean")
    options.add_argument("--seconds", type=float, default=math.inf, help="stop killing after this")
    options.add_argument("--postgresql", action="store_true", help="on PostgreSQL, not SQLite")
    options.add_argument("--servers", type=int, default=1, help="on one PostgreSQL")
    options.add_argument("--database-kills", type=int, default=0, help="of PostgreSQL itself")
    options.add_argument("--reports-only", action="store_true", help="no rounds")
    options.add_argument("--name", default="run 1", help="of the run, in the table")
    options.add_argument("--docs", action="store_true", help="write into docs/reliability.md")
    options.add_argument("--report", action="store_true", help="only show what was measured")
    options.add_argument("--folder", type=Path, default=RESULTS, help="where results go")
    args = options.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    if not args.report:
        kind = "postgresql" if args.postgresql else "sqlite"
        began = time.perf_counter()
        found = crash(kind, args)
        print(f"{time.perf_counter() - began:.0f} s")
        with atomic_file(args.folder / f"crash-{kind}-{args.name}.json") as stream:
            stream.write(json.dumps(asdict(found), indent=1).encode())
        for line in found.wrong:
            print(f"wrong: {line}")
    results = {}
    for kind, title in NAMES.items():
        for path in sorted(args.folder.glob(f"crash-{kind}-*.json")):
            name = path.stem.removeprefix(f"crash-{kind}-")
            results[f"{title}, {name}"] = Findings(**json.loads(path.read_text()))
    print(table(results))
    if args.docs:
        put(ROOT / "docs" / "reliability.md", "crash", table(results))
    if not all(found.good for found in results.values()):
        sys.exit("a promise was broken")


def crash(kind: str, args: argparse.Namespace) -> Findings:
    times = (args.kills, args.seed, args.uptime, args.seconds)
    with tempfile.TemporaryDirectory(prefix="crash-") as scratch:
        folder = Path(scratch)
        if kind == "sqlite":
            work = not args.reports_only
            return run_crashes(str(folder / "crash.db"), folder, *times, work=work)
        cluster = Postgres().start()
        try:
            return run_crashes(
                cluster.database(),
                folder,
                *times,
                args.servers,
                cluster,
                args.database_kills,
                not args.reports_only,
            )
        finally:
            cluster.stop()


if __name__ == "__main__":
    main()
