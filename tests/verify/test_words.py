"""Rows in factors and bounds by stars, by both checkers."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import forging
import numpy as np
import pytest
from second_checker import checker

import panda_mdp as pm
from panda_mdp.errors import FileFormatError
from panda_mdp.methods.optimal.stars import Stars, factored
from panda_mdp.table.bound import Prices, Proved


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of 16 vectors in factors, with the prices that prove its bound."""
    domain = pm.Domain.from_vectors(np.random.default_rng(2).normal(size=(16, 24)))
    problem = pm.Problem(domain, np.arange(16), domain.distances(), 1.2)
    made, _ = factored(problem)
    assert made is not None
    proof = Proved(problem, Prices(next(Stars(problem).exchanges()).prices))
    path = tmp_path_factory.mktemp("words") / "words.pmdp"
    return made.with_facts(bound=proof).save(path)


def second(path: Path) -> tuple[int, list[str]]:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        code = checker().main(str(path))
    return code, said.getvalue().splitlines()


def test_both_prove_the_table_and_the_same_bound(honest: Path) -> None:
    table = pm.load(honest)
    assert isinstance(table, pm.Mechanism)
    code, said = second(honest)
    assert code == 0, said
    bound = next(line for line in said if line.startswith("bound: "))
    proved = float(bound.removeprefix("bound: ").partition(",")[0])
    assert table.lower_bound is not None
    # The library subtracts what float64 may have rounded; the other one computes exactly.
    assert table.lower_bound <= proved * (1 + 1e-12)
    assert proved == pytest.approx(table.lower_bound, rel=1e-9)
    loss = next(line for line in said if line.startswith("loss: "))
    assert float(loss.removeprefix("loss: ").partition(",")[0]) == pytest.approx(table.loss)


FORGERIES = {
    "steeper": ("rate", (), lambda rate: int(rate * 1.01)),
    "a weight beyond the whole": ("shape_weights", (3,), lambda v: 2 * v),
    "half a weight": ("shape_weights", (3,), lambda v: v // 2),
    "no weight": ("shape_weights", (0,), lambda v: 0),
    "another centre": ("shape_centres", (5,), lambda c: c - 5),
    "a centre that is no record": ("shape_centres", (5,), lambda c: 16),
    "an output that is none": ("shape_outputs", (15,), lambda y: 16),
    "outputs out of order": ("shape_outputs", (0,), lambda y: 2),
    "a coarse lattice": ("unit_bits", (), lambda bits: 0),
    "no rate": ("rate", (), lambda rate: 0),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_forged_factors_are_refused_by_both(name: str, honest: Path, tmp_path: Path) -> None:
    section, place, change = FORGERIES[name]
    file = forging.File.of(honest.read_bytes())
    if place:
        values = file.arrays[section].copy()
        values[place] = change(int(values[place]))
        file.arrays[section] = values
    else:
        law = file.header["factored"]
        law[section] = change(law[section])
    path = tmp_path / "forged.pmdp"
    path.write_bytes(file.bytes())
    with pytest.raises(FileFormatError):
        pm.load(path)
    assert second(path)[0] in (1, 2)


def test_raised_prices_prove_no_more_than_is_true(honest: Path, tmp_path: Path) -> None:
    table = pm.load(honest)
    assert isinstance(table, pm.Mechanism)
    file = forging.File.of(honest.read_bytes())
    file.arrays["bound_prices"] = file.arrays["bound_prices"] * 3
    path = tmp_path / "raised.pmdp"
    path.write_bytes(file.bytes())
    read = pm.load(path)
    assert isinstance(read, pm.Mechanism)
    assert read.lower_bound is not None and read.lower_bound <= table.loss
    assert second(path)[0] == 0
