"""Two optima of the literature, as special cases of what is here."""

from __future__ import annotations

import time

import numpy as np

from panda_mdp.errors import MethodError
from panda_mdp.methods.optimal.graph import Graph
from panda_mdp.methods.optimal.optimal import optimal
from panda_mdp.methods.second.exact import solve_objective
from panda_mdp.methods.second.objectives import objective
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import Mechanism, NoGuarantee
from panda_mdp.table.release import normalise

LARGEST = 2_500
"""Entries of a table up to which Shokri's LP is taken on: its forms span all records each."""


def bordenabe(problem: Problem) -> Mechanism:
    """The optimal geo-indistinguishable mechanism: least expected loss at epsilon over all pairs.

    Bordenabe, Chatzikokolakis and Palamidessi, Optimal geo-indistinguishable mechanisms for
    location privacy, CCS 2014, by HiGHS without their spanner, which trades a dilation for fewer
    rows. It is `optimal` over all pairs; take `optimal` itself beyond a few hundred records.

    Guarantee: epsilon-mDP, by audit.
    """
    return optimal(problem, backend="highs", pairs="all")


def shokri(problem: Problem, budget: float) -> NoGuarantee:
    """The table against which the best attacker errs the most, at an expected loss of `budget`.

        max sum_y min_w sum_x p_x z_xy d(x, w)   s.t.   sum p c z <= budget,  rows on the simplex

    Shokri, Theodorakopoulos, Troncoso, Hubaux and Le Boudec, Protecting location privacy: optimal
    strategy against localization attacks, CCS 2012. It bounds one attacker with one prior and has
    NO privacy guarantee: an output may rule records out. `lower_objective(..., then="error")` is
    the same among epsilon-mDP tables. `details["error"]` is what was reached, `details["bound"]`
    a rigorous bound above every table within the budget.

    >>> from panda_mdp import Domain
    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0]])
    >>> problem = Problem(domain, [0, 1, 2], domain.distances(), epsilon=1.0)
    >>> table = shokri(problem, 0.5)
    >>> type(table).__name__, round(table.details["error"], 4)
    ('NoGuarantee', 0.5)
    """
    start = time.perf_counter()
    least = float(problem.prior @ problem.loss.min(axis=1))
    if not budget > least:
        msg = f"the budget is {budget!r}; without any privacy the loss is {least:.6g}, give more"
        raise MethodError(msg)
    if problem.size * problem.outputs_count > LARGEST:
        msg = (
            f"the table has {problem.size * problem.outputs_count:,} entries; this LP is solved "
            f"for at most {LARGEST:,}: use fewer records or outputs"
        )
        raise MethodError(msg)
    goal = objective(problem, "error")
    nobody = Graph(np.empty((0, 2), dtype=np.int64), np.empty(0))
    solved = solve_objective(problem, goal, nobody, budget)
    table = normalise(solved.matrix)
    return NoGuarantee.from_matrix(
        problem,
        table,
        method="Shokri's optimum",
        stages=(("solve", time.perf_counter() - start),),
        details={
            "error": goal.natural(goal.value(table)),
            "bound": goal.natural(solved.bound),
            "budget": budget,
        },
    )
