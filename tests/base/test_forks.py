"""A process forked after compiled threads have run still audits."""

from __future__ import annotations

import os
import subprocess
import sys

SCRIPT = """
import os, sys
import numpy as np
import panda_mdp as pm
from panda_mdp.base.threads import threads_lost
from panda_mdp.errors import MethodError
from panda_mdp.methods.optimal.optimal import CpuEngine

rng = np.random.default_rng(0)
domain = pm.Domain.from_points(41.8 + 0.2 * rng.random(600), 12.4 + 0.2 * rng.random(600))
outputs = np.arange(0, 600, 60)
problem = pm.Problem(domain, outputs, domain.distances(None, outputs), 2.0)
mechanism = pm.exponential(problem)  # starts the threads
import numba
assert numba.threading_layer() == "omp" and not threads_lost()
child = os.fork()
if child == 0:
    same = pm.audit(mechanism).epsilon == mechanism.audit.epsilon or abs(
        pm.audit(mechanism).epsilon / mechanism.audit.epsilon - 1) < 1e-12
    pm.Domain.from_matrix(domain.distances()[:200, :200])
    try:
        CpuEngine()
    except MethodError as error:
        same = same and "spawn" in str(error)
    else:
        same = False
    os._exit(0 if same else 3)
_, status = os.waitpid(child, 0)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_an_audit_after_fork_does_not_die():
    environment = {"NUMBA_THREADING_LAYER": "omp", "NUMBA_NUM_THREADS": "2"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SCRIPT],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
