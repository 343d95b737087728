"""Compiled inner loops (numba). Nothing outside imports these at import time: numba loads slowly,
and a host without it solves and audits on its accelerator, and audits in NumPy.

numba keeps compiled loops on disk until their own file changes. It does not look at what they call:
after a change of the distances, an audit compiled before it would go on using the old ones. Loops
that call across files are therefore compiled with the `njit` of this package, whose cache also
depends on the sources in `SHARED`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from tempfile import mkdtemp

# Threads that spin while they wait for each other run hundreds of times slower where another
# process wants the same cores. OpenMP reads this when the first parallel loop starts.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

_HERE = Path(__file__).parent
if not any(os.access(place, os.W_OK) for place in (_HERE, Path("~").expanduser())):
    # numba compiles nothing where it can keep nothing, and a service may write next to nothing. A
    # folder that is this user's alone: what lies in it is run.
    os.environ.setdefault("NUMBA_CACHE_DIR", mkdtemp(prefix="panda-mdp-"))

from panda_mdp.base.packages import need  # noqa: E402

numba = need("numba", "a loop over all pairs on the CPU")

SHARED = (
    _HERE / "__init__.py",
    _HERE / "distance.py",
    _HERE.parent / "pairs.py",
    _HERE.parent.parent / "space" / "metrics.py",
    _HERE.parent.parent / "space" / "tiles.py",
)


def fingerprint(sources: Iterable[Path]) -> str:
    """SHA-256 of some sources, in hexadecimal."""
    state = hashlib.sha256()
    for path in sources:
        data = path.read_bytes()
        state.update(f"{path.name} {len(data)}\n".encode() + data)
    return state.hexdigest()


def njit(*, sources=SHARED, **options):
    """`numba.njit` with a cache that is renewed when any of `sources` changes.

    What a loop does not say of its arithmetic it would take from the one that it is first compiled
    for, and keep: distances that a fast loop asked for first would lose their compensated sums, and
    quotients their check for 0.
    """
    options = {"fastmath": False, "error_model": "python", **options}

    def decorate(function):
        compiled = numba.njit(cache=True, **options)(function)
        try:
            index = compiled._cache._cache_file
            # What is of another version is not even read: it may name classes that are gone.
            index._version = (index._version, fingerprint(sources))
        except AttributeError:
            # A numba that keeps its cache in another way: slower and right, not fast and stale.
            return numba.njit(**options)(function)
        return compiled

    return decorate
