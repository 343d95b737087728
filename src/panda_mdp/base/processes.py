"""Processes of one's own: started without being interrupted, their memory measured."""

from __future__ import annotations

import contextlib
import resource
import signal
import sys
from collections.abc import Iterator
from multiprocessing import resource_tracker
from pathlib import Path


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Start processes inside: Ctrl-C never reaches them, and this one only when they are known.

    Ctrl-C goes to the whole group. A mask is inherited by what is started; it does not keep other
    threads of this process from taking the signal, so the answer waits as well.
    """
    # The first process would start it, and it lifts the mask.
    resource_tracker.ensure_running()
    caught: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: caught.append(number))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, before)
    if caught:
        raise KeyboardInterrupt


def forget_peak() -> None:
    """Reset the kernel's record of the peak, where it allows that."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> float:
    """The largest resident set of this process in MB."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not getrusage: its figure survives exec and would include the parent's.
        for line in status.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return float(line.split()[1]) / 1024
    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 2**20
