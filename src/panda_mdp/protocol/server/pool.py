"""Work that takes a processor: in processes of its own, so that the server goes on answering."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait
from typing import ParamSpec, TypeVar

from panda_mdp.protocol.server.failures import Failure

P = ParamSpec("P")
T = TypeVar("T")
NICENESS = 5
BROKEN = Failure(
    "unavailable",
    "the process that worked on this ended unexpectedly, perhaps for lack of memory",
    "try again; see the server's log",
    {"retry-after": "1"},
)


class Pool:
    """A few processes for audits, certificates and estimates.

    They start when needed, yield to the server, and end with it, however it ends.
    """

    def __init__(self, processes: int = 2) -> None:
        self._processes = processes
        self._executor: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a function of the library, computed elsewhere; its errors are raised."""
        executor = self._running()
        try:
            future = executor.submit(work, *args, **kwargs)
            return await asyncio.wrap_future(future)
        except BrokenProcessPool:
            with self._lock:
                if self._executor is executor:
                    self._executor = None
            raise BROKEN from None

    def close(self) -> None:
        """End the processes; what they work on is lost."""
        with self._lock:
            executor, self._executor = self._executor, None
        if executor is None:
            return
        workers = list((executor._processes or {}).values())
        executor.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.terminate()
        for worker in workers:
            worker.join(5)

    def _running(self) -> ProcessPoolExecutor:
        with self._lock:
            if self._executor is None:
                # Not forked: a fork of a process with threads may hang.
                context = multiprocessing.get_context("spawn")
                self._executor = ProcessPoolExecutor(
                    self._processes, mp_context=context, initializer=follow_parent
                )
            return self._executor


def follow_parent() -> None:
    """Let the server go first, leave Ctrl-C to it, and end when it has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)
