"""Linear programs for HiGHS: the rows of the privacy LP, and one LP that is solved again and again.

The table z (records x outputs) is laid out row by row, so entry (x, y) is column x m + y. Privacy
rows are scaled to s (z_i - g z_j) <= 0 with g = exp(epsilon d) and s = 1 / sqrt(g), which keeps
both coefficients within e^15 of 1 where epsilon d goes up to 30.

The solver's own objective and tolerances are never trusted: `multipliers` reads its prices as
numbers >= 0 from which `panda_mdp.methods.optimal.program` computes a bound of its own.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.base.packages import need
from panda_mdp.base.text import Facts
from panda_mdp.errors import SolverError, Stopped

Algorithm = Literal["ipm", "simplex", "pdlp"]
ALGORITHMS = ("ipm", "simplex", "pdlp")
LARGEST_INDEX = 2**31 - 1
POLL_SECONDS = 0.05


@dataclass(frozen=True)
class Answer:
    """What HiGHS made of an LP; of none that it has not run."""

    status: str = "not run"
    """In HiGHS's own words."""
    optimal: bool = False
    objective: float | None = None
    """HiGHS's objective; for information, never for a certificate."""
    primal: FloatArray | None = None
    prices: FloatArray | None = None
    """Change of the objective with a row's bound, one per row."""
    ray: FloatArray | None = None
    """For an infeasible LP: a combination of rows that no point satisfies, signed as prices."""
    iterations: int = 0


class Lp:
    """min cost . v subject to row_lower <= A v <= row_upper, lower <= v, held by HiGHS.

    Rows can be added and bounds changed between solves; each solve starts from the last basis
    where the algorithm has one (simplex). Interior point runs without crossover; `tolerance` is
    that of feasibility and of the relative gap, HiGHS's own where None. HiGHS works on
    one thread without Python's lock, so several LPs can be solved from several threads.
    """

    def __init__(
        self,
        cost: FloatArray,
        rows: scipy.sparse.csr_array,
        row_lower: FloatArray,
        row_upper: FloatArray,
        algorithm: Algorithm = "simplex",
        tolerance: float | None = None,
        presolve: bool = True,
        *,
        lower: FloatArray | None = None,
    ) -> None:
        self._highspy = need("highspy", "a linear program")
        self._highs = self._highspy.Highs()
        options: Facts = {
            "output_flag": False,
            "solver": algorithm,
            "parallel": "off",
            "run_crossover": "off",
            "presolve": "on" if presolve else "off",
        }
        if tolerance is not None:
            kinds = ("primal_feasibility", "dual_feasibility", "ipm_optimality", "pdlp_optimality")
            options |= {f"{kind}_tolerance": tolerance for kind in kinds}
        for option, value in options.items():
            self._set(option, value)
        self._highs.HandleUserInterrupt = True
        count = len(cost)
        self._highs.addVars(
            count,
            np.zeros(count) if lower is None else lower,
            np.full(count, np.inf),
        )
        self._highs.changeColsCost(count, np.arange(count, dtype=np.int32), cost)
        self.add_rows(rows, row_lower, row_upper)

    def _set(self, option: str, value: Any) -> None:
        if self._highs.setOptionValue(option, value) != self._highspy.HighsStatus.kOk:
            raise SolverError(
                f"this HiGHS does not take {option} = {value!r}; install highspy 1.13 or newer"
            )

    def add_rows(self, rows: scipy.sparse.csr_array, lower: FloatArray, upper: FloatArray) -> None:
        """Further rows, after those that there are."""
        _refuse_large(rows.nnz)
        starts = rows.indptr[:-1].astype(np.int32)
        indices = rows.indices.astype(np.int32)
        added = self._highs.addRows(
            rows.shape[0], lower, upper, rows.nnz, starts, indices, rows.data
        )
        if added == self._highspy.HighsStatus.kError:
            raise SolverError(
                f"HiGHS refused an LP of {rows.shape[0]} rows, {rows.shape[1]} columns and "
                f"{rows.nnz} entries; use fewer records or outputs, or backend='cpu'"
            )

    def set_row_bounds(self, rows: IntArray, lower: FloatArray, upper: FloatArray) -> None:
        """New bounds for some rows."""
        self._highs.changeRowsBounds(len(rows), rows.astype(np.int32), lower, upper)

    def attempt(self, time_limit: float | None = None) -> tuple[Answer, Stopped]:
        """Solve, and how that ended: solved, at the time limit, interrupted or failed."""
        try:
            answer = self.solve(time_limit)
        except KeyboardInterrupt:
            return self.answer(), Stopped.INTERRUPTED
        if answer.optimal:
            return answer, Stopped.SOLVED
        over = time_limit is not None and "ime limit" in answer.status
        return answer, Stopped.TIME_LIMIT if over else Stopped.FAILED

    def solve(self, time_limit: float | None = None) -> Answer:
        """Solve from where the last solve ended; `time_limit` in seconds, for this solve alone.

        An interrupt stops HiGHS and is raised again when it has stopped.
        """
        highs = self._highs
        # HiGHS counts the time of all solves of a model together.
        limit = np.inf if time_limit is None else highs.getRunTime() + max(time_limit, 0.0)
        self._set("time_limit", float(limit))
        run_interruptibly(highs)
        return self.answer()

    def answer(self) -> Answer:
        """What the last solve ended with."""
        highs = self._highs
        kinds = self._highspy.HighsModelStatus
        status = highs.getModelStatus()
        info = highs.getInfo()
        solution = highs.getSolution()
        counts = (getattr(info, f"{kind}_iteration_count") for kind in ALGORITHMS)
        _, has_ray, ray = highs.getDualRay() if status == kinds.kInfeasible else (None, False, ())
        return Answer(
            status=highs.modelStatusToString(status),
            optimal=status == kinds.kOptimal,
            objective=_finite(info.objective_function_value),
            primal=_array(solution.col_value, solution.value_valid),
            prices=_array(solution.row_dual, solution.dual_valid),
            ray=_array(ray, has_ray),
            iterations=int(sum(max(count, 0) for count in counts)),
        )


