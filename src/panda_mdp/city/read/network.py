"""What importers hand over: pieces of road."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.errors import MissingDependencyError


@dataclass(frozen=True)
class Network:
    """Pieces of road as a file has them: segment k leads from node `a[k]` to node `b[k]`."""

    osmid: IntArray
    lat: FloatArray
    lon: FloatArray
    a: IntArray
    b: IntArray
    length_m: FloatArray
    oneway: BoolArray
    speed_kmh: FloatArray | None
    raw: bool
    """Whether nodes that are no junctions are still in it."""
    incomplete: int = 0
    """Segments whose ends the file does not hold (extracts are cut at their border)."""


def keep_segments(network: Network, retained: BoolArray) -> Network:
    """The network with some of its segments."""
    return replace(
        network,
        a=network.a[retained],
        b=network.b[retained],
        length_m=network.length_m[retained],
        oneway=network.oneway[retained],
        speed_kmh=None if network.speed_kmh is None else network.speed_kmh[retained],
    )


def positions(ids: IntArray, wanted: npt.NDArray[np.int64]) -> tuple[IntArray, BoolArray]:
    """Where each wanted id stands in the ascending `ids`, and whether it is there at all."""
    at = np.searchsorted(ids, wanted)
    at[at == len(ids)] = 0
    known = ids[at] == wanted if len(ids) else np.zeros(len(wanted), dtype=np.bool_)
    return at, known


def join_directions(a: IntArray, b: IntArray, length_m: FloatArray) -> tuple[IntArray, BoolArray]:
    """Streets from arcs: an arc and its way back of the same length are one two-way street.

    Returns the arcs that stay, in their order, and whether each is a one-way street.
    """
    low, high = np.minimum(a, b), np.maximum(a, b)
    # Lengths agree to the micrometre where they were summed in opposite directions.
    micrometres = np.round(length_m * 1e6).astype(np.int64)
    order = np.lexsort((a > b, micrometres, high, low))
    key = np.stack([low, high, micrometres], axis=1)[order]
    new = np.ones(len(key), dtype=np.bool_)
    new[1:] = (key[1:] != key[:-1]).any(axis=1)
    group = np.cumsum(new) - 1
    place = np.arange(len(key))
    rank = place - np.flatnonzero(new)[group]
    back = (a > b)[order]
    loop = key[:, 0] == key[:, 1]
    size = np.bincount(group)[group]
    backward = np.bincount(group, weights=back).astype(np.int64)[group]
    forward = size - backward
    # Within a group the forward arcs come first: the i-th forward pairs with the i-th backward.
    paired = np.where(back, rank - forward, rank) < np.minimum(forward, backward)
    partner = np.where(back, place - forward, place + forward)
    # A loop pairs with the next of its kind.
    paired = np.where(loop, rank < size - size % 2, paired)
    partner = np.where(loop, np.where(rank % 2 == 0, place + 1, place - 1), partner)
    other = order[np.where(paired, partner, place)]
    first = ~paired | (order < other)
    chosen, oneway = order[first], ~paired[first]
    in_order = np.argsort(chosen)
    return chosen[in_order], oneway[in_order]


def need(package: str, what: str, extra: str) -> MissingDependencyError:
    """The error for an optional package that is not there."""
    return MissingDependencyError(
        f"{what} needs {package}, which is not installed: pip install 'panda-mdp[{extra}]'"
    )


def plain_name(path: Path) -> str:
    """The file's name without its suffixes."""
    return path.name.split(".")[0]
