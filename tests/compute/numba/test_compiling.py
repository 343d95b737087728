"""Compiled loops are compiled again when a function inside them changes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from panda_mdp.compute import numba as compiling

KERNELS = Path(compiling.__file__).parent
INNER = "from numba import njit\n\n@njit(cache=True)\ndef inner(x):\n    return x + {}\n"
OUTER = """
from pathlib import Path
from inner import inner
{}
def outer(x):
    return inner(x)
"""
PLAIN = "from numba import njit\n@njit(cache=True)"
OURS = (
    "from panda_mdp.compute.numba import njit\n@njit(sources=[Path(__file__).parent / 'inner.py'])"
)


@pytest.mark.parametrize(("decorator", "expected"), [(PLAIN, 2), (OURS, 3)], ids=["numba", "ours"])
def test_a_stale_cache_is_real_and_is_avoided(tmp_path, decorator, expected):
    """numba alone goes on with the function as it was; ours compiles again."""
    (tmp_path / "outer.py").write_text(OUTER.format(decorator))

    def run(step: int) -> tuple[int, int]:
        (tmp_path / "inner.py").write_text(INNER.format(step))
        done = subprocess.run(
            [
                sys.executable,
                "-c",
                "from outer import outer; print(outer(0), sum(outer.stats.cache_hits.values()))",
            ],
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
            env={**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")},
        )
        value, hits = map(int, done.stdout.split())
        return value, hits

    assert run(2) == (2, 0)
    assert run(2) == (2, 1), "nothing changed, so the cache is used"
    assert run(3)[0] == expected


def test_an_unknown_kind_of_cache_is_not_used(monkeypatch):
    class Strange:
        _cache = None

        def __call__(self, x):
            return x

    made = []

    def njit(**options):
        made.append(options)
        return lambda function: Strange() if options.get("cache") else function

    monkeypatch.setattr(compiling.numba, "njit", njit)
    assert compiling.njit(parallel=True)(abs) is abs
    assert [options.get("cache") for options in made] == [True, None]


def test_every_kernel_that_calls_another_file_uses_it():
    for path in KERNELS.glob("*.py"):
        text = path.read_text(encoding="utf-8")
        crosses = re.search(r"^from panda_mdp\.(?!kernels\.compiling|_arrays)", text, re.MULTILINE)
        if crosses and "prange" in text:
            assert re.search(r"from panda_mdp.compute.numba import .*njit", text), path.name
            assert not re.search(r"from numba import.*njit", text), path.name


def test_shared_sources_are_all_that_distances_are_made_of():
    text = (KERNELS / "distance.py").read_text(encoding="utf-8")
    modules = set(re.findall(r"^from panda_mdp\.([\w.]+) import", text, re.MULTILINE))
    assert modules == {"compute.numba", "space.metrics", "space.tiles"}
    assert {path.name for path in compiling.SHARED} == {
        "__init__.py",
        "distance.py",
        "pairs.py",
        "metrics.py",
        "tiles.py",
    }
