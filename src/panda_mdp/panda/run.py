"""PAnDA: both phases for given users, accounted for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import IntArray
from panda_mdp.errors import MethodError
from panda_mdp.panda.anpo import Solver
from panda_mdp.panda.ball import BallAnchors
from panda_mdp.panda.balls import run_balls
from panda_mdp.panda.bernoulli import promise, run_bernoulli
from panda_mdp.panda.margin import check_delta
from panda_mdp.panda.options import Clock, Options, Pairs, Weights, source_of
from panda_mdp.panda.result import PandaNoGuarantee, PandaResult
from panda_mdp.panda.selection import BernoulliAnchors
from panda_mdp.problem import Problem
from panda_mdp.space.domain import check_indices


def panda(
    problem: Problem,
    users: npt.ArrayLike,
    selection: BernoulliAnchors | BallAnchors,
    delta: float = 1e-7,
    *,
    neighbours: int | None = None,
    delta_selection: float = 0.0,
    pairs: Pairs = "union",
    weights: Weights = "prior",
    solver: Solver = "optimal",
    gap: float = 0.01,
    time_limit: float | None = None,
    relaxed: bool = True,
    enforce: bool = True,
    seed: int | None = None,
) -> PandaResult | PandaNoGuarantee:
    """Run both phases for given users (domain indices of true records: simulation only).

    Phase I draws every user's anchors from `selection`. Phase II computes the budgets between
    anchors, solves AnPO over their union to `gap`, and lets every user report from the row of the
    nearest own anchor. The server's part sees the anchors alone, never `users`.

    Guarantee of a `PandaResult`: (epsilon, delta) for one user, anchors and report together, over
    all pairs of records (`Guarantee`); certified before anybody draws. What does not fit raises
    an `InfeasibleError` with the number and the pair. `enforce=False` computes it all the same
    and returns a `PandaNoGuarantee` where there is no guarantee.

    `neighbours` is Gamma; `delta_selection` the part of delta for Phase I (delta_1), 0 in the
    paper. `pairs="union"` constrains all pairs of all users' anchors with one table, as in the
    paper; `"own"` only pairs within a user's own set, one table each. `weights="prior"` weighs
    anchors by the prior as the paper does; `"surrogate"` by the probability of being a surrogate.
    `solver`: the structured engine, Benders decomposition, or HiGHS. `relaxed=False` leaves out
    the lower bound. A `seed` makes draws repeatable and the result not for release.

    >>> from panda_mdp import Domain
    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0], [3.0]])
    >>> problem = Problem(domain, [0, 3], domain.distances(None, [0, 3]), epsilon=2.0)
    >>> result = panda(problem, [1, 2], BallAnchors(epsilon=0.5, delta=1e-6), delta=1e-6)
    >>> result.guarantee
    Guarantee(epsilon 2 per unit, delta 1e-06)
    """
    check_delta(delta)
    options = Options(neighbours, delta_selection, pairs, weights, solver, gap, time_limit, relaxed)
    records = check_users(problem, users)
    bits = source_of(seed)
    clock = Clock()
    if isinstance(selection, BallAnchors):
        return run_balls(
            problem, records, selection, delta, options, bits, clock, seeded=seed is not None
        )
    if not isinstance(selection, BernoulliAnchors):
        msg = f"selection is a {type(selection).__name__}; give BernoulliAnchors or BallAnchors"
        raise MethodError(msg)
    proved = promise(problem, selection, delta, options, enforce)
    clock.lap("feasibility and certificate")
    sets = tuple(selection.draw(problem.domain, int(record), bits) for record in records)
    clock.lap("draw anchors")
    return run_bernoulli(
        problem,
        records,
        sets,
        selection,
        delta,
        options,
        proved,
        clock,
        enforce=enforce,
        seeded=seed is not None,
    )


def check_users(problem: Problem, users: npt.ArrayLike) -> IntArray:
    """Users' records as indices; the error never shows them."""
    try:
        records = check_indices(users, problem.size, "users", MethodError)
    except (ValueError, TypeError):
        msg = f"users must be indices of the domain's records, 0..{problem.size - 1}"
        raise MethodError(msg) from None
    if len(records) == 0:
        msg = "users is empty; name the record of at least one user"
        raise MethodError(msg)
    return np.asarray(records)
