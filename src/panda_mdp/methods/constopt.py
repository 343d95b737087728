"""The LP near each output, the exponential mechanism's form elsewhere (LP+EM)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

from panda_mdp.base.arrays import BoolArray, FloatArray
from panda_mdp.compute.highs import (
    ALGORITHMS,
    Algorithm,
    Lp,
    cost_scale,
    privacy_rows,
    require_numba,
    sum_rows,
)
from panda_mdp.compute.status import Stopped
from panda_mdp.errors import MethodError
from panda_mdp.methods.certify import Budget, Standing, certify
from panda_mdp.methods.closed_forms import softmax
from panda_mdp.methods.optimal.graph import constraint_graph
from panda_mdp.methods.optimal.lp import OneLp
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import Mechanism

NEAR_SHARE, NEAR_OUTPUTS = 0.1, 4
"""What the LP is free to choose by default: this share of all (record, output) pairs, and this
many outputs of a record on average where that is more. A row with one free entry has no freedom."""


def constopt(
    problem: Problem,
    radius: float | None = None,
    weighted: bool = True,
    algorithm: Algorithm = "ipm",
    time_limit: float | None = None,
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
    makes it the full LP. `weighted=False` fixes w = 1: far entries are the exponential mechanism's
    own. HiGHS solves the LP by `algorithm`; where `time_limit` (seconds) is over or it fails, at
    its own tolerance and at 1e-5, the result is the better of its last table, repaired, and the
    exponential mechanism.

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
    if radius is not None and not (np.isfinite(radius) and radius >= 0):
        msg = (
            f"radius is {radius!r}; it must be a finite number of {problem.domain.unit}, not "
            "negative, or None"
        )
        raise MethodError(msg)
    if algorithm not in ALGORITHMS:
        msg = f"algorithm is {algorithm!r}; it must be one of {', '.join(ALGORITHMS)}"
        raise MethodError(msg)
    budget = Budget(gap=None, time_limit=time_limit)
    require_numba("the exact repair of constopt")
    return certify(RestrictedLp(problem, radius, weighted, algorithm), budget).mechanism()


class RestrictedLp(OneLp):
    """The LP over free entries and weights."""

    # HiGHS's own, and a second try: entries of a column span so many orders of magnitude that it
    # calls some problems infeasible, which they never are. The repair makes up for what is loose.
    tolerances = (None, 1e-5)

    def __init__(
        self,
        problem: Problem,
        radius: float | None,
        weighted: bool,
        algorithm: Algorithm,
        solver: type[Lp] = Lp,
    ) -> None:
        self.problem, self.weighted = problem, weighted
        self.algorithm, self.solver = algorithm, solver
        self.method = "constopt" if weighted else "constopt, fixed weights"
        distance = problem.reports.distances(problem.domain)
        self._exponential = softmax(-0.5 * problem.epsilon * distance)
        share = min(1.0, max(NEAR_SHARE, NEAR_OUTPUTS / problem.outputs_count))
        self.radius = float(np.quantile(distance, share)) if radius is None else radius
        self._near = distance <= self.radius

    def begin(self, standing: Standing) -> None:
        problem = self.problem
        with standing.stage("form"):
            self._form = restricted_form(self._near, self._exponential, weighted=self.weighted)
            self._graph = constraint_graph(problem.domain, problem.epsilon)
        self.constant = float(problem.weighted_loss.ravel() @ self._form.given)
        self.edges = self._graph.count

    def parts(self) -> tuple[FloatArray, scipy.sparse.csr_array, FloatArray, FloatArray]:
        problem, graph, form = self.problem, self._graph, self._form
        size, outputs = problem.size, problem.outputs_count
        private = privacy_rows(graph.ends, problem.epsilon * graph.length, size, outputs)
        touched = form.near[graph.ends].any(axis=1).ravel()
        # Pairs of far entries hold by themselves.
        private = private[np.flatnonzero(np.concatenate([touched, touched]))]
        rows = scipy.sparse.vstack([sum_rows(size, outputs), private])
        upper = np.concatenate([np.ones(size), np.zeros(private.shape[0])]) - rows @ form.given
        lower = np.concatenate([upper[:size], np.full(private.shape[0], -np.inf)])
        cost = problem.weighted_loss.ravel() / cost_scale(problem.weighted_loss)
        return form.matrix.T @ cost, scipy.sparse.csr_array(rows @ form.matrix), lower, upper

    def table(self, values: FloatArray) -> FloatArray:
        return self._form.table(values)

    def certified(self, candidate: FloatArray, standing: Standing) -> Mechanism:
        made = "exponential" if candidate is self._exponential else "LP"
        return super().certified(candidate, standing).with_details(table=made)

    def fallbacks(self, standing: Standing) -> Iterator[Mechanism]:
        if standing.stopped is not Stopped.SOLVED:
            yield self.certified(self._exponential, standing)

    def facts(self) -> dict[str, Any]:
        return {
            **super().facts(),
            "radius": self.radius,
            "near_pairs": int(self._near.sum()),
            "near_share": float(self._near.mean()),
            "weighted": self.weighted,
        }


@dataclass(frozen=True)
class Form:
    """Tables z = matrix @ v + given, laid out row by row, for variables v >= 0."""

    near: BoolArray
    matrix: scipy.sparse.csr_array
    given: FloatArray

    def table(self, values: FloatArray) -> FloatArray:
        """The table of some values of the variables."""
        flat = self.matrix @ np.maximum(values, 0.0) + self.given
        return np.asarray(flat).reshape(self.near.shape)


def restricted_form(near: BoolArray, exponential: FloatArray, *, weighted: bool) -> Form:
    """Free entries where `near`, then one weight per output on the far entries of its column.

    `weighted=False` has no weights: far entries are given.
    """
    places = np.flatnonzero(near.ravel())
    far = np.flatnonzero(~near.ravel())
    free = np.arange(len(places))
    shape = (near.size, len(places))
    matrix = scipy.sparse.csr_array((np.ones(len(places)), (places, free)), shape=shape)
    given = np.zeros(near.size)
    if weighted:
        entries = (exponential.ravel()[far], (far, far % near.shape[1]))
        weights = scipy.sparse.csr_array(entries, shape=(near.size, near.shape[1]))
        matrix = scipy.sparse.csr_array(scipy.sparse.hstack([matrix, weights]))
    else:
        given[far] = exponential.ravel()[far]
    return Form(near, matrix, given)
