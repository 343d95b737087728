"""The one loop: what it keeps, when it ends, what it reports, whatever the solver does."""

from __future__ import annotations

import math

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.base.threads import check_time
from panda_mdp.errors import MethodError, PrivacyError, SolverError, Stopped
from panda_mdp.methods.benders import Decomposed
from panda_mdp.methods.certify import (
    Budget,
    Progress,
    Solver,
    Tuning,
    certify,
    next_check,
    print_progress,
)
from panda_mdp.methods.constopt import RestrictedLp
from panda_mdp.methods.everywhere import Everywhere
from panda_mdp.methods.optimal.lp import HighsLp, SmallLp
from panda_mdp.methods.optimal.optimal import CpuEngine, FirstOrder, JaxEngine
from panda_mdp.methods.optimal.program import TilingTuning
from panda_mdp.methods.second.limits import Descent, ExactLimit, Limit
from panda_mdp.methods.second.objectives import objective
from panda_mdp.table.mechanism import mix, release

LINE = pm.Domain.from_vectors(np.arange(4.0)[:, None])
PROBLEM = pm.Problem(LINE, [0, 1, 2, 3], LINE.distances(), 1.0)
BEST = pm.solve_lp(PROBLEM, "all", "simplex")
WORST = np.full((4, 4), 0.25)


def blend(share: float) -> np.ndarray:
    """A private table: the best one with so much of the uniform row."""
    return mix(BEST.matrix, share)


class Scripted(Solver):
    """Goes through tables and bounds that it was given, then stays where it is."""

    def __init__(self, tables, bounds=(0.0,), *, tuning=None, estimates=True, **changes):
        self.problem, self.tables, self.bounds = PROBLEM, list(tables), list(bounds)
        self.tuning = tuning or Tuning(certify_iterations=0)
        self.estimates, self.checks, self.calls = estimates, 0, []
        vars(self).update(changes)

    def called(self, name):
        """Called at the start of every method: a place for interrupts."""
        self.calls.append(name)

    def begin(self, standing):
        self.called("begin")

    def advance(self, target, standing):
        self.called("advance")
        while self.iterations < target and not standing.late():
            self.iterations += self.tuning.step
        self.checks += 1

    def bound(self):
        self.called("bound")
        return self.bounds[min(self.checks, len(self.bounds)) - 1]

    def candidate(self):
        self.called("candidate")
        return self.tables[min(self.checks, len(self.tables)) - 1]

    def estimate(self, candidate):
        self.called("estimate")
        return PROBLEM.expected_loss(candidate) if self.estimates else -math.inf

    def certified(self, candidate, standing):
        self.called("certified")
        return release(PROBLEM, candidate, method="scripted")

    def fallbacks(self, standing):
        yield release(PROBLEM, WORST, method="at hand")


class Interrupted(Scripted):
    """Is interrupted in the n-th call of one of its methods, and then no more."""

    def __init__(self, place, number, **options):
        super().__init__([blend(0.5), blend(0.25), BEST.matrix], [0.1, 0.2], **options)
        self.place, self.number = place, number

    def called(self, name):
        super().called(name)
        if name == self.place and self.calls.count(name) == self.number:
            raise KeyboardInterrupt


def test_the_last_resort_is_the_best_row_that_ignores_the_record():
    """Of four places in a row the middle ones are nearest to all."""
    table = Scripted([]).last_resort(None)
    assert table.loss == PROBLEM.mean_loss.min() == 1.0 < PROBLEM.mean_loss[0]
    assert table.audit.epsilon == 0 and (table.matrix[:, 1] == 1).all()


def test_it_ends_when_the_certified_gap_is_reached():
    tables = [blend(0.5), blend(0.1), BEST.matrix]
    solved = certify(Scripted(tables, [0.5 * BEST.loss, 0.999 * BEST.loss]), Budget(0.01))
    assert solved.stopped is Stopped.GAP_REACHED
    made = solved.mechanism()
    assert made.audit.holds
    assert made.lower_bound == pytest.approx(0.999 * BEST.loss)
    assert made.loss == pytest.approx(BEST.loss)
    assert made.details["trace"][-1][2:] == (made.loss, made.lower_bound)


