"""The runner: saves at once, resumes, stops what exceeds its limit, records what went wrong."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from panda_mdp.city.synthetic import synthetic_city
from panda_mdp.errors import FileFormatError, InvalidInputError, PhaseOneCostError
from panda_paper import cells, runner
from panda_paper.draws import Study, Workspace, real_prior, street_counts
from panda_paper.runner import Inline, Worker, execute, run_cells, settled
from panda_paper.specs import Cell, Setting
from panda_paper.store import Outcome, Store, environment

CITY = synthetic_city(300, 0)
SMALL = Setting(30, outputs=5, users=3)


def study(folder: Path, **changes: object) -> Study:
    return Study(**{"city": CITY, "name": "town", "folder": folder, **changes})  # type: ignore[arg-type]


def cell(method: str, repeat: int = 0, kind: str = "cells:run_method") -> Cell:
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

        monkeypatch.setattr(cells, "run_method", kind)
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
    worker = Worker(place)
    try:
        apart = worker.run(cell("EM+BR"), 60.0)
        process = worker._process
        unknown = worker.run(cell("no such method"), 60.0)
        assert worker._process is process, "one process serves all cells"
    finally:
        worker.close()
    here = Inline(place).run(cell("EM+BR"), 60.0)
    assert apart.status == "done"
    assert apart.values["loss_m"] == here.values["loss_m"]
    assert unknown.status == "infeasible"
    assert "no method" in unknown.note


def test_a_cell_beyond_its_limit_is_stopped_and_the_next_one_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runner, "GRACE", 0.0)
    place = study(tmp_path)
    worker = Worker(place)
    try:
        # Building an LP of millions of rows looks at no clock.
        large = Cell("cells:run_method", "LP", Setting(250, outputs=40), 0)
        outcome = worker.run(large, 0.2)
        assert (outcome.status, outcome.seconds) == ("time limit", 0.2)
        assert outcome.note == "stopped after 0.2 s"
        assert worker.run(cell("EM"), 60.0).status == "done"
    finally:
        worker.close()


def test_draws_are_shared_over_methods_and_epsilons_and_domains_are_fresh(tmp_path: Path) -> None:
    work = Workspace(study(tmp_path))
    first = work.draw(cell("EM"))
    other = work.draw(Cell("x:y", "optimal", Setting(30, 15.0, outputs=5, users=3), 0))
    assert first.problem.loss is other.problem.loss
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


def test_a_process_that_is_killed_is_told_apart_from_one_that_ends(tmp_path: Path) -> None:
    place = study(tmp_path)
    for number, status in ((signal.SIGKILL, "out of memory"), (signal.SIGTERM, "failed")):
        worker = Worker(place)
        pipe = worker._started()
        process = worker._process
        assert process is not None
        assert process.pid is not None
        os.kill(process.pid, number)
        process.join()
        with pytest.raises((EOFError, OSError)):
            pipe.recv()
        assert worker._ended().status == status
