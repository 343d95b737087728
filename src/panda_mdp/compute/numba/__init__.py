"""Compiled inner loops (numba). Nothing outside imports these at import time: without numba the
callers fall back to NumPy, slower and with the same answers."""

import os

# Threads that spin while they wait for each other run hundreds of times slower where another
# process wants the same cores. OpenMP reads this when the first parallel loop starts.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
