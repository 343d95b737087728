"""Users who join, leave, do not answer or upload something else: re-optimisation (section 3.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.errors import MethodError
from panda_mdp.panda.options import Clock, check_users, source_of
from panda_mdp.panda.result import PandaRun
from panda_mdp.panda.selection.law import surrogates
from panda_mdp.space.domain import Domain

R = TypeVar("R", bound=PandaRun)
Screen = Callable[[Domain, tuple[IntArray, ...]], BoolArray]


def reoptimise(
    run: R,
    *,
    join: npt.ArrayLike = (),
    leave: npt.ArrayLike = (),
    upload: Mapping[int, npt.ArrayLike] | None = None,
    screen: Screen | None = None,
    seed: int | None = None,
) -> R:
    """The run after some users left or fell silent and others joined.

    `join` are true records of new users (simulation only), who draw anchors; `leave` are positions
    of users who are gone or did not answer. Those who stay keep their anchors, so Phase I costs
    them nothing more. The table is optimised again over the new union, from the old one as a start;
    with balls it stays as it is, since it serves everyone.

    `upload` replaces what users (by position) upload, as a manipulating user would; `screen` is
    the server's filter, which decides from the uploads alone whose anchors enter the union
    (`median_screen`, `distance_screen`). Whoever is screened out is treated as not answering.
    Neither changes anybody else's guarantee: budgets depend on no upload.
    """
    sets, gone = list(run.anchor_sets), np.zeros(run.users, dtype=bool)
    for departed in np.asarray(leave, dtype=np.int64).ravel():
        run.table_of(int(departed))
        gone[departed] = True
    for position, anchors in (upload or {}).items():
        run.table_of(position)
        sets[position] = run.scheme.check_upload(anchors)
    bits = source_of(seed)
    newcomers = np.asarray(join)
    size = run.problem.size
    fresh = check_users(newcomers, size) if newcomers.size else np.empty(0, np.int64)
    staying = [chosen for chosen, left in zip(sets, gone, strict=True) if not left]
    staying += [run.scheme.draw(int(record), bits) for record in fresh]
    records = np.concatenate([run._records[~gone], fresh])
    if screen is not None:
        passed = screen(run.problem.domain, tuple(staying))
        staying = [chosen for chosen, keep in zip(staying, passed, strict=True) if keep]
        records = records[passed]
    if not staying:
        msg = "nobody is left; a run needs at least one user"
        raise MethodError(msg)
    seeded = run.seeded or seed is not None
    start = _rows_from(run)
    return type(run).over(run.scheme, records, tuple(staying), Clock(), seeded=seeded, start=start)


def _rows_from(run: PandaRun) -> Callable[[IntArray], FloatArray] | None:
    """Rows of the old table for known anchors, of the nearest known anchor for new ones."""
    if len(run.tables) != 1:
        return None
    table = run.tables[0]

    def rows(anchors: IntArray) -> FloatArray:
        nearest = surrogates(run.problem.domain, table.anchors, anchors)
        return table.rows(table.anchors[nearest])

    return rows


def median_screen(factor: float = 5.0) -> Screen:
    """Keep users whose set is about as wide as others' (median-based filtering).

    The width of a set is its anchors' mean distance from its middle one; it may differ from the
    median over users by at most `factor` times the median difference (or a tenth of the median).
    """

    def screen(domain: Domain, sets: tuple[IntArray, ...]) -> BoolArray:
        widths = np.array([_distances_from_middle(domain, chosen).mean() for chosen in sets])
        middle = float(np.median(widths))
        usual = max(float(np.median(np.abs(widths - middle))), middle / 10)
        return np.asarray(np.abs(widths - middle) <= factor * usual)

    return screen


def distance_screen(limit: float, share: float = 0.0) -> Screen:
    """Keep users of whose anchors at most `share` lie beyond `limit` from their middle one.

    Distance-based outlier detection: independent selection with a small tail puts nearly all
    anchors within the radius of one record.
    """

    def screen(domain: Domain, sets: tuple[IntArray, ...]) -> BoolArray:
        beyond = [(_distances_from_middle(domain, chosen) > limit).mean() for chosen in sets]
        return np.asarray(np.array(beyond) <= share)

    return screen


def _distances_from_middle(domain: Domain, chosen: IntArray) -> FloatArray:
    """Distances of a set's anchors from the one with the least median distance to the others."""
    if len(chosen) == 0:
        return np.zeros(1)
    # A few hundred anchors are enough to find a middle.
    some = chosen[:: max(1, len(chosen) // 256)]
    distance = domain.distances(some, chosen)
    return np.asarray(distance[np.median(distance, axis=1).argmin()])