def test_what_was_certified_is_never_lost():
    seen: list[Progress] = []
    solver = Scripted([blend(0.2), blend(0.8), WORST])
    solved = certify(solver, Budget(1e-6), seen.append)
    losses = [now.loss for now in seen]
    assert losses == sorted(losses, reverse=True)
    assert solved.certified.loss == losses[-1] == pytest.approx(PROBLEM.expected_loss(blend(0.2)))
    # The loop gives up in time.
    assert solved.stopped is Stopped.PRECISION_REACHED
    assert solver.checks <= 3 * solver.tuning.patience


def test_a_bound_that_is_no_number_or_falls_is_not_taken():
    solved = certify(Scripted([WORST], [0.3, math.nan, 0.1]), Budget(0.01))
    assert solved.bound == 0.3


@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize(
    "place", ["begin", "advance", "bound", "candidate", "estimate", "certified"]
)
def test_an_interrupt_returns_the_best_certified_table(place, number):
    solver = Interrupted(place, number)
    solved = certify(solver, Budget(1e-3, iterations=2_000))
    if solver.calls.count(place) >= number:
        assert solved.stopped is Stopped.INTERRUPTED
    assert solved.mechanism().audit.holds
    assert solved.certified.loss <= PROBLEM.expected_loss(WORST) * (1 + 1e-9)


def test_a_second_interrupt_ends_it_at_once():
    class Impatient(Scripted):
        def certified(self, candidate, standing):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        certify(Impatient([WORST]), Budget(0.01))


@pytest.mark.parametrize("limit", [1e-9, 1.0])
def test_a_time_limit_leaves_time_to_certify(limit):
    ticks = iter(range(10**6))
    budget = Budget(1e-9, limit, clock=lambda: 0.01 * next(ticks))
    solved = certify(Scripted([blend(0.5), BEST.matrix]), budget)
    assert solved.stopped is Stopped.TIME_LIMIT
    assert solved.certified.method == "scripted"


def test_iterations_are_a_limit():
    solved = certify(Scripted([blend(0.5)]), Budget(1e-9, iterations=300))
    assert solved.stopped is Stopped.ITERATIONS
    assert 300 <= solved.mechanism().details["iterations"] < 500


@pytest.mark.parametrize("ended", [Stopped.FAILED, Stopped.SOLVED])
def test_a_solver_that_has_ended_is_asked_no_more(ended):
    solver = Scripted([blend(0.1)], estimates=False, ended=ended)
    solved = certify(solver, Budget(gap=None))
    assert (solver.checks, solved.stopped) == (1, ended)
    # Without a bound none is stated.
    assert (
        certify(Scripted([blend(0.1)], [-math.inf], ended=ended), Budget(None)).mechanism().gap
        is None
    )


def test_no_table_leaves_what_is_at_hand_or_an_error():
    empty = Scripted([None], estimates=False, ended=Stopped.FAILED, status="Solve error")
    assert certify(empty, Budget(None)).certified.method == "at hand"

    class Bare(Scripted):
        def fallbacks(self, standing):
            yield from ()

    bare = Bare([None], estimates=False, ended=Stopped.FAILED, status="Solve error")
    with pytest.raises(SolverError, match="Solve error"):
        certify(bare, Budget(None)).mechanism()


