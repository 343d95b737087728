"""Every measure against its definition in rational numbers, and against libqif."""

from __future__ import annotations

from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panda_mdp.errors import InvalidInputError
from panda_mdp.meaning import attack as leakage


@st.composite
def channels(draw):
    """A prior and a channel as whole numbers over their sums, zeros included."""
    records, outputs = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    whole = st.integers(0, 9)
    prior = draw(st.lists(whole, min_size=records, max_size=records).filter(any))
    rows = [
        draw(st.lists(whole, min_size=outputs, max_size=outputs).filter(any))
        for _ in range(records)
    ]
    return (
        [Fraction(w, sum(prior)) for w in prior],
        [[Fraction(w, sum(row)) for w in row] for row in rows],
    )


def floats(values):
    return np.array(values, dtype=np.float64)


def exact_g(gain, prior, rows):
    return sum(
        max(
            sum(p * row[y] * g for p, row, g in zip(prior, rows, line, strict=True))
            for line in gain
        )
        for y in range(len(rows[0]))
    )


@settings(max_examples=60, deadline=None)
@given(channels(), st.data())
def test_measures_are_their_definitions(channel, data):
    prior, rows = channel
    p, z = floats(prior), floats(rows)
    size, outputs = len(prior), len(rows[0])
    best = sum(max(a * row[y] for a, row in zip(prior, rows, strict=True)) for y in range(outputs))
    assert leakage.bayes_vulnerability(p, z) == pytest.approx(float(best), abs=1e-14)
    assert leakage.multiplicative_capacity(z) == pytest.approx(
        float(sum(max(row[y] for row in rows) for y in range(outputs))), abs=1e-14
    )
    assert leakage.min_entropy_leakage(p, z) == pytest.approx(
        float(mp.log(mp.mpf(best.numerator) / best.denominator / p.max(), 2)), abs=1e-13
    )
    whole = st.lists(st.integers(0, 7), min_size=size, max_size=size)
    gain = data.draw(st.lists(whole, min_size=1, max_size=4))
    exact = exact_g(gain, prior, rows)
    assert leakage.g_vulnerability(floats(gain), p, z) == pytest.approx(float(exact), abs=1e-12)
    least = -exact_g([[-g for g in line] for line in gain], prior, rows)
    assert -leakage.g_vulnerability(-floats(gain), p, z) == pytest.approx(float(least), abs=1e-12)


@settings(max_examples=60, deadline=None)
@given(channels())
def test_entropies_in_fifty_digits(channel):
    prior, rows = channel
    p, z = floats(prior), floats(rows)
    with mp.workdps(50):
        both = [[a * w for w in row] for a, row in zip(prior, rows, strict=True)]
        seen = [sum(column) for column in zip(*both, strict=True)]

        def h(values):
            real = [mp.mpf(v.numerator) / v.denominator for v in values if v]
            return -mp.fsum(v * mp.log(v, 2) for v in real)

        rest = h([v for row in both for v in row]) - h(seen)
        assert leakage.shannon_leakage(p, z) == pytest.approx(float(h(prior) - rest), abs=1e-13)


@settings(max_examples=30, deadline=None)
@given(channels())
def test_posteriors_are_distributions_that_average_to_the_prior(channel):
    prior, rows = channel
    p, z = floats(prior), floats(rows)
    belief = leakage.posterior(p, z)
    seen = p @ z
    assert belief.sum(axis=0)[seen > 0] == pytest.approx(1, abs=1e-14)
    assert belief @ seen == pytest.approx(p, abs=1e-14)


@pytest.mark.parametrize("seed", range(4))
def test_libqif_says_the_same(seed):
    qif = pytest.importorskip("qif", reason="libqif is not installed: pip install 'panda-mdp[qif]'")
    rng = np.random.default_rng(seed)
    p, z = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(4), size=6)
    gain = rng.random((5, 6))
    measure = qif.measure
    pairs = [
        (leakage.bayes_vulnerability(p, z), measure.bayes_vuln.posterior(p, z)),
        (1 - leakage.bayes_vulnerability(p, z), measure.bayes_risk.posterior(p, z)),
        (leakage.g_vulnerability(gain, p, z), measure.g_vuln.posterior(gain, p, z)),
        (-leakage.g_vulnerability(-gain, p, z), measure.l_risk.posterior(gain, p, z)),
        (leakage.min_entropy_leakage(p, z), measure.bayes_vuln.min_entropy_leakage(p, z)),
        (leakage.multiplicative_capacity(z), measure.bayes_vuln.mult_capacity(z)),
        (leakage.entropy(p), measure.shannon.prior(p)),
        (leakage.shannon_leakage(p, z), measure.shannon.add_leakage(p, z)),
    ]
    for ours, theirs in pairs:
        assert ours == pytest.approx(theirs, rel=1e-12)
    outer, inners = qif.channel.hyper(z, p)
    belief, seen = leakage.posterior(p, z), p @ z
    for weight, inner in zip(np.ravel(outer), np.asarray(inners).T, strict=True):
        match = np.abs(belief - inner[:, None]).max(axis=0) < 1e-12
        assert seen[match].sum() == pytest.approx(weight, rel=1e-12)


def test_shapes_that_numpy_would_stretch_are_refused():
    channel = np.full((3, 2), 0.5)
    for prior in (np.array([1.0]), np.full(2, 0.5), np.full((3, 1), 1 / 3), np.array([np.nan] * 3)):
        with pytest.raises(InvalidInputError, match="prior"):
            leakage.bayes_vulnerability(prior, channel)
