"""Refinement: planted post-processing, planted attackers, libqif."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import displacement_problem, random_domain

import panda_mdp as pm
from panda_mdp.errors import MethodError
from panda_mdp.meaning import leakage
from panda_mdp.meaning.leakage import refinement


@pytest.mark.parametrize("seed", range(4))
def test_post_processing_is_recognised_and_nothing_else(seed):
    rng = np.random.default_rng(seed)
    base = rng.dirichlet(np.ones(4), size=6)
    planted = base @ rng.dirichlet(np.ones(3), size=4)
    forward = refinement(base, planted)
    assert forward.holds
    assert forward.gain is None
    assert base @ forward.post_processing == pytest.approx(planted, abs=1e-7)
    stranger = rng.dirichlet(np.ones(3), size=6)
    verdict = refinement(base, stranger)
    assert not verdict.holds
    # The gain proves it: at the uniform prior that attacker gains more from the stranger.
    uniform = np.full(6, 1 / 6)
    more = leakage.g_vulnerability(verdict.gain, uniform, stranger)
    less = leakage.g_vulnerability(verdict.gain, uniform, base)
    assert more - less == pytest.approx(verdict.advantage)
    assert verdict.advantage > 1e-6
    # And it gains no more from anything that is refined from the base.
    assert leakage.g_vulnerability(verdict.gain, uniform, planted) <= less + 1e-12


@pytest.mark.parametrize("seed", range(3))
def test_libqif_says_the_same(seed):
    qif = pytest.importorskip("qif", reason="libqif is not installed: pip install qif")
    rng = np.random.default_rng(seed)
    base = rng.dirichlet(np.ones(3), size=4)
    for other in (base @ rng.dirichlet(np.ones(3), size=3), rng.dirichlet(np.ones(3), size=4)):
        assert refinement(base, other).holds == bool(qif.refinement.refined_by(base, other))


def test_a_remap_refines_its_table_and_sizes_are_refused():
    problem = displacement_problem(random_domain("haversine", 8), range(8), 0.2)
    table = pm.exponential(problem)
    assert refinement(table, pm.remap(table)).holds
    with pytest.raises(MethodError, match="8 and 7 records"):
        refinement(table, table.matrix[:7])
    with pytest.raises(MethodError, match="at most 100"):
        refinement(table, table, largest=100)


@pytest.mark.parametrize(
    "channel",
    [[[np.nan, 1], [0.5, 0.5]], [[2, 1], [1, 1]], [[-1, 2], [0.5, 0.5]], [0.5, 0.5], [[]]],
)
def test_what_is_no_channel_has_no_verdict(channel):
    with pytest.raises(MethodError, match="channel"):
        refinement(np.array(channel), np.eye(2))
    with pytest.raises(MethodError, match="channel"):
        refinement(np.eye(2), np.array(channel))
