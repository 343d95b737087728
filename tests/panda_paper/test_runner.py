"""Cells on the bench: saved at once, resumed, and what went wrong recorded."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from panda_mdp.base.text import Facts
from panda_mdp.city.synthetic import synthetic_city
from panda_mdp.errors import FileFormatError, InvalidInputError, PhaseOneCostError
from panda_mdp.survey.bench import Bench, Outcome, Status
from panda_mdp.version import __version__
from panda_paper.items import Cell, Setting
from panda_paper.results import Results, environment, made_by
from panda_paper.runner import CellLaboratory, run_cells
from panda_paper.study import Draw, Study, draw_cell

CITY = synthetic_city(300, 0)
SMALL = Setting(30, outputs=5, users=3)


def study(folder: Path, **changes: object) -> Study:
    return Study(**{"city": CITY, "name": "town", "folder": folder, **changes})  # type: ignore[arg-type]


def cell(method: str, repeat: int = 0) -> Cell:
    return Cell("method", method, SMALL, repeat)


class Counted:
    """A bench whose cells have one answer, and which cells were run."""

    def __init__(self, folder: Path, answer: Callable[[Cell], Outcome]) -> None:
        self.study = study(folder)
        self.seen: list[Cell] = []

        def kind(draw: Draw) -> Outcome:
            self.seen.append(draw.cell)
            return answer(draw.cell)

        self.bench = Bench(CellLaboratory(self.study, {"method": kind}), "none")

    def run(self, *cells: Cell, fresh: bool = False) -> list[Facts]:
        return run_cells(cells, Results.of_study(self.study), self.bench, fresh=fresh)


def test_results_are_saved_one_by_one_and_used_again(tmp_path: Path) -> None:
    path = tmp_path / "cells.jsonl"
    lines: list[int] = []

    def answer(one: Cell) -> Outcome:
        lines.append(path.read_text().count("\n") if path.exists() else 0)
        return Outcome({"loss_m": one.repeat + 0.5}, (("work", 1.0),))

    counted = Counted(tmp_path, answer)
    cells = [cell("EM", repeat) for repeat in range(3)]
    counted.run(*cells)
    assert lines == [0, 1, 2]
    again = counted.run(*cells)
    assert len(counted.seen) == 3
    assert [line["values"]["loss_m"] for line in again] == [0.5, 1.5, 2.5]
    assert [*Results(tmp_path).rows["seconds"]] == [1.0, 1.0, 1.0]
    counted.run(cells[0], fresh=True)
    assert len(counted.seen) == 4


def test_a_row_holds_all_that_reproduces_it(tmp_path: Path) -> None:
    place = study(tmp_path)
    bench = Bench(CellLaboratory(place), "none")
    (known_line,) = run_cells([cell("EM", 1)], Results.of_study(place), bench)
    (line,) = [json.loads(text) for text in (tmp_path / "cells.jsonl").read_text().splitlines()]
    assert line == known_line and line["repeat"] == 1
    assert line["setting"]["records"] == 30
    assert line["stages"]
    known = json.loads((tmp_path / "environment.json").read_text())
    assert known[line["environment"]] == json.loads(json.dumps(environment()))
    assert {"numpy", "numba", "highspy", "panda-mdp"} <= set(environment()["packages"])
    assert line["date"].endswith("+00:00")
    assert line["version"] == made_by()
    assert made_by().startswith(__version__)


def test_infinite_and_array_values_survive_the_file(tmp_path: Path) -> None:
    values = {"audited_epsilon": float("inf"), "curve": np.array([1.0, np.inf]), "name": "x"}
    counted = Counted(tmp_path, lambda _: Outcome(values))
    counted.run(cell("EM"))
    results = Results(tmp_path)
    assert results.lines[cell("EM")]["values"]["curve"] == [1.0, float("inf")]
    assert [*results.rows["curve"]] == [1.0, float("inf")], "a row for each entry"
    assert [*results.rows["audited_epsilon"]] == [float("inf")] * 2


def test_an_interrupt_leaves_a_state_that_goes_on(tmp_path: Path) -> None:
    def answer(one: Cell) -> Outcome:
        if one.repeat == 1:
            raise KeyboardInterrupt
        return Outcome({"loss_m": 1.0})

    counted = Counted(tmp_path, answer)
    cells = [cell("EM", repeat) for repeat in range(3)]
    with pytest.raises(KeyboardInterrupt):
        counted.run(*cells)
    assert [*Results(tmp_path).lines] == cells[:1]


def test_a_line_that_was_cut_off_is_dropped(tmp_path: Path) -> None:
    counted = Counted(tmp_path, lambda _: Outcome({"loss_m": 1.0}))
    counted.run(cell("EM"), cell("EM", 1))
    path = tmp_path / "cells.jsonl"
    path.write_bytes(path.read_bytes()[:-20])
    assert [*Results.of_study(counted.study).lines] == [cell("EM")]
    assert path.read_bytes().endswith(b"\n")


def test_packed_results_come_first_and_may_be_packed_in_parts(tmp_path: Path) -> None:
    counted = Counted(tmp_path, lambda _: Outcome({"loss_m": float(len(counted.seen))}))
    path, packed = tmp_path / "cells.jsonl", b""
    for repeat in range(2):
        counted.run(cell("EM", repeat))
        packed += gzip.compress(path.read_bytes())
        path.unlink()
        (tmp_path / "cells.jsonl.gz").write_bytes(packed)
    assert len(Results(tmp_path).lines) == 2
    counted.run(cell("EM"))
    assert len(counted.seen) == 2 and not path.exists()
    (again,) = counted.run(cell("EM"), fresh=True)
    assert again["values"]["loss_m"] == 3.0
    (tmp_path / "cells.jsonl.gz").write_bytes(packed[:-9])
    with pytest.raises(FileFormatError, match="cannot be unpacked"):
        Results(tmp_path)


def test_damaged_results_are_refused_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "cells.jsonl").write_text('{"kind": 1}\n')
    with pytest.raises(FileFormatError, match="line 1 is no result"):
        Results(tmp_path)


def test_results_of_another_city_are_refused(tmp_path: Path) -> None:
    Results.of_study(study(tmp_path))
    with pytest.raises(InvalidInputError, match="another study"):
        Results.of_study(study(tmp_path, city=synthetic_city(300, 1)))
    with pytest.raises(InvalidInputError, match="real_prior differs"):
        Results.of_study(study(tmp_path, visits=np.ones(CITY.nodes), visits_source="taxis"))


@pytest.mark.parametrize(
    ("error", "status", "note"),
    [
        (PhaseOneCostError("costs 13", value=13.0, limit=5.0), "infeasible", "costs 13"),
        (ZeroDivisionError("oops"), "failed", "ZeroDivisionError: oops"),
        (MemoryError(), "out of memory", "needs more memory than there is"),
    ],
)
def test_what_does_not_fit_is_an_answer_and_a_bug_is_a_failure(
    tmp_path: Path, error: Exception, status: str, note: str
) -> None:
    def answer(one: Cell) -> Outcome:
        raise error

    (row,) = Counted(tmp_path, answer).run(cell("EM"))
    assert (row["status"], row["note"]) == (status, note)


@pytest.mark.parametrize(
    ("status", "limits"),
    [
        ("failed", ()),
        ("time limit", (5.0, 10.0)),
        ("infeasible", (5.0, 10.0, 20.0, None)),
        ("out of memory", (5.0, 10.0, 20.0, None)),
    ],
)
def test_failures_run_again_and_limits_only_where_they_are_longer(
    tmp_path: Path, status: Status, limits: tuple[float | None, ...]
) -> None:
    store = Results.of_study(study(tmp_path))
    store.add(cell("EM"), Outcome(status=status), 10.0)
    tried = (5.0, 10.0, 20.0, None)
    assert tuple(one for one in tried if store.has_final(cell("EM"), one)) == limits


def test_a_worker_gives_what_this_process_gives(tmp_path: Path) -> None:
    place = study(tmp_path)
    laboratory = CellLaboratory(place)
    with Bench(laboratory, "shared") as bench:
        cells = [cell("EM+BR"), cell("no such method")]
        away, unknown = run_cells(cells, Results.of_study(place), bench, 60.0)
    assert away["status"] == "done"
    assert away["values"]["loss_m"] == laboratory.run(cell("EM+BR"), 60.0).values["loss_m"]
    assert unknown["status"] == "infeasible"
    assert "no method" in unknown["note"]


def test_draws_are_shared_over_methods_and_epsilons_and_domains_are_fresh(tmp_path: Path) -> None:
    work = study(tmp_path)
    first = draw_cell(work, cell("EM"))
    other = draw_cell(work, Cell("bound", "optimal", Setting(30, 15.0, outputs=5, users=3), 0))
    assert np.shares_memory(first.problem.loss, other.problem.loss)
    assert (first.problem.epsilon, other.problem.epsilon) == (5.0, 15.0)
    assert first.problem.domain is not other.problem.domain
    assert first.users.tolist() == other.users.tolist()
    assert len(set(first.users.tolist())) == 3
    assert draw_cell(work, cell("EM", 1)).users.tolist() != first.users.tolist()


def test_the_real_prior_is_the_traces_or_the_streets(tmp_path: Path) -> None:
    domain = CITY.domain(records=30, seed=0)
    place = study(tmp_path)
    streets = place.real_prior(domain)
    counts = place.street_counts(domain)
    assert "streets" in streets.source
    assert np.allclose(streets.weights, counts / counts.sum())
    assert counts.sum() > 0
    visits = np.zeros(CITY.nodes)
    assert domain.nodes is not None
    visits[domain.nodes[7]] = 3
    visits[domain.nodes[2]] = 1
    prior = study(tmp_path, visits=visits, visits_source="taxis").real_prior(domain)
    assert prior.weights[7] == 0.75
    assert prior.weights[2] == 0.25
    assert "taxis" in prior.source
    # A node that was not sampled counts for the record nearest to it.
    node = int(np.setdiff1d(np.arange(CITY.nodes), domain.nodes)[0])
    visits = np.zeros(CITY.nodes)
    visits[node] = 1
    prior = study(tmp_path, visits=visits, visits_source="taxis").real_prior(domain)
    apart = (CITY.lat[node] - domain.lat) ** 2 + (CITY.lon[node] - domain.lon) ** 2
    assert prior.weights.argmax() == apart.argmin()
    assert prior.weights.max() == 1
