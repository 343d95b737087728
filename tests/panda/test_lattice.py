"""A centre on a lattice, rows that fade: exhaustively on small domains, as tight as promised."""

from __future__ import annotations

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.errors import MethodError
from panda_mdp.panda.lattice import (
    LEVEL,
    NARROW_KM,
    ROUNDING,
    Lattice,
    common_share,
    edge_epsilon,
    faded,
)
from panda_mdp.privacy.audit import audit_weights
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.privacy.sampler import SeededBits

RNG = np.random.default_rng(7)
CITY = pm.Domain.from_points(41.9 + 0.03 * RNG.random(9), 12.5 + 0.03 * RNG.random(9))
PLANE = pm.Domain.from_vectors(RNG.random((8, 2)) * 2)
LINE = pm.Domain.from_vectors([[0.0], [1e-3], [0.4], [1.7]])
SIZES = (0.6, 1.5, 4.0)


def logs_of_law(law: Lattice, record: int) -> np.ndarray:
    """log P(c|x) over all centres of the box, from whole numbers."""
    near, extra, least = law.weights(record)
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
    law, apart = Lattice(domain, epsilon), domain.distances()
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
    law, bits = Lattice(CITY, 3.0), SeededBits(1)
    low = law.box[0]
    chances = np.exp(logs_of_law(law, 4))
    draws = np.array([law.draw(4, bits) for _ in range(1_500)]) - low
    counts = np.zeros(chances.shape)
    np.add.at(counts, tuple(draws.T), 1)
    likely = chances > 2e-3
    error = np.abs(counts - 1_500 * chances)[likely] / np.sqrt(1_500 * chances[likely])
    assert error.max() < 5
    assert law.holds((int(low[0]), int(low[1]))) and not law.holds((int(low[0]) - 1, 0))


class Given:
    """Words that are given."""

    def __init__(self, word: int) -> None:
        self.word = word

    def integers(self, count: int) -> np.ndarray:
        return np.array([(self.word >> (62 * k)) % TOTAL for k in reversed(range(count))])