def test_a_table_that_cannot_be_certified_is_passed_over_where_another_is_at_hand():
    class Refused(Scripted):
        def certified(self, candidate, standing):
            msg = "too near"
            raise PrivacyError(msg)

    class Prepared(Refused):
        def begin(self, standing):
            standing.offer(release(PROBLEM, WORST, method="at hand"))

    budget = Budget(1e-6, iterations=500)
    assert certify(Prepared([BEST.matrix]), budget).certified.method == "at hand"
    # What is made where the gap is not reached will do, too.
    assert certify(Refused([BEST.matrix]), budget).certified.method == "at hand"

    class Bare(Refused):
        def fallbacks(self, standing):
            yield from ()

    with pytest.raises(PrivacyError, match="too near"):
        certify(Bare([BEST.matrix]), budget).mechanism()


def test_one_costly_repair_does_not_keep_later_tables_from_being_certified():
    class CostlyAtFirst(Scripted):
        def certified(self, candidate, standing):
            first = not self.calls.count("certified")
            return super().certified(WORST if first else candidate, standing)

    tables = [blend(0.05 / k) for k in range(1, 9)]
    solver = CostlyAtFirst([*tables, BEST.matrix], [0.999 * BEST.loss])
    solved = certify(solver, Budget(0.01))
    assert solved.stopped is Stopped.GAP_REACHED
    assert solver.calls.count("certified") < 6


@pytest.mark.parametrize("always", [False, True])
def test_what_is_made_once_is_not_taken_for_the_time_of_a_repair(always):
    """A solve along streets of 120 s ended after 13: the loops were loaded in the first check."""
    now = [0.0]

    class SlowAtFirst(Scripted):
        def estimate(self, candidate):
            # Two dozen of the first one would not fit the limit.
            now[0] += 1.0 if now[0] == 0.0 or always else 1e-4
            return super().estimate(candidate)

    solver = SlowAtFirst([blend(0.5), BEST.matrix], tuning=Tuning(certify_iterations=10**9))
    certify(solver, Budget(1e-9, 10.0, clock=lambda: now[0]))
    assert (solver.checks == 1) == always


def test_seconds_of_a_stage_add_up_and_count_once():
    ticks = iter(range(10**6))
    solved = certify(Scripted([BEST.matrix]), Budget(0.01, clock=lambda: float(next(ticks))))
    before = sum(solved.seconds.values())
    for _ in range(3):
        with solved.stage("outer"), solved.stage("inner"):
            pass
    assert solved.seconds["inner"] == 3.0
    assert sum(solved.seconds.values()) - before == pytest.approx(3.0 + solved.seconds["outer"])


def test_the_next_check_is_where_the_gap_should_be_reached():
    halving = [(200, 0.04), (400, 0.02)]

    def check(seen, wanted):
        return next_check(seen, wanted, Tuning())

    assert check([*halving, (800, 0.01)], 0.008) == (int(1.03 * 1000), True)
    assert check(halving, 0.001) == (560, False)
    assert check(halving[:1], 0.039) == (280, False)
    assert check([(200, 0.02), (400, 0.02)], 0.01) == (560, False)
    assert check([(200, math.inf), (400, 0.02)], 0.01) == (560, False)
    assert check([(200, 0.04), (240, 0.02)], 0.0199) == (280, True)
    assert check([(400, 0.04), (400, 0.02)], 0.01) == (560, False)
    # Next to an optimum of 0 gaps are of any size.
    assert check([(200, 1e300), (400, 1e200)], 1e-3) == (560, False)
    # Just missed: whatever the last two checks say, not far beyond.
    assert check([(700, 0.0206), (1000, 0.0204)], 0.02) == (int(1030 * 1.02**2), False)
    assert check([(700, 0.02), (1000, 0.0204)], 0.02) == (int(1030 * 1.02**2), False)


