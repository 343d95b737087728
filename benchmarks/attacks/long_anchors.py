"""One token sends anchor sets of 6.9 MB, 2.4 a second, while others report: what do they wait?

python benchmarks/attacks/long_anchors.py [--seconds 20]
"""

from __future__ import annotations

import argparse
import multiprocessing
import time
from urllib.parse import urlsplit

import numpy as np
from abusive import abuse
from stage import deployed, new_id


def p99_ms(reporters: list, seconds: float) -> float:
    """Reports one after the other, 20 a second."""
    taken, until, number = [], time.monotonic() + seconds, 0
    while time.monotonic() < until:
        reporter = reporters[number % len(reporters)]
        began = time.perf_counter()
        reporter.post("/v1/deployments/main/reports", json={"id": new_id(), "output": 5})
        taken.append(1e3 * (time.perf_counter() - began))
        number += 1
        time.sleep(0.05)
    return float(np.percentile(taken, 99))


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    options.add_argument("--seconds", type=float, default=20.0)
    seconds = options.parse_args().seconds
    running = deployed(reports_per_period=1_000)
    try:
        *reporters, attacker = running.reporters(6)
        token = attacker.headers["authorization"].removeprefix("Bearer ")
        where = urlsplit(running.url)
        p99_ms(reporters, 1.0)
        alone = p99_ms(reporters, seconds / 2)
        args = (where.hostname, where.port, token, "main", time.time() + seconds)
        process = multiprocessing.get_context("spawn").Process(target=abuse, args=args)
        process.start()
        beside = p99_ms(reporters, seconds)
        process.join(30)
        print(f"p99 of a report: {alone:.0f} ms alone, {beside:.0f} ms beside the attack")
    finally:
        running.stop()


if __name__ == "__main__":
    main()
