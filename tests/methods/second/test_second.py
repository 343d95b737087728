"""The second objective against an LP of its own over all pairs, and its limits and refusals."""

from __future__ import annotations

import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from forging import File, averaged
from helpers import displacement_problem, is_private, random_domain
from scipy.optimize import linprog

import panda_mdp as pm
from panda_mdp.compute.numba.pdhg import onto_simplex
from panda_mdp.errors import MethodError, PrivacyError
from panda_mdp.methods.certify import Budget, Progress, certify
from panda_mdp.methods.second.limits import Descent, Limit, Trade, mixture
from panda_mdp.methods.second.objectives import NAMES, Guesses, objective, quantity
from panda_mdp.methods.second.second import first_table, halved
from panda_mdp.space.guesses import best_guesses
from panda_mdp.table.claims import Traded


def problem_of(seed: int = 0, size: int = 6, outputs: int = 4) -> pm.Problem:
    prior = np.random.default_rng(seed).dirichlet(2 * np.ones(size))
    domain = random_domain("euclidean", size, seed)
    return displacement_problem(domain, range(outputs), 1.0, prior)


def brute_force(problem, forms, *, budget=None, limit=None, shift=0.0):
    """The LP by scipy with one variable per form-group; forms[f][g] is a K x m table. Objectives
    are those of the forms less `shift`."""
    size, outputs = problem.size, problem.outputs_count
    entries, groups = size * outputs, len(forms[0])
    rows, most = [], []

    def add(table, extra, bound):
        rows.append(np.concatenate([np.ravel(table), extra]))
        most.append(bound)

    none = np.zeros(groups)
    for i in range(size):
        for j in range(size):
            for y in range(outputs):
                if i != j:
                    table = np.zeros((size, outputs))
                    table[i, y] = 1.0
                    table[j, y] = -np.exp(problem.epsilon * problem.domain.distance(i, j))
                    add(table, none, 0.0)
    for form in forms:
        for g, table in enumerate(form):
            add(table, -np.eye(groups)[g], 0.0)
    loss = problem.weighted_loss
    if budget is not None:
        add(loss, none, budget)
        cost = np.concatenate([np.zeros(entries), np.ones(groups)])
    else:
        add(np.zeros_like(loss), np.ones(groups), limit + shift)
        cost = np.concatenate([loss.ravel(), none])
    sums = np.hstack([np.kron(np.eye(size), np.ones(outputs)), np.zeros((size, groups))])
    least = linprog(
        cost, np.array(rows), most, sums, np.ones(size), bounds=[(0, None)] * (entries + groups)
    ).fun  # fmt: skip
    return least if budget is None else least - shift


def shift_of(problem, name):
    """What makes closeness, which is not negative, of minus an error."""
    return problem.domain.distances().max() if name == "error" else 0.0


def forms_of(problem, name, radius):
    """The forms spelled out from the definitions, as tables."""
    size, outputs, prior = problem.size, problem.outputs_count, problem.prior
    apart = problem.domain.distances()
    gain = {
        "vulnerability": np.eye(size),
        "located": (apart <= (radius or 0)).astype(float),
        "error": apart.max() - apart,
    }[name]
    return [
        [np.where(np.arange(outputs) == y, (prior * gain[w])[:, None], 0.0) for y in range(outputs)]
        for w in range(size)
    ]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", [0, 1])
def test_second_objective_is_the_lps_and_certified(name, seed):
    problem = problem_of(seed)
    radius = 1.5 if name == "located" else None
    first = pm.solve_lp(problem, "all")
    table = pm.second_objective(first, name, 0.03, radius=radius)
    facts = table.details["second"]
    goal = objective(problem, name, radius)
    best = brute_force(
        problem,
        forms_of(problem, name, radius),
        budget=1.03 * first.loss,
        shift=shift_of(problem, name),
    )
    value = goal.value(table.matrix)
    assert facts["value"] == pytest.approx(goal.sign * value)
    # Never below the optimum, and the bound never above it: rigorous on both sides.
    assert value >= best - 1e-7
    bound = goal.sign * facts["bound"]
    assert bound <= best + 1e-9
    assert value == pytest.approx(best, rel=2e-3, abs=1e-5)
    assert bound == pytest.approx(best, rel=2e-3, abs=1e-5)
    assert table.loss <= facts["budget"]
    assert table.lower_bound == first.lower_bound
    assert is_private(problem.domain, table.weights, problem.epsilon)


