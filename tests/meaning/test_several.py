"""Several reports, traces and anchors, against sums over everything that can happen."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from helpers import displacement_problem, random_domain

import panda_mdp as pm
from panda_mdp.errors import MethodError
from panda_mdp.meaning.several import (
    Movement,
    forward_backward,
    likelihoods,
    locate_anchor,
    moment_leakage,
    repeated,
    track,
)


@pytest.fixture(scope="module")
def table():
    prior = np.array([0.4, 0.1, 0.2, 0.3])
    return pm.exponential(
        displacement_problem(random_domain("euclidean", 4, seed=1), [0, 2, 3], 1.5, prior)
    )


def sequences(table, count):
    """Joint probabilities of record and every sequence of reports, (K, m^count)."""
    columns = [
        np.prod(table.matrix[:, list(drawn)], axis=1)
        for drawn in itertools.product(range(table.matrix.shape[1]), repeat=count)
    ]
    return table.problem.prior[:, None] * np.stack(columns, axis=1)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_several_reports_are_all_sequences(table, count):
    both = sequences(table, count)
    result = repeated(table, count)
    assert result.exact
    assert result.vulnerability == pytest.approx(both.max(axis=0).sum(), rel=1e-12)
    apart = table.problem.domain.distances()
    assert result.error == pytest.approx((apart @ both).min(axis=0).sum(), rel=1e-12)


def test_draws_agree_with_the_sum_within_their_errors(table):
    exact = repeated(table, 4)
    drawn = repeated(table, 4, draws=4000, exact=0, seed=1)
    assert not drawn.exact
    assert abs(drawn.vulnerability - exact.vulnerability) < 4 * drawn.vulnerability_se
    assert abs(drawn.error - exact.error) < 4 * drawn.error_se
    assert 0 < drawn.vulnerability_se < 0.01


def test_one_report_is_the_table_and_more_tell_more(table):
    assert repeated(table, 1).vulnerability == pytest.approx(pm.attack(table).vulnerability)
    growing = [repeated(table, n).vulnerability for n in (1, 2, 4, 8)]
    assert growing == sorted(growing)


@pytest.fixture(scope="module")
def movement():
    return Movement.learn([[0, 1, 2, 3, 3], [3, 2, 2, 1, 0]], 4, smoothing=0.2)


def paths(movement, table, reports):
    """Every trace with its joint probability with the reports."""
    column = [list(table.problem.outputs).index(report) for report in reports]
    for path in itertools.product(range(4), repeat=len(reports)):
        chance = movement.start[path[0]]
        for a, b in itertools.pairwise(path):
            chance *= movement.steps[a, b]
        for x, y in zip(path, column, strict=True):
            chance *= table.matrix[x, y]
        yield path, chance


def test_learnt_chains_are_distributions(movement):
    assert movement.steps.sum(axis=1) == pytest.approx(1)
    assert movement.start.sum() == pytest.approx(1)
    assert (movement.steps > 0).all()
    assert movement.steps[0].argmax() == 1


def test_a_chain_is_what_followed_what():
    learnt = Movement.learn([[0, 1, 1, 2], [0, 1]], 4, smoothing=0.2)
    common = 0.5 * np.array([2, 3, 1, 0]) / 6 + 0.5 / 4
    followed = np.array([[0, 1, 0, 0], [0, 0.5, 0.5, 0], common, common])
    np.testing.assert_allclose(learnt.steps, 0.8 * followed + 0.2 * common, rtol=1e-13)
    np.testing.assert_allclose(learnt.start, 0.8 * np.eye(4)[0] + 0.2 * common, rtol=1e-13)


@pytest.mark.parametrize("reports", [[0], [0, 2, 2, 3], [3, 3, 0, 2, 0]])
def test_forward_backward_is_the_sum_over_all_traces(movement, table, reports):
    every = list(paths(movement, table, reports))
    total = sum(chance for _, chance in every)
    belief = np.zeros((len(reports), 4))
    for path, chance in every:
        for t, x in enumerate(path):
            belief[t, x] += chance / total
    assert forward_backward(movement, likelihoods(table, reports)) == pytest.approx(
        belief, rel=1e-10
    )


def test_tracking_is_better_the_larger_epsilon(movement):
    """Exactly: the mean over all reports of how likely the likeliest records are."""
    problem = displacement_problem(random_domain("euclidean", 4, seed=1), range(4), 1.0)
    right = []
    for epsilon in (0.01, 50.0):
        table = pm.exponential(problem.with_epsilon(epsilon))
        reports = list(itertools.product(range(4), repeat=3))
        chances = [sum(chance for _, chance in paths(movement, table, seen)) for seen in reports]
        beliefs = [forward_backward(movement, likelihoods(table, seen)) for seen in reports]
        right.append(np.average([b.max(axis=1).mean() for b in beliefs], weights=chances))
    assert right[0] < 0.9 and right[1] > 0.99


def test_an_anchor_is_its_posterior(table):
    reports, away = [0, 0, 3], 0.3
    prior, matrix = table.problem.prior, table.matrix
    seen = [list(table.problem.outputs).index(report) for report in reports]
    mixed = (1 - away) * matrix + away * (prior @ matrix)
    belief = prior * np.prod(mixed[:, seen], axis=1)
    zone = locate_anchor(table, reports, away=away)
    assert zone.belief == pytest.approx(belief / belief.sum())
    assert zone.share >= 0.9
    assert repr(zone) == "Zone(<hidden>)"
    sharp = locate_anchor(table, [0] * 60, away=away)
    assert sharp.belief.max() > zone.belief.max()
    with pytest.raises(MethodError, match="no outputs of this table"):
        locate_anchor(table, [1])


@pytest.mark.parametrize("reports", [[], [0.7], [np.nan], ["a"], [[0, 2]], [True], [1], [9]])
def test_reports_that_are_none_are_refused(table, reports):
    movement = Movement.learn([[0, 1, 2, 3]], 4)
    for attacker in (
        lambda: forward_backward(movement, likelihoods(table, reports)),
        lambda: locate_anchor(table, reports),
    ):
        with pytest.raises(MethodError, match="report"):
            attacker()


def test_chains_and_likelihoods_that_are_none_are_refused(table):
    fair = np.full(4, 0.25)
    for start, steps in (
        (fair, np.eye(3)),
        (np.full(4, np.nan), np.eye(4)),
        (fair, -np.eye(4)),
        (fair, 2 * np.eye(4)),
        (np.empty(0), np.empty((0, 0))),
    ):
        with pytest.raises(MethodError, match="probabilit"):
            Movement(start, steps)
    movement = Movement(fair, np.full((4, 4), 0.25))
    with pytest.raises(MethodError, match="one row of 3 per report"):
        forward_backward(Movement.learn([[0, 1, 2]], 3), likelihoods(table, [0, 2]))
    for seen in (np.ones(4), np.ones((0, 4)), np.full((2, 4), np.nan), -np.ones((2, 4))):
        with pytest.raises(MethodError, match="likelihoods"):
            forward_backward(movement, seen)


def test_a_report_that_no_expected_record_gives_has_no_posterior():
    domain = random_domain("euclidean", 2)
    problem = pm.Problem(domain, [0, 1], domain.distances(), 1.0, [1.0, 0.0])
    table = pm.NoGuarantee.from_matrix(problem, np.eye(2), method="identity")
    for away in (0.0, 0.2):
        with pytest.raises(MethodError, match="give the prior more support"):
            locate_anchor(table, [1], away=away)


def test_counts_are_whole_numbers(table):
    for count in (0, -1, 2.5, np.nan, "a"):
        with pytest.raises(MethodError, match="count is"):
            repeated(table, count)
    for draws in (0, 1):
        with pytest.raises(MethodError, match="draws is"):
            repeated(table, 2, draws=draws)


def all_ways(movement, table, reports, draws):
    """Beliefs at every step as a sum over all ways, draw by draw."""
    likely, size = likelihoods(table, reports), len(movement.start)
    belief = np.zeros((len(reports), size))
    for way in itertools.product(range(size), repeat=len(reports)):
        chance, drawn = movement.start[way[0]], {}
        for t, record in enumerate(way):
            if t:
                chance *= movement.steps[way[t - 1], record]
                if draws == "stay" and way[t - 1] != record:
                    drawn = {}
            if isinstance(draws, int):
                # Between two draws of the clock any report may be repeated.
                chance *= likely[t, record] if t % draws == 0 else 1.0
            elif record in drawn and draws != "anew":
                chance *= drawn[record] == reports[t]
            else:
                chance *= likely[t, record]
                drawn[record] = reports[t]
        for t, record in enumerate(way):
            belief[t, record] += chance
    return belief / belief.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("draws", ["anew", "stay", "keyed", 1, 2, 3])
def test_who_knows_how_draws_are_made_believes_the_sum_over_all_ways(movement, table, draws):
    for reports in ([0, 0, 2, 0, 0], [3, 2, 3, 3, 2]):
        told = track(movement, table, reports, draws)
        assert told == pytest.approx(all_ways(movement, table, reports, draws), rel=1e-10)


def test_a_clock_that_never_draws_is_refused(movement, table):
    with pytest.raises(MethodError, match="draws is 0"):
        track(movement, table, [0, 2], 0)


def test_too_many_ways_are_refused(table):
    even = Movement(np.full(4, 0.25), np.full((4, 4), 0.25))
    with pytest.raises(MethodError, match="ways of"):
        track(even, table, [0] * 14, "keyed")


def test_a_kept_draw_of_a_home_tells_what_one_report_does(table):
    """Sixty nights of one report: kept draws tell no more than the first of them."""
    once = locate_anchor(table, [2], away=0.0).belief
    often = locate_anchor(table, [2] * 60, away=0.0, keyed=True).belief
    assert often == pytest.approx(once, rel=1e-12)
    mixed = locate_anchor(table, [2] * 48 + [0] * 6 + [3] * 6, keyed=True).belief
    assert mixed == pytest.approx(once, abs=1e-6)
    # Two reports seen alike may each be the home's.
    q = table.problem.prior @ table.matrix
    share = [(0.8 + 0.2 * q[y]) * 0.2 * q[1 - y] for y in (0, 1)] + [0.04 * q[0] * q[1]]
    both = table.problem.prior * (table.matrix @ share)
    two = locate_anchor(table, [0, 2], keyed=True).belief
    assert two == pytest.approx(both / both.sum(), rel=1e-12)


def told_at_most(movement, table, length):
    """The largest log-ratio of all reports of a trace between two records of a moment, exactly."""
    most = np.zeros((length, 4, 4))
    for reports in itertools.product([0, 2, 3], repeat=length):
        likely = likelihoods(table, reports)
        belief = forward_backward(movement, likely)
        at = [movement.start @ np.linalg.matrix_power(movement.steps, t) for t in range(length)]
        ratio = np.log(belief / np.stack(at))
        most = np.maximum(most, ratio[:, :, None] - ratio[:, None, :])
    return most


def test_what_a_trace_tells_of_a_moment_is_bounded(movement, table):
    nats = table.epsilon * table.problem.domain.distances()
    bound = moment_leakage(movement, nats, 4)
    assert (told_at_most(movement, table, 4) <= bound + 1e-12).all()
    assert (bound <= 4 * nats + 1e-9).all()
    # Who never moves is told by composition, of who jumps anywhere each moment tells itself alone.
    still = Movement(np.full(4, 0.25), np.eye(4))
    assert moment_leakage(still, nats, 3) == pytest.approx(np.tile(3 * nats, (3, 1, 1)), abs=1e-9)
    jumps = Movement(np.full(4, 0.25), np.full((4, 4), 0.25))
    assert moment_leakage(jumps, nats, 3) == pytest.approx(np.tile(nats, (3, 1, 1)), abs=1e-9)


def told_of_both(ways, share, table, length):
    """The largest log-ratio of all reports of people who move in one of two ways, by sums over all
    ways there are."""
    most = np.zeros((length, 4, 4))
    for reports in itertools.product([0, 2, 3], repeat=length):
        likely = likelihoods(table, reports)
        told, seen = np.zeros((length, 4)), np.zeros((length, 4))
        for part, way in zip((share, 1 - share), ways, strict=True):
            for at in itertools.product(range(4), repeat=length):
                chance = part * way.start[at[0]]
                chance *= np.prod([way.steps[a, b] for a, b in itertools.pairwise(at)])
                seen[range(length), at] += chance
                told[range(length), at] += chance * likely[range(length), at].prod()
        ratio = np.log(told / seen)
        most = np.maximum(most, ratio[:, :, None] - ratio[:, None, :])
    return most


def test_a_class_of_ways_bounds_every_mixture_of_them(movement, table):
    nats = table.epsilon * table.problem.domain.distances()
    jumps = Movement(np.array([0.7, 0.1, 0.1, 0.1]), np.tile([0.4, 0.3, 0.2, 0.1], (4, 1)))
    bound = moment_leakage([movement, jumps], nats, 3)
    for share in (0.02, 0.3, 0.9):
        most = told_of_both((movement, jumps), share, table, 3)
        assert (most <= bound + 1e-9).all()
    assert moment_leakage([movement], nats, 3) == pytest.approx(moment_leakage(movement, nats, 3))
    # Of who jumps about one side or the other, reports of other moments say which side that is.
    sides = [np.array([0.5, 0.5, 0.0, 0.0]), np.array([0.0, 0.0, 0.5, 0.5])]
    ways = [Movement(side, np.tile(side, (4, 1))) for side in sides]
    bound, most = moment_leakage(ways, nats, 3), told_of_both(ways, 0.5, table, 3)
    assert (most <= bound + 1e-9).all()
    for way in ways:
        assert (most > moment_leakage(way, nats, 3) + 0.05).any()
    with pytest.raises(MethodError, match="ways to move over as many records"):
        moment_leakage([], nats, 3)


def test_one_step_is_the_extreme_ray_of_the_cone():
    """Two records: the largest ratio is at w = (e^L, 1), by hand."""
    nats = np.array([[0.0, 1.0], [1.0, 0.0]])
    steps = np.array([[0.9, 0.1], [0.2, 0.8]])
    told = moment_leakage(Movement(np.array([2, 1]) / 3, steps), nats, 2)
    w = np.array([np.e, 1.0])
    assert told[0, 0, 1] == pytest.approx(1 + np.log((steps[0] @ w) / (steps[1] @ w)), abs=1e-9)
