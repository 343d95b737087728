"""Compiled loops shared among threads.

numba's own parallel loops take three times as long to compile as serial ones. The loops here are
serial, take the range [begin, end) that they are to do, and let go of Python's lock, so that
threads of Python share the range. Where threads have to meet every few microseconds
(compute/numba/pdhg.py) numba's own loops stay.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

PARTS = 8
"""Parts per thread: they differ in how long they take."""
_POOL: list[ThreadPoolExecutor] = []
if hasattr(os, "register_at_fork"):
    # A forked process has none of its parent's threads.
    os.register_at_fork(after_in_child=_POOL.clear)


def in_parts(loop: Callable[..., None], count: int, *arguments: Any) -> None:
    """Call loop(begin, end, *arguments) for parts of range(count), by numba's number of threads.

    Parts write to different places of their arguments, so neither order nor number matters.
    """
    import numba

    threads = min(int(numba.get_num_threads()), count)
    parts = PARTS * threads if threads > 1 else 1
    left = iter(range(parts))

    def work() -> None:
        for part in left:
            begin, end = count * part // parts, count * (part + 1) // parts
            if begin < end:
                loop(begin, end, *arguments)

    helpers = [_pool(int(numba.config.NUMBA_NUM_THREADS)).submit(work) for _ in range(threads - 1)]
    try:
        work()
    finally:
        # After an error or Ctrl-C nobody begins another part.
        for _ in left:
            pass
        waited = [helper for helper in helpers if not helper.cancel()]
    for helper in waited:
        helper.result()


def _pool(threads: int) -> ThreadPoolExecutor:
    if not _POOL:
        _POOL.append(ThreadPoolExecutor(threads, "panda-mdp loops"))
    return _POOL[0]
