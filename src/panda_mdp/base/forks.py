"""Whether compiled threads can run in this process.

GNU OpenMP ends a process that uses it after being forked from one that did. A forked process
therefore remembers what its parent had started, and callers take the path without threads.
"""

from __future__ import annotations

import os
import sys

_STATE = {"lost": False}


def threads_lost() -> bool:
    """Whether this process was forked from one whose compiled threads were running."""
    return _STATE["lost"]


def _after_fork() -> None:
    numba = sys.modules.get("numba")
    if numba is None:
        return
    try:
        _STATE["lost"] = _STATE["lost"] or numba.threading_layer() == "omp"
    except ValueError:
        # No threads were started, so the child may start its own.
        return


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
