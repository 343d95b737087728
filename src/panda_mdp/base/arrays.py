"""Arrays that objects own, and objects that are built again wherever they are copied."""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib import import_module
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from panda_mdp.base.threads import by_slices

FloatArray = npt.NDArray[np.float64]
Float32Array = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
T = TypeVar("T")
LARGE = 1 << 26
"""Bytes from which on an array is frozen in pages of its own."""


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same numbers in a plain C-contiguous array that nobody can write to.

    Its memory is an immutable `bytes` object of its own, so that neither a view that somebody else
    holds nor `flags.writeable` opens a way to it. What is such an array already gets another view
    of its memory and is not copied.
    """
    if type(array) is np.ndarray and array.flags.c_contiguous and _immutable(array):
        return array.view()
    plain = np.ascontiguousarray(array)
    flat = plain.reshape(-1).view(np.uint8)
    own = _Own(flat.data) if len(flat) < LARGE else _in_pages(flat)
    return np.frombuffer(own, dtype=plain.dtype).reshape(np.shape(array))


class _Own(bytes):
    """Memory of `frozen` and of nobody else: arrays that are read from a pickle are writable and
    belong to a plain `bytes` object too."""


class _Pages(mmap.mmap):
    """The same for large arrays: pages that the system itself lets nobody write to."""


def _in_pages(flat: npt.NDArray[np.uint8]) -> _Own | _Pages:
    """Bytes in pages of their own, copied by all cores; as `_Own` where there are none. A `bytes`
    object is copied twice by one core, which takes seconds for a whole city's table."""
    if not hasattr(os, "memfd_create"):
        return _Own(flat.data)
    file = os.memfd_create("panda-mdp", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        # Written, not mapped: pages that are touched one by one take longer.
        def work(part: slice) -> None:
            at = part.start
            while at < part.stop:
                at += os.pwrite(file, flat[at : part.stop].data, at)

        by_slices(work, len(flat), max(1, LARGE // 4))
        fcntl = import_module("fcntl")
        fcntl.fcntl(file, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE | fcntl.F_SEAL_SHRINK)
        return _Pages(file, len(flat), access=mmap.ACCESS_READ)
    finally:
        os.close(file)


def _immutable(array: npt.NDArray[Any]) -> bool:
    """Whether `frozen` made an array's memory."""
    owner: object = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    if isinstance(owner, memoryview):
        owner = owner.obj
    return isinstance(owner, _Own | _Pages) and memoryview(owner).readonly


class _Owned:
    """An array of an object that is handed out as a view.

    Shape, strides and type of an array can be set in place even where its numbers cannot; whoever
    does so changes the view in hand and nothing else.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, instance: object | None, owner: type | None = None) -> Any:
        if instance is None:
            return self
        try:
            value = vars(instance)[self._name]
        except KeyError:
            msg = f"{type(instance).__name__!r} object has no attribute {self._name!r}"
            raise AttributeError(msg) from None
        return value.view() if isinstance(value, np.ndarray) else value

    def __set__(self, instance: object, value: Any) -> None:
        vars(instance)[self._name] = value


def owning(*names: str) -> Callable[[type[T]], type[T]]:
    """A decorator for classes whose arrays of these names are handed out as views alone."""

    def decorate(kind: type[T]) -> type[T]:
        for name in names:
            setattr(kind, name, _Owned(name))
        return kind

    return decorate


class Fed(Protocol):
    """What hands its bytes to a hash by itself."""

    def feed(self, state: hashlib._Hash) -> None:
        """Update the hash."""


def digest(*arrays: npt.NDArray[Any] | Fed) -> str:
    """SHA-256 over types, shapes and little-endian bytes, in hexadecimal."""
    state = hashlib.sha256()
    for array in arrays:
        if not isinstance(array, np.ndarray):
            array.feed(state)
            continue
        fixed = np.ascontiguousarray(array)
        fixed = fixed.astype(fixed.dtype.newbyteorder("<"), copy=False)
        state.update(f"{fixed.dtype.str}{fixed.shape}".encode())
        state.update(fixed.tobytes())
    return state.hexdigest()


class Rebuilt:
    """A dataclass that pickles and copies by being built again.

    Arrays come out of a pickle writable, and a pickle can be edited: whatever the constructor
    checks and freezes is checked and frozen again on the way in.
    """

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        given = {
            part.name: getattr(self, part.name)
            for part in fields(self)  # type: ignore[arg-type]
            if part.init
        }
        plain = {k: dict(v) if isinstance(v, Mapping) else v for k, v in given.items()}
        return _build, (type(self), plain)


def _build(kind: type[Any], given: dict[str, Any]) -> Any:
    frozen_ = {k: frozen(v) if isinstance(v, np.ndarray) else v for k, v in given.items()}
    return kind(**frozen_)
