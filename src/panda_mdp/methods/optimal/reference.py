"""The privacy LP through HiGHS: the paper's LP, for reference and for small cases."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray
from panda_mdp.compute.closure import Closure
from panda_mdp.compute.highs import (
    ALGORITHMS,
    Algorithm,
    Answer,
    Lp,
    cost_scale,
    multipliers,
    privacy_rows,
    require_numba,
    sum_rows,
)
from panda_mdp.compute.status import Stopped
from panda_mdp.errors import MethodError, PrivacyError, SolverError
from panda_mdp.methods.loss_exponential import loss_exponential
from panda_mdp.methods.optimal.dual import dual_bound, free_bound, free_proof, proof_of, proved
from panda_mdp.methods.optimal.graph import Graph, all_pairs, constraint_graph
from panda_mdp.privacy.repair import repair
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import Mechanism
from panda_mdp.table.release import release

Pairs = Literal["graph", "all"]
TIGHTENING = 5e-6
"""HiGHS's tables are accurate, so the closure needs little room for what normalising leaves."""
PROOF_GAP = 1e-6
"""A hundredth of it is what the bound may give away for a proof."""


def solve_highs(
    problem: Problem,
    pairs: Pairs = "graph",
    algorithm: Algorithm = "ipm",
    time_limit: float | None = None,
    tolerance: float | None = None,
) -> Mechanism:
    """The table of least expected loss by HiGHS: the paper's LP, made exactly private.

        min sum_x p_x c_xy z_xy   s.t.   sum_y z_xy = 1,  z_xy <= exp(epsilon d(x, x')) z_x'y

    over all `pairs`, or over the sparse graph that `optimal` starts from. `algorithm` is "ipm"
    (interior point without crossover), "simplex" or "pdlp"; `tolerance` is that of
    feasibility and of the relative gap (HiGHS's own by default). The LP has K m columns and 2 m
    rows a pair, so all pairs are for small domains.

    Guarantee: epsilon-mDP over all pairs, by audit. HiGHS satisfies its rows up to a tolerance
    only, so its table is closed over all pairs and audited like any other. `lower_bound` is
    computed from HiGHS's prices in float64 with all rounding accounted for and holds whatever
    HiGHS did; its own objective is in `details["highs_objective"]`, its verdict in
    `details["highs_status"]`.

    Where `time_limit` (seconds) is over, HiGHS is interrupted or it fails, the result is the best
    of its last table, repaired, and of `loss_exponential`; `details["stopped"]` says so.

    >>> from panda_mdp import Domain
    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0]])
    >>> problem = Problem(domain, [0, 1, 2], domain.distances(), epsilon=1.0)
    >>> mechanism = solve_highs(problem, pairs="all", algorithm="simplex")
    >>> mechanism.audit.holds, mechanism.gap < 1e-3
    (True, True)
    """
    if pairs not in ("graph", "all"):
        msg = f"pairs is {pairs!r}; it must be 'graph' or 'all'"
        raise MethodError(msg)
    if algorithm not in ALGORITHMS:
        msg = f"algorithm is {algorithm!r}; it must be one of {', '.join(ALGORITHMS)}"
        raise MethodError(msg)
    if tolerance is not None and not tolerance > 0:
        msg = f"tolerance is {tolerance!r}; it must be positive, or None for HiGHS's own"
        raise MethodError(msg)
    return _Run(problem, pairs, algorithm, time_limit, tolerance).mechanism()