@pytest.mark.parametrize("name", NAMES)
def test_a_limit_is_kept_at_the_least_loss(name):
    problem = problem_of(2)
    radius = 1.0 if name == "located" else None
    goal = objective(problem, name, radius)
    free = pm.solve_lp(problem, "all")
    common = np.tile(free.matrix.mean(axis=0), (6, 1))
    # Half way from the table without a limit to one that ignores the record.
    limit = 0.5 * (goal.value(common) + goal.value(free.matrix))
    table = pm.limit_attacker(problem, name, goal.sign * limit, radius=radius)
    best = brute_force(
        problem, forms_of(problem, name, radius), limit=limit, shift=shift_of(problem, name)
    )
    assert goal.value(table.matrix) <= limit
    assert best > free.loss * 1.001  # the limit binds
    bound = table.details["limited"]["bound"]
    assert bound <= best + 1e-9
    assert table.loss == pytest.approx(best, rel=2e-3)
    assert bound >= table.loss / 1.002
    # What holds for all private tables does not know of the limit.
    assert table.lower_bound <= free.loss
    assert is_private(problem.domain, table.weights, problem.epsilon)


def test_what_the_attacker_measures_is_what_was_optimised():
    problem = problem_of(3, 8, 8)
    first = pm.solve_lp(problem, "all")
    for then, radius in (("vulnerability", None), ("located", 0.8), ("error", None)):
        table = pm.second_objective(first, then, 0.05, radius=radius)
        seen = pm.attack(table, radii=[0.8])
        measured = {"vulnerability": seen.vulnerability, "located": seen.located[0.8]}
        assert table.details["second"]["value"] == pytest.approx(measured.get(then, seen.error))


def test_refusals_name_the_value_and_the_remedy():
    problem = problem_of(4)
    first = pm.exponential(problem)
    with pytest.raises(MethodError, match="slack is 0"):
        pm.second_objective(first, "vulnerability", 0)
    with pytest.raises(MethodError, match="'speed' is no objective"):
        pm.second_objective(first, "speed", 0.01)
    with pytest.raises(MethodError, match="needs one"):
        pm.second_objective(first, "located", 0.01)
    with pytest.raises(MethodError, match=r"ignores the record.*set the limit above"):
        pm.limit_attacker(problem, "vulnerability", float(problem.prior.max()))
    with pytest.raises(MethodError, match=r"ignores the record.*set the limit below"):
        pm.limit_attacker(problem, "error", 1e6)
    with pytest.raises(MethodError, match="radius is nan"):
        pm.limit_attacker(problem, "located", 0.5, radius=float("nan"))
    with pytest.raises(MethodError, match="'true_place' is no objective"):
        pm.limit_attacker(problem, "true_place", 0.5)


@pytest.mark.parametrize("name", NAMES)
def test_the_first_order_method_brackets_the_optimum(name):
    problem = problem_of(5, 12, 6)
    radius = 1.0 if name == "located" else None
    goal = objective(problem, name, radius)
    table = pm.second_objective(problem, name, 0.05, radius=radius, gap=1e-3, backend="cpu")
    facts = table.details["second"]
    best = brute_force(
        problem,
        forms_of(problem, name, radius),
        budget=facts["budget"],
        shift=shift_of(problem, name),
    )
    bound = goal.sign * facts["bound"]
    assert bound <= best + 1e-9
    assert goal.value(table.matrix) >= best - 1e-7
    assert facts["value"] == pytest.approx(goal.sign * goal.value(table.matrix))
    # Both are near, so neither side of the bracket is idle.
    assert abs(bound - best) <= 0.1 * abs(best)
    assert abs(goal.sign * facts["value"] - best) <= 0.1 * abs(best)
    assert goal.sign * facts["value"] < goal.sign * facts["before"]
    assert table.loss <= facts["budget"]
    assert is_private(problem.domain, table.weights, problem.epsilon)


