"""Priors and the exact noise that makes them private."""

from __future__ import annotations

import random
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from panda_mdp import Domain, synthetic_city
from panda_mdp.errors import InvalidInputError, PrivacyError
from panda_mdp.prior import Prior
from panda_mdp.privacy import discrete_laplace as noise


def test_noise_is_discrete_laplace() -> None:
    """Chi-square over 40,000 draws at significance 1e-6, and exactness of the coin beneath."""
    rate = Fraction(7, 10)
    draws = noise.discrete_laplace(rate, 40_000)
    q = np.exp(-float(rate))
    values = np.arange(-8, 9)
    chance = (1 - q) / (1 + q) * q ** np.abs(values)
    counts = np.array([(draws == value).sum() for value in values])
    expected = 40_000 * np.append(chance, 1 - chance.sum())
    observed = np.append(counts, 40_000 - counts.sum())
    assert stats.chisquare(observed, expected).pvalue > 1e-6


def test_the_coin_is_exact() -> None:
    """exp(-g) is the alternating series of the chances of runs, term by term."""
    g = Fraction(3, 5)
    chance, run = Fraction(0), Fraction(1)
    for k in range(1, 25):
        # The run stops at step k with chance run * (1 - g/k); odd k counts as heads.
        if k % 2 == 1:
            chance += run * (1 - g / k)
        run *= g / k
    assert float(chance) == pytest.approx(np.exp(-0.6), rel=1e-14)
    heads = sum(noise._bernoulli_exp(3, 5) for _ in range(20_000))
    assert stats.binomtest(heads, 20_000, np.exp(-0.6)).pvalue > 1e-6
    assert all(noise._bernoulli_exp(0, 5) for _ in range(100))
    with pytest.raises(PrivacyError, match="rate"):
        noise.discrete_laplace(Fraction(0), 1)


@pytest.fixture
def domain() -> Domain:
    return synthetic_city(600).domain(records=300)


def test_noise_scale_is_contribution_over_epsilon_and_negative_counts_vanish(
    domain: Domain, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = np.arange(300)
    bits = random.Random(1)
    monkeypatch.setattr("secrets.randbelow", bits.randrange)
    made = Prior.private(domain, counts, epsilon=0.25, contribution=8, source="x", cell_km=None)
    bits.seed(1)
    noisy = counts + noise.discrete_laplace(Fraction(1, 32), 300)
    assert (noisy < 0).any()
    positive = np.maximum(noisy, 0)
    np.testing.assert_allclose(made.weights, positive / positive.sum(), rtol=1e-12)


NOISELESS = 1e6
"""An epsilon at which noise other than 0 has a probability below exp(-100,000)."""


def test_counts_of_a_cell_are_spread_over_its_records(domain: Domain) -> None:
    counts = np.arange(300)
    coarse = Prior.private(
        domain, counts, epsilon=NOISELESS, contribution=8, source="x", cell_km=2.0
    )
    plane = domain.plane
    assert plane is not None
    cell = [tuple(key) for key in np.floor(plane / 2.0).astype(int).tolist()]
    for key in set(cell):
        members = [k for k in range(300) if cell[k] == key]
        assert len(set(coarse.weights[members].tolist())) == 1
        assert coarse.weights[members].sum() == pytest.approx(counts[members].sum() / counts.sum())


def test_nothing_left_is_uniform(domain: Domain) -> None:
    none = np.zeros(300, dtype=int)
    prior = Prior.private(domain, none, epsilon=NOISELESS, contribution=1, source="x")
    np.testing.assert_allclose(prior.weights, 1 / 300, rtol=1e-14)


def test_shares_of_counts(domain: Domain) -> None:
    prior = Prior.public([1, 0, 3], source="x")
    np.testing.assert_allclose(prior.weights, [0.25, 0, 0.75])


@pytest.mark.parametrize(
    ("counts", "options", "message"),
    [
        ([1, -1], {}, "non-negative"),
        ([0, 0], {}, "no count is positive"),
        ([[1]], {}, "flat list"),
        ([1, 1], {"source": ""}, "say where"),
    ],
)
def test_bad_public_priors(counts: list[int], options: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Prior.public(counts, **{"source": "x", **options})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epsilon": 0}, "epsilon is 0"),
        ({"epsilon": np.inf}, "epsilon is inf"),
        ({"bounded": np.ones(300)}, "whole"),
        ({"bounded": np.ones(3, dtype=int)}, "300 whole"),
        ({"cell_km": -1}, "side of a cell is -1"),
    ],
)
def test_bad_private_priors(domain: Domain, change: dict[str, object], message: str) -> None:
    options = {
        "bounded": np.ones(300, dtype=int),
        "epsilon": 1.0,
        "contribution": 1,
        "source": "x",
        **change,
    }
    with pytest.raises(InvalidInputError, match=message):
        Prior.private(domain, **options)
