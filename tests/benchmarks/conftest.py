"""The benchmarks are scripts beside the library, not part of it."""

from __future__ import annotations

import sys
from pathlib import Path

# Behind the tests' own: two of their modules have the name of a benchmark.
sys.path.append(str(Path(__file__).resolve().parents[2] / "benchmarks"))