@pytest.mark.parametrize("backend", ["auto", "cpu"])
@pytest.mark.parametrize("name", NAMES)
def test_bounds_have_a_proof_and_other_numbers_prove_no_more_than_is_so(name, backend, tmp_path):
    problem = problem_of(5, 12, 6)
    radius = 1.0 if name == "located" else None
    sign, forms = objective(problem, name, radius).sign, forms_of(problem, name, radius)
    table = pm.second_objective(problem, name, 0.05, radius=radius, gap=1e-3, backend=backend)
    second, shift = table.details["second"], shift_of(problem, name)
    limit = 0.5 * (second["value"] + second["before"])
    held = pm.limit_attacker(problem, name, limit, radius=radius, gap=1e-3, backend=backend)
    limited = held.details["limited"]
    optima = {
        second["proof"]: brute_force(problem, forms, budget=second["budget"], shift=shift),
        limited["proof"]: brute_force(problem, forms, limit=sign * limit, shift=shift),
    }
    assert sign * second["proof"].value == second["bound"]
    assert limited["proof"].value == limited["bound"]
    rng = np.random.default_rng(1)
    for proof, best in optima.items():
        assert isinstance(proof, Traded) and proof.words == "proved"
        assert 0 <= best + 1e-9 - pickle.loads(pickle.dumps(proof)).value <= 0.1 * abs(best)
        for _ in range(20):
            terms = proof.terms
            values = proof.multipliers.values * rng.lognormal(size=proof.multipliers.values.shape)
            given = replace(proof.multipliers, values=values)
            numbers = terms.numbers * np.append(rng.lognormal(size=(2, 1)), np.ones((2, 3)), 1)
            for changed in (
                replace(terms, weights=rng.random(terms.weights.shape)),
                replace(terms, numbers=numbers),
            ):
                other = replace(proof, terms=changed)
                assert other.value <= best + 1e-9
                assert replace(other, multipliers=given).value <= best + 1e-9
        # It is no bound of the table's loss among all tables.
        with pytest.raises(PrivacyError, match="of another problem"):
            table.with_facts(bound=proof)
    for made, about in ((table, "second"), (held, "limited")):
        again = pm.load(made.save(tmp_path / "t.pmdp")).details[about]
        assert again["proof"].value == made.details[about]["proof"].value
        assert again["bound"] == made.details[about]["bound"]


@pytest.mark.parametrize("name", ["located", "error"])
def test_guesses_between_records_are_in_the_file(name, tmp_path):
    """On the sphere, where places are told in degrees, and bound what they did."""
    rng = np.random.default_rng(3)
    places = 41.8 + 0.05 * rng.random(14), 12.4 + 0.05 * rng.random(14)
    domain = pm.Domain.from_points(*places)
    problem = displacement_problem(domain, range(0, 14, 2), 1.5, rng.dirichlet(np.ones(14)))
    radius = 1.0 if name == "located" else None
    made = pm.second_objective(problem, name, 0.05, radius=radius, gap=1e-3, backend="cpu")
    second = made.details["second"]
    assert len(second["proof"].terms.places) > 0
    again = pm.load(made.save(tmp_path / "t.pmdp")).details["second"]
    assert again["bound"] == second["bound"]
    assert abs(second["value"] / second["bound"] - 1) < 0.01


def test_what_a_file_says_beside_a_proof_is_not_believed(tmp_path):
    """The bound of the notes is replaced by what is derived; without a proof it is a note."""
    problem = problem_of(5, 12, 6)
    made = pm.second_objective(problem, "vulnerability", 0.05, gap=1e-3)
    file = File.of(made.save(tmp_path / "t.pmdp").read_bytes())
    file.header["notes"]["details"]["second"]["bound"] = 0.9
    (tmp_path / "u.pmdp").write_bytes(file.bytes())
    second = pm.load(tmp_path / "u.pmdp").details["second"]
    assert second["bound"] == second["proof"].value == made.details["second"]["bound"]
    # A limit that is another proves less or more of another thing, and never what is untrue.
    file.arrays["term_numbers"][file.arrays["term_kinds"][:, 0] == 0, 1] *= 2
    (tmp_path / "u.pmdp").write_bytes(file.bytes())
    assert pm.load(tmp_path / "u.pmdp").details["second"]["bound"] < second["bound"]
    for name in [name for name in file.arrays if name.startswith("term_")]:
        del file.arrays[name]
    (tmp_path / "u.pmdp").write_bytes(file.bytes())
    assert "proof" not in pm.load(tmp_path / "u.pmdp").details["second"]


