"""Processes of one's own: work under a limit, started uninterrupted, its memory measured."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Generic, Literal, Self, TypeVar

Request = TypeVar("Request")
Answer = TypeVar("Answer")


@dataclass(frozen=True)
class NoAnswer:
    """Why a request has none."""

    reason: Literal["slow start", "time limit", "out of memory", "ended"]
    code: int | None = None
    """What the process ended with, where it ended by itself."""


class Worker(Generic[Request, Answer]):
    """A process of its own that answers requests one after the other, each under a limit.

    `prepare(request)` is called in that process and returns the work itself. Only the work counts
    against the limit: loading compiled code, which the first run ever compiles, is no part of it.
    A request that exceeds its limit is stopped by ending the process, whatever it does, and the
    next one gets a new process. `prepare` is pickled once, when the process starts: as a copy of
    one that has this one's modules imported, so that it starts at once.
    """

    def __init__(self, prepare: Callable[[Request], Callable[[], Answer]]) -> None:
        self._prepare = prepare
        self._context = copies()
        self._process: BaseProcess | None = None
        self._pipe: Connection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Also on Ctrl-C: nothing is left running.
        self.close()

    def answer(
        self, request: Request, limit: float | None = None, *, start_limit: float | None = None
    ) -> Answer | NoAnswer:
        """The answer, or why there is none; limits in seconds, for the work and for its start."""
        pipe = self._started()
        try:
            pipe.send(request)
            if start_limit is not None and not pipe.poll(start_limit):
                self.close()
                return NoAnswer("slow start")
            pipe.recv()
            if limit is not None and not pipe.poll(limit):
                self.close()
                return NoAnswer("time limit")
            answer: Answer = pipe.recv()
        except (EOFError, OSError):
            return self._ended()
        return answer

    def close(self) -> None:
        """End the process."""
        if self._process is not None and self._process.pid is not None:
            self._process.kill()
            self._process.join()
        if self._pipe is not None:
            self._pipe.close()
        self._process = self._pipe = None

    def _ended(self) -> NoAnswer:
        """The process ended by itself: solvers abort, and systems kill, where memory runs out."""
        code = None
        if self._process is not None:
            self._process.join()
            code = self._process.exitcode
        self.close()
        lacking = code in (-signal.SIGKILL, -signal.SIGABRT)
        return NoAnswer("out of memory" if lacking else "ended", code)

    def _started(self) -> Connection:
        if self._pipe is not None:
            return self._pipe
        ours, theirs = self._context.Pipe()
        process = self._context.Process(target=_serve, args=(theirs, self._prepare), daemon=True)
        with uninterrupted():
            process.start()
        theirs.close()
        self._process = process
        self._pipe = ours
        return ours


def _serve(pipe: Connection, prepare: Callable[[Request], Callable[[], Answer]]) -> None:
    """The body of a worker's process."""
    forget_fork()
    while True:
        try:
            request = pipe.recv()
        except EOFError:
            return
        work = prepare(request)
        pipe.send("ready")
        pipe.send(work())


def copies() -> ForkServerContext:
    """Starts processes as copies of one that has imported this one's modules and runs no threads.

    Importing numba and SciPy takes longer than most of what is asked of such a process.
    """
    context = multiprocessing.get_context("forkserver")
    own = [name for name in sys.modules if name.startswith("panda_mdp.") and ".jax" not in name]
    context.set_forkserver_preload(["numba", *own])
    return context


def forget_fork() -> None:
    """First thing in a copied process: forget that it is one.

    numba would otherwise take a lock of the system that nobody gives back where it is killed.
    """
    multiprocessing.set_start_method("spawn", force=True)


def bound_memory(share: float) -> None:
    """Let this process fail, and not the machine, where it wants more than a share of memory."""
    if not hasattr(os, "sysconf"):
        return
    import resource

    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = int(share * total)
    if hard == resource.RLIM_INFINITY or limit < hard:
        resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))


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
    mask = getattr(signal, "pthread_sigmask", None)
    if mask is not None:
        mask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if mask is not None:
            mask(signal.SIG_UNBLOCK, {signal.SIGINT})
        signal.signal(signal.SIGINT, before)
    if caught:
        raise KeyboardInterrupt


def forget_peak() -> None:
    """Reset the kernel's record of the peak, where it allows that."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def peak_mb() -> float:
    """The largest resident set of this process in MB; 0 where the system does not tell."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not getrusage: its figure survives exec and would include the parent's.
        return float(status.read_text().partition("VmHWM:")[2].split()[0]) / 1024
    if sys.platform == "win32":
        return 0.0
    import resource

    scale = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale / 2**20
