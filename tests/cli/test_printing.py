"""The comparison at 80 characters: every column whole, the attacker's two among them."""

from __future__ import annotations

import io

import pytest
from helpers import displacement_problem, random_domain
from rich.console import Console

from panda_mdp.cli.printing import print_comparison
from panda_mdp.survey.bench import MethodRun
from panda_mdp.survey.registry import methods


@pytest.mark.parametrize("delta", [None, 1e-7])
def test_the_comparison_fits_80_characters_with_the_attackers_columns(delta: float | None):
    problem = displacement_problem(random_domain("haversine", 4), range(4), 0.5)
    outcomes = [
        MethodRun(
            method,
            problem,
            12.3456,
            11.2345,
            None,
            15.4321,
            True,
            10.1234,
            0.12345,
            1234.56,
            12345,
            delta=delta,
        )
        for method in methods().values()
    ]
    stream = io.StringIO()
    print_comparison(Console(file=stream, width=80), outcomes, "A city")
    lines = stream.getvalue().splitlines()
    assert max(map(len, lines)) <= 80
    table = "\n".join(lines[: len(outcomes) + 5])
    assert "…" not in table
    assert "attacker" in table
    assert "guess" in table
    assert table.count("12.35%") + table.count("12.34%") == len(outcomes)
    assert table.count("1e-07") == (0 if delta is None else len(outcomes))