@pytest.mark.parametrize("name", NAMES)
def test_a_limit_by_the_first_order_method_brackets_the_least_loss(name):
    problem = problem_of(6, 12, 6)
    radius = 1.0 if name == "located" else None
    goal = objective(problem, name, radius)
    free = pm.solve_lp(problem, "all")
    common = np.tile(free.matrix.mean(axis=0), (12, 1))
    limit = goal.sign * (0.7 * goal.value(free.matrix) + 0.3 * goal.value(common))
    best = brute_force(
        problem,
        forms_of(problem, name, radius),
        limit=goal.sign * limit,
        shift=shift_of(problem, name),
    )
    table = pm.limit_attacker(problem, name, limit, radius=radius, gap=0.02, backend="cpu")
    facts = table.details["limited"]
    assert goal.sign * facts["value"] <= goal.sign * limit
    assert facts["value"] == pytest.approx(goal.sign * goal.value(table.matrix))
    assert facts["bound"] <= best + 1e-9
    assert table.loss >= best - 1e-9
    assert facts["bound"] >= 0.95 * best
    assert table.lower_bound == facts["bound_without"]
    assert table.loss <= 1.05 * best
    assert facts["bound_without"] <= free.loss <= facts["loss_without"]
    assert is_private(problem.domain, table.weights, problem.epsilon)


def test_both_stages_on_another_backend_keep_the_lps_bounds():
    pytest.importorskip("jax")
    problem = problem_of(5, 12, 6)
    table = pm.second_objective(problem, "vulnerability", 0.05, backend="jax")
    facts = table.details["second"]
    forms = forms_of(problem, "vulnerability", None)
    assert table.details["backend"] == "jax"
    assert facts["bound"] <= brute_force(problem, forms, budget=facts["budget"]) + 1e-9
    assert facts["improved"]
    limit = 0.5 * (facts["value"] + facts["before"])
    best = brute_force(problem, forms, limit=limit)
    held = pm.limit_attacker(problem, "vulnerability", limit, gap=0.02, backend="jax")
    assert held.details["limited"]["value"] <= limit
    assert held.details["limited"]["bound"] <= best + 1e-9 <= held.loss + 2e-9


def test_a_limit_that_is_met_anyway_costs_nothing():
    problem = problem_of(5, 12, 6)
    table = pm.limit_attacker(problem, "vulnerability", 0.999, backend="cpu")
    assert table.details["limited"]["stopped"] == "met without it"
    assert table.gap <= 0.01


@pytest.mark.parametrize("name", NAMES)
def test_any_weights_bound_the_objective_from_below(name):
    """`below` of arbitrary weights never exceeds v on arbitrary tables."""
    problem = problem_of(7, 9, 5)
    rng = np.random.default_rng(0)
    goal = objective(
        problem, name, 1.0 if name == "located" else None, rng.dirichlet(np.ones(5), 9)
    )
    forms = goal
    for _ in range(40):
        table = rng.dirichlet(0.3 * np.ones(5), 9)
        weights = rng.dirichlet(0.3 * np.ones(len(forms.forward(table))), 5).T
        # Weights of a group may sum to anything.
        for size in (1.0, 0.3, 4.0):
            below = (forms.below(size * weights) * table).sum()
            assert below <= goal.value(table) + 1e-12
        # The eigenvalues behind the steps, where all forms of a group are held.
        assert goal.value(table) == pytest.approx(
            -quantity(problem, name, 1.0 if name == "located" else None, table)
            if name == "error"
            else quantity(problem, name, 1.0 if name == "located" else None, table)
        )


