"""One identity of a table and one of its problem: everything that has a meaning, nothing else."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import forging
import numpy as np
import pytest
from helpers import displacement_problem, random_domain

import panda_mdp as pm
from panda_mdp.errors import PrivacyError, ProblemError
from panda_mdp.table.decode import Expected

DOMAIN = random_domain("euclidean", 8, seed=2).with_labels([f"w{k}" for k in range(8)])
PROBLEM = displacement_problem(DOMAIN, [1, 4, 6], 1.0)


def swapped(problem: pm.Problem) -> pm.Problem:
    labels = list(problem.domain.labels)
    labels[:2] = labels[1::-1]
    return replace(problem, domain=problem.domain.with_labels(labels))


OTHERS = {
    "two labels exchanged": swapped,
    "no labels": lambda p: replace(p, domain=random_domain("euclidean", 8, seed=2)),
    "another epsilon": lambda p: p.with_epsilon(1.5),
    "another prior": lambda p: replace(p, prior=np.arange(1.0, 9) / 36),
    "other losses": lambda p: replace(p, loss=p.loss * 2),
    "another unit of losses": lambda p: replace(p, loss_unit="minutes"),
    "outputs in another order": lambda p: displacement_problem(DOMAIN, [4, 1, 6], 1.0),
}


@pytest.mark.parametrize("change", OTHERS.values(), ids=OTHERS)
def test_whatever_has_a_meaning_is_in_it(change):
    other = change(PROBLEM)
    assert other.identity != PROBLEM.identity
    weights = pm.exponential(PROBLEM.with_epsilon(0.5)).weights
    tables = [pm.Mechanism(problem, weights, "x") for problem in (PROBLEM, other)]
    assert tables[0].identity != tables[1].identity


def test_other_integers_are_another_table_for_the_same_problem():
    first, second = pm.exponential(PROBLEM), pm.loss_exponential(PROBLEM)
    assert first.identity != second.identity
    assert first.problem.identity == second.problem.identity
    assert first.identity != first.problem.identity


def test_words_are_not_in_it():
    table = pm.exponential(PROBLEM)
    said = table.with_facts(method="other", bound=0.0, details={"a": 1}, stages=(("x", 1.0),))
    assert said.identity == table.identity
    assert replace(PROBLEM, prior_source="a survey").identity == PROBLEM.identity


@pytest.mark.parametrize("power", [1, 2])
@pytest.mark.parametrize("losses", [True, False])
def test_a_file_has_the_identity_of_its_table_with_and_without_losses(power, losses, tmp_path):
    problem = replace(PROBLEM, loss=PROBLEM.loss**power)
    for number, table in enumerate((pm.exponential(problem), pm.compact(pm.exponential(problem)))):
        loaded = pm.load(table.save(tmp_path / f"{number}.pmdp", losses=losses))
        assert loaded.identity == table.identity
        assert loaded.problem.identity == problem.identity
        again = pm.load(loaded.save(tmp_path / "again.pmdp", losses=losses))
        assert again.identity == table.identity


def test_the_same_integers_are_the_same_table_however_they_are_held(tmp_path):
    from panda_mdp.base.floored import FlooredRows
    from panda_mdp.methods.optimal.stars import factored

    dense = pm.exponential(PROBLEM)
    floors = [dense.weights.min(axis=0), dense.weights[0]]
    for rows in (FlooredRows.of(dense.weights, floor) for floor in floors):
        assert pm.Mechanism(PROBLEM, rows, "x").identity == dense.identity
    domain = pm.Domain.from_vectors(np.random.default_rng(0).normal(size=(60, 30)))
    words = pm.Problem(domain, np.arange(60), domain.distances(), 1.5)
    made, _ = factored(words)
    written = pm.Mechanism(words, np.asarray(made.weights), "x")
    assert written.identity == made.identity


def test_rows_are_hashed_in_blocks():
    from panda_mdp.base import arrays

    rows = np.arange(3000, dtype=np.int64).reshape(1000, 3)
    state = hashlib.sha256(b"<i8(1000, 3)" + rows.astype("<i8").tobytes())
    assert arrays.digest(rows) == state.hexdigest()
    large = np.broadcast_to(np.int64(7), (3, 1 << 22))
    assert arrays.digest(large) == arrays.digest(np.array(large))


def test_tables_for_every_point_and_of_panda_have_one(tmp_path):
    for name in ("mesh", "panda common", "panda coins"):
        path = tmp_path / "table.pmdp"
        path.write_bytes(forging.honest(name))
        table = pm.load(path)
        assert pm.load(table.save(tmp_path / "again.pmdp")).identity == table.identity
    small = forging.changed("panda coins", forging.state("selection.delta", lambda v: 1.01 * v))
    path.write_bytes(forging.honest("panda coins"))
    first = pm.load(path)
    path.write_bytes(small)
    assert pm.load(path).identity != first.identity
    assert pm.load(path).problem.identity == first.problem.identity


def test_a_reader_may_expect_a_table_or_a_problem(tmp_path):
    table = pm.exponential(PROBLEM)
    path = table.save(tmp_path / "table.pmdp")
    for name in (table.identity, table.identity[:16], PROBLEM.identity):
        assert pm.load(path, expected=Expected(identity=name)).identity == table.identity
    other = pm.loss_exponential(PROBLEM)
    assert pm.load(other.save(path), expected=Expected(identity=PROBLEM.identity))
    with pytest.raises(PrivacyError, match=f"{table.identity[:16]}... was expected"):
        pm.load(path, expected=Expected(identity=table.identity))
    exchanged = pm.Mechanism(swapped(PROBLEM), table.weights, table.method).save(path)
    for name in (table.identity, PROBLEM.identity):
        with pytest.raises(PrivacyError, match="was expected"):
            pm.load(exchanged, expected=Expected(identity=name))
    with pytest.raises(ProblemError, match="an identity of 3 digits names nothing"):
        Expected(identity="abc")


def test_keys_are_of_the_table_whichever_file_it_came_from(tmp_path):
    from panda_mdp.frames.drawing import Sampler

    problem = replace(PROBLEM, loss=PROBLEM.loss**2)
    table = pm.compact(pm.exponential(problem))
    bare = pm.load(table.save(tmp_path / "bare.pmdp", losses=False))
    assert Sampler.of(table).table == Sampler.of(bare).table == bytes.fromhex(table.identity)
    other = pm.Mechanism(replace(problem, prior=np.arange(1.0, 9) / 36), table.weights, "x")
    assert Sampler.of(other).table != Sampler.of(table).table
