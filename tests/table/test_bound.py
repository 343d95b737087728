"""Multipliers prove a bound to whoever reads them; whatever has none is stated, and says so."""

from __future__ import annotations

import copy
import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from forging import proof
from helpers import KINDS, displacement_problem, random_domain
from second_checker import checker

import panda_mdp as pm
from panda_mdp.errors import PrivacyError, ProblemError
from panda_mdp.loss import DistanceLoss
from panda_mdp.methods.certify import proved
from panda_mdp.methods.optimal.optimal import FirstOrder
from panda_mdp.methods.optimal.program import centre_bound, centre_proof, free_bound, free_proof
from panda_mdp.table.bound import Multipliers, Proved, Stated, dual_bound, growth

NONE = Multipliers.of(np.empty((0, 2), dtype=np.int64), np.empty((0, 1)))


@pytest.fixture(scope="module", params=KINDS)
def problem(request):
    return displacement_problem(random_domain(request.param, 12, seed=5), [7, 2, 9, 4], 1.5)


def exactly(problem: pm.Problem, given: Multipliers) -> Fraction:
    """The bound in fractions, by the second checker's exponentials from above."""
    from types import SimpleNamespace

    verify = checker()
    arrays = dict(problem.domain.metric.arrays())
    arrays |= {f"bound_{name}": getattr(given, name) for name in ("pairs", "starts", "columns")}
    arrays |= {"bound_multipliers": given.values}
    values = {name: tuple(a.ravel().tolist()) for name, a in arrays.items()}
    kind = problem.domain.metric.kind
    table = SimpleNamespace(kind=kind, size=problem.size, values=values, epsilon=problem.epsilon)
    costs = [
        [Fraction(float(p)) * Fraction(float(c)) for c in row]
        for p, row in zip(problem.prior, problem.loss, strict=True)
    ]
    return verify.lower_bound(table, verify.METRICS[kind](table), costs)


@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 1e6])
def test_is_below_what_the_second_checker_proves_and_near_it(problem, size):
    rng = np.random.default_rng(2)
    pairs = rng.integers(0, problem.size, (40, 2))
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    dense = size * rng.random((len(pairs), 4)) ** 3
    dense[rng.random(dense.shape) < 0.3] = 0.0
    given = Multipliers.of(pairs, dense)
    exact = exactly(problem, given)
    found, made = dual_bound(problem, given), Proved(problem, given)
    assert Fraction(made.value) <= Fraction(found) <= exact
    metric = problem.domain.metric
    length = metric.pairs(pairs[:, 0], pairs[:, 1])
    top = growth(problem.epsilon, length, metric.relative_error).max() * size * 40
    assert Fraction(made.value) >= exact - Fraction(1e-12 * (top + problem.loss.max()))


@pytest.mark.parametrize("kind", [*KINDS, "line"])
@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("width", [0, 3, 90])
def test_of_losses_that_are_distances_few_outputs_tell_the_bound(kind, power, width):
    """Tiles look at the outputs that multipliers name, and around them: what comes of it is what
    comes of all outputs, with multipliers near and far, priors of 0 and records that no output is.
    """
    line = pm.Domain.from_vectors(np.arange(300.0)[:, None])
    domain = line if kind == "line" else random_domain(kind, 300, seed=3)
    rng = np.random.default_rng(4)
    outputs = rng.permutation(300)[:250]
    prior = rng.dirichlet(np.full(300, 0.3)) * (rng.random(300) < 0.8)
    computed = pm.Problem(
        domain, outputs, DistanceLoss(domain, outputs, power), 1.5, prior / prior.sum()
    )
    stored = replace(computed, loss=computed.loss.stored())
    pairs = np.concatenate([rng.integers(0, 300, (20, 2)), rng.integers(0, 64, (200, 2))])
    pairs = pairs[pairs[:, 0] != pairs[:, 1]]
    owner = np.repeat(np.arange(len(pairs)), width)
    columns = np.concatenate([rng.permutation(250)[:width] for _ in pairs]).astype(int)
    for size in (1e-4, 1e-2):
        given = Multipliers.listed(pairs, owner, columns, size * rng.random(len(owner)))
        found, expected = dual_bound(computed, given), dual_bound(stored, given)
        # Computed losses may err, and the bound allows for it.
        off = 2 * computed.loss_error * float(computed.mean_loss.max())
        assert found == pytest.approx(expected, rel=1e-12, abs=off)
        assert found <= expected


