"""Work that ends when its time is over: loops that may take long ask `check_time` as they go."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from panda_mdp.errors import TimeLimitError

Clock = Callable[[], float]
_ENDS: ContextVar[tuple[tuple[float, Clock], ...]] = ContextVar("ends", default=())


@contextmanager
def within(seconds: float | None, clock: Clock = time.monotonic) -> Iterator[None]:
    """What runs inside, with the threads of base/threads.py, ends `seconds` from now by a clock,
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
