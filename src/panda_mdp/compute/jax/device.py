"""Arrays on an accelerator (JAX): padding, tiles, distances and losses d(x, y)^power.

Shapes are padded to a ladder of sizes, so that similar problems share one compilation. Everything
runs under 64-bit types (`precise`): iterates say float32 themselves.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.tree_util import Partial

from panda_mdp.base.arrays import AnyArray, BoolArray, FloatArray, IntArray
from panda_mdp.base.floored import FlooredRows
from panda_mdp.compute.pairs import take_memory_as_needed
from panda_mdp.errors import MethodError
from panda_mdp.space.domain import Domain
from panda_mdp.space.metrics import (
    Metric,
    haversine_km,
    latitude_cosine,
)
from panda_mdp.space.tiles import TILE, Tiles

FEW = 1 << 14
Array: TypeAlias = Any
Distances: TypeAlias = Callable[[Any, Array, Array], Array]


def precise() -> Any:
    """A context in which 64-bit types are 64-bit types."""
    return jax.enable_x64(True)


def keep_compiled() -> None:
    """Have JAX keep what it compiles on disk, unless it was told where or that it should not.

    `JAX_COMPILATION_CACHE_DIR` names another folder; JAX_ENABLE_COMPILATION_CACHE=0 keeps nothing.
    """
    if jax.config.jax_compilation_cache_dir or not jax.config.jax_enable_compilation_cache:
        return
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "panda-mdp" / "jax"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        # No home, or one that cannot be written to: compiled anew in every process, as before.
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    # Dozens of small functions are compiled, each in less than the second JAX waits for; together
    # they take many.
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def prepare() -> None:
    """What JAX has to be told before it is used."""
    keep_compiled()
    take_memory_as_needed()


def waking() -> Callable[[], Any]:
    """Begins to use the device at once, and is waited for where it is called: a process's first use
    takes a while, in which the host can do its own part."""

    def wake() -> None:
        prepare()
        device = jax.devices()[0]
        with suppress(RuntimeError):
            # What fails here fails again where it is reported.
            jax.block_until_ready(jax.device_put(np.zeros(1), device))

    pool = ThreadPoolExecutor(1)
    begun = pool.submit(wake)
    pool.shutdown(wait=False)
    return begun.result


def ladder(size: int, fine: bool = True) -> int:
    """The next size on a ladder of eight steps per doubling: at most an eighth is padding. Up to
    `FEW`, and where it need not be `fine`, it has four: there compiling for another size costs more
    than padding."""
    if size <= 64:
        return 64
    step = 1 << (size.bit_length() - (4 if fine and size > FEW else 3))
    return -(-size // step) * step


def put(array: AnyArray) -> Array:
    """An array on the device, which is the first that JAX sees."""
    return jax.device_put(array, jax.devices()[0])


def memory() -> tuple[int, int]:
    """Bytes that the device has, and that are in use; 0 where it does not say."""
    told = jax.devices()[0].memory_stats() or {}
    return int(told.get("bytes_limit", 0)), int(told.get("bytes_in_use", 0))


def require_memory(needed: int, available: int | None = None) -> None:
    """Refuse a job that does not fit, with the size that it needs. `available` is the memory of the
    device in bytes, asked of it where None."""
    if available is None:
        available, _ = memory()
    if available and needed > available:
        raise MethodError(
            f"the problem needs {needed / 2**30:.1f} GiB, and the device has "
            f"{available / 2**30:.1f} GiB; use fewer outputs or records, or backend='cpu'"
        )


def distance_error(metric: Metric) -> float:
    """Relative error of the distances computed here: plain sums, library functions to 4 ulp, of
    whole numbers exact sums."""
    if getattr(metric, "whole", None) is not None:
        return 4e-16
    if metric.kind in ("euclidean", "angular"):
        return (metric.embedding.shape[1] / 2 + 30) * 2.0**-53 + 4e-16
    return max(metric.relative_error, 4e-15)


def members_of(tiles: Tiles) -> IntArray:
    """(T, 64) positions along the tiles' order, tiles padded to a common number of rows by -1."""
    across = np.arange(TILE)
    inside = across < np.diff(tiles.starts)[:, None]
    return np.where(inside, tiles.starts[:-1, None] + across, -1).astype(np.int64)


def measures(metric: Metric) -> bool:
    """Whether distances of this metric can be computed here."""
    return metric.kind in LOOPS


def laid_out(metric: Any, records: IntArray) -> Any:
    """What computes distances between the rows of tiles, of (T, 64) records."""
    if not measures(metric):
        raise MethodError(
            f"backend 'jax' has no distances for {metric.kind!r} domains; use backend 'cpu'"
        )
    if metric.kind == "haversine":
        lat = metric.lat[records]
        tables: Any = (lat, metric.lon[records], latitude_cosine(lat))
    elif metric.kind == "matrix":
        tables = np.asarray(metric.distances), records
    else:
        tables = metric.vectors[records]
    return Partial(LOOPS[metric.kind], jax.tree.map(put, tables))