@pytest.mark.parametrize("size", [6, 80])
@pytest.mark.parametrize("backend", ["auto", "cpu"])
def test_losses_that_are_computed_are_solved_as_stored_ones_are(size, backend):
    """By the small LP and by iterations: bounds of boxes look at all outputs of all records."""
    domain = random_domain("euclidean", size, seed=8)
    loss = DistanceLoss(domain, np.arange(size))
    computed = pm.optimal(pm.Problem(domain, range(size), loss, 1.0), 0.02, backend=backend)
    stored = pm.Problem(domain, range(size), loss.stored(), 1.0)
    assert isinstance(computed.bound, Proved)
    assert computed.loss == pytest.approx(pm.optimal(stored, 0.02, backend=backend).loss, rel=1e-6)


def test_a_proof_takes_the_place_of_a_bound_where_it_gives_next_to_nothing_away(problem):
    """A hundredth of the gap, and no gap that is reached becomes one that is not."""
    proof, gap = free_proof(problem), 0.01
    proof = centre_proof(problem, 5) if proof.value <= 0 else proof
    assert proof.value > 0

    def chosen(away, loss_gap):
        bound = Stated(proof.value * (1 + away), "a solver")
        return isinstance(proved(bound, bound.value * (1 + loss_gap), gap, proof), Proved)

    # Far from the gap, at it, within it.
    assert chosen(0.9e-4, 0.5) and not chosen(1.1e-4, 0.5) and not chosen(5e-3, 0.5)
    assert not chosen(0.9e-4, 0.00999) and chosen(0.9e-4, 0.005)


def test_bounds_without_a_solver_have_proofs(problem):
    assert free_proof(problem).value <= free_bound(problem) * (1 + 1e-14)
    assert free_proof(problem).value >= free_bound(problem) * (1 - 1e-13)
    for x in (0, 5):
        made = centre_proof(problem, x)
        assert abs(made.value - centre_bound(problem, x)) <= 1e-12 * centre_bound(problem, x)
        assert Fraction(made.value) <= exactly(problem, made.multipliers)


def test_a_bound_is_what_its_proof_comes_to(problem):
    table = pm.optimal(problem, gap=0.05)
    assert isinstance(table.bound, Proved)
    assert table.lower_bound == table.bound.value == Proved(problem, table.bound.multipliers).value
    with pytest.raises(PrivacyError, match="another problem"):
        other = displacement_problem(problem.domain, [7, 2, 9, 4], 1.5)
        table.with_facts(bound=free_proof(other))
    assert table.with_details(note="x").bound is table.bound
    for twin in (pickle.loads(pickle.dumps(table)), copy.deepcopy(table)):
        assert twin.bound.value == table.bound.value
        assert twin.bound.problem is twin.problem


def test_a_number_is_never_taken_for_a_proof(problem):
    """Whoever passes one states it, and every printer says who did."""
    table = pm.optimal(problem, gap=0.05)
    said = f"lower bound {table.loss:.6g} (stated by the caller, not proved)"
    rebuilt = pm.Mechanism(problem, table.weights, "mine", table.loss)
    for given in (
        rebuilt,
        table.with_facts(bound=table.loss),
        pm.Mechanism.from_matrix(problem, table.matrix, bound=table.loss * (1 - 1e-12)),
    ):
        assert isinstance(given.bound, Stated) and given.bound.by == "the caller"
        assert said in repr(given)
        assert "(stated by the caller, not proved)" in pm.explain(given).text
    assert "(proved)" in repr(table)


def test_pairs_that_prove_nothing_are_left_out(problem):
    pairs = np.array([[0, 1], [1, 0], [2, 3]])
    given = Multipliers.of(pairs, np.array([[0.0] * 4, [0, 1e-3, 0, 2e-3], [0.0] * 4]))
    assert given.pairs.tolist() == [[1, 0]] and given.starts.tolist() == [0, 2]
    assert given.columns.tolist() == [1, 3] and given.values.tolist() == [1e-3, 2e-3]
    assert given.owner.tolist() == [0, 0]


@pytest.mark.parametrize(
    ("pairs", "column", "value", "reason"),
    [
        ([[0, 12]], 0, 1.0, "records outside 0..11"),
        ([[-1, 2]], 0, 1.0, "records outside 0..11"),
        ([[0, 1]], 4, 1.0, "outputs outside 0..3"),
        ([[0, 1]], -1, 1.0, "outputs outside 0..3"),
        ([[0, 1]], 0, -1e-9, "not negative"),
        ([[0, 1]], 0, np.nan, "finite"),
        ([[0, 1]], 0, np.inf, "finite"),
    ],
)
def test_what_is_no_proof_is_refused(problem, pairs, column, value, reason):
    with pytest.raises(ProblemError, match=reason):
        starts = np.array([0, 1])
        given = Multipliers(np.array(pairs), starts, np.array([column]), np.array([value]))
        Proved(problem, given)


