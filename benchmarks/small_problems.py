"""Small problems by the thousand against HiGHS: how many miss the gap, how many take long.

python benchmarks/small_problems.py [--problems 2466] [--workers 2] [--gap 0.01]

Random problems of up to 15 records: every metric, four kinds of losses, 0.03 to 10 nats between
neighbours (`plain_problem` in tests/support). A problem is missed where the table loses more than
(1 + gap) times HiGHS' optimum of the LP over all pairs, where the stated gap is larger, or where
the stated bound is above that optimum. Seconds are of the processor.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from helpers import lp_optimum, plain_problem

import panda_mdp as pm

ROUNDING = 1e-7
"""Relative, of an optimum."""
TOLERANCE = 1e-9
"""Of the largest loss: HiGHS' tables break the constraints by up to 1e-10, and lose less for it."""


def judged(seed: int, gap: float) -> tuple[int, float, float, list[str]]:
    """A problem's seed, its seconds, its excess over the optimum, and what is wrong."""
    problem = plain_problem(seed)
    start = time.process_time()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        table = pm.optimal(problem, gap=gap)
    seconds = time.process_time() - start
    optimum = lp_optimum(problem)
    bound = float("nan") if table.lower_bound is None else table.lower_bound
    most = optimum * (1 + ROUNDING) + TOLERANCE * float(problem.loss.max())
    wrong = {
        "loss": not table.loss <= most * (1 + gap),
        "gap": not table.gap <= gap,
        "bound": not bound <= most,
        "warning": any(issubclass(one.category, pm.errors.GapWarning) for one in said),
    }
    excess = table.loss / optimum - 1 if optimum > 0 else 0.0
    return seed, seconds, excess, [name for name, is_so in wrong.items() if is_so]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--problems", type=int, default=2466)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--gap", type=float, default=0.01)
    options = parser.parse_args()
    results = []
    with ProcessPoolExecutor(options.workers) as pool:
        work = pool.map(partial(judged, gap=options.gap), range(options.problems), chunksize=16)
        for result in work:
            results.append(result)
            seed, seconds, _, wrong = result
            if wrong or seconds > 1:
                print(f"{seed}: {seconds:.2f} s {', '.join(wrong)}", flush=True)
            if len(results) % 200 == 0:
                print(f"{len(results):,} of {options.problems:,}", file=sys.stderr, flush=True)
    times = sorted(seconds for _, seconds, _, _ in results)
    print(
        f"{len(results):,} problems: {sum(bool(wrong) for *_, wrong in results)} missed, "
        f"{sum(t > 1 for t in times)} over 1 s; longest {times[-1]:.2f} s, median "
        f"{times[len(times) // 2]:.3f} s; largest excess {max(r[2] for r in results):.2%}"
    )


if __name__ == "__main__":
    main()
