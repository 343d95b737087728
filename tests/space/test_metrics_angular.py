"""The angle between vectors, against 50 digits."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import mpmath
import numpy as np
import pytest

from panda_mdp import Domain, Problem, distance_loss, exponential, load
from panda_mdp.base.threads import within
from panda_mdp.compute.numba.distance import fill
from panda_mdp.errors import DomainError, TimeLimitError
from panda_mdp.space.tiles import coordinates


def exact_angle(u: np.ndarray, v: np.ndarray) -> mpmath.mpf:
    with mpmath.workdps(50):
        a = mpmath.matrix([mpmath.mpf(float(x)) for x in u])
        b = mpmath.matrix([mpmath.mpf(float(x)) for x in v])
        p, q = a * mpmath.norm(b), b * mpmath.norm(a)
        return 2 * mpmath.atan2(mpmath.norm(p - q), mpmath.norm(p + q))


@pytest.fixture(scope="module", params=[2, 7, 90])
def domain(request: pytest.FixtureRequest) -> Domain:
    rng = np.random.default_rng(request.param)
    vectors = rng.normal(size=(40, request.param)) * rng.lognormal(0, 3, (40, 1))
    # Nearly the same and nearly opposite directions.
    vectors[1] = 3 * vectors[0] * (1 + 1e-6 * rng.normal(size=request.param))
    vectors[2] = -vectors[3] * (1 + 1e-6 * rng.normal(size=request.param))
    return Domain.from_vectors(vectors, metric="angular")


def test_angles_are_accurate_everywhere(domain: Domain) -> None:
    rows = np.repeat(np.arange(40), 3)
    cols = (rows + np.tile([1, 2, 19], 40)) % 40
    found = domain.metric.pairs(rows, cols)
    vectors = domain.metric.embedding
    for i, j, angle in zip(rows, cols, found, strict=True):
        exact = exact_angle(vectors[i], vectors[j])
        assert abs(angle / exact - 1) <= domain.metric.relative_error
    block = domain.distances()
    np.testing.assert_allclose(block[rows, cols], found, rtol=domain.metric.relative_error)
    np.testing.assert_array_equal(block, block.T)
    assert domain.distance(2, 3) > 3.14159


def test_compiled_loops_agree(domain: Domain) -> None:
    order = np.random.default_rng(0).permutation(40)
    places = coordinates(domain.metric, order)
    out = np.empty(30)
    fill(places, 7, 10, 40, out)
    expected = domain.distances([order[7]], order[10:])[0]
    np.testing.assert_allclose(out, expected, rtol=domain.metric.relative_error, atol=1e-300)


def test_neighbours_and_radii_are_those_of_brute_force(domain: Domain) -> None:
    block = domain.distances()
    np.fill_diagonal(block, np.inf)
    near, apart = domain.neighbours(5)
    np.testing.assert_allclose(apart, np.sort(block, axis=1)[:, :5], rtol=1e-12)
    assert (near[:, 0] == block.argmin(axis=1)).all()
    pairs = np.concatenate([np.stack(part[:2], axis=1) for part in domain.pairs_within(1.3)])
    inside = np.argwhere(np.triu(block, 1) * (block <= 1.3))
    assert np.array_equal(np.unique(pairs, axis=0), inside)


def test_methods_and_files(domain: Domain, tmp_path: Path) -> None:
    outputs = list(range(0, 40, 4))
    problem = Problem(domain, outputs, distance_loss(domain, outputs), 3.0)
    mechanism = exponential(problem)
    assert mechanism.audit.holds and mechanism.audit.unit == "rad"
    again = load(mechanism.save(tmp_path / "words.pmdp"))
    assert again.problem.domain.fingerprint == domain.fingerprint


def test_lengths_do_not_matter() -> None:
    vectors = np.random.default_rng(1).normal(size=(10, 4))
    plain = Domain.from_vectors(vectors, metric="angular").distances()
    scaled = Domain.from_vectors(vectors * 1e200, metric="angular").distances()
    np.testing.assert_allclose(plain, scaled, rtol=1e-13)


def test_bad_vectors() -> None:
    with pytest.raises(DomainError, match="vector 1 is zero"):
        Domain.from_vectors([[1.0, 0], [0, 0], [0, 1]], metric="angular")
    with pytest.raises(DomainError, match="same direction"):
        Domain.from_vectors([[1.0, 1.0], [0, 1], [3.0, 3.0 + 1e-14]], metric="angular")
    with pytest.raises(DomainError, match=r"records 0 and 2 .*same direction"):
        Domain.from_vectors([[1.0, 0.0], [0, 1], [2.0, 0.0]], metric="angular")
    with pytest.raises(DomainError, match="metric is 'cosine'"):
        Domain.from_vectors([[1.0], [2.0]], metric="cosine")


@pytest.mark.parametrize("angle", [2e-7, 1e-5, 1e-2, 1.0])
def test_the_error_covers_the_normalisation_of_what_was_given(angle):
    """Angles between the vectors as given, in 60 digits, against those of the domain."""
    import mpmath

    rng = np.random.default_rng(5)
    worst = 0.0
    with mpmath.workdps(60):
        for _ in range(40):
            first = rng.normal(size=3) * 10.0 ** rng.uniform(-3, 3)
            turn = rng.normal(size=3)
            turn -= turn @ first / (first @ first) * first
            second = np.cos(angle) * first + np.sin(angle) * np.linalg.norm(first) * (
                turn / np.linalg.norm(turn)
            )
            domain = Domain.from_vectors([first, second], metric="angular")
            u, v = ([mpmath.mpf(float(c)) for c in vector] for vector in (first, second))
            size = [mpmath.sqrt(sum(c * c for c in w)) for w in (u, v)]
            minus = mpmath.sqrt(
                sum((a / size[0] - b / size[1]) ** 2 for a, b in zip(u, v, strict=True))
            )
            plus = mpmath.sqrt(
                sum((a / size[0] + b / size[1]) ** 2 for a, b in zip(u, v, strict=True))
            )
            exact = 2 * mpmath.atan2(minus, plus)
            error = abs(mpmath.mpf(domain.distance(0, 1)) / exact - 1)
            assert error <= domain.metric.relative_error
            worst = max(worst, float(error))
    if angle < 1e-6:
        # Without the turn of the normalisation the account would be some 2e-15.
        assert worst > 1e-14


def test_the_smallest_angle_is_exact_where_it_matters_and_never_too_large() -> None:
    """200 vectors are more than each is compared with; the smallest angle decides the error."""
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(200, 6))
    far = Domain.from_vectors(vectors, metric="angular")
    block = far.distances() + 9 * np.eye(200)
    assert 1e-4 < far.metric.smallest[0] <= block.min() * (1 + 1e-12)
    vectors[150] = vectors[20] + 1e-6 * rng.normal(size=6)
    near = Domain.from_vectors(vectors, metric="angular").metric.smallest
    assert near[1:] == (20, 150) and near[0] < 1e-5
    vectors[150] = 3 * vectors[20]
    with pytest.raises(DomainError, match="records 20 and 150 point in the same direction"):
        Domain.from_vectors(vectors, metric="angular")


def test_a_search_among_vectors_that_nearly_agree_keeps_its_time_limit() -> None:
    """Their shadows tell none of them apart, so every pair has to be compared."""
    rng, ticks = np.random.default_rng(0), count()
    vectors = np.eye(1, 20) + 1e-5 * rng.normal(size=(500, 20))
    with within(5.0, lambda: float(next(ticks))), pytest.raises(TimeLimitError):
        Domain.from_vectors(vectors, metric="angular")
    assert Domain.from_vectors(vectors, metric="angular").size == 500
