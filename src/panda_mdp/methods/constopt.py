"""The LP near each output, the exponential mechanism's form elsewhere (LP+EM)."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy

from panda_mdp.base.arrays import BoolArray, FloatArray
from panda_mdp.compute.closure import Closure
from panda_mdp.compute.highs import (
    ALGORITHMS,
    Algorithm,
    Answer,
    Lp,
    cost_scale,
    privacy_rows,
    require_numba,
    sum_rows,
)
from panda_mdp.compute.status import Stopped
from panda_mdp.errors import MethodError
from panda_mdp.methods.exponential import softmax
from panda_mdp.methods.optimal.graph import Graph, constraint_graph
from panda_mdp.privacy.repair import repair
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import Mechanism
from panda_mdp.table.release import release

NEAR_SHARE, NEAR_OUTPUTS = 0.1, 4
"""What the LP is free to choose by default: this share of all (record, output) pairs, and this
many outputs of a record on average where that is more. A row with one free entry has no freedom."""
TOLERANCES = (None, 1e-5)
"""HiGHS's own, and a second try: entries of a column span so many orders of magnitude that it calls
some problems infeasible, which they never are. The repair makes up for what is loose."""


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
    if time_limit is not None and not time_limit > 0:
        msg = f"time_limit is {time_limit!r}; it must be positive, in seconds, or None"
        raise MethodError(msg)
    require_numba("the exact repair of constopt")
    return _Run(problem, radius, weighted, algorithm, time_limit).mechanism()


@dataclass
class _Run:
    problem: Problem
    radius: float | None
    weighted: bool
    algorithm: Algorithm
    time_limit: float | None
    stages: dict[str, float] = field(default_factory=dict)
    began: float = field(default_factory=time.perf_counter)

    def mechanism(self) -> Mechanism:
        problem = self.problem
        distance = problem.reports.distances(problem.domain)
        exponential = softmax(-0.5 * problem.epsilon * distance)
        share = min(1.0, max(NEAR_SHARE, NEAR_OUTPUTS / problem.outputs_count))
        radius = float(np.quantile(distance, share)) if self.radius is None else self.radius
        near = distance <= radius
        graph = constraint_graph(problem.domain, problem.epsilon)
        form = restricted_form(near, exponential, weighted=self.weighted)
        self._stage("form")
        answer, stopped = self._answer(graph, form)
        self.closure = Closure(problem.domain)
        details = {
            "radius": radius,
            "near_pairs": int(near.sum()),
            "near_share": float(near.mean()),
            "weighted": self.weighted,
            "edges": graph.count,
            "stopped": stopped,
            "highs_status": "not run" if answer is None else answer.status,
            "highs_objective": self._objective(answer, form),
            "iterations": 0 if answer is None else answer.iterations,
        }
        candidates = []
        if answer is not None and answer.primal is not None:
            candidates.append(self._released(form.table(answer.primal), {**details, "table": "LP"}))
        if stopped is not Stopped.SOLVED:
            candidates.append(self._released(exponential, {**details, "table": "exponential"}))
        return min(candidates, key=lambda mechanism: mechanism.loss)

    def _released(self, table: FloatArray, details: dict[str, Any]) -> Mechanism:
        repaired = repair(self.closure, table, self.problem.epsilon)
        self._stage("repair")
        return release(
            self.problem,
            repaired.matrix,
            method="constopt" if self.weighted else "constopt, fixed weights",
            stages=tuple(self.stages.items()),
            details={
                **details,
                "closure_rounds": repaired.rounds,
                "common_share": repaired.common_share,
            },
        )

    def _answer(self, graph: Graph, form: Form) -> tuple[Answer | None, Stopped]:
        problem = self.problem
        size, outputs = problem.size, problem.outputs_count
        scale = cost_scale(problem.weighted_loss)
        private = privacy_rows(graph.ends, problem.epsilon * graph.length, size, outputs)
        first, second = graph.ends[:, 0], graph.ends[:, 1]
        touched = (form.near[first] | form.near[second]).ravel()
        # Pairs of far entries hold by themselves.
        private = private[np.flatnonzero(np.concatenate([touched, touched]))]
        rows = scipy.sparse.csr_array(
            scipy.sparse.vstack([sum_rows(size, outputs), private]) @ form.matrix
        )
        given = np.concatenate([sum_rows(size, outputs) @ form.given, private @ form.given])
        upper = np.concatenate([np.ones(size), np.zeros(private.shape[0])]) - given
        lower = np.concatenate([upper[:size], np.full(private.shape[0], -np.inf)])
        cost = form.matrix.T @ (problem.weighted_loss.ravel() / scale)
        answer: Answer | None = None
        stopped = Stopped.FAILED
        for tolerance in TOLERANCES:
            lp = Lp(cost, rows, lower, upper, algorithm=self.algorithm, tolerance=tolerance)
            self._stage("build")
            left = self._left()
            if left is not None and left <= 0:
                return answer, Stopped.TIME_LIMIT
            answer, stopped = lp.attempt(left)
            self._stage("solve")
            if stopped is not Stopped.FAILED:
                break
        return answer, stopped

    def _objective(self, answer: Answer | None, form: Form) -> float | None:
        if answer is None or answer.objective is None:
            return None
        fixed = float(self.problem.weighted_loss.ravel() @ form.given)
        return answer.objective * cost_scale(self.problem.weighted_loss) + fixed

    def _left(self) -> float | None:
        if self.time_limit is None:
            return None
        return self.time_limit - (time.perf_counter() - self.began)

    def _stage(self, name: str) -> None:
        spent = time.perf_counter() - self.began - sum(self.stages.values())
        self.stages[name] = self.stages.get(name, 0.0) + spent


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
