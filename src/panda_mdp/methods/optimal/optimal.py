"""The best epsilon-mDP table of the whole domain, with proof of how good and how private it is."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray
from panda_mdp.compute.backend import MEMORY_FULL
from panda_mdp.compute.highs import require_numba
from panda_mdp.compute.status import Stopped
from panda_mdp.errors import GapWarning, MethodError
from panda_mdp.methods.optimal.backends import Engine, choose
from panda_mdp.methods.optimal.progress import Progress, tell
from panda_mdp.methods.optimal.small import SmallLp, is_small
from panda_mdp.methods.second.objectives import Name
from panda_mdp.problem import Problem
from panda_mdp.table.mechanism import Mechanism

Backend = Literal["auto", "cpu", "jax", "highs"]


def optimal(
    problem: Problem,
    gap: float = 0.01,
    backend: Backend = "auto",
    *,
    time_limit: float | None = None,
    initial: npt.ArrayLike | None = None,
    progress: Callable[[Progress], None] | None = None,
    verbose: bool = False,
    pairs: Literal["graph", "all"] = "graph",
    algorithm: Literal["ipm", "simplex", "pdlp"] = "ipm",
    devices: Sequence[Any] | None = None,
    then: Name | None = None,
    slack: float = 0.01,
    attacker: Name | None = None,
    limit: float | None = None,
    radius: float | None = None,
    everywhere: bool = False,
) -> Mechanism:
    """The table of least expected loss among all epsilon-mDP tables, to a certified gap.

        min sum_x p_x c_xy z_xy   s.t.   sum_y z_xy = 1,  z_xy <= exp(epsilon d(x, x')) z_x'y

    over all records x, x' and outputs y: the paper's LP. Solved over a sparse constraint graph by a
    structured first-order method, bounded from below in float64 with all rounding accounted for,
    then closed over all pairs and audited on the final integers. Ends when the loss of the private
    table is within `gap` of the lower bound; `time_limit` (seconds) or an interrupt returns the
    best certified table so far. Pairs that the graph lacks are added while it runs, if they matter.

    Guarantee: epsilon-mDP over all pairs, by audit; loss <= (1 + gap) optimum where
    `details["stopped"]` is "gap reached", and loss <= (1 + mechanism.gap) optimum always.
    A gap that is not reached although nobody ended the solve is a `GapWarning`.

    `backend`: "cpu" is the compiled solver on all cores; "jax" runs on accelerators (`devices`,
    all by default, outputs split over them); "auto" solves small problems as one LP over all pairs
    (small.py) and takes accelerators for others where there are any; "highs" hands
    the same LP to HiGHS with `algorithm` over the graph or all `pairs` (reference, small cases).
    `initial` is a K x m table to start from. `verbose` prints where the solve stands, each time
    that `progress` is called with it. Memory grows as (edges + records) x outputs.

    Without `then` the loss alone is minimised. `then` names a second objective ("vulnerability",
    "located" within `radius`, "true_place", "error" or "least_protected", see
    `panda_mdp.methods.second`), made best among the tables whose loss is within `slack` of the
    first one's, on the CPU, and certified too: `details["second"]`. `attacker` (one of the same
    names) and `limit` ask for the least loss at which that attacker gains at most `limit`, or errs
    by at least `limit`; `details["limited"]` has the bound of all private tables within it. What
    follows the first table runs on the CPU's cores whatever the backend is; where that was not the
    CPU it works the multipliers out again.

    `everywhere` is for domains of `Domain.from_area`: the result is an `EverywhereMechanism`,
    private for every point of the area and not for the vertices alone, whose `sample_at(lat, lon)`
    draws at the point; its lower bound is that of all mechanisms that are (docs/everywhere.md).

    >>> from panda_mdp import Domain
    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0]])
    >>> problem = Problem(domain, [0, 1, 2], abs(domain.distances()), epsilon=1.0)
    >>> mechanism = optimal(problem)
    >>> mechanism.audit.holds, mechanism.gap <= 0.01
    (True, True)
    """
    if not (np.isfinite(gap) and gap > 0):
        msg = f"gap is {gap!r}; it must be a positive number such as 0.01 for one per cent"
        raise MethodError(msg)
    if time_limit is not None and not time_limit > 0:
        msg = f"time_limit is {time_limit!r}; it must be positive, in seconds, or None"
        raise MethodError(msg)
    if backend not in ("auto", "cpu", "jax", "highs"):
        msg = f"backend is {backend!r}; it must be 'auto', 'cpu', 'jax' or 'highs'"
        raise MethodError(msg)
    progress = tell if verbose and progress is None else progress
    if everywhere:
        if backend == "highs" or initial is not None or then or attacker:
            msg = "everywhere=True takes neither backend='highs' nor initial, then or attacker"
            raise MethodError(msg)
        from panda_mdp.methods.everywhere.everywhere import Everywhere

        return Everywhere(problem, gap, backend, devices, time_limit, progress).run()
    start_table = None if initial is None else _check_initial(problem, initial)
    if (attacker is None) != (limit is None) or (attacker is not None and then is not None):
        msg = "attacker and limit belong together, and exclude then: give both, or then, or none"
        raise MethodError(msg)
    if attacker is not None or then is not None:
        require_numba("what follows the first table, on the CPU's cores whatever made that,")
    if attacker is not None and limit is not None:
        from panda_mdp.methods.second.second import limited

        def unlimited() -> tuple[Mechanism, None]:
            first = optimal(
                problem, gap, backend, initial=initial, devices=devices, progress=progress
            )
            return first, None

        # A solver of the CPU is gone on with; the tables of others are handed over.
        here = (
            initial is None
            and backend in ("auto", "cpu")
            and choose(backend, devices).name == "cpu"
        )
        return limited(
            problem,
            attacker,
            limit,
            radius=radius,
            gap=gap,
            first=None if here else unlimited,
            time_limit=time_limit,
            progress=progress,
        )
    if then is not None:
        from panda_mdp.methods.second.second import check_objective

        check_objective(problem, then, slack, radius)
    # With a second objective each of the two has half of the time.
    share = time_limit if then is None or time_limit is None else time_limit / 2
    engine: Engine | None = None
    if backend == "highs":
        from panda_mdp.methods.optimal.reference import solve_highs

        first = solve_highs(problem, pairs=pairs, algorithm=algorithm, time_limit=share)
    elif backend == "auto" and devices is None and then is None and is_small(problem):
        first = _warned(SmallLp(problem, gap, share, progress).run(), gap)
    else:
        from panda_mdp.methods.optimal.solve import Solve

        engine = choose(backend, devices)
        if then is not None and engine.name == "cpu":
            from panda_mdp.methods.second.first_order import Recorder

            engine = Recorder()
        run = Solve(problem, gap, engine, share, progress, pairs == "all")
        try:
            first = _warned(run.run(start_table), gap)
        except RuntimeError as error:
            if MEMORY_FULL not in str(error):
                raise
            msg = (
                f"{problem.size} records x {problem.outputs_count} outputs do not fit the memory "
                "of the devices; use more of them (outputs are split), fewer outputs or records, "
                "or backend='cpu'"
            )
            raise MethodError(msg) from error
    if then is None:
        return first
    from panda_mdp.methods.second.second import lower_objective

    return lower_objective(
        first,
        then,
        slack,
        radius=radius,
        solver=getattr(engine, "made", None),
        time_limit=share,
        progress=progress,
    )


def _warned(mechanism: Mechanism, gap: float) -> Mechanism:
    """The mechanism; with a warning where the gap was not reached and nobody ended the solve."""
    stopped: Stopped = mechanism.details["stopped"]
    if stopped is not Stopped.GAP_REACHED and not stopped.by_request:
        msg = (
            f"the certified gap is {mechanism.gap:.3g}, {gap:g} was asked for ({stopped}): "
            f"{stopped.explanation}"
        )
        warnings.warn(msg, GapWarning, stacklevel=3)
    return mechanism


def _check_initial(problem: Problem, initial: npt.ArrayLike) -> FloatArray:
    table = np.asarray(initial, dtype=np.float64)
    shape = (problem.size, problem.outputs_count)
    if table.shape != shape:
        msg = f"initial has shape {table.shape}; a table of this problem is {shape}"
        raise MethodError(msg)
    if not np.isfinite(table).all() or (table < 0).any() or not (table.sum(axis=1) > 0).all():
        msg = "initial must be finite and not negative, with a positive entry in every row"
        raise MethodError(msg)
    return np.asarray(table / table.sum(axis=1, keepdims=True))
