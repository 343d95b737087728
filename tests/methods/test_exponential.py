"""The exponential mechanism, tight exponents, and the exponential mechanism over the loss."""

from __future__ import annotations

import numpy as np
import pytest

from panda_mdp import Domain, Problem, exponential, loss_exponential
from panda_mdp.errors import MethodError
from panda_mdp.methods.closed_forms import (
    TIGHTNESS,
    Envelope,
    best_constant,
    floored,
    from_scores,
    softmax,
    tight_exponent,
)
from panda_mdp.privacy.audit import audit_weights
from panda_mdp.privacy.quantise import quantise


def places(count: int, outputs: int, epsilon: float, seed: int = 0) -> Problem:
    """Places in a town of a few km with a loss that jumps between neighbours."""
    generator = np.random.default_rng(seed)
    lat, lon = 41.9 + generator.normal(0, 0.02, count), 12.5 + generator.normal(0, 0.02, count)
    domain = Domain.from_points(lat, lon)
    chosen = generator.choice(count, outputs, replace=False)
    # A detour that does not depend smoothly on the place makes the loss far from Lipschitz.
    travel = 1.3 * domain.distances(None, [0])[:, 0] + generator.exponential(0.3, count)
    return Problem(domain, chosen, np.abs(travel[:, None] - travel[chosen]), epsilon)


def brute_force_epsilon(matrix: np.ndarray, domain: Domain) -> float:
    logs = np.log(matrix)
    gaps = np.abs(logs[:, None] - logs).max(axis=2)
    apart = domain.distances()
    np.fill_diagonal(apart, np.inf)
    return float((gaps / apart).max())


def metrics() -> dict[str, Domain]:
    vectors = np.random.default_rng(3).normal(size=(150, 3))
    return {
        "haversine": places(150, 2, 1.0).domain,
        "euclidean": Domain.from_vectors(vectors),
        "matrix": Domain.from_matrix(Domain.from_vectors(vectors).distances()),
    }


@pytest.mark.parametrize("kind", ["haversine", "euclidean", "matrix"])
def test_exponential_matches_its_formula_in_every_metric(kind: str) -> None:
    domain = metrics()[kind]
    outputs = [3, 1, 40]
    problem = Problem(domain, outputs, domain.distances(None, outputs), epsilon=1.0)
    weights = np.exp(-0.5 * domain.distances(None, outputs))
    mechanism = exponential(problem)
    np.testing.assert_allclose(
        mechanism.matrix, weights / weights.sum(axis=1, keepdims=True), rtol=1e-13
    )
    assert mechanism.audit.holds
    assert mechanism.audit.epsilon == pytest.approx(
        brute_force_epsilon(mechanism.matrix, domain), rel=1e-9
    )


@pytest.mark.parametrize("method", [exponential, loss_exponential])
@pytest.mark.parametrize("epsilon", [0.3, 2.0, 20.0])
def test_tight_meets_epsilon_from_below(method, epsilon) -> None:
    problem = places(200, 20, epsilon)
    mechanism = method(problem, tight=True)
    assert epsilon * (1 - TIGHTNESS) <= mechanism.audit.epsilon <= epsilon
    assert mechanism.details["exponent"] >= epsilon / 2
    assert mechanism.loss <= method(problem).loss


@pytest.mark.parametrize("epsilon", np.geomspace(0.2, 20.0, 12).tolist())
def test_a_tight_exponent_holds_by_itself(epsilon) -> None:
    """Of all that were tried the largest whose integers keep epsilon: nothing is mixed in."""
    problem = places(40, 8, epsilon)
    scores = problem.domain.distances(None, problem.outputs)
    exponent = tight_exponent(problem, scores)
    weights = quantise(floored(softmax(-exponent * scores)))
    assert audit_weights(problem.domain, problem.outputs, weights, epsilon).epsilon <= epsilon


def test_candidates_are_compared_by_what_their_tables_lose() -> None:
    """Under the prior, wherever people are."""
    problem = places(60, 8, 3.0)
    prior = np.random.default_rng(5).dirichlet(np.full(60, 0.1))
    problem = Problem(problem.domain, problem.outputs, problem.loss, 3.0, prior=prior)
    envelope = Envelope(problem)
    for constant in (0.3, 0.8):
        made = loss_exponential(problem, lipschitz=constant)
        assert envelope.expected_loss(constant) == pytest.approx(made.loss, rel=1e-9)


