"""One process at a time: a lock that the operating system releases when its holder dies."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from panda_mdp.errors import LedgerError

PAUSE_S = 0.02


@contextmanager
def file_lock(path: Path, timeout_s: float = 30.0) -> Iterator[None]:
    """Hold an exclusive lock on a file beside the data; raise after `timeout_s` seconds."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        deadline = time.monotonic() + timeout_s
        while not _try_lock(handle):
            if time.monotonic() > deadline:
                msg = (
                    f"{path}: another process has held this lock for {timeout_s:g} s; wait for it "
                    "to end, and do not delete the file while it runs"
                )
                raise LedgerError(msg)
            time.sleep(PAUSE_S)
        yield
    finally:
        # Closing releases the lock.
        os.close(handle)


if sys.platform == "win32":
    import msvcrt

    def _try_lock(handle: int) -> bool:
        try:
            msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:
    import fcntl

    def _try_lock(handle: int) -> bool:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
