"""What makes records and distances a metric space of distinct points."""

from __future__ import annotations

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
SMALLEST_COORDINATE, LARGEST_COORDINATE = 1e-120, 1e140
SMALLEST_DISTANCE, LARGEST_DISTANCE = 1e-250, 1e250
"""Between these no square, product or quotient of distances leaves the range of float64."""


def check_coordinates(table: FloatArray, any_size: bool) -> None:
    """Refuse coordinates that are not finite, or of a size whose squares leave float64."""
    wrong = ~np.isfinite(table)
    if not any_size:
        size = np.abs(table)
        wrong |= (size > LARGEST_COORDINATE) | ((size < SMALLEST_COORDINATE) & (table != 0))
    bad = np.argwhere(wrong)
    if len(bad):
        i, j = bad[0]
        more = f" ({len(bad)} such)" if len(bad) > 1 else ""
        rule = (
            f"be 0 or of a size from {SMALLEST_COORDINATE:g} to {LARGEST_COORDINATE:g}: "
            "use another unit of length"
            if np.isfinite(table[i, j])
            else "be finite: repair or leave out the record"
        )
        msg = f"coordinate {j} of record {i} is {table[i, j]}; it must {rule}{more}"
        raise DomainError(msg)


def refuse_few(count: int) -> None:
    """Refuse a domain of fewer than two records."""
    if count < 2:
        msg = (
            f"the domain has {count} distinct record(s); privacy between records needs at least 2: "
            "add records"
        )
        raise DomainError(msg)


def refuse_bad(bad: npt.NDArray[np.bool_], values: FloatArray, what: str, rule: str) -> None:
    """Name the first bad value and its rule."""
    wrong = np.flatnonzero(bad)
    if len(wrong):
        more = f" ({len(wrong)} such)" if len(wrong) > 1 else ""
        msg = f"{what} of record {wrong[0]} is {values[wrong[0]]}; it must {rule}{more}"
        raise DomainError(msg)


def check_places(lat: FloatArray, lon: FloatArray) -> None:
    """Refuse degrees that are no places, and places that are named twice."""
    for column, name in ((lat, "lat"), (lon, "lon")):
        refuse_bad(~np.isfinite(column), column, name, "be finite: repair or leave out the record")
    refuse_bad(np.abs(lat) > 90, lat, "latitude", "lie in [-90, 90] degrees (swapped?)")
    refuse_bad((lon < -180) | (lon > 360), lon, "longitude", "lie in [-180, 360] degrees")


def place_keys(lat: FloatArray, lon: FloatArray) -> FloatArray:
    """Rows that are equal where places are: a pole has one place and every longitude."""
    return np.stack([lat + 0.0, np.where(np.abs(lat) == 90, 0.0, lon) + 0.0], axis=1)


def distinct(keys: FloatArray, merge: bool) -> tuple[IntArray, IntArray | None]:
    """Indices of distinct rows in order of first appearance, and the map onto them."""
    _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    if not merge:
        if len(first) < len(keys):
            repeats = np.flatnonzero(first[inverse] != np.arange(len(keys)))
            again = int(repeats[0])
            msg = (
                f"record {again} repeats record {first[inverse[again]]} ({len(repeats)} repeats); "
                "merge=True merges equal records and keeps the map"
            )
            raise DomainError(msg)
        return np.arange(len(keys)), None
    keep = np.sort(first)
    refuse_few(len(keep))
    return keep, frozen(np.searchsorted(keep, first[inverse]))


def merge_zero_distances(table: FloatArray) -> tuple[IntArray, IntArray]:
    """The first of each group of records at distance 0, and the map onto them."""
    # At distance 0 the triangle inequality makes the relation transitive.
    representative = (table == 0).argmax(axis=1)
    keep = np.unique(representative)
    return keep, frozen(np.searchsorted(keep, representative))


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
    )
    for broken, rule in rules:
        bad = np.argwhere(broken)
        if len(bad):
            i, j = bad[0]
            msg = f"distance ({i}, {j}) is {table[i, j]}; distances must {rule}"
            raise DomainError(msg)
    bad = np.argwhere(np.triu(table != table.T))
    if len(bad):
        i, j = bad[0]
        msg = (
            f"distance ({i}, {j}) is {table[i, j]} but ({j}, {i}) is {table[j, i]}; "
            "the matrix must be symmetric: take (D + D.T) / 2 if the difference is rounding"
        )
        raise DomainError(msg)


def refuse_zero_distances(table: FloatArray) -> None:
    """Refuse distinct records at distance 0."""
    zero = np.argwhere(np.triu(table == 0, k=1))
    if len(zero):
        i, j = zero[0]
        msg = (
            f"records {i} and {j} are at distance 0; records must be distinct: "
            "merge=True merges them and keeps the map"
        )
        raise DomainError(msg)


def check_triangles(table: FloatArray) -> None:
    """Refuse a matrix that breaks the triangle inequality for any triple of records."""
    triple = _broken_triangle(table)
    if triple is not None:
        i, j, k = triple
        msg = (
            f"the triangle inequality fails for records ({i}, {j}, {k}): "
            f"d({i}, {j}) = {table[i, j]:.12g} exceeds d({i}, {k}) + d({k}, {j}) = "
            f"{table[i, k] + table[k, j]:.12g} by more than 1e-9; "
            "replace the matrix by its shortest-path closure (scipy.sparse.csgraph)"
        )
        raise DomainError(msg)


def _broken_triangle(table: FloatArray) -> tuple[int, int, int] | None:
    if len(table) > SMALL_MATRIX and not threads_lost():
        try:
            from panda_mdp.space.triangles import broken_triangle
        except ImportError:
            pass
        else:
            i, j, k = broken_triangle(table, 1 + TRIANGLE_TOLERANCE)
            return None if i < 0 else (int(i), int(j), int(k))
    for k in range(len(table)):
        detour = (table[:, k, None] + table[k]) * (1 + TRIANGLE_TOLERANCE)
        bad = np.argwhere(table > detour)
        if len(bad):
            return int(bad[0][0]), int(bad[0][1]), k
    return None
