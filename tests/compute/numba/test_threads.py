"""Compiled loops answer the same on one thread and on several.

Workers of a parallel test run have one thread each, so this asks in a process of its own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[2] / "support"
SCRIPT = """
import time

import numba
import numpy as np

from helpers import displacement_problem, random_domain
from panda_mdp import optimal
from panda_mdp.compute.closure import Closure
from panda_mdp.methods.optimal.program import constraint_graph
from panda_mdp.methods.optimal.graph_solver import CpuSolver
from panda_mdp.methods.optimal.program import warm_start
from panda_mdp.privacy.audit import largest_rate

domain = random_domain("haversine", 400, seed=3)
problem = displacement_problem(domain, np.arange(0, 400, 40), 3.0)
graph = constraint_graph(domain, 3.0)
closure = Closure(domain)
matrix = np.random.default_rng(0).dirichlet(np.full(10, 0.3), 400)


def everything():
    solver = CpuSolver(problem, graph, warm_start(problem, graph))
    solver.advance(120)
    yield from (solver._x, solver._mu, solver._u, solver.residual, solver.bound())
    z = closure.start(matrix)
    yield closure.close(z, 3.0)
    yield from closure.broken(z, 3.0, 8.0, (1e-4, 1e-4), 3)
    logs = np.log(np.ascontiguousarray(z[closure.place]))
    yield largest_rate(domain, logs, logs.view(np.int64))
    # A whole solve, twice: no decision is left to a clock.
    yield optimal(problem, 0.02, backend="cpu").weights
    yield optimal(problem, 0.02, backend="cpu").weights


def own_share(work):
    # Part of the time of the process that the calling thread spends.
    thread, process = time.thread_time(), time.process_time()
    work()
    return (time.thread_time() - thread) / (time.process_time() - process)


assert numba.get_num_threads() == 4
several = list(everything())
# Threads share the work: a loop that is compiled as a serial one leaves all of it to the caller.
wide = displacement_problem(domain, np.arange(400), 3.0)
solver = CpuSolver(wide, graph, warm_start(wide, graph))
assert own_share(lambda: solver.advance(80)) < 0.7
numba.set_num_threads(1)
np.testing.assert_array_equal(several[-1], several[-2])
for first, second in zip(several, everything(), strict=True):
    np.testing.assert_array_equal(first, second)
print("alike", len(several))
"""


def test_threads_change_nothing():
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={
            **os.environ,
            "NUMBA_NUM_THREADS": "4",
            "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.split() == ["alike", "11"]