def test_progress_knows_its_gap_and_is_printed(capsys):
    assert Progress(1.0, 10, 1.02, 1.0, 5).gap == pytest.approx(0.02)
    assert Progress(1.0, 10, 1.02, 0.0, 5).gap == math.inf
    print_progress(Progress(1.0, 10, 1.02, 1.0, 5))
    print_progress(Progress(1.0, 0, 1.02, 1.0, 5, "compiling once"))
    first, second = capsys.readouterr().err.splitlines()
    assert "loss 1.02" in first and "at least 1" in first and "gap 2.00 %" in first
    assert "compiling once" in second


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"gap": 0.0}, "gap is 0.0"),
        ({"gap": math.nan}, "gap is nan"),
        ({"time_limit": -1.0}, "time_limit is -1.0"),
        ({"time_limit": math.nan}, "time_limit is nan"),
        ({"iterations": 0}, "iterations is 0"),
    ],
)
def test_a_budget_is_checked(options, says):
    with pytest.raises(MethodError, match=says):
        Budget(**options)


class Jump:
    """Stands still for so many looks, and is then beyond every limit; counts the looks after."""

    def __init__(self, looks: int) -> None:
        self.left, self.after = looks, 0

    def __call__(self) -> float:
        if self.left > 0:
            self.left -= 1
            return 0.0
        self.after += 1
        return 1e6


PLACES = pm.Domain.from_vectors(np.random.default_rng(3).normal(size=(64, 2)) * 3)
TOWN = pm.Problem(PLACES, range(0, 64, 2), PLACES.distances(None, range(0, 64, 2)), 1.0)
TILES = TilingTuning(host_outputs=16, least_outputs=16, worthwhile=1.0)
AREA = pm.Domain.from_area((41.89, 12.48, 41.91, 12.51), spacing=0.5)
AROUND = pm.Problem(AREA, range(0, AREA.size, 6), AREA.distances(None, range(0, AREA.size, 6)), 1.0)
WITHIN = Limit(objective(PROBLEM, "vulnerability"), BEST, 1.1 * BEST.loss)
SOLVERS = {
    "small LP": lambda: SmallLp(PROBLEM),
    "cores": lambda: FirstOrder(TOWN, CpuEngine()),
    "tiles": lambda: FirstOrder(TOWN, CpuEngine(TILES)),
    "device": lambda: FirstOrder(TOWN, JaxEngine()),
    "tiles on a device": lambda: FirstOrder(TOWN, JaxEngine(tiling=TILES)),
    "HiGHS": lambda: HighsLp(TOWN, "graph", "ipm"),
    "Benders": lambda: Decomposed(TOWN, 3),
    "ConstOPT": lambda: RestrictedLp(TOWN, None),
    "exact limit": lambda: ExactLimit(WITHIN),
    "descent": lambda: Descent(WITHIN),
    "every point": lambda: Everywhere(AROUND, "cpu"),
}


@pytest.mark.parametrize("looks", [1, 4, 12, 30, 80, 250])
@pytest.mark.parametrize("name", SOLVERS)
def test_whatever_time_is_over_in_it_ends_with_a_private_table(name, looks):
    """Counted in looks at the clock: whatever runs when it jumps, few are left until the end."""
    clock = Jump(looks)
    solved = certify(SOLVERS[name](), Budget(1e-9, 10.0, clock=clock))
    assert solved.certified.audit.holds
    assert clock.after <= 30
    if clock.after > 2 * len(solved.seconds) + 2:
        assert solved.stopped is Stopped.TIME_LIMIT


def test_what_was_reached_is_certified_within_a_little_more():
    assert Budget(time_limit=None).latest is None
    assert Budget(time_limit=1.0).latest == 3.5
    assert Budget(time_limit=150.0).latest == 157.5

    class Slow(Scripted):
        def certified(self, candidate, standing):
            now[0] += self.takes
            check_time()
            return super().certified(candidate, standing)

    for takes, method in ((3.0, "scripted"), (4.0, "optimal")):
        now = [0.0]
        slow = Slow([BEST.matrix], estimates=False, ended=Stopped.FAILED, takes=takes)
        solved = certify(slow, Budget(1e-9, 1.0, clock=lambda: now[0]))  # noqa: B023
        assert solved.certified.method == method
        # One row for all: what is left where nothing else was in time.
        assert (len(np.unique(solved.certified.weights, axis=0)) == 1) == (method == "optimal")