@pytest.mark.parametrize("kind", ["euclidean", "haversine"])
def test_held_guesses_follow_the_best_ones(kind):
    domain = random_domain(kind, 60, 8)
    problem = displacement_problem(domain, range(4), 1.0)
    rng = np.random.default_rng(1)
    forms = Guesses.around(problem, rng.dirichlet(np.ones(4), 60))
    weights = rng.dirichlet(np.ones(forms.guesses), 4).T
    table = rng.dirichlet(0.2 * np.ones(4), 60)
    off = best_guesses(domain, problem.prior[:, None] * table)[1]
    at_records = (domain.distances() @ (problem.prior[:, None] * table)).min(axis=0)
    assert (off <= at_records * (1 + 1e-12)).all()
    if kind == "euclidean":
        # Nothing lies between records there.
        assert off == pytest.approx(at_records)
    held = -forms.moved(table, weights).forward(table).max(axis=0)
    assert (held <= off * (1 + 1.1e-4)).all() and (held >= off * (1 - 1e-6)).all()
    assert forms.value(table) == pytest.approx(-off.sum(), rel=1e-5)
    seen = pm.attack(pm.NoGuarantee.from_matrix(problem, table), radii=())
    assert seen.error == pytest.approx(off.sum(), rel=1e-9)


@pytest.mark.parametrize("backend", ["auto", "cpu"])
def test_an_error_is_that_of_guesses_anywhere(backend):
    """Who points between the records is caught: a floor of the error holds for him too."""
    domain = random_domain("haversine", 12, 4)
    problem = displacement_problem(domain, range(6), 0.2)
    free = pm.optimal(problem, backend=backend)
    before, prior = pm.attack(free, radii=()).error, pm.attack(free, radii=()).prior_error
    asked = 0.7 * before + 0.3 * prior
    table = pm.limit_attacker(problem, "error", asked, gap=0.05, backend=backend)
    facts = table.details["limited"]
    assert (
        pm.attack(table, radii=()).error == pytest.approx(facts["value"])
        and facts["value"] >= asked
    )
    # Records alone as guesses need no more loss: what bounds that bounds this.
    apart = domain.distances()
    forms = [
        [
            np.where(np.arange(6) == y, (problem.prior * (apart.max() - apart[w]))[:, None], 0.0)
            for y in range(6)
        ]
        for w in range(12)
    ]
    at_records = brute_force(problem, forms, limit=-asked, shift=apart.max())
    assert at_records <= table.loss * (1 + 1e-9) and facts["bound"] <= table.loss
    assert table.loss <= 1.06 * facts["bound"]
    better = pm.second_objective(problem, "error", 0.1, backend=backend)
    told = better.details["second"]
    assert pm.attack(better, radii=()).error == pytest.approx(told["value"])
    assert told["before"] < told["value"] <= told["bound"] * (1 + 1e-9)


def test_the_second_stage_ends_after_the_work_it_is_granted():
    problem = problem_of(5, 12, 6)
    first, before = first_table(problem, "cpu", Budget(0.01))
    goal = objective(problem, "vulnerability", None, first.matrix)
    limit = Limit(goal, first, 1.02 * first.loss)
    for solver in (before.iterates, None):
        descent = Descent(limit, solver)
        solved = certify(descent, Budget(1e-9, iterations=200))
        assert (solved.stopped, descent.iterations) == ("iterations", 200)
    # Without the solver of the first stage its multipliers are worked out again.


def test_a_mixture_meets_a_convex_limit_with_nearly_the_least_share():
    problem = problem_of(9, 12, 6)
    goal = objective(problem, "vulnerability")
    table, safe = pm.exponential(problem).matrix, np.full((12, 6), 1 / 6)
    low, high = goal.value(safe), goal.value(table)
    for share in (0.1, 0.5, 0.9):
        most = low + share * (high - low)
        mixed = mixture(table, safe, goal.value, most)
        assert most - 0.02 * (high - low) <= goal.value(mixed) <= most
        part = (mixed - safe)[table != safe] / (table - safe)[table != safe]
        assert part == pytest.approx(part[0])
    assert mixture(table, safe, goal.value, high) is table
    assert mixture(table, safe, goal.value, low) is safe


