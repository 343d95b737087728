"""Margins at the paper's delta, in high precision."""

from __future__ import annotations

import mpmath as mp
import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.errors import MethodError
from panda_mdp.panda.coins import BernoulliAnchors
from panda_mdp.panda.margins import candidate_values


def margin(selection, domain, x, x2, epsilon, delta) -> float:
    return candidate_values(selection.on(domain), x, x2, epsilon).margin(delta)


def exact_margin(domain, selection, x, x2, epsilon, delta) -> mp.mpf:
    """Property 1 with 60 digits, from the quantised probabilities and the distances alone."""
    w = [
        [mp.mpf(float(value)) for value in row]
        for row in selection.on(domain).dense(np.arange(domain.size))
    ]
    apart = domain.distances()
    size = domain.size
    radius = selection.on(domain).radius

    def leakage(a: int, b: int) -> mp.mpf:
        up = sum(
            max(mp.log(w[a][c] / w[b][c]), mp.log((1 - w[a][c]) / (1 - w[b][c])))
            for c in range(size)
        )
        down = sum(
            max(mp.log(w[b][c] / w[a][c]), mp.log((1 - w[b][c]) / (1 - w[a][c])))
            for c in range(size)
        )
        return max(up, down)

    def v(r: int) -> dict[int, mp.mpf]:
        out, none = {}, mp.mpf(1)
        for a in sorted(range(size), key=lambda a: (apart[r, a], a)):
            if apart[r, a] < radius:
                out[a] = w[r][a] * none
            none *= 1 - w[r][a]
        return out

    def budget(a: int, b: int) -> mp.mpf:
        return mp.mpf(epsilon) * mp.mpf(float(apart[a, b])) - leakage(a, b)

    first, second = v(x), v(x2)
    steps = sorted(
        ((budget(a, b) - budget(x, x2), first[a] * second[b]) for a in first for b in second),
        key=lambda step: step[0],
    )
    total = mp.mpf(0)
    for value, mass in steps:
        total += mass
        if total >= 1 - mp.mpf(delta):
            return value
    return mp.inf


@pytest.mark.parametrize("decay", ["power", "exponential", "logistic"])
@pytest.mark.parametrize("delta", [1e-7, 1e-10])
def test_margins_at_small_delta_are_right_to_nine_digits(decay, delta) -> None:
    domain = pm.Domain.from_vectors(np.random.default_rng(7).normal(size=(12, 2)))
    selection = BernoulliAnchors(decay, alpha=0.97, rate=0.2, radius=10.0)
    with mp.workdps(60):
        for x, x2 in [(0, 1), (2, 9), (4, 7), (3, 3)]:
            expected = exact_margin(domain, selection, x, x2, 5.0, delta)
            found = margin(selection, domain, x, x2, 5.0, delta)
            assert found == pytest.approx(float(expected), rel=1e-9)


def test_where_the_shortfall_exceeds_delta_no_margin_suffices() -> None:
    domain = pm.Domain.from_vectors([[0.0], [1.0], [2.0]])
    selection = BernoulliAnchors("exponential", alpha=0.9, radius=0.5)
    values = candidate_values(selection.on(domain), 0, 1, 1.0)
    assert values.shortfall == pytest.approx(0.19, rel=1e-12)
    assert values.margin(0.1) == np.inf
    assert np.isfinite(values.margin(0.2))


def test_a_smaller_delta_never_needs_a_smaller_margin() -> None:
    domain = pm.Domain.from_vectors(np.random.default_rng(3).normal(size=(30, 2)))
    selection = BernoulliAnchors("power", alpha=0.95, rate=0.5, radius=9.0)
    found = [margin(selection, domain, 0, 5, 5.0, delta) for delta in (0.3, 0.1, 1e-3, 1e-7)]
    assert np.all(np.diff(found) >= 0)


def test_margins_grow_with_the_rate_and_fall_with_alpha() -> None:
    """Section 4.2 of the paper, which its appendix contradicts: exponential and logistic."""
    domain = pm.Domain.from_vectors(np.random.default_rng(9).normal(size=(60, 2)) * 2)
    pairs = np.random.default_rng(1).choice(60, (40, 2))

    def mean(decay: str, alpha: float, rate: float) -> float:
        selection = pm.BernoulliAnchors(decay, alpha=alpha, rate=rate, radius=9.0)
        return float(
            np.mean([margin(selection, domain, int(x), int(y), 5.0, 1e-3) for x, y in pairs])
        )

    for decay in ("exponential", "logistic"):
        found = [mean(decay, 0.95, rate) for rate in (0.05, 0.2, 0.5)]
        assert np.all(np.diff(found) > 0)
        assert mean(decay, 0.6, 0.2) > mean(decay, 0.95, 0.2)


@pytest.mark.parametrize("delta", [-0.1, 1.0, float("nan")])
def test_delta_is_a_probability(delta) -> None:
    domain = pm.Domain.from_vectors([[0.0], [1.0]])
    with pytest.raises(MethodError, match="delta"):
        margin(BernoulliAnchors(), domain, 0, 1, 1.0, delta)
