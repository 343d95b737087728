"""A centre on a lattice, rows that fade: exhaustively on small domains, as tight as promised."""

from __future__ import annotations

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.errors import MethodError
from panda_mdp.panda.lattice import (
    FADED_OUT,
    FADING_RESERVE,
    LEVEL,
    ROUNDING,
    BallLaw,
    common_row,
    common_share,
    exponent_of,
    radius_for,
)
from panda_mdp.privacy.quantise import TOTAL, SeededBits

RNG = np.random.default_rng(7)
CITY = pm.Domain.from_points(41.9 + 0.03 * RNG.random(9), 12.5 + 0.03 * RNG.random(9))
PLANE = pm.Domain.from_vectors(RNG.random((8, 2)) * 2)
LINE = pm.Domain.from_vectors([[0.0], [1e-3], [0.4], [1.7]])
SIZES = (0.6, 1.5, 4.0)


def lattice(domain: pm.Domain, epsilon: float, radius: float = 1.0) -> BallLaw:
    """Balls of which the law of the centre is looked at."""
    return BallLaw(domain, epsilon, radius, 3.0, 0.3)


def logs_of_law(law: BallLaw, record: int) -> np.ndarray:
    """log P(c|x) over all centres of the box, from whole numbers."""
    near, extra, least = law.weights(law.places[record])
    low, high = law.box
    weights = np.full(high - low + 1, least, dtype=object)
    assert ((near >= low) & (near <= high)).all()
    for (i, j), more in zip((near - low).tolist(), extra, strict=True):
        assert more >= 0
        weights[i, j] += more
    # Logarithms of whole numbers beyond 2^64, to full precision.
    return np.log(weights.astype(float)) - np.log(float(weights.sum()))


@pytest.mark.parametrize("domain", [CITY, PLANE, LINE], ids=["city", "plane", "line"])
@pytest.mark.parametrize("epsilon", [0.5, 3.0])
def test_a_centre_tells_epsilon_at_most_over_every_centre_and_pair(
    domain: pm.Domain, epsilon: float
) -> None:
    law, apart = lattice(domain, epsilon), domain.distances()
    logs = np.array([logs_of_law(law, x) for x in range(domain.size)])
    most = 0.0
    for x in range(domain.size):
        for y in range(domain.size):
            if x != y:
                most = max(most, float(np.abs(logs[x] - logs[y]).max()) / apart[x, y])
    # Nothing is given away either: a bound that is far off would cost large balls.
    assert 0.99 * epsilon < most <= epsilon


def test_the_sum_over_the_lattice_is_as_level_as_poisson_says() -> None:
    """|grad log N| at the points of a cell, by sums over the lattice, against the closed form."""
    points = np.stack(np.meshgrid(*2 * [np.arange(-45, 46)]), axis=-1).reshape(-1, 2)
    steepest = 0.0
    for at in np.stack(np.meshgrid(*2 * [np.linspace(0, 0.5, 11)]), axis=-1).reshape(-1, 2):
        offset = at - points
        length = np.hypot(np.hypot(*offset.T), ROUNDING)
        terms = np.exp(-length)
        steepest = max(steepest, float(np.hypot(*((terms / length) @ offset) / terms.sum())))
    assert 0.5 * LEVEL < steepest <= LEVEL < 1e-3


def test_centres_are_drawn_as_often_as_their_weights_say() -> None:
    law, bits = lattice(CITY, 3.0), SeededBits(1)
    low = law.box[0]
    chances = np.exp(logs_of_law(law, 4))
    draws = np.array([law.draw(4, bits) for _ in range(1_500)]) - low
    counts = np.zeros(chances.shape)
    np.add.at(counts, tuple(draws.T), 1)
    likely = chances > 2e-3
    error = np.abs(counts - 1_500 * chances)[likely] / np.sqrt(1_500 * chances[likely])
    assert error.max() < 5


class Given:
    """Words that are given."""

    def __init__(self, word: int) -> None:
        self.word = word

    def integers(self, count: int) -> np.ndarray:
        return np.array([(self.word >> (62 * k)) % TOTAL for k in reversed(range(count))])


