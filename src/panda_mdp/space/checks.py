"""What makes records and distances a metric space of distinct points."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray, IntArray, frozen
from panda_mdp.base.forks import threads_lost
from panda_mdp.errors import DomainError

TRIANGLE_TOLERANCE = 1e-9
"""Share by which a given matrix may break the triangle inequality: what rounding leaves of a
matrix that was computed. Whoever relies on the inequality allows for it (`triangle_slack`)."""
SMALL_MATRIX = 128
"""Up to this many records NumPy is done before compiled threads have started."""
SMALLEST_DEGREES = 1e-100
FINITE = "be finite: repair or leave out the record"
SMALLEST_COORDINATE, LARGEST_COORDINATE = 1e-120, 1e140
SMALLEST_DISTANCE, LARGEST_DISTANCE = 1e-250, 1e250
"""Between these no square, product or quotient of distances leaves the range of float64."""


def _refuse(bad: npt.NDArray[np.bool_], message: Callable[..., str]) -> None:
    """`DomainError` with the message for the place of the first bad entry, and their number."""
    places = np.argwhere(bad)
    if len(places):
        more = f" ({len(places)} such)" if len(places) > 1 else ""
        raise DomainError(message(*places[0].tolist()) + more)


def check_coordinates(table: FloatArray, any_size: bool) -> None:
    """Refuse coordinates that are not finite, or of a size whose squares leave float64."""

    def refuse(bad: npt.NDArray[np.bool_], rule: str) -> None:
        _refuse(bad, lambda i, j: f"coordinate {j} of record {i} is {table[i, j]}; it must {rule}")

    refuse(~np.isfinite(table), FINITE)
    size = np.abs(table)
    if not any_size:
        refuse(
            (size > LARGEST_COORDINATE) | ((size < SMALLEST_COORDINATE) & (size > 0)),
            f"be 0 or of a size from {SMALLEST_COORDINATE:g} to {LARGEST_COORDINATE:g}: "
            "use another unit of length",
        )


def refuse_few(count: int) -> None:
    """Refuse a domain of fewer than two records."""
    if count < 2:
        raise DomainError(
            f"the domain has {count} distinct record(s); privacy between records needs at least 2: "
            "add records"
        )


def refuse_bad(bad: npt.NDArray[np.bool_], values: FloatArray, what: str, rule: str) -> None:
    """Name the first bad value and its rule."""
    _refuse(bad, lambda k: f"{what} of record {k} is {values[k]}; it must {rule}")


def check_places(lat: FloatArray, lon: FloatArray) -> None:
    """Refuse degrees that are no places."""
    refuse_bad(~np.isfinite(lat), lat, "lat", FINITE)
    refuse_bad(~np.isfinite(lon), lon, "lon", FINITE)
    refuse_bad(np.abs(lat) > 90, lat, "latitude", "lie in [-90, 90] degrees (swapped?)")
    refuse_bad((lon < -180) | (lon > 360), lon, "longitude", "lie in [-180, 360] degrees")


def place_keys(lat: FloatArray, lon: FloatArray) -> FloatArray:
    """Rows that are equal where places are: a pole has one place and every longitude."""
    return np.stack([lat + 0.0, np.where(np.abs(lat) == 90, 0.0, lon) + 0.0], axis=1)


def distinct(keys: FloatArray, merge: bool) -> tuple[IntArray, IntArray | None]:
    """Indices of distinct rows in order of first appearance, and the map onto them."""
    _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    same = first[inverse.reshape(-1)]
    if merge:
        return _kept(same)
    repeats = np.flatnonzero(same != np.arange(len(keys)))
    if len(repeats):
        raise DomainError(
            f"record {repeats[0]} repeats record {same[repeats[0]]} ({len(repeats)} repeats); "
            "merge=True merges equal records and keeps the map"
        )
    return np.arange(len(keys)), None


def merge_zero_distances(table: FloatArray) -> tuple[IntArray, IntArray]:
    """The first of each group of records at distance 0, and the map onto them."""
    # At distance 0 the triangle inequality makes the relation transitive.
    return _kept((table == 0).argmax(axis=1))


def _kept(same: IntArray) -> tuple[IntArray, IntArray]:
    """The records that stand for all, and the map onto them, from which one stands for each."""
    keep = np.unique(same)
    refuse_few(len(keep))
    return keep, frozen(np.searchsorted(keep, same))


def check_entries(table: FloatArray) -> None:
    """Refuse distances that are not finite, non-negative, 0 on the diagonal and symmetric."""
    rules = (
        (~np.isfinite(table), "be finite: give records without a path a large finite distance"),
        (table < 0, "not be negative: take absolute values or repair the matrix"),
        (np.diag(np.diag(table) != 0), "be 0 on the diagonal: np.fill_diagonal(D, 0) sets it"),
        (
            (table > LARGEST_DISTANCE) | ((table > 0) & (table < SMALLEST_DISTANCE)),
            f"be 0 or from {SMALLEST_DISTANCE:g} to {LARGEST_DISTANCE:g}: use another unit",
        ),
        (
            table != table.T,
            "be symmetric: take (D + D.T) / 2 if the difference is rounding",
        ),
    )
    for broken, rule in rules:
        _refuse(
            broken,
            lambda i, j, rule=rule: (
                f"distance ({i}, {j}) is {table[i, j]} and ({j}, {i}) is {table[j, i]}; "
                f"distances must {rule}"
            ),
        )


def refuse_zero_distances(table: FloatArray) -> None:
    """Refuse distinct records at distance 0."""
    _refuse(
        np.triu(table == 0, k=1),
        lambda i, j: (
            f"records {i} and {j} are at distance 0; records must be distinct: "
            "merge=True merges them and keeps the map"
        ),
    )


def check_triangles(table: FloatArray) -> None:
    """Refuse a matrix that breaks the triangle inequality for any triple of records."""
    i, j, k = _broken_triangle(table, 1 + TRIANGLE_TOLERANCE)
    if i >= 0:
        raise DomainError(
            f"the triangle inequality fails for records ({i}, {j}, {k}): "
            f"d({i}, {j}) = {table[i, j]:.12g} exceeds d({i}, {k}) + d({k}, {j}) = "
            f"{table[i, k] + table[k, j]:.12g} by more than 1e-9; "
            "replace the matrix by its shortest-path closure (scipy.sparse.csgraph)"
        )


def _broken_triangle(table: FloatArray, factor: float) -> tuple[int, int, int]:
    """A triple (i, j, k) with d(i, j) > factor (d(i, k) + d(k, j)), or (-1, -1, -1)."""
    if len(table) > SMALL_MATRIX and not threads_lost():
        try:
            from panda_mdp.space.triangles import broken_triangle
        except ImportError:
            pass
        else:
            return broken_triangle(table, factor)
    for k in range(len(table)):
        for i, j in np.argwhere(table > factor * (table[:, k, None] + table[k])).tolist():
            return i, j, k
    return -1, -1, -1
