"""Rows in factors and bounds by stars, by both checkers."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import forging
import pytest
from second_checker import checker

import panda_mdp as pm


@pytest.fixture
def honest(tmp_path: Path) -> Path:
    """A table in factors, with the prices that prove its bound."""
    return forging.Sample("", "", forging.honest("factors")).write(tmp_path)


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