@pytest.mark.parametrize("name", ["error", "located"])
def test_a_limit_ends_on_both_sides_of_itself(name):
    """Two tables of the search are mixed: a row common to all costs many times more."""
    domain = random_domain("euclidean", 60, 3)
    problem = displacement_problem(domain, range(12), 2.0)
    radius = 0.5 if name == "located" else None
    free = pm.optimal(problem, gap=1e-3, backend="cpu")
    common = np.tile(free.matrix.mean(axis=0), (60, 1))
    ends = (quantity(problem, name, radius, table) for table in (free.matrix, common))
    limit = float(np.dot([0.7, 0.3], list(ends)))
    table = pm.limit_attacker(problem, name, limit, radius=radius, gap=0.02, backend="cpu")
    facts = table.details["limited"]
    assert table.loss <= 1.02 * facts["bound"]
    assert facts["stopped"] == "gap reached"
    assert facts["bound"] > free.loss  # the limit binds


def test_simplex_projection_is_the_nearest_point():
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(5, 40))
    near = onto_simplex(columns)
    assert near.min() >= 0
    assert near.sum(axis=0) == pytest.approx(1, abs=1e-12)
    others = rng.dirichlet(np.ones(5), size=4000)
    for column, point in zip(columns.T, near.T, strict=True):
        assert ((column - point) ** 2).sum() <= ((others - column) ** 2).sum(axis=1).min() + 1e-12


def test_simplex_projection_of_large_numbers_keeps_its_sum():
    columns = np.array([[1e15, -1e300, 1e15 + 0.25], [1e15, 3.0, 1e15], [-1e15, 2.5, -1e300]])
    expected = [[0.5, 0.0, 0.625], [0.5, 0.75, 0.375], [0.0, 0.25, 0.0]]
    assert onto_simplex(columns) == pytest.approx(np.array(expected))


def test_both_stages_tell_where_they_stand():
    problem = problem_of(5, 12, 6)
    free = quantity(problem, "vulnerability", None, pm.optimal(problem, backend="cpu").matrix)
    seen: list[Progress] = []
    options = {"backend": "cpu", "progress": seen.append}
    pm.second_objective(problem, "error", **options)
    assert any("error" in now.note and "loss" in now.note for now in seen)
    seen.clear()
    pm.limit_attacker(problem, "vulnerability", 0.9 * free, **options)
    assert any("loss" in now.note for now in seen)


@pytest.mark.parametrize("backend", ["auto", "cpu"])
def test_a_loss_of_nothing_leaves_the_first_table_or_a_better_one(backend):
    problem = problem_of(5, 12, 6)
    free = pm.Problem(problem.domain, problem.outputs, 0 * problem.loss, problem.epsilon)
    table = pm.second_objective(free, "vulnerability", backend=backend)
    facts = table.details["second"]
    assert table.loss == facts["budget"] == 0
    assert facts["value"] <= facts["before"]


@pytest.mark.parametrize("epsilon", [4.0, 6.0])
def test_a_budget_below_any_tolerance_is_kept(epsilon):
    """Three records 5 apart: of a table that loses l no attacker is right less than 1 - l / 5."""
    corners = np.array([[0.0, 0.0], [5.0, 0.0], [2.5, 2.5 * np.sqrt(3)]])
    problem = displacement_problem(pm.Domain.from_vectors(corners), range(3), epsilon)
    for name, radius in (("vulnerability", None), ("located", 1.0), ("error", None)):
        table = pm.second_objective(problem, name, 0.05, radius=radius)
        facts = table.details["second"]
        assert table.loss <= facts["budget"] < 1e-7
        sign = -1 if name == "error" else 1
        assert sign * facts["bound"] <= sign * facts["value"] <= sign * facts["before"]
        if name != "error":
            assert 1 - facts["value"] <= facts["budget"] / 5 * (1 + 1e-6)
            assert facts["bound"] > 1 - 1e-6


