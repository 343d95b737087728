"""Numbers from outside, arrays that objects own, graphs of them, and objects that are built again
when copied."""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import fields
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy

from panda_mdp.base.text import canonical

FloatArray = npt.NDArray[np.float64]
Float32Array = npt.NDArray[np.float32]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]
AnyArray = npt.NDArray[Any]
Sections = dict[str, AnyArray]
"""Arrays of a file by name."""
Described = tuple[dict[str, Any], Sections]
"""What files say of a thing: a header, and arrays."""
Stages = tuple[tuple[str, float], ...]
"""Seconds of parts of a work, in their order."""
BLOCK_ENTRIES = 1 << 22
"""Entries that are gone through together."""
CACHED_ENTRIES = 1 << 17
"""So many of which temporaries stay in a core's cache."""


def stopwatch(clock: Callable[[], float] = time.perf_counter) -> Callable[[str], Stages]:
    """The seconds since now as a stage, for whoever names it."""
    began = clock()
    return lambda name: ((name, clock() - began),)


def is_number(value: object, *, whole: bool = False) -> bool:
    """Whether a value is one real number, or a `whole` one: no text, no truth value."""
    kinds = int | np.integer if whole else Real
    return isinstance(value, kinds) and not isinstance(value, bool)


def real_numbers(values: npt.ArrayLike, name: str, error: type[Exception]) -> FloatArray:
    """Real numbers from outside as float64, without the loss of anything.

    Text that reads as a number, truth values, complex numbers, whose imaginary part would be
    dropped, and masked arrays, whose mask would be, are an `error` that names their kind alone: a
    value may be a secret.
    """
    try:
        array = np.asanyarray(values)
    except ValueError:
        array = np.array(None, dtype=object)
    if not isinstance(array, np.ma.MaskedArray) and (
        array.dtype.kind in "iuf" or (array.dtype.kind == "O" and all(map(is_number, array.flat)))
    ):
        return np.asarray(array, dtype=float)
    kind = f"{type(array).__name__} of {array.dtype}"
    raise error(f"{name}: {kind}; give real numbers, none of them masked, in rows of one length")


def place_columns(
    lat: npt.ArrayLike, lon: npt.ArrayLike, error: type[Exception]
) -> tuple[FloatArray, FloatArray]:
    """Flat columns of latitudes and longitudes, one of each per place; the error names none."""
    both = (("lat", lat), ("lon", lon))
    north, east = (real_numbers(column, name, error) for name, column in both)
    if north.ndim != 1 or north.shape != east.shape:
        raise error(
            f"lat has shape {north.shape} and lon {east.shape}; give flat lists of degrees, one of "
            "each per place"
        )
    return north, east


class _Owned(np.ndarray[Any, Any]):
    """Memory that `frozen` copied, and nobody else writes to."""


def frozen(array: AnyArray) -> AnyArray:
    """The same numbers in a plain C-contiguous array of one's own, which is read-only.

    A copy, so that no view that somebody else holds reaches it. What `frozen` made before is not
    copied again.
    """
    owner: Any = array
    while isinstance(owner, np.ndarray) and not isinstance(owner, _Owned):
        owner = owner.base
    if isinstance(owner, _Owned) and type(array) is np.ndarray and array.flags.c_contiguous:
        return array
    own = _Owned(array.shape, array.dtype)
    own[...] = array
    own.setflags(write=False)
    return own.view(np.ndarray)


def adjacency(
    first: IntArray, second: IntArray, nodes: int, weights: FloatArray | None = None
) -> scipy.sparse.csr_array:
    """Edges first -> second among `nodes` as a sparse matrix; weights are 1 where not given.

    Entries that repeat are added up. SciPy before 1.17.1 runs through graphs with indices of 32
    bits alone ("Buffer dtype mismatch"), and nodes are never that many.

    >>> adjacency(np.array([0, 1]), np.array([1, 2]), 3).toarray()
    array([[0., 1., 0.],
           [0., 0., 1.],
           [0., 0., 0.]])
    """
    data = np.ones(len(first)) if weights is None else weights
    ends = (first.astype(np.int32), second.astype(np.int32))
    return scipy.sparse.csr_array((data, ends), shape=(nodes, nodes))


