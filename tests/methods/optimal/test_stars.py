"""The star certificate against the LP over all pairs, and the closed form as integers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import scipy

import panda_mdp as pm
from panda_mdp.base.factored import FactoredRows
from panda_mdp.errors import PrivacyError
from panda_mdp.loss import DistanceLoss
from panda_mdp.methods.optimal.stars import Stars, factored
from panda_mdp.methods.words import field_table
from panda_mdp.privacy.audit import audit_weights
from panda_mdp.table.bound import Prices, Proved, star_prices


def exact_optimum(problem: pm.Problem) -> float:
    """The LP over all pairs by HiGHS."""
    size, count = problem.size, problem.outputs_count
    first, second = np.nonzero(~np.eye(size, dtype=bool))
    growth = np.exp(problem.epsilon * problem.domain.distances()[first, second])
    scale = 1 / np.sqrt(growth)
    row = np.arange(len(first) * count).reshape(-1, count)
    column = np.arange(count)
    entries = np.concatenate([np.repeat(scale, count), -np.repeat(scale * growth, count)])
    places = [(k[:, None] * count + column).ravel() for k in (first, second)]
    rows = scipy.sparse.csr_array(
        (entries, (np.tile(row.ravel(), 2), np.concatenate(places))),
        shape=(row.size, size * count),
    )
    sums = scipy.sparse.kron(scipy.sparse.eye_array(size), np.ones((1, count))).tocsr()
    cost = problem.weighted_loss.ravel()
    unit = cost.mean()
    found = scipy.optimize.linprog(
        cost / unit,
        A_ub=rows,
        b_ub=np.zeros(row.size),
        A_eq=sums,
        b_eq=np.ones(size),
        method="highs",
    )
    assert found.status == 0
    return float(found.fun * unit)


def random_problem(seed: int, epsilon: float, kind: str = "vectors") -> pm.Problem:
    """Twelve records by vectors or by the shortest paths of a random graph, with any prior."""
    rng = np.random.default_rng(seed)
    if kind == "matrix":
        raw = np.triu(rng.uniform(1, 4, (12, 12)), 1)
        paths = scipy.sparse.csgraph.floyd_warshall(raw + raw.T)
        domain = pm.Domain.from_matrix(paths)
    else:
        domain = pm.Domain.from_vectors(rng.normal(size=(12, 8)))
    outputs = rng.permutation(12)
    loss = domain.distances(None, outputs) ** rng.uniform(0.5, 2)
    return pm.Problem(domain, outputs, loss, epsilon, prior=rng.dirichlet(np.full(12, 3.0)))


CASES = [
    (seed, eps, kind) for seed, kind in enumerate(("vectors", "matrix")) for eps in (0.3, 1.0, 2.5)
]


@pytest.mark.parametrize(("seed", "epsilon", "kind"), CASES)
def test_no_bound_exceeds_the_optimum(seed: int, epsilon: float, kind: str) -> None:
    problem = random_problem(seed, epsilon, kind)
    optimum = exact_optimum(problem)
    assert Proved(problem, Prices(Stars(problem).prices)).value <= optimum * (1 + 1e-7)
    # Any prices prove something true.
    rng = np.random.default_rng(9)
    for _ in range(20):
        wild = rng.normal(size=problem.size) * optimum
        assert Proved(problem, Prices(wild)).value <= optimum * (1 + 1e-7)


@pytest.mark.parametrize(("seed", "epsilon", "kind"), CASES)
def test_the_closed_form_is_optimal_just_where_the_certificate_says_so(
    seed: int, epsilon: float, kind: str
) -> None:
    problem = random_problem(seed, epsilon, kind)
    stars, optimum = Stars(problem), exact_optimum(problem)
    proved = Proved(problem, Prices(stars.prices)).value
    if says_yes(stars):
        assert proved == pytest.approx(optimum, rel=1e-6)
        assert pm.tight_constraints(problem).loss == pytest.approx(optimum, rel=1e-5)
    else:
        assert proved < optimum * (1 - 1e-4)


def says_yes(stars: Stars) -> bool:
    """What the certificate asks for: no share below 0, and no price above what another record's
    output costs."""
    others = stars.cost + np.diag(np.full(len(stars.cost), np.inf))
    return bool(stars.shares.min() >= 0 and (stars.prices <= others.min(axis=1)).all())


def test_both_answers_occur() -> None:
    assert {says_yes(Stars(random_problem(*case))) for case in CASES} == {True, False}


def test_outputs_that_are_no_records_have_the_cheapest_record_as_their_centre() -> None:
    rng = np.random.default_rng(3)
    domain = pm.Domain.from_vectors(rng.normal(size=(9, 5)))
    outputs = pm.Outputs.labels([f"report {k}" for k in range(4)])
    problem = pm.Problem(domain, outputs, rng.uniform(0, 3, (9, 4)), 0.8)
    optimum = exact_optimum(problem)
    for _ in range(30):
        prices = rng.normal(size=9) * optimum / 3
        assert Proved(problem, Prices(prices)).value <= optimum * (1 + 1e-7)
    free = problem.weighted_loss.min(axis=1)
    assert Proved(problem, Prices(free)).value == pytest.approx(free.sum())


def test_lowered_prices_keep_the_certificate_in_exact_arithmetic() -> None:
    from fractions import Fraction

    problem = random_problem(0, 1.0)
    prices = star_prices(problem, np.full(problem.size, 9.0))
    cost = [
        [Fraction(p) * Fraction(c) for c in row]
        for p, row in zip(problem.prior.tolist(), problem.loss.tolist(), strict=True)
    ]
    distance = problem.domain.distances()
    for y, k in enumerate(problem.outputs.tolist()):
        spare = [cost[x][y] - Fraction(float(prices[x])) for x in range(problem.size)]
        assert all(s >= 0 for x, s in enumerate(spare) if x != k)
        # A millionth of a millionth less than the exponential that float64 gives.
        lent = [
            Fraction(float(np.exp(-problem.epsilon * d))) * Fraction(10**12 - 1, 10**12)
            for d in distance[:, k]
        ]
        others = sum(s * e for x, (s, e) in enumerate(zip(spare, lent, strict=True)) if x != k)
        assert spare[k] + others >= -Fraction(1, 10**11) * abs(Fraction(float(prices[k])))


def word_like(size: int, seed: int = 0) -> pm.Domain:
    """Vectors of 30 dimensions, about 8 apart, so that peaks fill every row at epsilon 1.5."""
    rng = np.random.default_rng(seed)
    return pm.Domain.from_vectors(rng.normal(size=(size, 30)))


def test_factors_are_private_over_all_pairs_and_next_to_optimal() -> None:
    domain = word_like(60)
    order = np.random.default_rng(1).permutation(60)
    problem = pm.Problem(domain, order, domain.distances(None, order), 1.5)
    made, _ = factored(problem)
    assert made is not None and isinstance(made.weights, FactoredRows)
    dense = np.asarray(made.weights)
    assert (dense.sum(axis=1) == 1 << 62).all()
    seen = audit_weights(domain, problem.outputs, dense, problem.epsilon)
    # What is stated for the factors covers what the audit over all pairs finds.
    assert seen.epsilon <= made.audit.epsilon <= problem.epsilon
    assert made.audit.epsilon >= problem.epsilon * (1 - 1e-4)
    proof = Proved(problem, Prices(Stars(problem).prices))
    assert proof.value <= made.loss <= proof.value * (1 + 1e-3)
    assert made.loss == pytest.approx(problem.expected_loss(dense / 2.0**62))
    assert made.row(7) == pytest.approx(dense[7] / 2.0**62)
    drawn = made.simulate(0).sample(np.full(4000, 7))
    shares = np.bincount(drawn, minlength=60)[order] / 4000
    assert np.abs(shares - made.row(7)).max() < 0.05


def test_factors_that_leak_are_refused() -> None:
    domain = word_like(40)
    problem = pm.Problem(domain, np.arange(40), domain.distances(), 1.5)
    made, _ = factored(problem)
    assert made is not None and isinstance(made.weights, FactoredRows)
    rows = made.weights
    parts = {name: getattr(rows, name) for name in FactoredRows.__dataclass_fields__}
    steeper = FactoredRows(**(parts | {"rate": int(rows.rate * 1.001)}))
    with pytest.raises(PrivacyError, match=r"not 1\.5-mDP"):
        pm.Mechanism(problem, steeper, "given")
    uneven = rows.peaks.copy()
    uneven[3] //= 2
    # A row that is short gives the rest to one entry: the ratio of that entry counts.
    with pytest.raises(PrivacyError, match=r"not 1\.5-mDP"):
        pm.Mechanism(problem, FactoredRows(**(parts | {"peaks": uneven})), "given")
    heavy = np.minimum(rows.peaks * 2, 1 << 31)
    with pytest.raises(PrivacyError, match="exceeds"):
        pm.Mechanism(problem, FactoredRows(**(parts | {"peaks": heavy})), "given")
    with pytest.raises(PrivacyError, match=r"not 1\.5-mDP"):
        other = pm.Problem(word_like(40, seed=5), np.arange(40), domain.distances(), 1.5)
        pm.Mechanism(other, rows, "given")


def test_optimal_ends_with_the_closed_form_without_an_iteration() -> None:
    domain = word_like(80)
    problem = pm.Problem(domain, np.arange(80), domain.distances(), 1.5)
    best = pm.optimal(problem, gap=1e-3, backend="cpu")
    assert best.details["iterations"] == 0
    assert isinstance(best.bound, Proved) and isinstance(best.bound.multipliers, Prices)
    assert best.gap is not None and best.gap < 1e-5
    assert best.loss <= pm.tight_constraints(problem).loss * (1 + 1e-6)


def test_files_of_factors_come_back_and_prove_their_bound(tmp_path: Path) -> None:
    domain = word_like(50)
    problem = pm.Problem(domain, np.arange(50), domain.distances(), 1.5)
    made, _ = factored(problem)
    assert made is not None
    proof = Proved(problem, Prices(Stars(problem).prices))
    whole = made.with_facts(bound=proof)
    read = pm.load(whole.save(tmp_path / "words.pmdp"))
    assert isinstance(read, pm.Mechanism)
    assert isinstance(read.weights, FactoredRows)
    assert read.identity == whole.identity
    assert read.lower_bound == whole.lower_bound
    assert isinstance(read.bound, Proved)
    assert np.array_equal(np.asarray(read.weights), np.asarray(made.weights))


@pytest.mark.parametrize("device", [False, True])
@pytest.mark.parametrize("power", [1.0, 2.0])
def test_systems_in_blocks_and_on_a_device_give_shares_and_prices(
    device: bool, power: float
) -> None:
    if device:
        pytest.importorskip("jax")
    domain, order = word_like(70), np.random.default_rng(2).permutation(70)
    loss = DistanceLoss(domain, order, power)
    problem = pm.Problem(domain, order, loss, 1.5, prior=np.arange(1.0, 71) / 2485)
    made, prices = factored(problem, device)
    assert made is not None and prices is not None
    exact = scipy.linalg.solve(np.exp(-1.5 * domain.distances()), np.ones(70))
    assert np.diag(made.matrix[:, np.argsort(order)]) == pytest.approx(exact, rel=1e-3)
    wanted = Stars(problem).prices
    assert prices == pytest.approx(wanted, rel=1e-3, abs=1e-3 * wanted.max())
    bound = Proved(problem, Prices(prices)).value
    assert made.loss * (1 - 3e-3) <= bound <= made.loss


def test_peaks_that_do_not_fill_are_no_table() -> None:
    domain = word_like(70)
    problem = pm.Problem(domain, np.arange(70), domain.distances(), 0.3)
    assert Stars(problem).shares.min() < 0
    assert factored(problem)[0] is None


@pytest.mark.filterwarnings("ignore::panda_mdp.errors.GapWarning")
@pytest.mark.filterwarnings("ignore::scipy.linalg.LinAlgWarning")
@pytest.mark.parametrize("least", [1e-9, 1e-12, 1e-300])
def test_a_prior_that_is_nearly_all_at_one_record_ends_with_a_table(least: float) -> None:
    domain = pm.Domain.from_vectors(np.random.default_rng(1).normal(size=(60, 4)))
    prior = np.full(60, least)
    prior[0] = 1 - prior[1:].sum()
    outputs = np.arange(60)
    problem = pm.Problem(domain, outputs, domain.distances(), 0.5, prior=prior)
    table = pm.optimal(problem, backend="cpu", time_limit=3)
    assert table.audit.holds and table.lower_bound <= table.loss


@pytest.mark.filterwarnings("ignore::panda_mdp.errors.GapWarning")
@pytest.mark.parametrize("epsilon", [0.4, 1.0, 2.0])
def test_optimal_loses_no_more_than_any_closed_form(epsilon: float) -> None:
    """However little time it has: what follows from a formula is at hand."""
    domain = word_like(60)
    problem = pm.Problem(domain, np.arange(60), domain.distances(), epsilon)
    best = pm.optimal(problem, gap=1e-6, backend="cpu", time_limit=2)
    forms = [pm.exponential(problem), pm.exponential(problem, tight=True)]
    forms.append(field_table("tem", problem))
    if Stars(problem).shares.min() >= 0:
        forms.append(pm.tight_constraints(problem))
    assert all(form.audit.holds for form in forms)
    least = min(problem.mean_loss.min(), *(form.loss for form in forms))
    assert best.loss <= least * (1 + 1e-6)