def test_every_centre_of_the_box_can_be_drawn() -> None:
    """The least words give the first corner of the box, the largest the last of the near ones."""
    law = lattice(CITY, 3.0)
    (low, high), (near, extra, least) = law.box, law.weights(law.places[4])
    count = int(np.prod(high - low + 1))
    whole = least * count + sum(extra)
    most = 1 << (3 * 62)
    for at, centre in ((0, low), (count - 1, high), (count // 2, None)):
        word = -(-least * at * most // whole) + most // whole
        drawn = law.draw(4, Given(word))
        assert (low <= drawn).all() and (high >= drawn).all()
        if centre is not None:
            assert list(drawn) == centre.tolist()
    last = int(np.flatnonzero(extra)[-1])
    assert list(law.draw(4, Given(most - 1 - most // whole))) == near[last].tolist()


class Words:
    """Words that are given one after another, and how many were asked for."""

    def __init__(self, *words: int) -> None:
        self.words, self.asked = list(words), 0

    def integers(self, count: int) -> np.ndarray:
        self.asked += 1
        return Given(self.words.pop(0)).integers(count)


def test_draws_are_exact_at_the_limits_between_centres() -> None:
    """A word at which a centre begins is that centre's, and words of which there is one too many
    for some centre are drawn again."""
    law = lattice(CITY, 3.0)
    (low, high), (near, extra, least) = law.box, law.weights(law.places[4])
    first = least * int(np.prod(high - low + 1))
    whole, most = first + sum(extra), 1 << (3 * 62)
    limit = first
    for k in range(40):
        word = -(-limit * most // whole) + 1
        assert word * whole // most == limit
        # Two centres of no weight beyond the box's begin at the same word.
        begins = k + next(i for i, more in enumerate(extra[k:]) if more)
        assert list(law.draw(4, Given(word))) == near[begins].tolist()
        limit += extra[k]
    bits = Words(0, most // 3)
    assert law.draw(4, bits) == law.draw(4, Given(most // 3)) and bits.asked == 2


def test_the_exponent_pays_for_rounding_and_for_how_uneven_the_sums_are() -> None:
    for epsilon in (0.01, 2.0, 300.0):
        told = exponent_of(epsilon) * (1 + LEVEL)
        assert told == pytest.approx(epsilon * (1 - 1e-5), rel=1e-12)


def test_far_centres_have_the_chance_that_all_have() -> None:
    wide = pm.Domain.from_vectors([[0.0, 0.0], [100.0, 0.0]])
    law = lattice(wide, 1.0)
    low, high = law.box
    logs = np.array([logs_of_law(law, x) for x in range(2)])
    for centre in (low, high, np.array([int(high[0]), int(low[1])])):
        found = law.log_chances(centre[None])[:, 0]
        np.testing.assert_allclose(found, logs[:, *(centre - low)], atol=1e-6)


def test_a_radius_is_where_the_tail_of_the_law_begins() -> None:
    """Of the density exp(-sqrt(r^2 + h^2)) in the plane (1 + s) exp(-s) / (1 + h) exp(h) lies
    beyond r, s^2 = r^2 + h^2."""
    for missed in (1e-2, 1e-5, 1e-9):
        s = np.hypot(radius_for(2.0, missed) * exponent_of(2.0), ROUNDING)
        tail = (1 + s) * np.exp(ROUNDING - s) / (1 + ROUNDING)
        assert tail == pytest.approx(missed, rel=1e-9)


def test_a_radius_leaves_out_about_as_many_as_asked() -> None:
    law = lattice(PLANE, 2.0)
    low, high = law.box
    points = np.stack(np.mgrid[low[0] : high[0] + 1, low[1] : high[1] + 1], axis=-1)
    apart = np.linalg.norm(points / law.exponent - law.places[2], axis=-1)
    for missed in (1e-2, 1e-4, 1e-7):
        found = np.exp(logs_of_law(law, 2))[apart > radius_for(2.0, missed)].sum()
        assert 0.8 * missed < found < 1.25 * missed


def test_the_plane_never_lengthens_a_distance() -> None:
    wide = pm.Domain.from_points(RNG.uniform(-80, 80, 40), RNG.uniform(-179, 179, 40))
    for domain in (CITY, wide, PLANE):
        places = lattice(domain, 1.0).places
        gaps = np.linalg.norm(places[:, None] - places, axis=-1)
        assert (gaps <= domain.distances() * (1 + 1e-12) + 1e-9).all()


def test_what_has_no_plane_or_lies_too_near_is_refused() -> None:
    with pytest.raises(MethodError, match="drawn in a plane"):
        lattice(pm.Domain.from_vectors(np.eye(4)), 1.0)
    for size in (3, 12):
        # Paths have places for maps; their distances are not those of a plane.
        ring, places = np.arange(size), (41 + RNG.random(size), 12 + RNG.random(size))
        edges = np.stack([ring, (ring + 1) % size], axis=1)
        with pytest.raises(MethodError, match="drawn in a plane"):
            lattice(pm.Domain.from_graph(edges, [1.0], places=places), 1.0)
    with pytest.raises(MethodError, match="from each other"):
        lattice(pm.Domain.from_points([41.9, 41.90000001], [12.5, 12.5]), 1.0)
    for wrong in (
        (0.0, 1.0, 3.0, 0.3),
        (1.0, 0.0, 3.0, 0.3),
        (1.0, 1.0, 3.0, 3.0),
        (1.0, 1.0, 3.0, 0.0),
    ):
        with pytest.raises(MethodError):
            BallLaw(CITY, *wrong)
    # The lattice itself asks for a distance where fading has all of the report.
    with pytest.raises(MethodError, match="from each other"):
        BallLaw(pm.Domain.from_vectors([[1e9, 0.0], [1e9 + 0.5, 0.0]]), 1.0, 1.0, 3.0, 2.9)
    # What fading is held back for has to be more than rounding.
    with pytest.raises(MethodError, match="from each other"):
        BallLaw(CITY, 1.0, 1.0, 3.0, 1e-9)


@pytest.mark.parametrize("spread", [1.0, 1.5, 2.0, 3.0, 8.0, 40.0, 400.0])
@pytest.mark.parametrize("edge", [0.05, 0.5, 2.0])
def test_the_share_of_the_common_row_keeps_both_conditions_of_the_proof(
    spread: float, edge: float
) -> None:
    """w <= e^(epsilon s) w', and w + (1 - w) M <= e^(epsilon s) w' + e^(edge s) (1 - w') M, with
    nearly all that is held back for rounding left over."""
    epsilon, depth = 4.0, np.linspace(0, 12, 600)
    share = common_share(depth, spread, epsilon, edge)
    assert share[0] == 1 and (np.diff(share) <= 0).all() and share[-1] < 1
    assert common_share(np.array([1e4]), spread, epsilon, edge)[0] == FADED_OUT
    gap = np.abs(depth[:, None] - depth)
    here, there = share[:, None], share[None]
    spent = 1 - 0.99 * FADING_RESERVE
    many, few = np.exp(epsilon * spent * gap), np.exp(edge * spent * gap)
    assert (here <= many * there * (1 + 1e-12)).all()
    most = many * there + few * (1 - there) * spread
    assert (here + (1 - here) * spread <= most * (1 + 1e-12)).all()


def test_the_common_row_is_computed_in_whole_numbers() -> None:
    rng = np.random.default_rng(3)
    for count, outputs in ((1, 2), (5, 4), (40, 30)):
        rows = rng.integers(1, 9, (count, outputs))
        rows[0, 0] = 1
        rows[:, -1] += TOTAL - rows.sum(axis=1)
        common, spread = common_row(rows)
        assert common.sum() == TOTAL and (common > 0).all()
        peaks = [max(column) for column in rows.T.tolist()]
        assert all(peak <= spread * part for peak, part in zip(peaks, common.tolist(), strict=True))
        assert spread <= sum(peaks) / TOTAL * (1 + 1e-9) or min(peaks) < 1 << 30
    # What one record reports once in 2^62 draws everybody outside may report as well.
    common, spread = common_row(np.array([[TOTAL - 2, 1, 1], [1, TOTAL - 2, 1]]))
    assert common[2] == 1 and common.sum() == TOTAL and 2 * (1 - 1e-9) < spread < 2 * (1 + 1e-9)
    # What nobody in the ball reports nobody outside does; of no rows all outputs are alike.
    common, _ = common_row(np.array([[TOTAL // 4, 0, 3 * (TOTAL // 4)]]))
    assert common.tolist() == [TOTAL // 4, 0, 3 * (TOTAL // 4)]
    assert np.ptp(common_row(np.zeros((0, 3), dtype=np.int64))[0]) <= 3


@pytest.mark.parametrize("radius", SIZES)
@pytest.mark.parametrize("domain", [CITY, PLANE], ids=["city", "plane"])
def test_centre_and_report_tell_epsilon_at_most_over_all_of_both(
    domain: pm.Domain, radius: float
) -> None:
    """Every centre of the box, every report, every pair of records, on the whole numbers that are
    drawn with: coins of 2^-62 and rows of 2^-62."""
    first, second, edge = 1.0, 2.5, 0.4
    outputs = [0, 3, 5]
    loss = pm.distance_loss(domain, outputs)
    problem = pm.Problem(domain, outputs, loss, second - edge)
    weights = np.asarray(pm.optimal(problem, 0.01).weights)
    law, apart = BallLaw(domain, first, radius, second, edge), domain.distances()
    centre_logs = np.array([logs_of_law(law, x) for x in range(domain.size)])
    low, high = law.box
    most, cut = 0.0, 0
    for i in range(int(low[0]), int(high[0]) + 1):
        for j in range(int(low[1]), int(high[1]) + 1):
            ball = law.ball((i, j))
            if not len(ball):
                continue
            shares, common = law.fade(law.depths((i, j)), weights[ball])
            assert (shares[np.setdiff1d(np.arange(domain.size), ball)] == TOTAL).all()
            exact = [
                [s * u + (TOTAL - s) * z for u, z in zip(common.tolist(), row, strict=True)]
                for s, row in zip(shares.tolist(), weights.tolist(), strict=True)
            ]
            assert {sum(row) for row in exact} == {TOTAL**2}
            logs = np.log(np.array(exact, dtype=float))
            logs += centre_logs[:, i - int(low[0]), j - int(low[1]), None]
            for x in range(domain.size):
                gaps = np.abs(logs[x] - np.delete(logs, x, axis=0)).max(axis=1)
                most = max(most, float((gaps / np.delete(apart[x], x)).max()))
            cut += len(ball) < domain.size
    # Where the ball is empty all have the common row, and the centre tells what it tells.
    assert cut > 3
    assert 0.8 * first < most <= first + second


def test_rows_far_inside_stay_as_they_are_and_those_at_the_edge_are_common() -> None:
    law = BallLaw(PLANE, 1.0, 1.0, 3.0, 0.5)
    rows = np.array([[3, 1], [2, 2]]) * (TOTAL // 4)
    shares, common = law.fade(np.array([0.0, 9.0, -1.0]), rows)
    assert shares[0] == shares[2] == TOTAL and shares[1] / TOTAL < 1e-6
    np.testing.assert_allclose(common / TOTAL, [0.6, 0.4], atol=1e-12)


def test_all_centres_are_enumerated_with_their_chances() -> None:
    law = lattice(PLANE, 2.0)
    sums, low = np.zeros(PLANE.size), law.box[0]
    wanted = np.exp([logs_of_law(law, x) for x in range(PLANE.size)])
    for centre, chances in law.releases():
        sums += chances
        at = (centre[0] - int(low[0]), centre[1] - int(low[1]))
        np.testing.assert_allclose(chances, wanted[:, at[0], at[1]], rtol=1e-9, atol=1e-18)
    np.testing.assert_allclose(sums, 1, atol=1e-9)
