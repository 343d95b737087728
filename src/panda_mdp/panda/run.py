"""PAnDA: both phases for given users, accounted for."""

from __future__ import annotations

from typing import Unpack

import numpy.typing as npt

from panda_mdp.base.arrays import IntArray
from panda_mdp.errors import MethodError
from panda_mdp.panda.options import Clock, Options, Settings, check_delta, check_users, source_of
from panda_mdp.panda.result import PandaNoGuarantee, PandaResult
from panda_mdp.panda.schemes.scheme import Scheme, Selection
from panda_mdp.problem import Problem


def panda(
    problem: Problem,
    users: npt.ArrayLike,
    selection: Selection,
    delta: float = 1e-7,
    *,
    seed: int | None = None,
    **options: Unpack[Settings],
) -> PandaResult:
    """Run both phases for given users (domain indices of true records: simulation only).

    Phase I draws every user's anchors from `selection`. Phase II computes the budgets between
    anchors, solves AnPO over their union to `gap`, and lets every user report from the row of the
    nearest own anchor. The server's part sees the anchors alone, never `users`.

    Guarantee: (epsilon, delta) for one user, anchors and report together, over all pairs of
    records (`Guarantee`); certified before anybody draws. What does not fit raises an
    `InfeasibleError` with the number and the pair; `study_panda` computes it all the same.

    `options` are those of `Options`: the budgets, the solver and its gap, which pairs are
    constrained and how anchors are weighed. A `seed` makes draws repeatable and the result not
    for release.

    >>> from panda_mdp import BallAnchors, Domain
    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0], [3.0]])
    >>> problem = Problem(domain, [0, 3], domain.distances(None, [0, 3]), epsilon=2.0)
    >>> result = panda(problem, [1, 2], BallAnchors(epsilon=0.5, delta=1e-6), delta=1e-6)
    >>> result.guarantee
    Guarantee(epsilon 2 per unit, delta 1e-06)
    """
    scheme, records, clock = _prepare(problem, users, selection, delta, options)
    if scheme.failure is not None:
        raise scheme.failure
    clock.lap("accounts")
    sets = _draw(scheme, records, seed, clock)
    return PandaResult.over(scheme, records, sets, clock, seeded=seed is not None)


def study_panda(
    problem: Problem,
    users: npt.ArrayLike,
    selection: Selection,
    delta: float = 1e-7,
    *,
    seed: int | None = None,
    **options: Unpack[Settings],
) -> PandaNoGuarantee:
    """What `panda` would do whether or not it fits: for study, never for release.

    `reasons` of the result says why there is no guarantee, where there is none.
    """
    scheme, records, clock = _prepare(problem, users, selection, delta, options)
    sets = _draw(scheme, records, seed, clock)
    return PandaNoGuarantee.over(scheme, records, sets, clock, seeded=seed is not None)


def _prepare(
    problem: Problem,
    users: npt.ArrayLike,
    selection: Selection,
    delta: float,
    options: Settings,
) -> tuple[Scheme, IntArray, Clock]:
    check_delta(delta)
    if not hasattr(selection, "scheme"):
        msg = f"selection is a {type(selection).__name__}; give BernoulliAnchors or BallAnchors"
        raise MethodError(msg)
    records = check_users(users, problem.size)
    clock = Clock()
    return selection.scheme(problem, delta, Options(**options)), records, clock


def _draw(
    scheme: Scheme, records: IntArray, seed: int | None, clock: Clock
) -> tuple[IntArray, ...]:
    bits = source_of(seed)
    sets = tuple(scheme.draw(int(record), bits) for record in records)
    clock.lap("draw anchors")
    return sets