def test_tight_uses_the_room_that_two_records_leave() -> None:
    # Rows (1, e^-a d) and (e^-a d, 1): the sums are equal, so the whole of epsilon is usable.
    problem = Problem(Domain.from_vectors([[0.0], [1.0]]), [0, 1], [[0, 1], [1, 0]], epsilon=2.0)
    assert exponential(problem).audit.epsilon == pytest.approx(1.0)
    assert exponential(problem, tight=True).details["exponent"] == pytest.approx(2.0, rel=2e-4)


def test_tight_ends_where_no_exponent_reaches_epsilon() -> None:
    problem = Problem(Domain.from_vectors([[0.0], [1.0]]), [1], [[1], [0]], epsilon=2.0)
    mechanism = exponential(problem, tight=True)
    assert mechanism.audit.epsilon == 0.0
    assert mechanism.matrix.tolist() == [[1.0], [1.0]]


def test_raising_the_exponent_past_the_answer_breaks_the_guarantee() -> None:
    problem = places(200, 20, 2.0)
    scores = problem.domain.distances(None, problem.outputs)
    tight = exponential(problem, tight=True)
    more = tight.details["exponent"] * (1 + 5 * TIGHTNESS)
    weights = np.exp(-more * scores)
    beyond = weights / weights.sum(axis=1, keepdims=True)
    assert brute_force_epsilon(beyond, problem.domain) > problem.epsilon
    plain = from_scores(problem, scores, tight=False, method="plain")
    assert plain.audit.epsilon < tight.audit.epsilon


@pytest.mark.parametrize("constant", [0.05, 0.7, 5.0])
def test_envelope_is_the_minimum_over_all_records(constant: float) -> None:
    problem = places(300, 15, 1.0)
    apart = problem.domain.distances()
    expected = (problem.loss + constant * apart[:, :, None]).min(axis=1)
    np.testing.assert_allclose(Envelope(problem)(constant), expected, rtol=1e-12, atol=1e-12)
    rows = np.array([250, 3, 77])
    np.testing.assert_allclose(Envelope(problem)(constant, rows), expected[rows], rtol=1e-12)


def test_envelope_above_the_losses_own_constant_is_the_loss() -> None:
    problem = places(300, 15, 1.0)
    apart = problem.domain.distances()
    np.fill_diagonal(apart, np.inf)
    own = (np.abs(problem.loss[:, None] - problem.loss).max(axis=2) / apart).max()
    assert Envelope(problem).limit == pytest.approx(own, rel=1e-9)
    assert np.array_equal(Envelope(problem)(own * 1.001), problem.loss)


def test_chosen_constant_beats_every_other_on_a_fine_grid() -> None:
    problem = places(300, 15, 4.0)
    envelope = Envelope(problem)
    best = loss_exponential(problem).loss
    others = [
        loss_exponential(problem, lipschitz=float(c)).loss
        for c in np.geomspace(0.01, envelope.limit * 2, 60)
    ]
    assert best <= min(others) * (1 + 1e-4)
    assert 0 < best_constant(envelope) <= envelope.limit


def test_sampled_search_is_close_to_the_full_one() -> None:
    problem = places(1200, 10, 4.0)
    sampled = best_constant(Envelope(problem, search_rows=300))
    full = loss_exponential(problem).loss
    assert loss_exponential(problem, lipschitz=sampled).loss <= full * 1.005


def test_loss_that_ignores_the_record_gives_the_best_output() -> None:
    domain = Domain.from_vectors([[0.0], [1.0], [2.0]])
    mechanism = loss_exponential(Problem(domain, [0, 1], [[2, 1]] * 3, epsilon=1.0))
    assert mechanism.loss == pytest.approx(1.0, abs=1e-7)
    assert mechanism.audit.epsilon == 0.0


def test_prior_that_misses_the_sample_is_survived() -> None:
    problem = places(60, 4, 1.0)
    prior = np.zeros(60)
    prior[np.setdiff1d(np.arange(60), Envelope(problem, 5).sample)[0]] = 1.0
    lonely = Problem(problem.domain, problem.outputs, problem.loss, 1.0, prior)
    assert loss_exponential(lonely, best_constant(Envelope(lonely, 5))).audit.holds


@pytest.mark.parametrize("constant", [0.0, -1.0, np.inf, np.nan])
def test_bad_constants_are_refused(constant: float) -> None:
    with pytest.raises(MethodError, match=r"positive, finite number of km per km"):
        loss_exponential(places(50, 4, 1.0), lipschitz=constant)


@pytest.mark.data
def test_rome_loss_exponential_is_far_below_the_remapped_exponential(road_maps) -> None:
    from panda_mdp import remap
    from panda_mdp.city.draw import draw_problem

    problem = draw_problem(road_maps("rome"), 1000, 100, 1, 5.0, seed=0).problem
    assert loss_exponential(problem).loss <= 0.6 * remap(exponential(problem)).loss
