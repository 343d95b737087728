"""The table of methods."""

from __future__ import annotations

import numpy as np
import pytest

from panda_mdp import Domain, Mechanism, PandaTable, Problem, exponential, optimal, remap
from panda_mdp.errors import MethodError
from panda_mdp.methods.words import RULES
from panda_mdp.survey.registry import METHODS, choose_methods, methods


@pytest.fixture
def problem() -> Problem:
    generator = np.random.default_rng(0)
    domain = Domain.from_vectors(generator.normal(size=(30, 2)))
    return Problem(domain, np.arange(5), domain.distances(None, np.arange(5)), 1.0)


def test_names_and_labels_are_distinct() -> None:
    assert len({method.name for method in METHODS}) == len(METHODS)
    assert len({method.label for method in METHODS}) == len(METHODS)


def test_the_closed_forms_exist() -> None:
    closed = {"exponential", "exponential_remap", "planar_laplace", "loss_exponential"}
    assert closed <= set(methods())


TABLES = [method.name for method in METHODS if not method.name.startswith("panda")]


@pytest.mark.parametrize("name", TABLES)
def test_every_method_that_gives_a_table_runs(name: str, problem: Problem) -> None:
    if name == "tight_constraints" or name in RULES:
        with pytest.raises(MethodError, match="make every record an output"):
            methods()[name].run(problem)
        line = Domain.from_vectors(np.arange(8.0))
        problem = Problem(line, np.arange(8), line.distances(), 1.0)
    table = methods()[name].run(problem, time_limit=20.0)
    assert isinstance(table, Mechanism) or (name in RULES and not table.audit.holds)
    assert table.seconds > 0


def test_both_phases_stand_beside_tables(problem: Problem) -> None:
    best = optimal(problem, 1e-3).lower_bound
    for name in ("panda", "panda_candidates"):
        made = methods()[name].run(problem, time_limit=20.0)
        assert isinstance(made, PandaTable)
        assert made.loss >= best
        assert made.guarantee.epsilon == problem.epsilon
    for decay in ("exponential", "power", "logistic"):
        with pytest.raises(MethodError, match=r"does not fit: Phase I costs.*`panda`, with balls"):
            methods()[f"panda_{decay}"].run(problem)


def test_remapped_methods_are_remapped(problem: Problem) -> None:
    expected = remap(exponential(problem))
    assert np.array_equal(methods()["exponential_remap"].run(problem).weights, expected.weights)


def test_choice_keeps_order_and_takes_dashes() -> None:
    chosen = choose_methods(["loss-exponential", " exponential", "exponential"])
    assert [method.name for method in chosen] == ["loss_exponential", "exponential"]


def test_wrong_names_list_the_right_ones() -> None:
    with pytest.raises(MethodError, match=r"no method 'magic'; choose from exponential, "):
        choose_methods(["magic"])
    with pytest.raises(MethodError, match="no method is named"):
        choose_methods([])


def test_the_demo_shows_methods_that_show_something_of_their_own() -> None:
    shown = [name for name, method in methods().items() if method.demo_seconds is not None]
    assert {"exponential", "optimal", "panda"} <= set(shown)
    assert not {"benders", "constopt", "optimal_highs"} & set(shown)