def both_ways(edges: IntArray, lengths: FloatArray, nodes: int) -> scipy.sparse.csr_array:
    """The graph of some edges, each of which is given once, as a symmetric matrix."""
    first, second = np.concatenate([edges, edges[:, ::-1]]).T
    return adjacency(first, second, nodes, np.tile(lengths, 2))


def delaunay(points: FloatArray) -> IntArray:
    """Edges of the Delaunay triangulation (none where all points lie on a line)."""
    try:
        triangles = scipy.spatial.Delaunay(points - points.mean(axis=0)).simplices
    except scipy.spatial.QhullError:
        return np.empty((0, 2), np.int64)
    return np.concatenate([triangles[:, [0, 1]], triangles[:, [1, 2]], triangles[:, [0, 2]]])


def shortest_parallel(
    a: IntArray, b: IntArray, length: AnyArray
) -> tuple[IntArray, IntArray, AnyArray]:
    """Each pair (a, b) once, with the shortest length; loops dropped, pairs ascending."""
    key = a * (int(b.max(initial=0)) + 1) + b
    order = np.lexsort((length, key))
    order = order[a[order] != b[order]]
    first = order[np.unique(key[order], return_index=True)[1]]
    return a[first], b[first], length[first]


def digest(*arrays: Any) -> str:
    """SHA-256 over types, shapes and little-endian bytes, in hexadecimal: of arrays, or of what
    indexes like one by rows, however it holds them."""
    state = hashlib.sha256()
    for array in arrays:
        kind = array.dtype.newbyteorder("<")
        state.update(f"{kind.str}{array.shape}".encode())
        step = max(1, BLOCK_ENTRIES // max(1, math.prod(array.shape[1:])))
        for start in range(0, len(array), step):
            state.update(np.ascontiguousarray(array[start : start + step], kind).data)
    return state.hexdigest()


def identify(said: Mapping[str, Any], arrays: Mapping[str, Any]) -> str:
    """SHA-256 over what is said, as canonical JSON in which all numbers are floats, and arrays by
    name: the one way in which problems and tables get their identity."""
    words = canonical(_as_floats({**said, "arrays": sorted(arrays)}))
    return digest(np.frombuffer(words, np.uint8), *(arrays[name] for name in sorted(arrays)))


def _as_floats(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _as_floats(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_as_floats(part) for part in value]
    # Labels may be whole numbers that no float holds.
    return float(value) if is_number(value) and abs(value) <= 1 << 53 else value


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


def offsets(count: IntArray) -> IntArray:
    """Where lists that lie behind each other start, and where the last one ends.

    >>> offsets(np.array([2, 0, 1])).tolist()
    [0, 2, 2, 3]
    """
    return np.concatenate([[0], np.cumsum(count)])


def owners(starts: IntArray) -> IntArray:
    """The list that every entry is of.

    >>> owners(np.array([0, 2, 2, 3])).tolist()
    [0, 0, 2]
    """
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts))


def group_ranks(keys: AnyArray) -> IntArray:
    """How many entries before each are equal to it.

    >>> group_ranks(np.array([7, 5, 7, 7])).tolist()
    [0, 0, 1, 2]
    """
    order = np.argsort(keys, kind="stable")
    ascending = keys[order]
    ranks = np.empty(len(keys), np.int64)
    ranks[order] = np.arange(len(keys)) - np.searchsorted(ascending, ascending)
    return ranks


def incidence(ends: IntArray, records: int) -> tuple[IntArray, IntArray]:
    """Which entries name which record: the offsets of a list for each, and the entries' places.
    Of edges (E, 2) these are slots, 2 edge + side.

    >>> [part.tolist() for part in incidence(np.array([[0, 2], [2, 1]]), 3)]
    [[0, 1, 2, 4], [0, 3, 1, 2]]
    """
    flat = ends.ravel()
    return offsets(np.bincount(flat, minlength=records)), np.argsort(flat, kind="stable")
