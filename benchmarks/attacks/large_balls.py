"""What a ball costs the server, cut from the compact table, and how large it is.

python benchmarks/attacks/large_balls.py [FILE.pmdp]
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from stage import small_domain

import panda_mdp as pm
from panda_mdp.protocol.server.solving import BallTable

EPSILON_1, DELTA, RECORDS, OUTPUTS = 6.0, 1e-3, 1_500, 100


def table() -> bytes:
    """A table of a few square kilometres."""
    domain = small_domain(RECORDS)
    chosen = np.linspace(0, RECORDS - 1, OUTPUTS).astype(np.int64)
    problem = pm.Problem(domain, chosen, pm.distance_loss(domain, chosen), 5.0)
    path = Path(tempfile.mkdtemp()) / "table.pmdp"
    pm.compact(pm.exponential(problem)).save(path)
    return path.read_bytes()


def main() -> None:
    data = Path(sys.argv[1]).read_bytes() if len(sys.argv) > 1 else table()
    balls = BallTable(data, EPSILON_1, DELTA, None)
    centres = balls.facts()["centres"]
    print(f"the table has {len(data):,} bytes")
    # The first one in a process reads and audits the table.
    balls.ball(centres[0])
    times, sizes = [], []
    for centre in centres[:: max(1, len(centres) // 20)]:
        began = time.process_time()
        made = balls.ball(centre)
        times.append(1e3 * (time.process_time() - began))
        sizes.append(len(json.dumps(made)))
    spent, size = np.median(times), np.median(sizes)
    print(f"{spent:.0f} ms of processor, {size:,.0f} bytes (medians)")


if __name__ == "__main__":
    main()
