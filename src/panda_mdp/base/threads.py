"""Array work in parts, on all cores: NumPy lets go of the interpreter while it computes."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor


def by_slices(work: Callable[[slice], None], size: int, step: int) -> None:
    """Call `work` with slices of at most `step` that cover `size`, in any order, several at once.

    >>> out = [0] * 5
    >>> by_slices(lambda part: out.__setitem__(part, [1] * (part.stop - part.start)), 5, 2)
    >>> out
    [1, 1, 1, 1, 1]
    """
    parts = [slice(start, min(start + step, size)) for start in range(0, size, step)]
    if len(parts) <= 1:
        for part in parts:
            work(part)
        return
    with ThreadPoolExecutor(min(len(parts), cores())) as pool:
        for _ in pool.map(work, parts):
            pass


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
