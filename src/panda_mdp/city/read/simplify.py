"""Chains of nodes that are no junctions become one street, lengths and times summed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy

from panda_mdp.base.adjacency import adjacency
from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.city.read.network import Network


def contract(network: Network) -> Network:
    """Contract every node where exactly two segments meet and nothing changes.

    A node stays where one or more than two segments meet, where a two-way road becomes one-way,
    and where two one-way roads meet head on. Lengths add up; the speed of a street is its length
    over the sum of its segments' times. A ring without any junction keeps one node.
    """
    inner = _inner_nodes(network)
    while True:
        chain, count = _chains(network, inner)
        ends = _ends(network, inner)
        touched = np.bincount(chain[ends[0]], minlength=count)
        rings = np.flatnonzero(touched == 0)
        if len(rings) == 0:
            break
        # A ring that nothing else touches has no ends; its first node becomes one.
        first = np.full(count, len(chain), dtype=np.int64)
        np.minimum.at(first, chain, np.arange(len(chain)))
        inner = inner.copy()
        inner[network.a[first[rings]]] = False
    start, stop = _oriented_ends(network, chain, ends, count)
    length = _sums(chain, network.length_m, count)
    oneway = np.zeros(count, dtype=np.bool_)
    oneway[chain] = network.oneway
    speed = None
    if network.speed_kmh is not None:
        speed = _mean_speeds(network.length_m, network.speed_kmh, chain, length)
    return replace(
        network, a=start, b=stop, length_m=length, oneway=oneway, speed_kmh=speed, raw=False
    )


def _sums(group: IntArray, values: FloatArray, count: int) -> FloatArray:
    return np.asarray(np.bincount(group, weights=values, minlength=count), dtype=np.float64)


def _mean_speeds(
    pieces_m: FloatArray, speed_kmh: FloatArray, chain: IntArray, length_m: FloatArray
) -> FloatArray:
    """Length over time of each chain; one of its speeds where it has no length."""
    time = _sums(chain, pieces_m / speed_kmh, len(length_m))
    speed = np.empty(len(length_m))
    speed[chain] = speed_kmh
    np.divide(length_m, time, out=speed, where=time > 0)
    return speed


def _inner_nodes(network: Network) -> BoolArray:
    size = len(network.lat)
    both = np.concatenate([network.a, network.b])
    degree = np.bincount(both, minlength=size)
    inner = degree == 2
    inner[network.a[network.a == network.b]] = False
    # Of two segments, none or both are one-way, and then one leads in and one out.
    one_way_ends = np.bincount(both, weights=np.tile(network.oneway, 2), minlength=size)
    leaving = np.bincount(network.a, weights=network.oneway, minlength=size)
    through = (one_way_ends == 0) | ((one_way_ends == 2) & (leaving == 1))
    return np.asarray(inner & through)


def _chains(network: Network, inner: BoolArray) -> tuple[IntArray, int]:
    """The chain of each segment: segments that meet at an inner node belong together."""
    segments = len(network.a)
    node = np.concatenate([network.a, network.b])
    segment = np.tile(np.arange(segments), 2)
    at = inner[node]
    node, segment = node[at], segment[at]
    order = np.argsort(node, kind="stable")
    first, second = segment[order][0::2], segment[order][1::2]
    count, label = scipy.sparse.csgraph.connected_components(
        adjacency(first, second, segments), directed=False
    )
    return np.asarray(label, dtype=np.int64), int(count)


def _ends(network: Network, inner: BoolArray) -> tuple[IntArray, IntArray, BoolArray]:
    """Segment, node and side (True at the start) of every end that is not inner."""
    segments = len(network.a)
    node = np.concatenate([network.a, network.b])
    segment = np.tile(np.arange(segments), 2)
    side = np.repeat([True, False], segments)
    outer = ~inner[node]
    return segment[outer], node[outer], side[outer]


def _oriented_ends(
    network: Network, chain: IntArray, ends: tuple[IntArray, IntArray, BoolArray], count: int
) -> tuple[IntArray, IntArray]:
    """First and last node of each chain; one-way chains in the direction of travel."""
    segment, node, side = ends
    which = chain[segment]
    # Within a chain an end where a segment starts comes first: for one-way chains the only one.
    order = np.lexsort((~side, which))
    pairs = node[order].reshape(count, 2)
    return np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])