@pytest.mark.parametrize("starts", [[0, 2], [1, 1], [0], [0, 1, 1]])
def test_multipliers_belong_to_pairs(starts):
    with pytest.raises(ProblemError, match="do not fit its pairs"):
        Multipliers(np.array([[0, 1]]), np.array(starts), np.array([0]), np.array([1.0]))


def test_numbers_beyond_floats_prove_nothing():
    domain = pm.Domain.from_vectors([[0.0], [1e4]])
    problem = pm.Problem(domain, [0], [[1.0], [1.0]], 1.0)
    assert dual_bound(problem, Multipliers.of(np.array([[0, 1]]), np.ones((1, 1)))) == -np.inf
    assert dual_bound(problem, NONE) > 0.999


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_stated_is_a_number(value):
    with pytest.raises(PrivacyError, match="must be a number"):
        Stated(value, "somebody")


def test_a_solver_from_elsewhere_proves_it_too():
    """SciPy's multipliers, not ours: the bound does not ask where they come from."""
    from forging import mechanism

    table = mechanism("euclidean")
    made = Proved(table.problem, Multipliers.of(*proof("euclidean")))
    assert table.lower_bound * 0.99 <= made.value <= table.loss


def test_a_short_proof_has_fewer_and_shorter_multipliers_and_proves_nearly_as_much(problem):
    pairs, dense = np.array([[x, y] for x in range(12) for y in range(12) if x != y]), None
    full = pm.optimal(problem, gap=1e-6).bound.multipliers
    dense = np.full((len(pairs), 4), 1e-9 * full.values.max())
    place = {tuple(pair): k for k, pair in enumerate(pairs.tolist())}
    rows = [place[tuple(pair)] for pair in full.pairs[full.owner].tolist()]
    np.add.at(dense, (rows, full.columns), full.values)
    noisy = Proved(problem, Multipliers.of(pairs, dense))
    short = noisy.shortened()
    assert len(short.multipliers.columns) < len(noisy.multipliers.columns) == dense.size
    # Twelve binary digits behind the first.
    mantissa, _ = np.frexp(short.multipliers.values)
    assert np.array_equal(mantissa * 2**13, np.rint(mantissa * 2**13))
    assert 0.999 * noisy.value <= short.value <= pm.optimal(problem, gap=1e-6).loss


def test_proofs_of_large_compact_and_second_tables_go_with_them(tmp_path):
    """Saved, compacted and remapped, a bound is proved by the same multipliers."""
    city = pm.synthetic_city(nodes=300, seed=1)
    problem = displacement_problem(city.domain(250), range(0, 250, 10), 5.0)
    table = pm.optimal(problem, gap=0.02, backend="cpu")
    assert isinstance(table.bound, Proved) and table.gap <= 0.02
    for made in (table, pm.compact(table), pm.remap(table)):
        loaded = pm.load(made.save(tmp_path / "table.pmdp"))
        assert isinstance(loaded.bound, Proved)
        assert loaded.lower_bound == table.lower_bound
    bare = pm.compact(table).save(tmp_path / "bare.pmdp", losses=False)
    assert b"bound_" not in bare.read_bytes()
    assert pm.load(bare).bound == Stated(table.lower_bound, "the file")


def test_tiles_prove_the_bound_of_the_whole_table():
    """Multipliers of a tile belong to its outputs; what tiles do not see keeps its plain cost."""
    from panda_mdp.methods.certify import Budget, certify
    from panda_mdp.methods.optimal.optimal import CpuEngine
    from panda_mdp.methods.optimal.program import TilingTuning

    city = pm.synthetic_city(nodes=200, seed=2)
    problem = displacement_problem(city.domain(160), range(160), 8.0)
    tuning = TilingTuning(least_outputs=64, host_outputs=64, worthwhile=1.0, host_multipliers=0)
    standing = certify(FirstOrder(problem, CpuEngine(tuning)), Budget(0.05))
    assert not standing.solver.iterates.tiling.one
    table = standing.mechanism()
    assert isinstance(table.bound, Proved)
    assert table.lower_bound == pytest.approx(standing.bound, rel=1e-3)
    assert Fraction(table.lower_bound) <= exactly(problem, table.bound.multipliers)
