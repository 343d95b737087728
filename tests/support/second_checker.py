"""The second checker as a module, and as the process that a user starts."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

SOURCE = Path(__file__).resolve().parents[2] / "verify" / "panda_verify.py"


@cache
def checker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("panda_verify", SOURCE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["panda_verify"] = module  # what the files beside it import from
    spec.loader.exec_module(module)
    return module


def in_a_process(path: Path, source: Path = SOURCE) -> subprocess.CompletedProcess[str]:
    """`python -I -S panda_verify.py FILE`: no site-packages, no environment."""
    command = [sys.executable, "-I", "-S", str(source), str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=path.parent)
