"""numba's compiler for loops that contain functions of other files.

numba keeps compiled loops on disk until their own file changes. It does not look at what they call:
after a change of the distances, an audit compiled before it would go on using the old ones. Loops
that call across files are therefore compiled with this `njit`, whose cache also depends on the
sources in `SHARED`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numba

_HERE = Path(__file__).parent
_SPACE = _HERE.parent.parent / "space"
SHARED = (
    _HERE / "compiling.py",
    _HERE / "distance.py",
    _SPACE / "metrics.py",
    _SPACE / "angular.py",
)


def fingerprint(sources: Iterable[Path]) -> str:
    """SHA-256 of some sources, in hexadecimal."""
    state = hashlib.sha256()
    for path in sources:
        data = path.read_bytes()
        state.update(f"{path.name} {len(data)}\n".encode() + data)
    return state.hexdigest()


def njit(
    *,
    cache=True,
    parallel=False,
    nogil=False,
    inline="never",
    fastmath=False,
    error_model="python",
    sources=SHARED,
):
    """`numba.njit` with a cache that is renewed when any of `sources` changes."""
    options = {
        "parallel": parallel,
        "nogil": nogil,
        "inline": inline,
        "fastmath": fastmath,
        "error_model": error_model,
    }

    def decorate(function):
        if not cache:
            return numba.njit(**options)(function)
        compiled = numba.njit(cache=True, **options)(function)
        try:
            index = compiled._cache._cache_file
            index._source_stamp = (index._source_stamp, fingerprint(sources))
        except AttributeError:
            # A numba that keeps its cache in another way: slower and right, not fast and stale.
            return numba.njit(**options)(function)
        return compiled

    return decorate


def on_disk(compiled: Any) -> bool:
    """Whether a compiled loop of this version is on the disk, for whatever types.

    True where that cannot be known: nothing is announced then.
    """
    try:
        index = Path(compiled._cache.cache_path)
        name = compiled._cache._cache_file._index_name
    except AttributeError:
        return True
    return bool((index / name).exists())
