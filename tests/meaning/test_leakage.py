"""Every measure against its definition in rational numbers, and against libqif."""

from __future__ import annotations

from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import panda_mdp as pm


@st.composite
def channels(draw):
    """A prior and a channel as whole numbers over their sums, zeros included."""
    records, outputs = draw(st.integers(2, 5)), draw(st.integers(1, 5))
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


def attacked(prior, rows):
    """The best attacker against a channel, quantised to 2^-62."""
    size, outputs = rows.shape
    domain = pm.Domain.from_vectors(np.eye(size))
    reports = pm.Outputs.labels(range(outputs))
    problem = pm.Problem(domain, reports, np.ones(rows.shape), 1.0, prior)
    return pm.attack(pm.NoGuarantee.from_matrix(problem, rows), radii=(1.0,))


@settings(max_examples=60, deadline=None)
@given(channels())
def test_measures_are_their_definitions(channel):
    prior, rows = channel
    p = floats(prior)
    outputs = len(rows[0])
    columns = [[a * row[y] for a, row in zip(prior, rows, strict=True)] for y in range(outputs)]
    best = sum(map(max, columns))
    seen = attacked(p, floats(rows))
    assert seen.vulnerability == pytest.approx(float(best), abs=1e-14)
    assert seen.capacity == pytest.approx(
        float(sum(max(row[y] for row in rows) for y in range(outputs))), abs=1e-14
    )
    assert seen.min_entropy_leakage == pytest.approx(
        float(mp.log(mp.mpf(best.numerator) / best.denominator / p.max(), 2)), abs=1e-13
    )
    believed = max(max(column) / sum(column) for column in columns if any(column))
    assert seen.worst_posterior == pytest.approx(float(believed), abs=1e-14)


@settings(max_examples=60, deadline=None)
@given(channels())
def test_entropies_in_fifty_digits(channel):
    prior, rows = channel
    with mp.workdps(50):
        both = [[a * w for w in row] for a, row in zip(prior, rows, strict=True)]
        seen = [sum(column) for column in zip(*both, strict=True)]

        def h(values):
            real = [mp.mpf(v.numerator) / v.denominator for v in values if v]
            return -mp.fsum(v * mp.log(v, 2) for v in real)

        rest = h([v for row in both for v in row]) - h(seen)
        found = attacked(floats(prior), floats(rows))
        assert found.shannon_leakage == pytest.approx(float(h(prior) - rest), abs=1e-13)
        assert found.prior_entropy == pytest.approx(float(h(prior)), abs=1e-13)


@pytest.mark.parametrize("seed", range(4))
def test_libqif_says_the_same(seed):
    qif = pytest.importorskip("qif", reason="libqif is not installed: pip install 'panda-mdp[qif]'")
    rng = np.random.default_rng(seed)
    p, z = rng.dirichlet(np.ones(6)), rng.dirichlet(np.ones(4), size=6)
    apart = np.sqrt(2) * (1 - np.eye(6))
    seen, measure = attacked(p, z), qif.measure
    pairs = [
        (seen.vulnerability, measure.bayes_vuln.posterior(p, z)),
        (seen.risk, measure.bayes_risk.posterior(p, z)),
        (seen.located[1.0], measure.g_vuln.posterior((apart <= 1.0) * 1.0, p, z)),
        (seen.error, measure.l_risk.posterior(apart, p, z)),
        (seen.min_entropy_leakage, measure.bayes_vuln.min_entropy_leakage(p, z)),
        (seen.capacity, measure.bayes_vuln.mult_capacity(z)),
        (seen.prior_entropy, measure.shannon.prior(p)),
        (seen.shannon_leakage, measure.shannon.add_leakage(p, z)),
        (seen.worst_posterior, np.max(qif.channel.hyper(z, p)[1])),
    ]
    for ours, theirs in pairs:
        assert ours == pytest.approx(theirs, rel=1e-12)
