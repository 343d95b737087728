"""The best epsilon-mDP table of the whole domain, with proof of how good and how private it is."""

from __future__ import annotations

import warnings

import numpy.typing as npt

from panda_mdp.compute.backend import MEMORY_FULL
from panda_mdp.compute.status import Stopped
from panda_mdp.errors import GapWarning, MethodError
from panda_mdp.methods.adjust import rows_of
from panda_mdp.methods.certify import Budget, Report, certify
from panda_mdp.methods.optimal.backends import Machine
from panda_mdp.methods.optimal.solve import solver_for
from panda_mdp.problem import Problem
from panda_mdp.table.bound import Proved
from panda_mdp.table.mechanism import Mechanism


def optimal(
    problem: Problem,
    gap: float = 0.01,
    *,
    backend: Machine = "auto",
    time_limit: float | None = None,
    initial: Mechanism | npt.ArrayLike | None = None,
    progress: Report | None = None,
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

    `backend`: "cpu" is the compiled solver on all cores; "jax" runs on all accelerators that JAX
    sees, and `JaxEngine(devices)` on some, outputs split over them; "auto" solves small problems as
    one LP over all pairs (lp.py) and takes accelerators for others where there are any.
    `initial` is what to start from: a K x m table, or a solved mechanism of the same records and
    outputs, whose multipliers are taken over too (on the CPU): another epsilon, prior or loss
    that is not far from the first then takes a part of its time. `progress` is called with a
    `Progress` at every check: `progress=print` shows them. Memory grows as (edges + records) x
    outputs.

    `solve_lp` hands the same LP to HiGHS; `second_objective`, `limit_attacker` and
    `optimal_everywhere` ask for more than the least loss.

    >>> from panda_mdp import Domain
    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0]])
    >>> problem = Problem(domain, [0, 1, 2], abs(domain.distances()), epsilon=1.0)
    >>> mechanism = optimal(problem)
    >>> mechanism.audit.holds, mechanism.gap <= 0.01
    (True, True)
    """
    budget = Budget(gap, time_limit)
    known = initial.bound if isinstance(initial, Mechanism) else None
    rows = initial.matrix if isinstance(initial, Mechanism) else initial
    table = None if rows is None else rows_of(problem, rows, "initial")
    proof = known if isinstance(known, Proved) else None
    if proof is not None and proof.problem.domain.fingerprint != problem.domain.fingerprint:
        # What records elsewhere lend each other says nothing here; their rows are a table.
        proof = None
    solver = solver_for(problem, backend, table, proof)
    try:
        mechanism = certify(solver, budget, progress).mechanism()
    except RuntimeError as error:
        if MEMORY_FULL not in str(error):
            raise
        raise MethodError(
            f"{problem.size} records x {problem.outputs_count} outputs do not fit the memory "
            "of the devices; use more of them (outputs are split), fewer outputs or records, "
            "or backend='cpu'"
        ) from error
    stopped: Stopped = mechanism.details["stopped"]
    if stopped is not Stopped.GAP_REACHED and not stopped.by_request:
        msg = (
            f"the certified gap is {mechanism.gap:.3g}, {gap:g} was asked for ({stopped}): "
            f"{stopped.explanation}"
        )
        warnings.warn(msg, GapWarning, stacklevel=2)
    return mechanism
