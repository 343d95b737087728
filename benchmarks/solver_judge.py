"""What is the same for every solver: its LP, and how its table and its prices are judged."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

import panda_mdp as pm
from panda_mdp.compute.closure import Closure
from panda_mdp.compute.highs import cost_scale, multipliers, privacy_rows, sum_rows
from panda_mdp.methods.optimal.program import Graph, constraint_graph, edge_multipliers
from panda_mdp.privacy.audit import audit_weights
from panda_mdp.privacy.quantise import quantise, repair
from panda_mdp.table.bound import dual_bound
from panda_mdp.table.mechanism import release

Row = dict[str, Any]


class Clock:
    """Seconds of named stages, one after the other."""

    def __init__(self) -> None:
        self.last = time.perf_counter()
        self.stages: list[tuple[str, float]] = []

    def __call__(self, stage: str) -> None:
        now = time.perf_counter()
        self.stages.append((stage, now - self.last))
        self.last = now


@dataclass(frozen=True)
class GraphLp:
    """min cost . v, sums v = 1, private v <= 0, 0 <= v <= 1: the LP over the constraint graph.

    v is the table, row by row; costs are divided by `scale`, so that absolute tolerances fit them.
    """

    problem: pm.Problem
    graph: Graph
    scale: float
    cost: np.ndarray
    sums: sparse.csr_array
    private: sparse.csr_array

    @classmethod
    def of(cls, problem: pm.Problem) -> GraphLp:
        size, outputs = problem.size, problem.outputs_count
        graph = constraint_graph(problem.domain, problem.epsilon)
        scale = cost_scale(problem.weighted_loss)
        return cls(
            problem,
            graph,
            scale,
            problem.weighted_loss.ravel() / scale,
            sum_rows(size, outputs),
            privacy_rows(graph.ends, problem.epsilon * graph.length, size, outputs),
        )

    def table(self, solution: np.ndarray) -> np.ndarray:
        """The table of a solution."""
        return np.asarray(solution).reshape(self.problem.size, self.problem.outputs_count)

    def multipliers(self, prices: np.ndarray) -> np.ndarray:
        """Multipliers (2, E, m), not negative, from the prices of the private rows.

        A price is the change of the objective with a row's bound: not positive for these rows.
        """
        exponent = self.problem.epsilon * self.graph.length
        # What a diverging solver calls a price may be no number at all, and proves nothing.
        prices = np.nan_to_num(np.asarray(prices) * self.scale, nan=0.0, posinf=0.0, neginf=0.0)
        return multipliers(prices, exponent, self.problem.outputs_count)

    def bound(self, prices: np.ndarray) -> float:
        """What the prices of the private rows prove, with every rounding accounted for."""
        return dual_bound(self.problem, edge_multipliers(self.graph, self.multipliers(prices)))


def certified(
    problem: pm.Problem,
    table: np.ndarray,
    bound: float | None,
    clock: Clock,
    *,
    stopped: str,
    iterations: int | None,
) -> Row:
    """A foreign solver's table as it came and as it is after the exact repair."""
    raw = np.maximum(table, 0.0)
    raw_epsilon = None
    if np.isfinite(raw).all() and (raw.sum(axis=1) > 0).all():
        weights = quantise(raw / raw.sum(axis=1, keepdims=True))
        raw_epsilon = audit_weights(
            problem.domain, problem.outputs, weights, problem.epsilon
        ).epsilon
    clock.last = time.perf_counter()
    mechanism = closed(problem, table, bound, clock)
    mechanism = mechanism.with_details(stopped=stopped, iterations=iterations)
    return {**described(mechanism), "stages": dict(clock.stages), "raw_epsilon": raw_epsilon}


def closed(
    problem: pm.Problem, table: np.ndarray, bound: float | None = None, clock: Clock | None = None
) -> pm.Mechanism:
    """A foreign solver's table made private over all pairs, and audited."""
    clock = Clock() if clock is None else clock
    repaired = repair(
        Closure(problem.domain), np.nan_to_num(np.maximum(table, 0.0)), problem.epsilon
    )
    clock("repair")
    mechanism = release(problem, repaired.matrix, method="foreign", bound=bound)
    clock("audit")
    return mechanism


def described(mechanism: pm.Mechanism) -> Row:
    """What the table says of a mechanism."""
    return {
        "loss": mechanism.loss,
        "lower_bound": mechanism.lower_bound,
        "audited_epsilon": mechanism.audit.epsilon,
        "holds": mechanism.audit.holds,
        "stages": dict(mechanism.stages),
        "stopped": mechanism.details.get("highs_status", mechanism.details["stopped"]),
        "iterations": mechanism.details["iterations"],
        "trace": [list(entry) for entry in mechanism.details.get("trace", ())],
    }