def wild_problem(seed: int) -> pm.Problem:
    """Losses from 1e-12 to 1e12, epsilon from 1e-6 to 50, records at any distances."""
    rng = np.random.default_rng(seed)
    size, outputs = rng.integers(2, 9, 2)
    points = rng.normal(size=(size, 2)) * 10.0 ** rng.uniform(-3, 3, (size, 1))
    scale = rng.uniform(-12, 12, [(size, outputs), (1, outputs), (1, 1)][seed % 3])
    loss = np.broadcast_to(10.0**scale, (size, outputs)) * rng.random((size, outputs))
    prior = rng.dirichlet(np.full(size, 0.3))
    reports = pm.Outputs.labels([f"report {y}" for y in range(outputs)])
    epsilon = 10.0 ** rng.uniform(-6, 1.7)
    return pm.Problem(pm.Domain.from_vectors(points), reports, loss, epsilon, prior=prior)


@pytest.mark.filterwarnings("ignore::panda_mdp.errors.ScaleWarning")
@pytest.mark.filterwarnings("ignore::panda_mdp.errors.GapWarning")
@pytest.mark.parametrize(
    ("seed", "backend"), [*((s, "auto") for s in range(12)), *((s, "cpu") for s in range(12, 15))]
)
def test_no_scale_of_losses_ends_in_an_error(seed, backend):
    problem = wild_problem(seed)
    radius = 0.3 * problem.domain.diameter
    first = pm.optimal(problem, backend=backend)
    assert first.loss <= 1.01 * problem.mean_loss.min()
    for name, within in (("vulnerability", None), ("located", radius), ("error", None)):
        sign = -1 if name == "error" else 1
        table = pm.second_objective(first, name, 0.05, radius=within, backend=backend)
        facts = table.details["second"]
        assert table.loss <= facts["budget"]
        assert sign * facts["value"] <= sign * facts["before"]
        assert sign * facts["bound"] <= sign * facts["value"] + 1e-9 * abs(facts["value"])
        alike = np.full(problem.loss.shape, 1 / problem.outputs_count)
        ends = [quantity(problem, name, within, z) for z in (alike, first.matrix)]
        if sign * ends[0] < sign * ends[1] * (1 - sign * 1e-6):
            limit = float(np.mean(ends))
            held = pm.limit_attacker(problem, name, limit, radius=within, backend=backend)
            facts = held.details["limited"]
            assert sign * facts["value"] <= sign * limit
            assert facts["bound"] <= held.loss * (1 + 1e-9)


def test_guesses_that_are_stored_shortly_bound_from_below():
    """Distances in single precision err either way; what is below v is lower than they are."""
    problem = problem_of(7, 12, 6)
    apart = problem.domain.distances()
    goal = objective(problem, "error")
    for guess in range(12):
        shares = np.zeros((12, 6))
        shares[guess] = 1.0
        exact = -problem.prior * apart[guess]
        below = goal.below(shares)
        assert (below <= exact[:, None]).all()
        assert np.allclose(below, exact[:, None], rtol=1e-6)


@pytest.mark.parametrize("on_loss", [True, False])
def test_a_bound_under_a_limit_is_rounded_down(on_loss):
    goal = objective(problem_of(1), "vulnerability")
    rng = np.random.default_rng(4)
    for most, price, rate, least in rng.random((200, 4)):
        trade = Trade(on_loss, most, goal, np.zeros((0, 0)), price, rate)
        limited, free = (rate, price) if on_loss else (price, rate)
        exact = (Fraction(least) - Fraction(limited) * Fraction(most)) / Fraction(free)
        assert exact * Fraction(1) - Fraction(1e-13) / Fraction(free) <= Fraction(
            trade.bound(least)
        )
        assert Fraction(trade.bound(least)) < exact


def test_two_solves_share_the_time():
    assert halved(Budget(0.1, 8.0)) == Budget(0.1, 4.0)
    assert halved(Budget(0.1)).time_limit is None


def test_a_limit_costs_no_less_than_none():
    """However early its own solve ends, what is proved without the limit holds under it too."""
    problem = problem_of(6, 12, 6)
    made = pm.limit_attacker(problem, "vulnerability", 0.4, backend="cpu", time_limit=1e-9)
    limited = made.details["limited"]
    assert limited["bound"] >= limited["bound_without"] == made.lower_bound > 0


def test_a_bound_of_every_point_is_none_of_the_records():
    table = averaged(False)
    assert table.bound is not None
    made = pm.second_objective(table, "error", 0.01, backend="cpu")
    assert made.mesh is None and made.bound is None and made.details["second"]["improved"]
