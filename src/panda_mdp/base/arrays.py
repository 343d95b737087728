"""Arrays that objects own, and objects that are built again wherever they are copied."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from panda_mdp.base.threads import by_slices

FloatArray = npt.NDArray[np.float64]
Float32Array = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
COPIED_AT_ONCE = 1 << 26
"""Bytes up to which one core copies an array; larger ones are copied by all."""


class _Owned(np.ndarray[Any, Any]):
    """Memory that `frozen` copied, and nobody else writes to."""


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same numbers in a plain C-contiguous array of one's own, which is read-only.

    A copy, so that no view that somebody else holds reaches it. What `frozen` made before is not
    copied again.
    """
    owner: Any = array
    while isinstance(owner, np.ndarray) and not isinstance(owner, _Owned):
        owner = owner.base
    if isinstance(owner, _Owned) and type(array) is np.ndarray and array.flags.c_contiguous:
        return array
    plain = np.ascontiguousarray(array)
    own = _Owned(plain.shape, plain.dtype)
    source, target = plain.reshape(-1), own.reshape(-1)

    def copy(part: slice) -> None:
        target[part] = source[part]

    by_slices(copy, plain.size, max(1, COPIED_AT_ONCE // max(1, plain.itemsize)))
    own.setflags(write=False)
    return own.view(np.ndarray).reshape(np.shape(array))


class HashSource(Protocol):
    """What hands its bytes to a hash by itself."""

    def feed(self, state: hashlib._Hash) -> None:
        """Update the hash."""


def digest(*arrays: npt.NDArray[Any] | HashSource) -> str:
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


class RebuiltOnCopy:
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
