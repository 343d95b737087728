"""The bound for all points against mechanisms on finer meshes, which HiGHS makes as good as can be.

A table over a refinement of the mesh whose gradients are bounded in every small triangle is private
at every point, so its loss cannot lie below the bound. Its linear program is set up here from the
definitions alone: gradients within a polygon inside the disc, losses by quadrature.
"""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from forging import File
from scipy import sparse
from scipy.optimize import linprog

import panda_mdp as pm
from panda_mdp.errors import PrivacyError
from panda_mdp.methods.certify import Budget
from panda_mdp.methods.everywhere import lower_bound
from panda_mdp.table.bound import Proved
from panda_mdp.table.claims import Averaged, lower_problem

DIRECTIONS = 12
# Exact for cubics: a density, a loss and a probability that are linear each.
POINTS = np.array([[1 / 3, 1 / 3, 1 / 3], [0.6, 0.2, 0.2], [0.2, 0.6, 0.2], [0.2, 0.2, 0.6]])
WEIGHTS = np.array([-27 / 48, 25 / 48, 25 / 48, 25 / 48])


def question(nats: float) -> pm.Problem:
    """A strip: long enough that reports depend on the place, with few triangles."""
    domain = pm.Domain.from_area((-0.002, -0.008, 0.002, 0.008), spacing=0.2)
    inside = np.flatnonzero(domain.mesh.inside)
    east = domain.mesh.plane[inside, 0]
    outputs = np.sort(inside[[east.argmin(), np.abs(east).argmin(), east.argmax()]])
    return pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), nats / 0.2)


def refined(problem: pm.Problem, parts: int):
    """Small triangles: vertices, corners, each one's large triangle and place in it."""
    mesh = problem.domain.mesh
    known: dict[tuple[int, int], int] = {}
    plane, corners, large, inner = [], [], [], []

    def vertex(weights, triangle):
        place = weights @ mesh.plane[triangle]
        key = tuple(np.round(place / mesh.spacing * 1e6).astype(int).tolist())
        if key not in known:
            known[key] = len(plane)
            plane.append(place)
        return known[key]

    for t, triangle in enumerate(mesh.triangles):
        for i in range(parts):
            for j in range(parts - i):
                up = [(i, j), (i + 1, j), (i, j + 1)]
                down = [(i + 1, j), (i, j + 1), (i + 1, j + 1)]
                for lattice in [up, down] if i + j < parts - 1 else [up]:
                    weights = np.array([[a, b, parts - a - b] for a, b in lattice]) / parts
                    corners.append([vertex(w, triangle) for w in weights])
                    large.append(t)
                    inner.append(weights)
    return np.array(plane), np.array(corners), np.array(large), np.array(inner)


def least_loss(problem: pm.Problem, parts: int, directions: int = DIRECTIONS, around=False):
    """The least loss of tables over the refinement whose gradients keep epsilon, by HiGHS.

    Gradients lie in a polygon within the disc, or `around` it: then no table loses less.
    """
    mesh = problem.domain.mesh
    plane, corners, large, inner = refined(problem, parts)
    size, outputs = len(plane), problem.outputs_count
    cost = np.zeros((size, outputs))
    hat_area = 2.0  # in large triangles: six of them, a third each
    for corner, t, weights in zip(corners, large, inner, strict=True):
        triangle = mesh.triangles[t]
        for point, weight in zip(POINTS, WEIGHTS, strict=True):
            share = point @ weights
            density = share @ problem.prior[triangle] / hat_area
            loss = share @ problem.loss[triangle]
            cost[corner] += weight / parts**2 * density * point[:, None] * loss
    a, b, c = (plane[corners[:, k]] for k in range(3))
    edges = np.stack([b - a, c - a], axis=1)
    # The gradient of what is linear on a triangle, as weights of its three corners.
    rise = np.array([[-1.0, 1.0, 0.0], [-1.0, 0.0, 1.0]])
    gradient = np.linalg.solve(edges, np.broadcast_to(rise, (len(edges), 2, 3)))
    angles = 2 * np.pi * np.arange(directions) / directions
    along = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    slopes = along @ gradient
    allowed = problem.epsilon / mesh.stretch.max()
    if not around:
        allowed *= np.cos(np.pi / directions)
    rows, columns, values, count = [], [], [], 0
    for least in range(3):
        below = slopes.copy()
        below[:, :, least] -= allowed
        for y in range(outputs):
            shape = (len(corners), directions, 3)
            ids = count + np.arange(len(corners) * directions).reshape(shape[:2])
            rows.append(np.broadcast_to(ids[:, :, None], shape).ravel())
            columns.append(np.broadcast_to(corners[:, None] * outputs + y, shape).ravel())
            values.append(below.ravel())
            count += ids.size
    parts_of = (np.concatenate(rows), np.concatenate(columns))
    kept = sparse.csr_array((np.concatenate(values), parts_of), shape=(count, size * outputs))
    sums = sparse.kron(sparse.eye_array(size), np.ones((1, outputs)))
    answer = linprog(
        cost.ravel(),
        A_ub=kept,
        b_ub=np.zeros(count),
        A_eq=sums,
        b_eq=np.ones(size),
        method="highs-ipm",
    )
    assert answer.status == 0
    return float(answer.fun)