def run_interruptibly(highs: Any) -> None:
    """Run HiGHS; a KeyboardInterrupt cancels it and is raised when it has ended.

    Only the main thread receives interrupts, so HiGHS runs in a second one while it waits.
    """
    if threading.current_thread() is not threading.main_thread():
        highs.run()
        return
    worker = threading.Thread(target=highs.run, daemon=True)
    worker.start()
    try:
        while worker.is_alive():
            worker.join(POLL_SECONDS)
    except KeyboardInterrupt:
        highs.cancelSolve()
        worker.join()
        raise


def privacy_rows(
    ends: IntArray, exponent: FloatArray, records: int, outputs: int
) -> scipy.sparse.csr_array:
    """Rows s (z_i - g z_j), and the other way round, of every edge and output.

    Shape (2 E m, records m), ordered by edge, direction, output; the upper bound of each is 0.
    """
    _refuse_large(4 * len(ends) * outputs)
    scale = np.repeat(np.exp(-0.5 * exponent), 2)
    both = np.stack([ends, ends[:, ::-1]], axis=1).reshape(-1, 2)
    # What is stored are pairs, a row's own record first: the solver scales them in place.
    columns = both[:, None, :] * outputs + np.arange(outputs)[:, None]
    values = np.stack([scale, -1 / scale], axis=1)[:, None, :].repeat(outputs, axis=1)
    starts = np.arange(0, columns.size + 1, 2)
    shape = (len(starts) - 1, records * outputs)
    return scipy.sparse.csr_array((values.ravel(), columns.ravel(), starts), shape=shape)


def sum_rows(records: int, outputs: int) -> scipy.sparse.csr_array:
    """Rows sum_y z_xy, one per record."""
    every = scipy.sparse.eye_array(records)
    return scipy.sparse.csr_array(scipy.sparse.kron(every, np.ones((1, outputs))))


def multipliers(prices: FloatArray, exponent: FloatArray, outputs: int) -> FloatArray:
    """Multipliers >= 0 of z_i <= g z_j from the prices of `privacy_rows`; (2, E, m).

    The first index is the direction: 0 for the edge's first record on the left, 1 for its second.
    Prices of the wrong sign, which tolerances allow, become 0.
    """
    scaled = np.maximum(-prices, 0.0).reshape(len(exponent), 2, outputs).swapaxes(0, 1)
    return scaled * np.exp(-0.5 * exponent)[None, :, None]


def cost_scale(cost: FloatArray) -> float:
    """By what costs are divided so that HiGHS's absolute tolerances fit them."""
    return float(cost.mean()) or 1.0


def _refuse_large(entries: int) -> None:
    if entries > LARGEST_INDEX:
        raise SolverError(
            f"the LP has {entries:,} entries and HiGHS takes {LARGEST_INDEX:,}; "
            "use pairs='graph', fewer records or outputs, or optimal(backend='cpu')"
        )


def _array(values: Any, valid: bool) -> FloatArray | None:
    array = np.asarray(values, dtype=float)
    return array if valid and np.isfinite(array).all() else None


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
