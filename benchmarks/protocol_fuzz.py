"""10,000 malformed requests and schemathesis against a real server.

    python benchmarks/protocol_fuzz.py [--requests 10000] [--examples 100] [--postgresql] [--docs]

Malformed requests (support/protocol_malformed.py): truncated and deeply nested JSON, wrong types,
numbers without end, NaN, invalid UTF-8, other encodings and content types, oversized, chunked and
slow bodies, broken tables, odd ranges, paths, tokens and HTTP framing. Each must be refused within
20 seconds, without a 5xx and without quoting the request; two bodies that never arrive must be
given up after a minute. Schemathesis then generates requests from the served OpenAPI description,
once as an admin and once as a reporter. Every line of the server's log must be an access line with
a known route or one of a few fixed sentences; no token and nothing of a request may be in it.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/support"))

from protocol_fuzz import (  # noqa: E402
    log_problems,
    prepare,
    run_cases,
    schemathesis,
    stalled_bodies,
)
from protocol_load_report import NAMES, put, write  # noqa: E402
from protocol_servers import Postgres, Running  # noqa: E402

RESULTS = ROOT / "benchmarks" / "results" / "protocol"


def fuzz(database: str, folder: Path, requests: int, examples: int, seed: int) -> dict[str, Any]:
    """Everything against one database."""
    running = Running(database, folder).start()
    try:
        where = prepare(running, folder)
        began = time.perf_counter()
        verdict = run_cases(running, where, requests, seed)
        seconds = time.perf_counter() - began
        wrong = verdict.wrong + stalled_bodies(running, where)
        summaries = []
        for token in (where.admin, where.reporter) if examples else ():
            good, output = schemathesis(running, token, folder, examples, seed)
            summaries.append(output[output.rfind("SUMMARY") :])
            if not good:
                wrong.append("schemathesis")
                print(output)
        wrong += log_problems(running, where)
        lines = running.log.read_text().count("\n")
        if running.stop() != 0:
            wrong.append("the server did not end well")
    finally:
        running.kill()
    statuses: Counter[str] = Counter()
    for (_, outcome), number in verdict.answers.items():
        statuses[outcome] += number
    return {
        "requests": verdict.sent,
        "seconds": seconds,
        "answers": dict(sorted(statuses.items())),
        "kinds": len({kind for kind, _ in verdict.answers}),
        "examples": examples,
        "schemathesis": summaries,
        "log_lines": lines,
        "wrong": sorted(set(wrong)),
    }


def table(results: dict[str, dict[str, Any]]) -> str:
    lines = [
        "| | " + " | ".join(NAMES[kind] for kind in results) + " |",
        "|---|" + "---|" * len(results),
    ]
    answers = sorted({answer for found in results.values() for answer in found["answers"]})

    def row(words: str, values: list[Any]) -> None:
        lines.append(f"| {words} | " + " | ".join(str(value) for value in values) + " |")

    row("malformed requests", [f"{found['requests']:,}" for found in results.values()])
    for answer in answers:
        words = f"answered {answer}" if answer.isdigit() else "ended by either side, no answer"
        row(words, [f"{found['answers'].get(answer, 0):,}" for found in results.values()])
    row("lines of log looked at", [f"{found['log_lines']:,}" for found in results.values()])
    row("rules broken", [len(found["wrong"]) for found in results.values()])
    return "\n".join(lines)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--requests", type=int, default=10_000)
    options.add_argument("--examples", type=int, default=100, help="per operation; 0: none")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--postgresql", action="store_true", help="on PostgreSQL, not SQLite")
    options.add_argument("--docs", action="store_true", help="write into docs/reliability.md")
    options.add_argument("--report", action="store_true", help="only show what was found")
    options.add_argument("--folder", type=Path, default=RESULTS, help="where results go")
    args = options.parse_args()
    args.folder.mkdir(parents=True, exist_ok=True)
    if not args.report:
        kind = "postgresql" if args.postgresql else "sqlite"
        cluster = Postgres().start() if args.postgresql else None
        try:
            with tempfile.TemporaryDirectory(prefix="fuzz-") as scratch:
                folder = Path(scratch)
                database = cluster.database() if cluster else str(folder / "fuzz.db")
                found = fuzz(database, folder, args.requests, args.examples, args.seed)
        finally:
            if cluster:
                cluster.stop()
        write(args.folder / f"fuzz-{kind}.json", json.dumps(found, indent=1))
        print("\n".join(found["schemathesis"]))
        for line in found["wrong"]:
            print(f"wrong: {line}")
    results = {}
    for kind in NAMES:
        path = args.folder / f"fuzz-{kind}.json"
        if path.exists():
            results[kind] = json.loads(path.read_text())
    print(table(results))
    if args.docs:
        put(ROOT / "docs" / "reliability.md", "fuzz", table(results))
    if any(found["wrong"] for found in results.values()):
        sys.exit("a rule was broken")


if __name__ == "__main__":
    main()
