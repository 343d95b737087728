"""Floors and rounding: what they cost, that they keep what docs/format.md proves, their files."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from helpers import KINDS, displacement_problem, domains, random_domain
from hypothesis import given
from hypothesis import strategies as st
from outside import left_out

from panda_mdp import (
    Domain,
    Mechanism,
    NoGuarantee,
    Problem,
    compact,
    exponential,
    load,
    optimal,
    remap,
    travel_loss,
)
from panda_mdp.base.floored import FlooredRows
from panda_mdp.compute.closure import Closure
from panda_mdp.errors import (
    MethodError,
    NotForReleaseError,
    PrivacyError,
    ProblemError,
)
from panda_mdp.methods.closed_forms import softmax
from panda_mdp.privacy.quantise import TOTAL, closing
from panda_mdp.table.blocks import significant_digits
from panda_mdp.table.bound import Stated
from panda_mdp.table.decode import opened
from panda_mdp.table.thin import fill, thinned


@pytest.fixture(scope="module")
def tight() -> Mechanism:
    """A table that uses its whole epsilon."""
    domain = random_domain("haversine", 80)
    return optimal(displacement_problem(domain, np.arange(0, 80, 4), 0.5), gap=0.02)


@given(st.integers(0, 10**6), st.sampled_from([1e-6, 1e-3, 0.1]))
def test_fill_is_the_table_raised_to_the_floor(seed, share):
    rng = np.random.default_rng(seed)
    table = rng.dirichlet(np.full(5, 0.2), size=4)
    floor = share * rng.dirichlet(np.ones(5))
    filled = fill(table, floor)
    above = filled > floor
    assert filled.sum(axis=1) == pytest.approx(1, abs=1e-14)
    assert (filled >= floor).all()
    scale = np.where(above, filled / table, np.nan)
    assert (np.nanmax(scale, axis=1) <= 1 + 1e-15).all()
    assert np.nanmax(scale, axis=1) == pytest.approx(np.nanmin(scale, axis=1), rel=1e-14)


@given(domains(smallest=3), st.integers(0, 10**6), st.sampled_from([1e-4, 1e-2]))
def test_the_floor_takes_no_more_than_its_share_of_epsilon(domain, seed, share):
    rng = np.random.default_rng(seed)
    between = domain.distances()
    table = softmax(-between / between.max() * rng.uniform(0.1, 20.0))
    floor = share * rng.dirichlet(np.ones(domain.size))
    pairs = np.triu_indices(domain.size, 1)

    def rate(z):
        logs = np.log(z)
        return (np.abs(logs[:, None] - logs).max(axis=2)[pairs] / between[pairs]).max()

    beta = floor.sum()
    limit = rate(table) * (1 + beta / (1 - beta))
    assert rate(fill(table, floor)) <= limit + 1e-12 / between[pairs].min()


def test_rows_are_floors_short_numbers_and_a_rest(tight):
    result = compact(tight, slack=1e-3, floor_cost=1e-2)
    weights = np.asarray(result.weights)
    assert result.audit.holds
    assert (weights.sum(axis=1) == TOTAL).all()
    digits = np.where(weights != result.weights.floor, significant_digits(weights), 0)
    # All but one entry of a row are at the floor or short.
    assert np.sort(digits, axis=1)[:, :-1].max() < 20
    assert 0 < result.details["compact"]["raised_share"] < 1


@pytest.mark.parametrize("cost", [1e-4, 1e-3, 1e-2])
def test_the_floor_costs_no_more_than_it_may(tight, cost):
    # At a larger epsilon the table has slack, so the floor is all that it pays for.
    loose = Mechanism.from_matrix(tight.problem.with_epsilon(0.6), tight.matrix)
    result = compact(loose, slack=1e-2, floor_cost=cost)
    price = result.details["compact"]
    assert price["slack"] == 1e-2
    assert result.loss <= loose.loss * (1 + cost + 1e-4)
    assert price["loss_cost"] == pytest.approx(result.loss / loose.loss - 1)
    assert price["floor_share"] <= 1e-2 / 4


def test_a_tight_table_pays_for_slack(tight):
    result = compact(tight)
    assert tight.audit.epsilon > 0.5 * (1 - 1e-3)
    assert tight.lower_bound <= result.loss <= tight.loss * 1.005
    assert result.lower_bound == tight.lower_bound
    assert dict(result.stages)["thin"] > 0


def test_without_compiled_loops_an_accelerator_closes(tight, monkeypatch, request):
    """A host of an accelerator that has no numba: a million records cannot be closed in NumPy."""
    compiled = compact(tight)
    request.getfixturevalue("without_numba")
    monkeypatch.setattr("jax.default_backend", lambda: "gpu")
    assert type(closing(tight.problem.domain, 3)) is not Closure
    there = compact(tight)
    assert there.audit.holds
    assert there.loss == pytest.approx(compiled.loss, rel=1e-4)


def test_higher_floors_leave_fewer_entries(tight):
    costs = (1e-5, 1e-3, 1e-1)
    shares = [
        compact(tight, slack=1e-2, floor_cost=cost).details["compact"]["raised_share"]
        for cost in costs
    ]
    assert shares[0] > shares[1] > shares[2]


def test_equal_rows_stay_equal():
    domain = Domain.from_vectors([[0.0], [0.001], [1.0], [3.0]])
    problem = displacement_problem(domain, [0, 2, 3], 1.0)
    matrix = np.array([[0.6, 0.3, 0.1], [0.6, 0.3, 0.1], [0.5, 0.4, 0.1], [0.5, 0.3, 0.2]])
    result = compact(Mechanism.from_matrix(problem, matrix), slack=1e-2)
    assert np.array_equal(result.weights[0], result.weights[1])


def test_equal_rows_of_records_with_near_and_far_neighbours_stay_equal():
    """Near ones ask for more digits: a row that others share has the digits of all of them."""
    line = Domain.from_vectors([[0.0], [0.001], [3.0], [9.0], [27.0]])
    problem = displacement_problem(line, [0, 2, 4], 1.0)
    rows = np.tile([0.2718281828, 0.5772156649, 0.1509561523], (5, 1))
    short = compact(Mechanism.from_matrix(problem, rows / rows.sum(axis=1)[:, None]))
    assert (np.asarray(short.weights) == np.asarray(short.weights)[0]).all()


def test_one_row_for_all_is_short_as_it_is(tmp_path):
    """It lies in the floor: nothing is stored that could be rounded."""
    problem = displacement_problem(random_domain("euclidean", 30), np.arange(30), 1.0)
    none = np.zeros(31, np.int64)
    floor = np.full(30, TOTAL // 30)
    floor[7] += TOTAL - floor.sum()
    short = compact(Mechanism(problem, FlooredRows(floor, none, none[:0], none[:0]), "constant"))
    assert (np.asarray(short.weights) == floor).all()
    short.save(tmp_path / "one.pmdp")
    assert (np.asarray(load(tmp_path / "one.pmdp").weights) == floor).all()


def test_outputs_that_are_never_used_stay_at_zero():
    domain = random_domain("euclidean", 30)
    mechanism = remap(exponential(displacement_problem(domain, np.arange(30), 1.0)))
    unused = ~mechanism.weights.any(axis=0)
    assert unused.any()
    result = compact(mechanism)
    assert not np.asarray(result.weights)[:, unused].any()
    assert not result.weights.floor[unused].any()


@pytest.mark.parametrize("apart", [1e-3, 1e-6, 1e-8])
def test_near_duplicates_keep_their_guarantee(apart):
    rng = np.random.default_rng(0)
    points = rng.uniform(0, 3, (20, 2))
    domain = Domain.from_vectors(np.concatenate([points, points + np.array([apart, 0])]))
    problem = displacement_problem(domain, np.arange(0, 20, 2), 2.0)
    assert compact(optimal(problem, gap=0.05)).audit.holds


def test_far_records_are_not_rounded_away():
    domain = Domain.from_vectors([[0.0], [1e6], [2e6]])
    problem = displacement_problem(domain, [0, 1, 2], 1.0)
    mechanism = Mechanism.from_matrix(problem, [[0.5, 0.3, 0.2], [0.2, 0.6, 0.2], [0.1, 0.1, 0.8]])
    result = compact(mechanism, slack=0.4, floor_cost=1e-6)
    assert np.abs(result.matrix - mechanism.matrix).max() < 2**-8


def test_a_loss_of_nothing_has_no_floor():
    domain = Domain.from_vectors([[0.0], [1.0]])
    problem = Problem(domain, [0, 1], np.zeros((2, 2)), 1.0)
    result = compact(Mechanism.from_matrix(problem, [[0.6, 0.4], [0.5, 0.5]]))
    assert not result.weights.floor.any()
    assert result.loss == 0


@pytest.mark.parametrize(("slack", "cost"), [(0, 1e-3), (0.5, 1e-3), (1e-3, -1), (1e-3, np.nan)])
def test_shares_out_of_range_are_refused(tight, slack, cost):
    with pytest.raises(MethodError, match=r"between 0 and 0\.5"):
        compact(tight, slack=slack, floor_cost=cost)


def test_only_what_has_a_guarantee_is_made_compact(tight):
    with pytest.raises(NotForReleaseError, match="NoGuarantee"):
        compact(NoGuarantee.from_matrix(tight.problem, tight.matrix))


def test_records_too_near_for_rounding_need_equal_rows():
    # At 1e-13 nats even the audit's own rounding decides: only equal rows pass.
    domain = Domain.from_vectors([[0.0], [1e-13], [1.0]])
    problem = displacement_problem(domain, [0, 2], 1.0)
    loose = Mechanism.from_matrix(problem, [[0.5, 0.5], [0.5, 0.5], [0.3, 0.7]])
    assert compact(loose).audit.holds
    most = 0.1 * np.exp(1 - 1e-6)
    tight = Mechanism.from_matrix(problem, [[0.1, 0.9], [0.1, 0.9], [most, 1 - most]])
    with pytest.raises(PrivacyError, match="merge records"):
        compact(tight)


def test_each_attempt_has_twice_the_slack(tight):
    attempts = list(thinned(tight, 1e-3, 1e-3))
    assert [share for _, share in attempts] == [1e-3, 2e-3, 4e-3, 8e-3]
    rates = [Mechanism(tight.problem, rows, "thin").audit.epsilon for rows, _ in attempts]
    assert rates == sorted(rates, reverse=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [20, 300])
def test_a_compact_table_comes_back_to_the_bit_from_a_short_file(kind, size, tmp_path):
    domain = random_domain(kind, size)
    near = float(np.median(domain.neighbours(1)[1]))
    outputs = np.arange(0, size, size // 9)[:9]
    table = exponential(displacement_problem(domain, outputs, 0.3 / near))
    short = compact(table)
    path = short.save(tmp_path / "short.pmdp", losses=False)
    again = load(path)
    assert again.identity == short.identity
    assert again.audit == short.audit and again.loss == pytest.approx(short.loss, rel=1e-12)
    assert np.array_equal(np.asarray(again.weights), np.asarray(short.weights))
    if size == 300:
        assert bytes_of_rows(path) < 0.5 * bytes_of_rows(table.save(tmp_path / "long.pmdp"))


def bytes_of_rows(path: Path) -> int:
    """What a file needs for its integers alone."""
    sections = opened(path.read_bytes())[1]
    names = sections.shapes.keys() & {"weights", "floor", "order", "blocks"}
    return sum(len(sections.packed(name, *sections.shape(name)).data) for name in names)


def test_losses_that_are_no_distances_may_stay_out_of_a_file(tmp_path):
    domain = random_domain("euclidean", 12)
    problem = Problem(domain, range(12), domain.distances() ** 2, 1.0)
    best = optimal(problem)
    short = compact(best)
    bare = load(short.save(tmp_path / "bare.pmdp", losses=False))
    assert "as stated and not verified" in repr(bare)
    assert bare.sample(3) in range(12)
    assert bare.details["stated_loss"] == short.loss
    assert bare.bound == Stated(best.lower_bound, "the file")
    with pytest.raises(ProblemError, match="holds no losses"):
        _ = bare.loss
    back = Mechanism(problem, bare.weights, bare.method)
    assert back.loss == short.loss
    whole = load(short.save(tmp_path / "whole.pmdp"))
    assert whole.loss == short.loss and whole.lower_bound == best.lower_bound


@pytest.mark.data
def test_rome_in_few_bytes(road_maps, tmp_path):
    city = road_maps("rome")
    domain = city.domain(records=2000, seed=0)
    rng = np.random.default_rng(0)
    outputs = rng.choice(2000, 100, replace=False)
    problem = Problem(domain, outputs, travel_loss(city, domain, outputs, [7]), 5.0)
    table = compact(optimal(problem, gap=0.1))
    assert 0 <= table.details["compact"]["loss_cost"] < 0.003
    # 100 bytes a record are 4.3 MB for all of Rome.
    assert table.save(tmp_path / "rome.pmdp", losses=False).stat().st_size < 100 * 2000


def test_the_documented_decoder_reads_the_same_integers(tmp_path):
    node = shutil.which("node")
    if node is None:
        left_out("Node", "the documented decoder is JavaScript")
    text = (Path(__file__).resolve().parents[2] / "docs" / "format.md").read_text()
    (code,) = re.findall(r"```js\n(.*?)```", text, re.S)
    driver = """
    const file = new Uint8Array(require("fs").readFileSync(process.argv[2]));
    (async () => {
      const table = await readTable(file);
      const rows = [];
      for (let x = 0; x < table.records; x++) rows.push((await table.row(x)).map(String));
      const drawn = draw(await table.row(3), table.outputs);
      console.log(JSON.stringify({ rows, outputs: table.outputs, drawn }));
    })();
    """
    (tmp_path / "decode.js").write_text(code + driver)
    domain = random_domain("haversine", 270)
    table = exponential(displacement_problem(domain, np.arange(0, 270, 30), 0.02))
    table = compact(table, slack=1e-5)
    path = table.save(tmp_path / "x.pmdp")
    done = subprocess.run(
        [node, str(tmp_path / "decode.js"), str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert [[int(w) for w in row] for row in answer["rows"]] == np.asarray(table.weights).tolist()
    assert answer["outputs"] == table.problem.outputs.tolist()
    assert answer["drawn"] in table.problem.outputs
