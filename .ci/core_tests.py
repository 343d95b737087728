"""The tests of the core: the library without extras, on any system and on the lowest versions.

python .ci/core_tests.py [PYTEST OPTIONS]
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CORE = (
    "tests/test_problem.py",
    "tests/test_prior.py",
    "tests/privacy/test_audit.py",
    "tests/privacy/test_continuous.py",
    "tests/privacy/test_quantise.py",
    "tests/privacy/test_repair.py",
    "tests/privacy/test_sampler.py",
    "tests/table/test_mechanism.py",
    "tests/city/test_city.py",
    "tests/city/test_synthetic.py",
    "tests/compute/test_highs.py",
    "tests/methods/optimal/test_dual.py",
    "tests/methods/optimal/test_optimal.py",
    "tests/methods/optimal/test_small.py",
    "tests/cli/test_docs.py",
    "tests/cli/test_readme.py",
    "tests/space/test_paths.py::test_generating_pairs_imply_all_pairs",
)

if __name__ == "__main__":
    command = [sys.executable, "-m", "pytest", "-q", *sys.argv[1:], *CORE]
    sys.exit(subprocess.run(command, cwd=ROOT, check=False).returncode)
