"""Tables made for estimating: against subset selection, and against their own weights."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from examples_loaded import load
from scipy.optimize import linprog

import panda_mdp as pm
from panda_mdp.base.threads import within
from panda_mdp.errors import InvalidInputError, MethodError, TimeLimitError
from panda_mdp.meaning.estimate import estimate_counts

EXAMPLE = load("tables_for_estimating")
least_variance, information = EXAMPLE.least_variance, EXAMPLE.information
SIDE = 3
XY = np.stack(np.meshgrid(np.arange(SIDE), np.arange(SIDE)), axis=-1).reshape(-1, 2) * 0.4
GRID = pm.Domain.from_vectors(XY)
ZONES = ((XY[:, 0] > 0.5).astype(int) + 2 * (XY[:, 1] > 0.5).astype(int)).tolist()


@pytest.fixture(scope="module")
def made() -> pm.Mechanism:
    return least_variance(GRID, ZONES, 3.0)


def variance(matrix: np.ndarray, zones: np.ndarray) -> float:
    """Of a report, by unbiased weights: sum_y q_y |w_y|^2 less the square of what is estimated."""
    prior = np.full(len(matrix), 1 / len(matrix))
    wanted, chance = zones - prior @ zones, prior @ matrix
    told = (matrix / chance) @ matrix.T
    weights = np.linalg.solve(told, wanted).T @ (matrix / chance)
    np.testing.assert_allclose(matrix @ weights.T, wanted, atol=1e-6)
    return float(chance @ np.square(weights).sum(axis=0))


def subset_selection(count: int, size: int, epsilon: float) -> np.ndarray:
    """Every record reports a set of `size`; one with the record is e^epsilon times as likely."""
    sets = list(itertools.combinations(range(count), size))
    table = np.array([[math.exp(epsilon) if x in s else 1.0 for s in sets] for x in range(count)])
    return table / table.sum(axis=1, keepdims=True)


def test_where_all_are_equally_far_it_finds_subset_selection() -> None:
    """The optimum there (Ye and Barg, 2018); randomised response is 24 % worse."""
    count, epsilon = 8, 1.0
    domain = pm.Domain.from_matrix(1.0 - np.eye(count))
    best = min(variance(subset_selection(count, k, epsilon), np.eye(count)) for k in (1, 2, 3))
    response = variance(subset_selection(count, 1, epsilon), np.eye(count))
    table = least_variance(domain, list(range(count)), epsilon)
    found = table.details["variance"]
    assert best * (1 - 1e-6) <= found <= 1.04 * best < 0.85 * response


def test_its_variance_is_that_of_unbiased_weights_and_far_below_others(made: pm.Mechanism) -> None:
    table = made
    zones = np.eye(4)[ZONES]
    found = variance(np.array(table.matrix), zones)
    assert found == pytest.approx(table.details["variance"], rel=1e-6)
    assert table.audit.holds
    problem = pm.Problem(GRID, np.arange(GRID.size), GRID.distances(), 3.0)
    for other in (pm.exponential(problem), pm.tight_constraints(problem), pm.optimal(problem)):
        assert found < 0.8 * variance(np.array(other.matrix) + 1e-12, zones)
    # What a report adds to the truth's own variance.
    prior = np.full(GRID.size, 1 / GRID.size)
    own = float(prior @ np.square(zones - prior @ zones).sum(axis=1))
    assert table.loss == pytest.approx(found - own, rel=1e-2)


@pytest.mark.parametrize(
    ("count", "epsilon", "near"), [(2, 1.0, 0.98), (8, 1.0, 0.98), (16, 2.0, 0.9)]
)
def test_no_table_has_less_than_the_bound(count: int, epsilon: float, near: float) -> None:
    """Where all are equally far the optimum is known, and the bound is near it."""
    domain = pm.Domain.from_matrix(1.0 - np.eye(count))
    sizes = range(1, 4 if count > 2 else 2)
    best = min(variance(subset_selection(count, k, epsilon), np.eye(count)) for k in sizes)
    least = least_variance(domain, list(range(count)), epsilon).details["at_least"]
    assert near * best <= least <= best


def test_the_bound_on_a_map_is_below_all_that_is_found(made: pm.Mechanism) -> None:
    """Mixtures of the best table and of others are tables too."""
    least, zones = made.details["at_least"], np.eye(4)[ZONES]
    assert 0.4 * made.details["variance"] <= least < made.details["variance"]
    other = np.array(pm.tight_constraints(
        pm.Problem(GRID, np.arange(GRID.size), GRID.distances(), 3.0)
    ).matrix)  # fmt: skip
    for part in (0.0, 0.2, 0.5, 1.0):
        mixed = np.hstack([part * other + 1e-12, (1 - part) * made.matrix + 1e-12])
        assert variance(mixed / mixed.sum(axis=1, keepdims=True), zones) > least


def least_read_so(table: pm.Mechanism, zones: np.ndarray) -> float:
    """The least variance of unbiased tables whose report y is read as the table's: one LP."""
    size, prior = len(zones), np.full(len(zones), 1 / len(zones))
    wanted, chance = zones - prior @ zones, prior @ table.matrix
    matrix = np.array(table.matrix)[:, chance > 0]
    columns = matrix / chance[chance > 0]
    told = information(columns, chance[chance > 0])
    readings = np.linalg.solve(told, wanted).T @ columns
    count = readings.shape[1]
    cost = np.tile(np.square(readings).sum(axis=0), size) / size
    sums = np.kron(np.eye(size), np.vstack([readings, np.ones(count)]))
    right = np.hstack([wanted, np.ones((size, 1))]).reshape(-1)
    odds = np.exp(table.epsilon * table.problem.domain.distances())
    private = np.vstack(
        [
            np.kron(np.eye(size)[x] - odds[x, other] * np.eye(size)[other], np.eye(count))
            for x, other in itertools.permutations(range(size), 2)
        ]
    )
    found = linprog(cost, private, np.zeros(len(private)), sums, right, method="highs")
    assert found.status == 0
    return float(found.fun)