def test_every_centre_of_the_box_can_be_drawn() -> None:
    """The least words give the first corner of the box, the largest the last of the near ones."""
    law = Lattice(CITY, 3.0)
    (low, high), (near, extra, least) = law.box, law.weights(4)
    count = int(np.prod(high - low + 1))
    whole = least * count + sum(extra)
    most = 1 << (3 * 62)
    for at, centre in ((0, low), (count - 1, high), (count // 2, None)):
        word = -(-least * at * most // whole) + most // whole
        drawn = law.draw(4, Given(word))
        assert law.holds(drawn)
        if centre is not None:
            assert list(drawn) == centre.tolist()
    last = int(np.flatnonzero(extra)[-1])
    assert list(law.draw(4, Given(most - 1 - most // whole))) == near[last].tolist()


def test_a_radius_leaves_out_about_as_many_as_asked() -> None:
    law = Lattice(PLANE, 2.0)
    low, high = law.box
    points = np.stack(np.mgrid[low[0] : high[0] + 1, low[1] : high[1] + 1], axis=-1)
    apart = np.linalg.norm(points / law.exponent - law.places[2], axis=-1)
    for missed in (1e-2, 1e-4, 1e-7):
        found = np.exp(logs_of_law(law, 2))[apart > law.radius(missed)].sum()
        assert 0.8 * missed < found < 1.25 * missed


def test_the_plane_never_lengthens_a_distance() -> None:
    wide = pm.Domain.from_points(RNG.uniform(-80, 80, 40), RNG.uniform(-179, 179, 40))
    for domain in (CITY, wide, PLANE):
        places = Lattice(domain, 1.0).places
        gaps = np.linalg.norm(places[:, None] - places, axis=-1)
        assert (gaps <= domain.distances() * (1 + 1e-12) + 1e-9).all()


def test_what_has_no_plane_or_lies_too_near_is_refused() -> None:
    with pytest.raises(MethodError, match="drawn in a plane"):
        Lattice(pm.Domain.from_vectors(np.eye(4)), 1.0)
    for size in (3, 12):
        # Paths have places for maps; their distances are not those of a plane.
        ring, places = np.arange(size), (41 + RNG.random(size), 12 + RNG.random(size))
        edges = np.stack([ring, (ring + 1) % size], axis=1)
        with pytest.raises(MethodError, match="drawn in a plane"):
            Lattice(pm.Domain.from_graph(edges, [1.0], places=places), 1.0)
    with pytest.raises(MethodError, match="from each other"):
        Lattice(pm.Domain.from_points([41.9, 41.90000001], [12.5, 12.5]), 1.0)
    with pytest.raises(MethodError):
        Lattice(CITY, 0.0)


@pytest.mark.parametrize("spread", [1.0, 1.5, 2.0, 3.0, 8.0, 40.0, 400.0])
@pytest.mark.parametrize("edge", [0.05, 0.5, 2.0])
def test_the_share_of_the_common_row_keeps_both_conditions_of_the_proof(
    spread: float, edge: float
) -> None:
    """w <= e^(epsilon s) w', and w + (1 - w) M <= e^(epsilon s) w' + e^(edge s) (1 - w') M."""
    epsilon, depth = 4.0, np.linspace(0, 12, 600)
    share = common_share(depth, spread, epsilon, edge)
    assert share[0] == 1 and (np.diff(share) <= 0).all() and share[-1] < 1
    gap = np.abs(depth[:, None] - depth)
    here, there = share[:, None], share[None]
    many, few = np.exp(epsilon * gap), np.exp(edge * gap)
    assert (here <= many * there * (1 + 1e-12)).all()
    most = many * there + few * (1 - there) * spread
    assert (here + (1 - here) * spread <= most * (1 + 1e-12)).all()


@pytest.mark.parametrize("radius", SIZES)
@pytest.mark.parametrize("domain", [CITY, PLANE], ids=["city", "plane"])
def test_centre_and_report_tell_epsilon_at_most_over_all_of_both(
    domain: pm.Domain, radius: float
) -> None:
    """Every centre of the box, every report, every pair of records, on the integers drawn from."""
    first, second, edge = 1.0, 2.5, 0.4
    outputs = [0, 3, 5]
    loss = pm.distance_loss(domain, outputs)
    problem = pm.Problem(domain, outputs, loss, second - edge)
    weights = np.asarray(pm.optimal(problem, 0.01).weights)
    law, apart = Lattice(domain, first), domain.distances()
    centre_logs = np.array([logs_of_law(law, x) for x in range(domain.size)])
    low, high = law.box
    near = [
        (i, j)
        for i in range(int(low[0]), int(high[0]) + 1)
        for j in range(int(low[1]), int(high[1]) + 1)
        if len(law.ball((i, j), radius))
    ]
    most, cut = 0.0, 0
    for centre in near:
        ball, depth = law.ball(centre, radius), law.depths(centre, radius)
        reports = faded(weights[ball], depth[ball], second, edge)
        assert (reports.sum(axis=1) == TOTAL).all()
        row = np.full(domain.size, len(ball))
        row[ball] = np.arange(len(ball))
        at = (centre[0] - int(low[0]), centre[1] - int(low[1]))
        logs = centre_logs[:, at[0], at[1], None] + np.log(reports[row].astype(float))
        for x in range(domain.size):
            gaps = np.abs(logs[x] - np.delete(logs, x, axis=0)).max(axis=1)
            most = max(most, float((gaps / np.delete(apart[x], x)).max()))
        cut += 0 < len(ball) < domain.size
        # What a client looks at, who has this ball alone.
        assert edge_epsilon(reports, depth[ball]) <= second
        if len(ball) > 1:
            assert audit_weights(domain.take(ball), np.arange(3), reports[:-1], second).holds
    # Where the ball is empty all have the common row, and the centre tells what it tells.
    assert cut > 3
    assert 0.8 * first < most <= first + second


def test_rows_far_inside_stay_as_they_are_and_those_at_the_edge_are_common() -> None:
    rows = np.array([[3, 1], [2, 2]]) * (TOTAL // 4)
    reports = faded(rows, np.array([2 * NARROW_KM, 9.0]), 3.0, 0.5)
    assert (reports[0] == reports[2]).all()
    np.testing.assert_allclose(reports[1] / TOTAL, rows[1] / TOTAL, atol=1e-6)
    np.testing.assert_allclose(reports[2] / TOTAL, [0.6, 0.4], atol=1e-12)
    alone = faded(np.zeros((0, 3), dtype=np.int64), np.zeros(0), 3.0, 0.5)
    np.testing.assert_allclose(alone / TOTAL, np.full((1, 3), 1 / 3))


def test_the_edge_tells_over_how_near_somebody_outside_may_be() -> None:
    """Records up to `NARROW_KM` deep are outside, a hair from whoever is a hair deeper."""
    rng = np.random.default_rng(3)
    weights = rng.integers(1, 9, (40, 4))
    weights[:, -1] += TOTAL - weights.sum(axis=1)
    depth = NARROW_KM + rng.uniform(6e-6, 3e-4, 40)
    reports = faded(weights, depth, 3.0, 0.5)
    assert (reports == reports[-1]).all() and edge_epsilon(reports, depth) == 0
    common = reports[-1]
    for row, at in zip(weights, depth, strict=True):
        gap = float(np.abs(np.log(row / TOTAL) - np.log(common / TOTAL)).max())
        told = edge_epsilon(np.stack([row, common]), np.array([at]))
        assert gap > 0 and told * (at - NARROW_KM) >= gap * (1 - 1e-12)
        assert edge_epsilon(np.stack([row, common]), np.array([NARROW_KM])) == float("inf")


def test_rows_without_an_end_are_seen() -> None:
    sharp = np.array([[TOTAL, 0], [TOTAL // 2, TOTAL // 2]])
    assert edge_epsilon(sharp, np.array([5.0])) == float("inf")
    # An output that nobody reports tells nothing.
    unused = np.array([[TOTAL, 0], [TOTAL, 0]])
    assert edge_epsilon(unused, np.array([5.0])) == 0.0
