"""The table of methods."""

from __future__ import annotations

import math
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from panda_mdp import (
    Domain,
    Mechanism,
    PandaTable,
    Problem,
    exponential,
    limit_attacker,
    optimal,
    remap,
)
from panda_mdp.base.threads import within
from panda_mdp.errors import InfeasibleError, MethodError, TimeLimitError
from panda_mdp.methods.coarse import coarse_unsound
from panda_mdp.methods.words import RULES
from panda_mdp.survey.registry import METHODS, choose_methods, methods
from panda_mdp.table.mechanism import NoGuarantee


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


TIMED = {method.name: method.run for method in METHODS if method.timed} | {
    "limit": partial(limit_attacker, attacker="vulnerability", limit=0.2),
    "coarse_unsound": coarse_unsound,
}
COINS = ("panda_exponential", "panda_power", "panda_logistic", "panda_candidates")
"""Their accounts have no limit: it is that of the tables."""


@pytest.mark.parametrize("looks", [3, 60])
@pytest.mark.parametrize("name", sorted(set(TIMED) - set(COINS)))
def test_every_limit_is_kept_by_the_clock_that_is_given(
    name: str, looks: int, problem: Problem
) -> None:
    """In looks at a clock that jumps beyond every limit: few are left until the end."""
    seen = 0

    def clock() -> float:
        nonlocal seen
        seen += 1
        return 0.0 if seen <= looks else 1e6 * seen

    with within(math.inf, clock):
        try:
            TIMED[name](problem, time_limit=20.0)
        except (TimeLimitError, InfeasibleError):
            # Before there is anything to hand out that loses as little as the reference.
            assert name == "dominate"
    assert seen <= looks + 60


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


def install(folder: Path, body: str) -> None:
    """A package with two methods, as pip leaves it."""
    (folder / "mine.py").write_text(body)
    info = folder / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    lines = "[panda_mdp.methods]\nmy-noise = mine:noise\noptimal = mine:noise\nbad = mine:bad\n"
    (info / "entry_points.txt").write_text(lines)


def test_methods_of_other_packages_join_and_are_audited_here(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        tmp_path,
        "import numpy as np\n"
        "def noise(problem):\n    return np.full(problem.loss.shape, 1 / problem.loss.shape[1])\n"
        "def bad(problem):\n    return np.eye(problem.size)\n",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    found = methods()
    assert found["optimal"].function is optimal
    (mine,) = choose_methods(["my-noise"])
    table = mine.run(problem, time_limit=1.0)
    assert isinstance(table, Mechanism) and table.audit.epsilon < 1e-9
    with pytest.raises(MethodError, match=r"bad \(mine:bad\) gave \(30, 30\)"):
        found["bad"].run(problem)


def test_what_another_package_says_of_privacy_is_not_believed(
    problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(
        tmp_path,
        "import numpy as np\nimport panda_mdp as pm\n"
        "def noise(problem):\n"
        "    wide = pm.Problem(problem.domain, problem.outputs, problem.loss, 90.0)\n"
        "    return pm.exponential(wide)\n",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "mine", raising=False)
    table = methods()["my_noise"].run(problem)
    assert isinstance(table, NoGuarantee) and not table.audit.holds
