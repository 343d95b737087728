"""Closure, audit and violated pairs on accelerators: all pairs of tiles within reach, in JAX.

float64 throughout. Tables stay on the devices; the host makes the lists of tile pairs, from a list
of the near ones (space/tiles.py) and bounds that come back for those alone. Pairs out of reach cost
nothing, and no object grows with the square of the records.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.compute.closure import (
    AGREED,
    FLOOR,
    UNUSED,
    Closure,
    floor_row,
)
from panda_mdp.compute.jax import loops
from panda_mdp.compute.jax.device import Array, Placement, TileGrid, distance_error, precise
from panda_mdp.compute.rate import ARITHMETIC_ERROR, LOG_ERROR
from panda_mdp.space.domain import Domain
from panda_mdp.space.tiles import TILE, TilePairs

CHUNK_BYTES = 1 << 28
"""Temporaries of one chunk of tile pairs."""
TURN = 256
"""Tile pairs of a turn, where there are so many tiles."""
SHORTEST = 256
"""Turns, or chunks of pairs, that lists have room for: for how many is compiled."""
BETWEEN_ROUNDS = 40
"""Most rounds between two over all sources."""


@dataclass(frozen=True)
class Turns:
    """Tile pairs in turns: turn k joins tile target[k, c] with source[k, c], for all c at once.

    The targets of a turn differ, so nothing is written twice; those beyond the tiles stand for
    none.
    """

    target: Array
    source: Array
    count: int
    """Turns in use; the others are padding."""


class JaxClosure(Closure):
    """`Closure` on the devices of a mesh. Tables are (T, 64, m) arrays there, padded; sums of rows
    are (T, 64)."""

    # Forty rounds that are not counted follow each that is.
    patience = 2
    centres_near = True
    rest = 0.0

    def __init__(self, domain: Domain, mesh: Mesh, outputs: int) -> None:
        super().__init__(domain)
        self._on = Placement(mesh, outputs)
        with precise():
            self._grid = TileGrid.build(domain.metric, self.tiles, self._on)
            self._outputs = self._on.whole(np.arange(self._on.width) < outputs)
            members = self._grid.members
            self._slots = np.flatnonzero(members.ravel() >= 0)
            slots = np.empty(domain.size, dtype=np.int32)
            slots[self.order] = self._slots
            self._positions = self._on.whole(np.maximum(members, 0).astype(np.int32))
            self._records = self._on.whole(self.order[np.maximum(members, 0)].astype(np.int32))
            self._slots_of_records = self._on.whole(slots)
        self._shrink = 1 - (distance_error(domain.metric) + ARITHMETIC_ERROR)
        # A turn holds (64, 64) factors and (64, m) results for each of its pairs.
        each = 8 * TILE * (2 * TILE + 2 * self._on.width)
        # No more of them than there are tiles: what a turn does not need it computes all the same.
        tiles = 1 << (self.tiles.count - 1).bit_length()
        self._width = min(tiles, max(8, min(TURN, CHUNK_BYTES // each)))
        self._last_placed: tuple[TilePairs, tuple[Array, Array]] | None = None
        self._weighted: tuple[FloatArray, Array] | None = None

    def start(self, matrix: FloatArray, floor: float | FloatArray = FLOOR) -> Any:
        """The table on the devices; `matrix` may lie there already, along the order in space."""
        row = floor_row(floor, self._on.outputs)
        with precise():
            table, rows = self._rows(matrix)
            used = self._on.sharded(row > UNUSED, False)
            return loops.compiled_start(self._on.mesh)(
                table, rows, used, self._outputs, self._grid.real, self._on.sharded(row, 0.0)
            )

    def _rows(self, matrix: FloatArray) -> tuple[Array, Array]:
        """A table on the devices and where it has the rows of the tiles."""
        if isinstance(matrix, np.ndarray):
            return self._on.sharded(matrix, 0.0), self._records
        return matrix, self._positions

    def host(self, z: Any) -> FloatArray:
        with precise():
            return self._on.host(loops.compiled_rows(self._on.mesh)(z, self._slots_of_records))

    def survey(self, matrix: FloatArray, weighted: FloatArray) -> tuple[FloatArray, float]:
        with precise():
            peaks, loss = loops.compiled_survey(self._on.mesh)(
                *self._rows(matrix), self._grid.real, self._weights(weighted)
            )
            return np.asarray(peaks)[: self._on.outputs], float(loss)

    def expected(self, z: Any, weighted: FloatArray) -> float:
        with precise():
            return float(loops.compiled_expected(self._on.mesh)(z, self._weights(weighted)))

    def _weights(self, weighted: FloatArray) -> Array:
        if self._weighted is None or self._weighted[0] is not weighted:
            spread = loops.compiled_spread(self._on.mesh)(
                self._on.sharded(weighted, 0.0), self._records, self._grid.real
            )
            self._weighted = (weighted, spread)
        return self._weighted[1]

    def _extremes(self, logs: Any) -> tuple[Array, Array]:
        run = loops.compiled_extremes(self._on.mesh)
        return run(logs, self._grid.real)

    def _reach(self, extremes: tuple[Array, Array], first: Array, second: Array) -> FloatArray:
        return np.asarray(loops.compiled_reach(self._on.mesh)(*extremes, first, second))

    def _padded(self, first: IntArray, second: IntArray) -> tuple[Array, Array]:
        """Pairs on the devices, padded with the first tile's own to a size on a coarse ladder."""
        pad = (0, _coarse(-(-len(first) // loops.PAIRS_AT_ONCE)) * loops.PAIRS_AT_ONCE - len(first))
        return (
            self._on.whole(np.pad(first, pad).astype(np.int32)),
            self._on.whole(np.pad(second, pad).astype(np.int32)),
        )

    def _placed(self, pairs: TilePairs) -> tuple[Array, Array]:
        """A list of `near_tiles` on the devices."""
        if self._last_placed is None or self._last_placed[0] is not pairs:
            self._last_placed = (pairs, self._padded(pairs.first, pairs.second))
        return self._last_placed[1]

    def _listed(
        self,
        z: Any,
        epsilon: float,
        nats: float,
        active: BoolArray | None = None,
    ) -> Turns:
        """Which tiles may raise the active ones: those within `nats`, and within what log ratios
        allow."""
        extremes = self._extremes(jnp.log(z))
        span = float(loops.compiled_span(self._on.mesh)(*extremes))
        pairs = self.near_tiles(min(nats, max(span, 0.0)) / epsilon)
        between = epsilon * pairs.between
        reach = self._reach(extremes, *self._placed(pairs))[: len(between)]
        wanted = (reach > between) & (between < nats)
        if active is not None:
            wanted &= active[pairs.first]
        return self._in_turns(pairs.first[wanted], pairs.second[wanted])

    def _in_turns(self, first: IntArray, second: IntArray) -> Turns:
        """Pairs, sorted by the first tile, so that no turn joins two to the same tile: the n-th
        partners of a row of tiles, those with the most partners first."""
        tiles, width = self.tiles.count, self._width
        partners = np.bincount(first, minlength=tiles)
        by_partners = np.argsort(-partners, kind="stable")
        place = np.empty(tiles, dtype=np.int64)
        place[by_partners] = np.arange(tiles)
        # As many turns for a row of tiles as its first one has partners.
        needed = partners[by_partners[::width]]
        begin = np.cumsum(needed) - needed
        count = int(needed.sum())
        rank = np.arange(len(first)) - (np.cumsum(partners) - partners)[first]
        turn, column = begin[place[first] // width] + rank, place[first] % width
        size = _coarse(max(SHORTEST, count))
        target = np.tile(np.arange(tiles, tiles + width, dtype=np.int32), (size, 1))
        source = np.zeros((size, width), dtype=np.int32)
        target[turn, column], source[turn, column] = first, second
        return Turns(self._on.whole(target), self._on.whole(source), count)

    def _along(self, turns: Turns) -> tuple[Any, ...]:
        """What loops along turns take."""
        grid = self._grid
        return grid.tables, grid.real, turns.target, turns.source, np.int32(turns.count)

    def rounds(self, z: Any, epsilon: float, nats: float = np.inf) -> Iterator[tuple[Any, Any]]:
        """As `Closure.rounds`, though each is followed by a few that it does not count: entries are
        raised by the sources that lent them most and by the nearest records alone.

        Sources are compared in single precision; what a near one lends is computed in double.
        """
        yield from self._rounds(z, epsilon, nats, centred=False)

    def centred_rounds(
        self, z: Any, epsilon: float, nats: float = np.inf, sums: Any = None
    ) -> Iterator[tuple[Any, Any]]:
        """As `Closure.centred_rounds`, in the way of `rounds`."""
        yield from self._rounds(z, epsilon, nats, centred=True, sums=sums)

    def _rounds(
        self, z: Any, epsilon: float, nats: float, *, centred: bool, sums: Any = None
    ) -> Iterator[tuple[Any, Any]]:
        known: list[list[tuple[Array, Array]]] = [[], []] if centred else [[]]
        active, tiles = np.ones(self._grid.members.shape, dtype=np.bool_), None
        while True:
            with precise():
                if centred and sums is not None:
                    active = self._disagreeing(np.asarray(sums), epsilon)
                    tiles = np.asarray(active.any(axis=1))
                for k, side in enumerate((z, 1 / z) if centred else (z,)):
                    new = [self._lenders(side, epsilon, nats, tiles), *known[k]][: loops.LENDERS]
                    # The first one several times at first: the number of them is compiled for.
                    known[k] = new + new[-1:] * (loops.LENDERS - len(new))
                moving = self._on.whole(active)
                z, sums = self._raise(z, known, moving, epsilon, 1)
            yield z, sums
            with precise():
                z, sums = self._raise(z, known, moving, epsilon, BETWEEN_ROUNDS)

    def _disagreeing(self, sums: FloatArray, epsilon: float) -> BoolArray:
        """Where in the tiles (T, 64) sums do not agree with those of near records, and around."""
        some = self._around(self._excesses(sums.ravel()[self._slots]) > AGREED * epsilon)
        out = np.zeros(self._grid.members.size, dtype=np.bool_)
        out[self._slots] = some
        return out.reshape(self._grid.members.shape)

    def _lenders(
        self, z: Any, epsilon: float, nats: float, tiles: BoolArray | None = None
    ) -> tuple[Array, Array]:
        """Who lends every entry, of the rows of `tiles`, most, of all records within `nats`."""
        turns = self._listed(z, epsilon, nats, tiles)
        run = loops.compiled_sources(self._on.mesh, self._grid.rough)
        return run(z, *self._along(turns), np.float64(epsilon), np.float64(nats))

    def _raise(
        self,
        z: Any,
        lenders: list[list[tuple[Array, Array]]],
        moving: Array,
        epsilon: float,
        most: int,
    ) -> tuple[Any, Any]:
        """Up to `most` rounds with the same lenders, fewer where sums agree well enough."""
        run = loops.compiled_rounds(self._on.mesh, len(lenders) == 2)
        z, sums, _ = run(
            z,
            tuple(tuple(side) for side in lenders),
            *self._near_slots,
            self._outputs,
            self._grid.real,
            moving,
            np.float64(epsilon),
            np.int32(most),
            np.float64(AGREED * epsilon),
        )
        return z, sums

    def excess(self, sums: Any) -> float:
        with precise():
            return float(loops.compiled_excess(self._on.mesh)(sums, *self._near_slots))

    @cached_property
    def _near_slots(self) -> tuple[Array, Array]:
        """`near` by slots of the tiles; what is padding has itself, infinitely far."""
        near, distance = self.near
        size = self._grid.members.size
        slots = np.repeat(np.arange(size, dtype=np.int32)[:, None], near.shape[1], axis=1)
        away = np.full(slots.shape, np.inf)
        slots[self._slots], away[self._slots] = self._slots[near], distance
        return self._on.whole(slots), self._on.whole(away)

    def rate(self, z: Any) -> float:
        with precise():
            return self._largest(jnp.log(z))[0]

    def mixed(self, z: Any, share: float) -> tuple[Closure, Any]:
        with precise():
            return self, (1 - share) * z + share / z.shape[-1]

    def largest(self, logs: FloatArray | None, weights: IntArray) -> tuple[float, int, int]:
        """The audit's value and pair of records for a table in the domain's order. Without `logs`
        they are those of the weights.

        Equal rows count as well here, with the error of their logarithms.
        """
        with precise():
            # The devices' own logarithm errs by 1 ulp on CUDA; elsewhere the host's is known.
            if logs is None and self._on.mesh.devices.flat[0].platform != "gpu":
                logs = np.log(np.maximum(weights, 1).astype(np.float64))
            values = self._on.sharded(weights, 1) if logs is None else self._on.sharded(logs, 0.0)
            spread = loops.compiled_logs(self._on.mesh)(
                values, self._records, self._grid.real, self._outputs
            )
            value, i, j = self._largest(spread)
        return value, int(self.order[i]), int(self.order[j])

    def _largest(self, logs: Any) -> tuple[float, int, int]:
        tiles = self.tiles
        members = self._grid.members
        run = loops.compiled_worst(self._on.mesh, self._grid.distances, self._width)
        best, where = 0.0, (0, 0)

        def scan(first: IntArray, second: IntArray) -> None:
            nonlocal best, where
            if not len(first):
                return
            chunks = -(-len(first) // self._width)
            # Padding repeats the last pair: nothing that it finds is new.
            pad = (0, _coarse(max(SHORTEST, chunks)) * self._width - len(first))
            value, pair, at = run(
                logs,
                self._grid.tables,
                self._grid.real,
                self._on.whole(np.pad(first, pad, mode="edge").astype(np.int32)),
                self._on.whole(np.pad(second, pad, mode="edge").astype(np.int32)),
                np.int32(chunks),
                np.float64(self._shrink),
            )
            if float(value) > best:
                best = float(value)
                i, j = divmod(int(at), TILE)
                where = (int(members[first[int(pair)], i]), int(members[second[int(pair)], j]))

        scan(np.arange(tiles.count), np.arange(tiles.count))
        extremes = self._extremes(logs)
        span = float(loops.compiled_span(self._on.mesh)(*extremes)) + LOG_ERROR
        radius = span / (best * self._shrink) if best > 0 else np.inf
        for first, second, between in self.later_tiles(radius):
            up, down = self._padded(first, second)
            reach = np.maximum(self._reach(extremes, up, down), self._reach(extremes, down, up))
            open_ = reach[: len(first)] + LOG_ERROR > best * between * self._shrink
            scan(first[open_], second[open_])
        return best, *where

    def broken(
        self, z: Any, epsilon: float, nats: float, gains: tuple[float, float], most: int
    ) -> tuple[IntArray, FloatArray]:
        with precise():
            turns = self._listed(z, epsilon, nats)
            run = loops.compiled_violated(self._on.mesh, self._grid.distances, most)
            keys = run(z, *self._along(turns), np.float64(epsilon))
            ranked = np.asarray(keys).reshape(-1, most)[self._slots]
        mass = (ranked >> loops.KEY_BITS) / loops.GAIN_UNITS
        position, k = np.nonzero(mass > gains[1])
        slot = ranked[position, k] & ((1 << loops.KEY_BITS) - 1)
        return np.stack([position, self._grid.members.ravel()[slot]], axis=1), mass[position, k]


@lru_cache(maxsize=2)
def closure_for(domain: Domain, mesh: Mesh, outputs: int) -> JaxClosure:
    """The closure of a domain, kept: audits of one domain follow each other."""
    return JaxClosure(domain, mesh, outputs)


def _coarse(size: int) -> int:
    """The next power of 4: lists come in few sizes, since every size is compiled for."""
    return 4 ** -(-(size - 1).bit_length() // 2)
