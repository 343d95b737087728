"""Work shared among threads: array work, which lets go of the interpreter, and compiled loops.

numba's own parallel loops take three times as long to compile as serial ones. The loops that
`in_parts` runs are serial, take the range [begin, end) that they are to do, and let go of Python's
lock. Where threads have to meet every few microseconds (compute/numba/pdhg.py) numba's own loops
stay. GNU OpenMP ends a process that uses it after being forked from one that did: a forked process
remembers what its parent had started, and callers take the path without threads (`threads_lost`).

Work ends when its time is over: loops that may take long ask `check_time` as they go.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cache
from typing import Any

from panda_mdp.errors import TimeLimitError

Clock = Callable[[], float]
_ENDS: ContextVar[tuple[tuple[float, Clock], ...]] = ContextVar("ends", default=())


@contextmanager
def within(seconds: float | None, clock: Clock = time.monotonic) -> Iterator[None]:
    """What runs inside, with the threads of this module, ends `seconds` from now by a clock,
    and no later than what it runs inside of; None sets no end of its own."""
    ends = _ENDS.get()
    token = _ENDS.set(ends if seconds is None else (*ends, (clock() + seconds, clock)))
    try:
        yield
    finally:
        _ENDS.reset(token)


def current_clock() -> Clock:
    """The clock that ends what runs, the innermost of several; the system's where none does."""
    ends = _ENDS.get()
    return ends[-1][1] if ends else time.monotonic


def limited() -> bool:
    """Whether what runs has an end."""
    return bool(_ENDS.get())


def check_time() -> None:
    """End what runs, by `TimeLimitError`, where its time is over."""
    for end, clock in _ENDS.get():
        if clock() > end:
            raise TimeLimitError("the time limit is over; give more time, or a smaller problem")


PARTS = 8
"""Parts per thread of a compiled loop: they differ in how long they take."""
LIMITED = 8
"""Times as many where time is limited: it is looked at between two parts."""
MOST_THREADS = 1024
_STATE = {"lost": False}


def by_slices(work: Callable[[slice], None], size: int, step: int) -> None:
    """Call `work` with slices of at most `step` that cover `size`, in any order, several at once.

    >>> out = [0] * 5
    >>> by_slices(lambda part: out.__setitem__(part, [1] * (part.stop - part.start)), 5, 2)
    >>> out
    [1, 1, 1, 1, 1]
    """
    parts = [slice(start, min(start + step, size)) for start in range(0, size, step)]
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    _share(lambda part: work(parts[part]), len(parts), cores)


def in_parts(loop: Callable[..., None], count: int, *arguments: Any) -> None:
    """Call loop(begin, end, *arguments) for parts of range(count), by numba's number of threads.

    Parts write to different places of their arguments, so neither order nor number matters.
    """
    import numba

    threads = min(int(numba.get_num_threads()), count)
    each = PARTS * (LIMITED if limited() else 1)
    parts = min(count, each * threads if threads > 1 or limited() else 1)

    def work(part: int) -> None:
        loop(count * part // parts, count * (part + 1) // parts, *arguments)

    _share(work, parts, threads)


def _share(work: Callable[[int], None], parts: int, threads: int) -> None:
    """Call `work` for range(parts), by this thread and some of the pool's."""
    left = iter(range(parts))

    def take() -> None:
        for part in left:
            check_time()
            work(part)

    some = range(min(threads, parts) - 1)
    helpers = [_pool().submit(copy_context().run, take) for _ in some]
    try:
        take()
    finally:
        # After an error or Ctrl-C nobody begins another part.
        for _ in left:
            pass
        waited = [helper for helper in helpers if not helper.cancel()]
    for helper in waited:
        helper.result()


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(MOST_THREADS, "panda-mdp loops")


def threads_lost() -> bool:
    """Whether this process was forked from one whose compiled threads were running."""
    return _STATE["lost"]


def _after_fork() -> None:
    # A forked process has none of its parent's threads.
    _pool.cache_clear()
    try:
        if "numba" in sys.modules:
            _STATE["lost"] |= sys.modules["numba"].threading_layer() == "omp"
    except ValueError:
        # No threads were started, so the child may start its own.
        return


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