@pytest.mark.parametrize(("count", "metric"), [(5, "equal"), (6, "line"), (9, "grid")])
def test_no_table_that_is_read_so_has_less_than_its_bound(count: int, metric: str) -> None:
    """By the whole linear program; the bound of one step is near it."""
    line = pm.Domain.from_vectors(0.4 * np.arange(count)[:, None])
    domain = {"equal": pm.Domain.from_matrix(1.0 - np.eye(count)), "line": line, "grid": GRID}
    zones = ZONES if metric == "grid" else [k // 2 for k in range(count)]
    table = least_variance(domain[metric], zones, 3.0)
    least = least_read_so(table, np.eye(max(zones) + 1)[zones])
    told = table.details
    assert told["at_least"] <= told["read_so"] <= least * (1 + 1e-7)
    assert least <= told["variance"] * (1 + 1e-6) and told["read_so"] > 0.9 * told["variance"]


def test_estimates_read_it(made: pm.Mechanism) -> None:
    """Limits of 95 % hold in 160 zones of 40 surveys but for what chance allows (11 in 10^3)."""
    truth = np.random.default_rng(0).dirichlet(np.full(GRID.size, 0.5))
    shares, rng = truth @ np.eye(4)[ZONES], np.random.default_rng(1)
    surveys = [rng.multinomial(20_000, truth @ made.matrix) for _ in range(40)]
    found = estimate_counts(surveys, made, ZONES, windows=range(40))
    held = (found.low <= shares) & (shares <= found.high)
    assert held.sum() >= 145
    assert (found.high - found.low).mean() < 0.1


def test_numbers_instead_of_zones_and_a_prior() -> None:
    ages = pm.Domain.from_values([20, 30, 40, 50], unit="years")
    prior = [0.4, 0.3, 0.2, 0.1]
    table = least_variance(ages, np.array([[20.0], [30.0], [40.0], [50.0]]), 0.1, prior=prior)
    weighted = np.array(table.problem.prior)
    chance = weighted @ table.matrix
    some = chance > 0
    told = information(table.matrix[:, some] / chance[some], chance[some])
    centred = np.array([20.0, 30.0, 40.0, 50.0]) - weighted @ [20, 30, 40, 50]
    assert table.details["variance"] == pytest.approx(centred @ np.linalg.solve(told, centred))


def test_the_best_columns_may_be_fewer_than_the_records() -> None:
    sides = [k // 5 for k in range(SIDE**2)]
    table = least_variance(GRID, sides, 3.0)
    assert table.audit.holds
    # Nothing says less than the record itself, with which shares of two sides vary by 20/81 each.
    assert 40 / 81 <= table.details["variance"] < 4


def test_an_end_of_time_or_an_interrupt_leaves_the_best_so_far() -> None:
    """And nothing where there is none yet."""
    seen: list[float] = []

    def stop(number: int, variance: float) -> None:
        seen.append(variance)
        raise KeyboardInterrupt

    table = least_variance(GRID, ZONES, 3.0, progress=stop)
    assert len(seen) == 1 and table.audit.holds
    assert table.details["variance"] == pytest.approx(seen[0], rel=1e-2)
    whole = least_variance(GRID, ZONES, 3.0, progress=lambda _, variance: seen.append(variance))
    assert len(seen) > 3 and whole.details["variance"] < seen[0]
    with pytest.raises(TimeLimitError):
        least_variance(GRID, ZONES, 3.0, time_limit=0.0)


def test_shares_are_not_set_anew_when_time_is_over() -> None:
    columns, shares = np.eye(3) * 3, np.full(3, 1 / 3)
    with within(-1.0), pytest.raises(TimeLimitError):
        EXAMPLE.reweighted(columns, shares, np.eye(3))


@pytest.mark.parametrize(
    ("statistics", "prior", "said"),
    [
        (np.ones((3, 1)), None, "9 records with statistics of"),
        (ZONES, [1.0, *[0.0] * 8], "a prior above 0 everywhere"),
        ([0] * 9, None, "variance over the records is .* at least two"),
        (np.full((9, 1), 0.1), None, "not the same for all records"),
        (np.full((9, 1), np.nan), None, "is nan: it is to be from"),
        (np.arange(9.0)[:, None] * 1e200, None, "is inf: .* give finite statistics"),
        (np.arange(9.0)[:, None] * 1e-200, None, "is 0: .* in another unit"),
    ],
)
def test_what_does_not_fit_is_refused(statistics: object, prior: object, said: str) -> None:
    with pytest.raises(InvalidInputError, match=said):
        least_variance(GRID, statistics, 3.0, prior=prior)


def test_an_epsilon_at_which_nothing_is_told_is_refused() -> None:
    line = pm.Domain.from_vectors(np.arange(8.0)[:, None])
    with pytest.raises(MethodError, match=r"at epsilon=1e-06, .*; raise epsilon"):
        least_variance(line, [0] * 4 + [1] * 4, 1e-6)
