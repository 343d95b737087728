"""One process at a time: a lock that the operating system releases when its holder dies."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from panda_mdp.errors import LedgerError


@contextmanager
def file_lock(path: Path, timeout_s: float = 30.0) -> Iterator[None]:
    """Hold an exclusive lock on a file beside the data; raise after `timeout_s` seconds."""
    lock = FileLock(path, timeout=timeout_s, mode=0o600)
    try:
        lock.acquire(poll_interval=0.02)
    except Timeout:
        msg = (
            f"{path}: another process has held this lock for {timeout_s:g} s; wait for it to end, "
            "and do not delete the file while it runs"
        )
        raise LedgerError(msg) from None
    try:
        yield
    finally:
        lock.release()
