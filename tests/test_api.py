"""The public surface, and that it needs nothing but NumPy and SciPy to be imported."""

from __future__ import annotations

import subprocess
import sys
import types

import panda_mdp as pm

CONTRACT = {
    "Audit",
    "City",
    "Domain",
    "Mechanism",
    "NoGuarantee",
    "Problem",
    "audit",
    "distance_loss",
    "exponential",
    "load",
    "load_city",
    "loss_exponential",
    "planar_laplace",
    "remap",
    "synthetic_city",
    "travel_loss",
}

LEAN = """
import sys

class Blocked:
    names = {"numba", "llvmlite", "jax", "highspy", "matplotlib", "typer", "rich", "geopandas"}
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in self.names:
            raise ModuleNotFoundError(f"{name} is blocked", name=name)

sys.meta_path.insert(0, Blocked())
import numpy as np
import panda_mdp as pm

rng = np.random.default_rng(0)
domain = pm.Domain.from_points(41.8 + 0.2 * rng.random(300), 12.4 + 0.2 * rng.random(300))
outputs = np.arange(0, 300, 30)
problem = pm.Problem(domain, outputs, domain.distances(None, outputs), 2.0)
mechanism = pm.exponential(problem)
assert pm.audit(mechanism).holds
assert not pm.audit(mechanism, epsilon=0.5).holds
assert mechanism.sample(7) in outputs
assert pm.load(mechanism.save(sys.argv[1])).audit.holds
pm.Domain.from_matrix(domain.distances())
assert not Blocked.names & set(sys.modules)
print("lean")
"""


def test_all_is_curated():
    assert pm.__all__ == sorted(pm.__all__)
    assert len(set(pm.__all__)) == len(pm.__all__) <= 60
    assert set(pm.__all__) >= CONTRACT
    for name in pm.__all__:
        assert hasattr(pm, name), name


def test_nothing_public_is_left_out_of_all():
    public = {
        name
        for name, value in vars(pm).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert public == set(pm.__all__)
    assert pm.__version__


def test_audit_sample_save_load_without_heavy_packages(tmp_path):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", LEAN, str(tmp_path / "lean.pmdp")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "lean", done.stderr


def test_import_loads_no_heavy_package():
    code = (
        "import sys, panda_mdp; "
        "print(sorted({'numba', 'jax', 'highspy', 'matplotlib', 'typer', 'rich', 'geopandas'}"
        " & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_library_and_command_line_work_where_posix_modules_and_calls_are_missing():
    """As on Windows: those are for servers and workers, which import them where they use them."""
    code = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name in ('resource', 'fcntl', 'pwd', 'grp', 'termios'):\n"
        "            raise ModuleNotFoundError(name)\n"
        "sys.modules.pop('resource', None)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import os, random, signal\n"
        "del os.sched_getaffinity, os.register_at_fork, os.sysconf, os.O_DIRECTORY\n"
        "del signal.pthread_sigmask\n"
        "import panda_mdp.cli\n"
        "from panda_mdp.base.threads import by_slices\n"
        "by_slices(lambda part: None, 4, 1)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