def _haversine(tables, a, b):
    lat, lon, cosine = (table[a][:, :, None] for table in tables)
    lat2, lon2, cosine2 = (table[b][:, None, :] for table in tables)
    return haversine_km(lat, lon, lat2, lon2, cosine * cosine2, jnp)


def _euclidean(vectors, a, b):
    return _lengths(vectors[a][:, :, None, :] - vectors[b][:, None, :, :])


def _lengths(vectors):
    return jnp.sqrt(jnp.sum(vectors * vectors, axis=-1))


def _angular(vectors, a, b):
    first = vectors[a][:, :, None, :]
    second = vectors[b][:, None, :, :]
    return 2 * jnp.arctan2(_lengths(first - second), _lengths(first + second))


def _matrix(tables, a, b):
    distances, records = tables
    return distances[records[a][:, :, None], records[b][:, None, :]]


LOOPS: dict[str, Distances] = {
    "haversine": _haversine,
    "euclidean": _euclidean,
    "angular": _angular,
    "matrix": _matrix,
}
"""What computes distances, by kind of metric."""


# Losses d(x, y)^power.


@lru_cache(maxsize=1)
def _measure(domain: Domain) -> Any:
    """What computes the distances of a domain's records one by one."""
    with precise():
        return laid_out(domain.metric, np.arange(domain.size)[:, None])


@partial(jax.jit, static_argnames="power")
def _losses(measure, records, outputs, power: float):
    """Of records and of the records that outputs are, broadcast against each other."""
    first, second = jnp.broadcast_arrays(records, outputs)
    return measure(first.reshape(-1), second.reshape(-1)).reshape(first.shape) ** power


def losses(domain: Domain, outputs: Array, power: float, records: Array, columns: Array) -> Array:
    """Of records (n,) and columns (n, width), on the device."""
    return _losses(_measure(domain), records[:, None], outputs[columns], power)


def weighted_sums(
    domain: Domain, outputs: IntArray, power: float, weights: FloatArray
) -> FloatArray:
    """sum_x weights[w, x] loss(x, y), (w, m)."""
    groups = _grouped(outputs)
    every = np.arange(domain.size)[:, None]
    with precise():
        sums = np.asarray(_sums(_measure(domain), every, groups, weights, power))
        return sums.transpose(1, 0, 2).reshape(len(weights), -1)[:, : len(outputs)]


@partial(jax.jit, static_argnames="power")
def _sums(measure, every, groups, weights, power: float):
    return jax.lax.map(lambda some: weights @ _losses(measure, every, some, power), groups)


def seen_by_groups(
    domain: Domain, groups: IntArray, power: float, margin: float
) -> tuple[BoolArray, FloatArray]:
    """Whether some output of a group costs a record at most `margin` more than its cheapest one,
    (groups, K), and the least loss of every record over the groups where none does.

    `groups` (n, width) are the records that outputs are, all of them."""
    every = np.arange(domain.size)[:, None]
    with precise():
        sees, outside = _seen(_measure(domain), every, groups, np.float64(margin), power)
        return np.asarray(sees), np.asarray(outside)


@partial(jax.jit, static_argnames="power")
def _seen(measure, every, groups, margin, power: float):
    least = jax.lax.map(lambda some: jnp.min(_losses(measure, every, some, power), axis=1), groups)
    inside = least <= jnp.min(least, axis=0) + margin
    return inside, jnp.min(jnp.where(inside, jnp.inf, least), axis=0)


def _grouped(outputs: IntArray) -> IntArray:
    """Outputs in groups of a tile's size, the last one filled up."""
    return np.resize(outputs, (-(-len(outputs) // TILE), TILE))


def losses_above(domain: Domain, outputs: IntArray, power: float, rows: FlooredRows) -> FloatArray:
    """sum over what row x stores of (value - floor) loss(x, column), of every record."""
    with precise():
        listed = (outputs, rows.floor, np.diff(rows.starts), rows.columns, rows.values)
        return np.asarray(_above(_measure(domain), *map(put, listed), power))


@partial(jax.jit, static_argnames="power")
def _above(
    measure, outputs, floor, count, columns, values,
    power: float,
):  # fmt: skip
    own = jnp.repeat(jnp.arange(len(count)), count, total_repeat_length=len(columns))
    above = (values - floor[columns]).astype(jnp.float64)
    part = above * _losses(measure, own, outputs[columns], power)
    return jax.ops.segment_sum(part, own, num_segments=len(count), indices_are_sorted=True)
