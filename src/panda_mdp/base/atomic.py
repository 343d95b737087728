"""Files that appear whole or not at all, and files that are their owner's alone."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from panda_mdp.errors import FileFormatError

FilePath = str | os.PathLike[str]
"""What callers may give for a path."""


@contextmanager
def _new_file(path: Path, mode: int, becomes: Path) -> Iterator[BinaryIO]:
    """A binary stream into a file that is new, under another name when the block ends well; its
    folder is made, and nothing is left where it does not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(handle, "wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        path.replace(becomes)
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """A binary stream that becomes `path` when the block ends well; its folder is made."""
    if not path.name or path.is_dir():
        raise IsADirectoryError(
            errno.EISDIR, "this is a folder; give the name of a file", str(path)
        )
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.part")
    # Not a private temporary file: the result gets the permissions that the user's mask gives.
    with _new_file(temporary, 0o666, path) as stream:
        yield stream


def write_whole(path: Path, data: str | bytes) -> Path:
    """Write a file whole or not at all; text as UTF-8."""
    with atomic_file(path) as stream:
        stream.write(data.encode() if isinstance(data, str) else data)
    return path


def sync_folder(folder: Path) -> None:
    """Make the new name durable, where the system lets folders be opened."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_private(path: Path, data: bytes) -> None:
    """Write a new file with mode 0600, durably. Refuses to replace one."""
    with _new_file(path, 0o600, path) as stream:
        stream.write(data)


def read_private(path: Path, what: str) -> bytes:
    """Read a file that must be its owner's alone; refuse it where others may read or write it."""
    with path.open("rb") as stream:
        mode = os.fstat(stream.fileno()).st_mode
        if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
            raise FileFormatError(
                f"{path}: the {what} has mode {stat.S_IMODE(mode):04o} and others may use it; "
                f"`chmod 600` it, and replace it if somebody may have read it"
            )
        return stream.read()


def digest_of_file(path: Path) -> str:
    """The SHA-256 of a file."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
