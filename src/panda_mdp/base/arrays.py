"""Small helpers for the arrays that the frozen objects hold."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Float32Array = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


def frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A read-only, C-contiguous array; copied only where the caller could still write to it."""
    contiguous = np.ascontiguousarray(array)
    if contiguous is array and array.flags.writeable:
        contiguous = array.copy()
    contiguous.flags.writeable = False
    return contiguous


def digest(*arrays: npt.NDArray[Any]) -> str:
    """SHA-256 over types, shapes and little-endian bytes, in hexadecimal."""
    state = hashlib.sha256()
    for array in arrays:
        fixed = np.ascontiguousarray(array)
        fixed = fixed.astype(fixed.dtype.newbyteorder("<"), copy=False)
        state.update(f"{fixed.dtype.str}{fixed.shape}".encode())
        state.update(fixed.tobytes())
    return state.hexdigest()
