"""The runner: saves at once, resumes, stops what exceeds its limit, records what went wrong."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from panda_mdp.base.processes import NoAnswer
from panda_mdp.city.synthetic import synthetic_city
from panda_mdp.errors import FileFormatError, InvalidInputError, PhaseOneCostError
from panda_mdp.version import __version__
from panda_paper.cells import runner
from panda_paper.cells.outcome import Outcome
from panda_paper.cells.results import Store, environment, made_by
from panda_paper.cells.runner import KINDS, Bench, execute, run_cells, settled
from panda_paper.cells.workspace import Study, Workspace, real_prior, street_counts
from panda_paper.settings.cell import Cell, Setting

CITY = synthetic_city(300, 0)
SMALL = Setting(30, outputs=5, users=3)


def study(folder: Path, **changes: object) -> Study:
    return Study(**{"city": CITY, "name": "town", "folder": folder, **changes})  # type: ignore[arg-type]


def cell(method: str, repeat: int = 0, kind: str = "method") -> Cell:
    return Cell(kind, method, SMALL, repeat)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Callable[[object], list[Cell]]:
    """Replaces the cell kind of tables; returns the cells that were run."""

    def install(answer: object) -> list[Cell]:
        seen: list[Cell] = []

        def kind(one: Cell, work: Workspace) -> Outcome:
            seen.append(one)
            if isinstance(answer, BaseException):
                raise answer
            return answer(one) if callable(answer) else answer  # type: ignore[return-value]

        monkeypatch.setitem(KINDS, "method", kind)
        return seen

    return install


def test_results_are_saved_one_by_one_and_used_again(tmp_path: Path, fake) -> None:
    seen = fake(lambda one: Outcome({"loss_m": one.repeat + 0.5}, (("work", 1.0),)))
    wanted = [cell("EM", repeat) for repeat in range(3)]
    place = study(tmp_path)
    lines = []
    run_cells(
        wanted,
        place,
        Store(tmp_path, place),
        isolate=False,
        progress=lambda _: lines.append(
            (tmp_path / "cells.jsonl").read_text().count("\n")
            if (tmp_path / "cells.jsonl").exists()
            else 0
        ),
    )
    assert lines == [0, 1, 2]
    assert len(seen) == 3
    again = run_cells(wanted, place, Store(tmp_path, place), isolate=False)
    assert len(seen) == 3
    assert [row.value("loss_m") for row in again] == [0.5, 1.5, 2.5]
    assert [row.value("seconds") for row in again] == [1.0, 1.0, 1.0]
    run_cells(wanted[:1], place, Store(tmp_path, place), isolate=False, fresh=True)
    assert len(seen) == 4


def test_a_row_holds_all_that_reproduces_it(tmp_path: Path) -> None:
    place = study(tmp_path)
    (row,) = run_cells([cell("EM", 1)], place, Store(tmp_path, place), isolate=False)
    (line,) = [json.loads(text) for text in (tmp_path / "cells.jsonl").read_text().splitlines()]
    assert line["seed"] == 1
    assert line["setting"]["records"] == 30
    assert line["stages"]
    known = json.loads((tmp_path / "environment.json").read_text())
    assert known[line["environment"]] == json.loads(json.dumps(environment()))
    assert {"numpy", "numba", "highspy", "panda-mdp"} <= set(environment()["packages"])
    assert row.date.endswith("+00:00")
    assert line["version"] == row.version == made_by()
    assert made_by().startswith(__version__)


def test_results_of_version_0_1_are_read_and_not_run_again(tmp_path: Path, fake) -> None:
    seen = fake(Outcome({"loss_m": 1.0}))
    place = study(tmp_path)
    run_cells([cell("EM")], place, Store(tmp_path, place), isolate=False)
    path = tmp_path / "cells.jsonl"
    line = json.loads(path.read_text())
    del line["version"]
    path.write_text(json.dumps({**line, "kind": "cells:run_method", "key": "0"}) + "\n")
    (row,) = run_cells([cell("EM")], place, Store(tmp_path, place), isolate=False)
    assert len(seen) == 1 and row.cell == cell("EM") and row.version == ""


def test_infinite_and_array_values_survive_the_file(tmp_path: Path, fake) -> None:
    values = {"audited_epsilon": float("inf"), "curve": np.array([1.0, np.inf]), "name": "x"}
    fake(Outcome(values))
    place = study(tmp_path)
    run_cells([cell("EM")], place, Store(tmp_path, place), isolate=False)
    row = Store(tmp_path, place).get(cell("EM"))
    assert row is not None
    assert row.value("audited_epsilon") == float("inf")
    assert row.value("curve") == [1.0, float("inf")]
    assert row.value("missing") is None


def test_an_interrupt_leaves_a_state_that_goes_on(tmp_path: Path, fake) -> None:
    def answer(one: Cell) -> Outcome:
        if one.repeat == 1:
            raise KeyboardInterrupt
        return Outcome({"loss_m": 1.0})

    fake(answer)
    place = study(tmp_path)
    wanted = [cell("EM", repeat) for repeat in range(3)]
    with pytest.raises(KeyboardInterrupt):
        run_cells(wanted, place, Store(tmp_path, place), isolate=False)
    store = Store(tmp_path, place)
    assert [store.get(one) is not None for one in wanted] == [True, False, False]


def test_a_line_that_was_cut_off_is_dropped(tmp_path: Path, fake) -> None:
    fake(Outcome({"loss_m": 1.0}))
    place = study(tmp_path)
    run_cells([cell("EM"), cell("EM", 1)], place, Store(tmp_path, place), isolate=False)
    path = tmp_path / "cells.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    store = Store(tmp_path, place)
    assert store.get(cell("EM")) is not None
    assert store.get(cell("EM", 1)) is None
    assert path.read_bytes().endswith(b"\n")


def test_packed_results_come_first_and_may_be_packed_in_parts(tmp_path: Path, fake) -> None:
    seen = fake(lambda one: Outcome({"loss_m": float(len(seen))}))
    place, path = study(tmp_path), tmp_path / "cells.jsonl"
    packed = b""
    for repeat in range(2):
        run_cells([cell("EM", repeat)], place, Store(tmp_path, place), isolate=False)
        packed += gzip.compress(path.read_bytes())
        path.unlink()
        (tmp_path / "cells.jsonl.gz").write_bytes(packed)
    assert len(Store(tmp_path, place).rows) == 2
    run_cells([cell("EM")], place, Store(tmp_path, place), isolate=False)
    assert len(seen) == 2 and not path.exists()
    run_cells([cell("EM")], place, Store(tmp_path, place), isolate=False, fresh=True)
    again = Store(tmp_path, place).get(cell("EM"))
    assert again is not None and again.value("loss_m") == 3.0
    (tmp_path / "cells.jsonl.gz").write_bytes(packed[:-9])
    with pytest.raises(FileFormatError, match="cannot be unpacked"):
        Store(tmp_path, place)


def test_damaged_results_are_refused_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "cells.jsonl").write_text('{"kind": 1}\n')
    with pytest.raises(FileFormatError, match="line 1 is no result"):
        Store(tmp_path, study(tmp_path))


def test_results_of_another_city_are_refused(tmp_path: Path) -> None:
    Store(tmp_path, study(tmp_path))
    with pytest.raises(InvalidInputError, match="another study"):
        Store(tmp_path, study(tmp_path, city=synthetic_city(300, 1)))
    with pytest.raises(InvalidInputError, match="real_prior differs"):
        Store(tmp_path, study(tmp_path, visits=np.ones(CITY.nodes), visits_source="taxis"))


def test_what_does_not_fit_is_an_answer_and_a_bug_is_a_failure(tmp_path: Path, fake) -> None:
    work = Workspace(study(tmp_path))
    fake(PhaseOneCostError("costs 13 per km", value=13.0, limit=5.0))
    outcome = execute(cell("EM"), work)
    assert (outcome.status, outcome.note) == ("infeasible", "costs 13 per km")
    fake(ZeroDivisionError("oops"))
    outcome = execute(cell("EM"), work)
    assert (outcome.status, outcome.note) == ("failed", "ZeroDivisionError: oops")


def test_failures_run_again_and_limits_only_where_they_are_longer(tmp_path: Path, fake) -> None:
    place = study(tmp_path)
    store = Store(tmp_path, place)
    failed = store.add(cell("EM"), Outcome(status="failed"), 10.0)
    stopped = store.add(cell("LP"), Outcome(status="time limit"), 10.0)
    refused = store.add(cell("PAnDA-e"), Outcome(status="infeasible"), 10.0)
    assert not settled(failed, 10.0)
    assert settled(stopped, 10.0)
    assert settled(stopped, 5.0)
    assert not settled(stopped, 20.0)
    assert not settled(stopped, None)
    assert settled(refused, 20.0)


def test_a_worker_gives_what_this_process_gives(tmp_path: Path) -> None:
    place = study(tmp_path)
    store = Store(tmp_path, place)
    away, unknown = run_cells([cell("EM+BR"), cell("no such method")], place, store, limit=60.0)
    here = Bench(place).run(cell("EM+BR"), 60.0)
    assert away.status == "done"
    assert away.value("loss_m") == here.values["loss_m"]
    assert unknown.status == "infeasible"
    assert "no method" in unknown.outcome.note


@pytest.mark.parametrize(
    ("answer", "status", "note"),
    [
        (NoAnswer("time limit"), "time limit", "stopped after 7 s"),
        (NoAnswer("out of memory", -9), "out of memory", "needs more memory than there is"),
        (NoAnswer("ended", 3), "failed", "its process ended without an answer (exit code 3)"),
    ],
)
def test_what_has_no_answer_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: NoAnswer, status: str, note: str
) -> None:
    asked = []

    def no_answer(self: object, request: object, limit: float) -> NoAnswer:
        asked.append(limit)
        return answer

    monkeypatch.setattr(runner.Worker, "answer", no_answer)
    place = study(tmp_path)
    (row,) = run_cells([cell("EM")], place, Store(tmp_path, place), limit=7.0)
    assert (row.status, row.outcome.note) == (status, note)
    assert asked == [7.0 + runner.GRACE], "a cell that watches the clock may certify what it has"
    assert row.outcome.seconds == (7.0 if status == "time limit" else 0.0)


def test_draws_are_shared_over_methods_and_epsilons_and_domains_are_fresh(tmp_path: Path) -> None:
    work = Workspace(study(tmp_path))
    first = work.draw(cell("EM"))
    other = work.draw(Cell("bound", "optimal", Setting(30, 15.0, outputs=5, users=3), 0))
    assert np.shares_memory(first.problem.loss, other.problem.loss)
    assert (first.problem.epsilon, other.problem.epsilon) == (5.0, 15.0)
    assert first.problem.domain is not other.problem.domain
    assert first.users.tolist() == other.users.tolist()
    assert len(set(first.users.tolist())) == 3
    assert work.draw(cell("EM", 1)).users.tolist() != first.users.tolist()


def test_the_real_prior_is_the_traces_or_the_streets(tmp_path: Path) -> None:
    domain = CITY.domain(records=30, seed=0)
    streets = real_prior(study(tmp_path), domain)
    counts = street_counts(CITY, domain)
    assert "streets" in streets.source
    assert np.allclose(streets.weights, counts / counts.sum())
    assert counts.sum() > 0
    visits = np.zeros(CITY.nodes)
    assert domain.nodes is not None
    visits[domain.nodes[7]] = 3
    visits[domain.nodes[2]] = 1
    prior = real_prior(study(tmp_path, visits=visits, visits_source="taxis"), domain)
    assert prior.weights[7] == 0.75
    assert prior.weights[2] == 0.25
    assert "taxis" in prior.source
    # A node that was not sampled counts for the record nearest to it.
    node = int(np.setdiff1d(np.arange(CITY.nodes), domain.nodes)[0])
    visits = np.zeros(CITY.nodes)
    visits[node] = 1
    prior = real_prior(study(tmp_path, visits=visits, visits_source="taxis"), domain)
    apart = (CITY.lat[node] - domain.lat) ** 2 + (CITY.lon[node] - domain.lon) ** 2
    assert prior.weights.argmax() == apart.argmin()
    assert prior.weights.max() == 1


def test_memory_that_runs_out_is_said(tmp_path: Path, fake) -> None:
    fake(MemoryError())
    outcome = execute(cell("EM"), Workspace(study(tmp_path)))
    assert outcome.status == "out of memory"
    place = study(tmp_path)
    assert settled(Store(tmp_path, place).add(cell("EM"), outcome, 10.0), 10.0)