@dataclass
class _Run:
    """One solve, from the graph to the released table."""

    problem: Problem
    pairs: Pairs
    algorithm: Algorithm
    time_limit: float | None
    tolerance: float | None
    stages: list[tuple[str, float]] = field(default_factory=list)
    began: float = field(default_factory=time.perf_counter)
    spare: Mechanism | None = None
    spare_seconds: float = 0.0

    def mechanism(self) -> Mechanism:
        problem = self.problem
        if self.time_limit is not None:
            # Something to return must be at hand when the time is over.
            self._make_spare()
        graph = (all_pairs if self.pairs == "all" else constraint_graph)(
            problem.domain, problem.epsilon
        )
        self._stage("graph")
        answer, stopped = self._answer(graph)
        bound, proofs = free_bound(problem), [free_proof(problem)]
        if answer is not None and answer.prices is not None:
            edges = answer.prices[problem.size :]
            scale = cost_scale(problem.weighted_loss)
            exponent = problem.epsilon * graph.length
            prices = multipliers(edges * scale, exponent, problem.outputs_count)
            bound = max(bound, dual_bound(problem, graph, prices))
            proofs.append(proof_of(problem, graph, prices))
            self._stage("bound")
        details = {
            "backend": "highs",
            "algorithm": self.algorithm,
            "pairs": self.pairs,
            "edges": graph.count,
            "stopped": stopped,
            "iterations": 0 if answer is None else answer.iterations,
            "highs_status": "not run" if answer is None else answer.status,
            "highs_objective": self._objective(answer),
        }
        best = self._best(answer, details)
        bound, proof = proved(bound, best.loss, PROOF_GAP, proofs)
        return best.with_facts(
            method="optimal, HiGHS",
            lower_bound=bound,
            proof=proof,
            stages=tuple(self.stages),
            details={**best.details, **details},
        )

    def _answer(self, graph: Graph) -> tuple[Answer | None, Stopped]:
        problem = self.problem
        size, outputs = problem.size, problem.outputs_count
        cost = problem.weighted_loss.ravel() / cost_scale(problem.weighted_loss)
        edges = privacy_rows(graph.ends, problem.epsilon * graph.length, size, outputs)
        lp = Lp(
            cost,
            scipy.sparse.csr_array(scipy.sparse.vstack([sum_rows(size, outputs), edges])),
            np.concatenate([np.ones(size), np.full(edges.shape[0], -np.inf)]),
            np.concatenate([np.ones(size), np.zeros(edges.shape[0])]),
            algorithm=self.algorithm,
            tolerance=self.tolerance,
        )
        self._stage("build")
        left = self._left()
        if left is not None and left <= 0:
            return None, Stopped.TIME_LIMIT
        answer, stopped = lp.attempt(left)
        self._stage("solve")
        return answer, stopped

    def _objective(self, answer: Answer | None) -> float | None:
        if answer is None or answer.objective is None:
            return None
        return answer.objective * cost_scale(self.problem.weighted_loss)

    def _best(self, answer: Answer | None, details: dict[str, Any]) -> Mechanism:
        candidates: list[Mechanism] = [] if self.spare is None else [self.spare]
        trouble = ""
        if answer is not None and answer.primal is not None:
            shape = (self.problem.size, self.problem.outputs_count)
            try:
                candidates.append(self._repaired(answer.primal.reshape(shape)))
            except PrivacyError as error:
                trouble = f": {error}"
        if details["stopped"] is not Stopped.SOLVED and self.spare is None:
            self._make_spare()
            candidates += [] if self.spare is None else [self.spare]
        if not candidates:
            msg = (
                f"HiGHS ended with {details['highs_status']!r} and no table could be certified"
                f"{trouble}; try another algorithm, or backend='cpu'"
            )
            raise SolverError(msg)
        return min(candidates, key=lambda mechanism: mechanism.loss)

    def _repaired(self, table: FloatArray) -> Mechanism:
        require_numba("the exact repair of HiGHS's table")
        repaired = repair(Closure(self.problem.domain), table, self.problem.epsilon, TIGHTENING)
        self._stage("repair")
        mechanism = release(
            self.problem,
            repaired.matrix,
            method="optimal, HiGHS",
            details={
                "closure_rounds": repaired.rounds,
                "common_share": repaired.common_share,
            },
        )
        self._stage("audit")
        return mechanism

    def _make_spare(self) -> None:
        start = time.perf_counter()
        try:
            self.spare = loss_exponential(self.problem).with_details(table="loss exponential")
        except PrivacyError:
            return
        finally:
            self._stage("loss exponential")
            self.spare_seconds = time.perf_counter() - start

    def _left(self) -> float | None:
        """What HiGHS may take, so that there is time to certify its table."""
        if self.time_limit is None:
            return None
        return self.time_limit - (time.perf_counter() - self.began) - 2 * self.spare_seconds

    def _stage(self, name: str) -> None:
        done = sum(seconds for _, seconds in self.stages)
        self.stages.append((name, time.perf_counter() - self.began - done))