@pytest.fixture(scope="module")
def asked():
    problem = question(nats=0.4)
    return problem, [least_loss(problem, parts) for parts in (1, 2, 3)]


def bound_of(problem):
    return lower_bound(problem, problem.domain.mesh, Budget(1e-3), "cpu")[0]


def test_finer_meshes_lose_less_and_never_less_than_the_bound(asked):
    problem, losses = asked
    assert losses[2] < losses[1] < losses[0]
    bound = bound_of(problem)
    assert bound <= losses[2]
    assert bound >= 0.85 * losses[2]


def test_a_bound_that_is_far_from_proved_is_below_the_optimum(asked):
    """What a solver holds proved counts, and not what its table loses."""
    problem, _ = asked
    mesh = problem.domain.mesh
    exact = pm.solve_lp(lower_problem(problem, mesh), "all").loss
    for gap in (0.5, 0.1):
        assert lower_bound(problem, mesh, Budget(gap), "cpu")[0] <= exact * (1 + 1e-7)


def test_the_bound_has_a_proof_that_belongs_to_its_prior_and_losses(asked):
    problem, losses = asked
    table = pm.optimal_everywhere(problem, 0.02)
    proof = table.bound
    assert isinstance(proof, Averaged) and proof.words == "proved"
    assert 0.8 * losses[2] < pickle.loads(pickle.dumps(proof)).value == proof.value <= losses[2]
    for share in (0.0, 0.5, 3.0):
        values = proof.multipliers.values * share
        assert replace(proof, multipliers=replace(proof.multipliers, values=values)).value < (
            proof.value
        )
    people = np.where(problem.prior > 0, 1 + np.arange(problem.size), 0)
    other = replace(problem, prior=people / people.sum())
    with pytest.raises(PrivacyError, match="of another problem"):
        table.with_facts(bound=Averaged(other, proof.multipliers))
    with pytest.raises(PrivacyError, match="of another problem"):
        table.with_facts(bound=Proved(problem, proof.multipliers))


@pytest.mark.parametrize("power", [1, 2])
def test_a_file_holds_the_proof_of_every_point(asked, tmp_path, power):
    """With what was given, from which the reader sums up prior and losses over points again."""
    problem = asked[0]
    if power == 2:
        problem = replace(problem, loss=np.asarray(problem.loss) ** 2)
    table = pm.optimal_everywhere(problem, 0.05)
    again = pm.load(table.save(tmp_path / "t.pmdp"))
    assert isinstance(again.bound, Averaged) and again.bound.value == table.bound.value > 0
    assert np.array_equal(again.bound.problem.loss, np.asarray(problem.loss))
    # Of another prior it proves nothing of this table, and is not shown.
    people = np.where(problem.prior > 0, 1 + np.arange(problem.size), 0)
    file = File.of(table.save(tmp_path / "t.pmdp").read_bytes())
    file.arrays["given_prior"] = people / people.sum()
    (tmp_path / "u.pmdp").write_bytes(file.bytes())
    assert pm.load(tmp_path / "u.pmdp").bound is None


def test_what_is_private_at_vertices_alone_has_no_bound_of_every_point(asked):
    """The vertices' own optimum loses less than any table of every point."""
    problem, _ = asked
    table = pm.optimal_everywhere(problem, 0.02)
    for other in (pm.compact(table), pm.remap(table), pm.second_objective(table, "error", 0.01)):
        assert other.bound is None and other.mesh is None


def test_people_around_one_vertex_cost_no_more_than_a_table_that_ignores_them():
    """All people within a hat whose middle alone is dear: on average they pay less."""
    problem = question(nats=0.4)
    mesh = problem.domain.mesh
    middle = int(np.flatnonzero(mesh.interior)[0])
    dear = np.zeros((problem.size, 1))
    dear[middle] = 1.0
    alone = pm.Problem(problem.domain, pm.Outputs.labels(["x"]), dear, 2.0, prior=dear[:, 0])
    # The loss of the one row there is, by quadrature of the hat's square.
    assert 0 < bound_of(alone) <= least_loss(alone, 1) < 0.51


def test_a_bound_that_forgets_how_loss_and_table_vary_together_would_be_seen(asked):
    problem, losses = asked
    wrong = lower_problem(problem, problem.domain.mesh, (-0.2, -0.05))
    assert pm.optimal(wrong, 1e-3, backend="cpu").lower_bound > losses[2]


@pytest.mark.parametrize("nats", [0.4, 0.8])
def test_the_table_is_as_good_as_any_on_its_mesh(nats):
    """Discs lie between two polygons of 48 sides: so does the loss, nearly."""
    problem = question(nats)
    least, most = (least_loss(problem, 1, 48, around) for around in (True, False))
    assert most < 1.001 * least
    assert least <= pm.optimal_everywhere(problem, 0.002).loss <= 1.002 * most
