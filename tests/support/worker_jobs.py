"""What the tests of processes ask for: in a module that a fresh process can import."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from functools import partial
from typing import Any


def prepared(request: tuple[str, int]) -> Callable[[], int]:
    """Asked in the worker's process."""
    what, number = request
    if what == "no start":
        time.sleep(600)
    return {
        "pid": os.getpid,
        "sleep": partial(_asleep, number),
        "signal": partial(os.kill, os.getpid(), number),
        "exit": partial(os._exit, number),
    }.get(what, os.getpid)  # type: ignore[return-value]


def _asleep(seconds: int) -> int:
    time.sleep(seconds)
    return seconds


def reported(task: tuple[bytes, Any]) -> list[float]:
    """Latitudes that a pickled perturber reports for a frame."""
    perturber = pickle.loads(task[0])
    return list(perturber.frame(task[1])["reported_lat"])
