"""Users who join, leave, do not answer or upload something else: re-optimisation (section 3.1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.errors import MethodError
from panda_mdp.panda.ball import BallAnchors
from panda_mdp.panda.balls import run_balls
from panda_mdp.panda.bernoulli import Promise, run_bernoulli
from panda_mdp.panda.options import Clock, source_of
from panda_mdp.panda.result import PandaNoGuarantee, PandaResult, PandaRun
from panda_mdp.panda.run import check_users
from panda_mdp.panda.selection import BernoulliAnchors, check_anchors
from panda_mdp.panda.surrogate import surrogates
from panda_mdp.space.domain import Domain

Screen = Callable[[Domain, tuple[IntArray, ...]], BoolArray]


def reoptimise(
    run: PandaRun,
    *,
    join: npt.ArrayLike = (),
    leave: npt.ArrayLike = (),
    upload: Mapping[int, npt.ArrayLike] | None = None,
    screen: Screen | None = None,
    seed: int | None = None,
) -> PandaResult | PandaNoGuarantee:
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
    gone = np.zeros(run.users, dtype=bool)
    for departed in np.asarray(leave, dtype=np.int64).ravel():
        run.table_of(int(departed))
        gone[departed] = True
    sets = list(run.anchor_sets)
    law = None
    if isinstance(run.selection, BernoulliAnchors):
        law = run.selection.on(run.problem.domain)
    for position, anchors in (upload or {}).items():
        run.table_of(position)
        if law is None:
            msg = "a ball is one of a public list; there is nothing else that could be uploaded"
            raise MethodError(msg)
        sets[position] = check_anchors(law, anchors)
    bits = source_of(seed)
    newcomers = np.asarray(join)
    fresh = check_users(run.problem, newcomers) if newcomers.size else np.empty(0, np.int64)
    kept = [chosen for chosen, left in zip(sets, gone, strict=True) if not left]
    kept += [run.selection.draw(run.problem.domain, int(record), bits) for record in fresh]
    records = np.concatenate([run._records[~gone], fresh])
    if screen is not None:
        passed = screen(run.problem.domain, tuple(kept))
        kept = [chosen for chosen, keep in zip(kept, passed, strict=True) if keep]
        records = records[passed]
    if not kept:
        msg = "nobody is left; a run needs at least one user"
        raise MethodError(msg)
    seeded = run.seeded or seed is not None
    if isinstance(run.selection, BallAnchors):
        return run_balls(
            run.problem,
            records,
            run.selection,
            run.delta,
            run.options,
            bits,
            Clock(),
            seeded=seeded,
            sets=tuple(kept),
            table=run.tables[0].mechanism,
        )
    return run_bernoulli(
        run.problem,
        records,
        tuple(kept),
        run.selection,
        run.delta,
        run.options,
        Promise(run.full_plan, run.certificate, run.reasons),
        Clock(),
        enforce=run.guarantee is not None,
        seeded=seeded,
        start=_rows_from(run),
    )


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
    apart = domain.distances(some, chosen)
    return np.asarray(apart[np.median(apart, axis=1).argmin()])
