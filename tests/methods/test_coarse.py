"""LP+CA: cells, sound budgets, the paper's unsound ones, and the count of what they break."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import KINDS, displacement_problem, random_domain

from panda_mdp import (
    Domain,
    Mechanism,
    NoGuarantee,
    Problem,
    coarse,
    optimal,
)
from panda_mdp.errors import MethodError, NotForReleaseError
from panda_mdp.methods.coarse import (
    Fences,
    clusters,
    coarse_unsound,
    grid_cells,
    shortest_ways,
)


def town(size: int = 60, outputs: int = 6, epsilon: float = 2.0):
    domain = random_domain("haversine", size, seed=4)
    rng = np.random.default_rng(1)
    prior = rng.random(size) * (rng.random(size) < 0.8)
    return displacement_problem(
        domain, np.arange(0, size, size // outputs)[:outputs], epsilon, prior / prior.sum()
    )


def broken(matrix: np.ndarray, domain: Domain, epsilon: float) -> float:
    """The share of broken pairs by brute force over ordered pairs."""
    # An output that nobody reports has a column of zeros.
    logs = np.log(np.where(matrix > 0, matrix, 1.0))
    over = logs[:, None, :] - logs[None] > epsilon * domain.distances()[:, :, None] + 1e-9
    size = len(matrix)
    return float((over.any(axis=2) | over.any(axis=2).T).sum() / (size * (size - 1)))


def test_grid_cells_are_the_rectangles_that_hold_records():
    points = np.array([[0.0, 0.0], [0.9, 0.1], [1.1, 0.0], [4.0, 4.0], [3.9, 0.0]])
    cell, between = grid_cells(Domain.from_vectors(points), 4)
    assert cell[0] == cell[1]
    assert len({int(cell[k]) for k in (0, 2, 3, 4)}) == len(between) == 4
    np.testing.assert_allclose(between[cell[0], cell[2]], 1.0)
    np.testing.assert_allclose(between[cell[0], cell[3]], np.hypot(3, 3))


def test_records_on_a_line_make_a_row_of_cells():
    line = np.stack([np.arange(6.0), np.zeros(6)], axis=1)
    assert grid_cells(Domain.from_vectors(line), 3)[0].tolist() == [0, 0, 1, 1, 2, 2]


@pytest.mark.parametrize("kind", ["euclidean", "matrix"])
def test_clusters_cover_domains_without_a_plane(kind):
    domain = random_domain(kind, 40)
    assert domain.plane is None
    cell, between = grid_cells(domain, 3)
    assert 1 < len(between) <= 9
    assert np.unique(cell).tolist() == list(range(len(between)))
    assert len(cell) == 40


def test_as_many_clusters_as_records_are_the_records():
    domain = random_domain("matrix", 7)
    assert len(clusters(domain, 100)[1]) == 7


def test_clusters_find_well_separated_groups():
    rng = np.random.default_rng(0)
    groups = np.repeat(np.eye(4) * 50, 10, axis=0) + rng.normal(size=(40, 4))
    cell, between = clusters(Domain.from_vectors(groups), 4)
    assert len(between) == 4
    assert len(np.unique(cell.reshape(4, 10), axis=1).ravel()) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_ways_between_cells_are_no_longer_than_any_two_records_and_a_metric(kind):
    domain = random_domain(kind, 30)
    cell, between = grid_cells(domain, 3)
    ways = shortest_ways(domain, cell)
    count, apart = len(between), domain.distances()
    assert ways.shape == (count, count)
    blocks = [
        [apart[np.ix_(cell == a, cell == b)].min() for a in range(count)] for b in range(count)
    ]
    least = np.where(np.eye(count), 0.0, blocks)
    assert np.all(ways <= least)
    assert np.all(ways <= (ways[:, :, None] + ways[None]).min(axis=1) * (1 + 1e-12))
    # As long as that allows: one more step over a third cell gives nothing less.
    through = (least[:, :, None] + ways[None]).min(axis=1)
    np.testing.assert_allclose(ways, through, rtol=1e-11, atol=0.0)


@pytest.mark.parametrize("kind", KINDS)
def test_sound_passes_the_audit_and_shares_rows(kind):
    domain = random_domain(kind, 50, seed=2)
    problem = displacement_problem(domain, [0, 10, 20, 30], 3.0)
    mechanism = coarse(problem, cells=3)
    assert isinstance(mechanism, Mechanism)
    cell, _ = grid_cells(domain, 3)
    for c in range(cell.max() + 1):
        assert len(np.unique(mechanism.weights[cell == c], axis=0)) == 1
    assert mechanism.details["cells"] == cell.max() + 1
    assert mechanism.lower_bound is None
    assert mechanism.loss <= mechanism.details["fenced_bound"] * 1.0101
    assert mechanism.loss >= optimal(problem).lower_bound


def test_loss_of_the_cells_is_the_loss_of_the_records():
    problem = town()
    cell, between = grid_cells(problem.domain, 3)
    small = Fences(problem.domain, cell).fold(problem)
    rows = np.random.default_rng(0).dirichlet(np.ones(6), len(between))
    assert small.expected_loss(rows) == pytest.approx(problem.expected_loss(rows[cell]))


def test_unsound_is_the_paper_and_counts_what_it_breaks():
    problem = town(epsilon=4.0)
    table = coarse_unsound(problem, cells=3)
    assert isinstance(table, NoGuarantee)
    assert not table.audit.holds
    pairs = broken(table.matrix, problem.domain, 4.0)
    assert pairs > 0
    assert table.details["violated_pairs"] == pytest.approx(pairs)
    with pytest.raises(NotForReleaseError):
        table.sample(0)
    # The wider budgets are worth something: that is why the unsound table looks better.
    assert table.loss < coarse(problem, cells=3).loss


@pytest.mark.parametrize("gap", [1e-3, 1e-9, 1e-10])
def test_cells_nearer_than_any_threshold_keep_their_distance(gap):
    """Two records on either side of a border: what is taken for no distance is no constraint."""
    points = [[0.0, 0.0], [1.0, 1.0], [0.5 - gap, 0.3], [0.5 + gap, 0.3], [0.1, 0.9], [0.8, 0.1]]
    domain = Domain.from_vectors(points)
    cell, _ = grid_cells(domain, 2)
    ways = shortest_ways(domain, cell)
    assert 1 - 3e-12 < ways[ways > 0].min() / domain.distance(2, 3) <= 1
    problem = Problem(domain, [0, 1], domain.distances(None, [0, 1]), 1.0)
    assert coarse(problem, cells=2).audit.holds


@pytest.mark.parametrize("size", [1e-300, 1e300, 1e307])
def test_losses_of_any_size(size):
    plain = town(size=40, outputs=4)
    problem = Problem(plain.domain, plain.outputs, plain.loss / plain.loss.max() * size, 2.0)
    assert coarse(problem, cells=3).loss < size
    best = optimal(problem, gap=0.05)
    assert best.details["stopped"] == "gap reached"


def test_more_cells_than_records_is_the_optimum():
    problem = town(size=30, outputs=5)
    fine = coarse(problem, cells=500)
    assert fine.details["cells"] == 30
    best = optimal(problem)
    assert best.lower_bound <= fine.loss <= best.lower_bound * 1.021


def test_one_cell_reports_the_best_single_output():
    problem = town()
    mechanism = coarse(problem, cells=1)
    assert mechanism.details["cells"] == 1
    single = float((problem.prior @ problem.loss).min())
    assert mechanism.loss == pytest.approx(single, rel=1e-6)


def test_a_time_limit_still_gives_a_private_table():
    mechanism = coarse(town(), cells=4, time_limit=1e-6)
    assert mechanism.audit.holds
    assert mechanism.details["stopped"] in ("time limit", "gap reached")


@pytest.mark.parametrize("cells", [0, -1, 2.5, "8"])
def test_cells_is_checked(cells):
    with pytest.raises(MethodError, match="cells is"):
        coarse(town(), cells=cells)
