"""The LP near each output, the exponential mechanism's form elsewhere (LP+EM)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import scipy

from panda_mdp.base.arrays import BoolArray, FloatArray
from panda_mdp.base.text import Facts
from panda_mdp.errors import Stopped
from panda_mdp.methods.certify import Budget, Standing, certify
from panda_mdp.methods.closed_forms import softmax
from panda_mdp.methods.optimal.lp import OneLp, Parts
from panda_mdp.problem import Problem, check_number
from panda_mdp.table.mechanism import Mechanism

NEAR_SHARE = 0.1
NEAR_OUTPUTS = 4
"""What the LP is free to choose by default: this share of all (record, output) pairs, and this
many outputs of a record on average where that is more. A row with one free entry has no freedom."""


def constopt(
    problem: Problem, radius: float | None = None, time_limit: float | None = None
) -> Mechanism:
    """A smaller LP: entries near an output are free, the others follow the exponential mechanism
    (the paper's LP+EM; ConstOPTMech of Imola, Kasiviswanathan, White, Aggarwal and Teissier,
    "Balancing utility and scalability in metric differential privacy", UAI 2022).

    With EM the exponential mechanism at epsilon, exp(-epsilon d(x, y) / 2) with every row divided
    by its sum, the table is

        z_xy  free            where d(x, y) <= radius,
        z_xy  = w_y EM(x, y)  elsewhere, w_y >= 0 one weight per output,

    and the LP minimises the expected loss over the free entries and the weights subject to rows
    that sum to 1 and to epsilon-mDP along the constraint graph. Between two far entries of a
    column epsilon-mDP holds by itself, because EM has it and w_y cancels, so such pairs need no
    row. The exponential mechanism itself (w = 1) is always feasible: the loss is at most EM's.
    Variables: the near pairs and m weights, in place of K m.

    `radius` is in the domain's unit; by default a tenth of all pairs are near, or four outputs of
    a record on average where that is more. 0 frees each output's own record alone, the diameter
    makes it the full LP. HiGHS solves the LP by its interior point method; where `time_limit`
    (seconds) is over or it fails, at its own tolerance and at 1e-5, the result is the better of its
    last table, repaired, and the exponential mechanism.

    Guarantee: epsilon-mDP over all pairs, by audit. The solver keeps its rows to a tolerance and
    on the graph only, so its table is closed over all pairs and normalised until the audit holds
    (`details["closure_rounds"]`), which moves near and far entries by about as much as the LP's
    solution broke the constraints. `lower_bound` is None: the LP is a restriction.

    What is known of the original: it constrains certain (input, output) pairs to probabilities
    derived from the exponential mechanism and optimises the rest by LP (its abstract); the paper
    that names it LP+EM says that the LP has the outputs of high utility sensitivity. Here near
    pairs are chosen by distance alone; the weights w_y, the constraint graph and the repair are
    this library's.

    >>> from panda_mdp import Domain
    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0], [3.0]])
    >>> problem = Problem(domain, [0, 3], domain.distances(None, [0, 3]), epsilon=1.0)
    >>> mechanism = constopt(problem, radius=1.0)
    >>> mechanism.audit.holds, mechanism.details["near_pairs"]
    (True, 4)
    """
    rule = f"a finite number of {problem.domain.unit}, not negative, or None"
    check_number(radius, "radius", rule, least=0.0)
    budget = Budget(gap=None, time_limit=time_limit)
    return certify(RestrictedLp(problem, radius), budget).mechanism()


class RestrictedLp(OneLp):
    """The LP over free entries and weights."""

    method = "constopt"
    # HiGHS's own, and a second try: entries of a column span so many orders of magnitude that it
    # calls some problems infeasible, which they never are. The repair makes up for what is loose.
    attempts = (("ipm", None), ("ipm", 1e-5))

    def __init__(self, problem: Problem, radius: float | None) -> None:
        self.problem = problem
        distance = problem.reports.distances(problem.domain)
        self._exponential = softmax(-0.5 * problem.epsilon * distance)
        share = min(1.0, max(NEAR_SHARE, NEAR_OUTPUTS / problem.outputs_count))
        self.radius = float(np.quantile(distance, share)) if radius is None else radius
        self._near = distance <= self.radius

    def parts(self) -> Parts:
        cost, rows, lower, upper = super().parts()
        touched = self._near[self.graph.ends].any(axis=1).repeat(2, axis=0).ravel()
        # Pairs of far entries hold by themselves.
        kept = np.append(np.ones(self.problem.size, bool), touched)
        self._form = form = restricted_form(self._near, self._exponential)
        return form.T @ cost, scipy.sparse.csr_array(rows[kept] @ form), lower[kept], upper[kept]

    def table(self, values: FloatArray) -> FloatArray:
        return (self._form @ np.maximum(values, 0.0)).reshape(self._near.shape)

    def certified(self, candidate: FloatArray, standing: Standing) -> Mechanism:
        made = "exponential" if candidate is self._exponential else "LP"
        return super().certified(candidate, standing).with_details(table=made)

    def fallbacks(self, standing: Standing) -> Iterator[Mechanism]:
        if standing.stopped is not Stopped.SOLVED:
            yield self.certified(self._exponential, standing)

    def facts(self) -> Facts:
        return {
            **super().facts(),
            "radius": self.radius,
            "near_pairs": int(self._near.sum()),
            "near_share": float(self._near.mean()),
        }


def restricted_form(near: BoolArray, exponential: FloatArray) -> scipy.sparse.csr_array:
    """F with F @ v the table, row by row: v holds the free entries, where `near`, then one weight
    per output for the far entries of its column."""
    count = int(near.sum())
    outputs = near.shape[1]
    column = np.where(near, np.cumsum(near).reshape(near.shape) - 1, count + np.arange(outputs))
    entries = np.where(near, 1.0, exponential).ravel()
    places = (np.arange(near.size), column.ravel())
    return scipy.sparse.csr_array((entries, places), shape=(near.size, count + outputs))
