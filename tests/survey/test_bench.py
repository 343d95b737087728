"""Jobs in processes of their own: limits, what has no answer, and what is compiled before."""

from __future__ import annotations

import json
import os
import signal
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from worker_jobs import Signals, noted

import panda_mdp as pm
from panda_mdp.compute.closure import SMALL_RECORDS
from panda_mdp.survey.bench import REHEARSED, Bench, Comparison, Tuning
from panda_mdp.survey.registry import Method, choose_methods


def small_problem() -> pm.Problem:
    domain = pm.synthetic_city(400, seed=0).domain(records=40, seed=0)
    return pm.Problem(domain, range(5), pm.distance_loss(domain, range(5)), epsilon=5.0)


def test_jobs_share_a_process_or_have_one_each() -> None:
    with Bench(Signals(), "shared") as bench:
        first, second = (bench.run(("pid", 0), 60.0).values["answer"] for _ in range(2))
    assert first == second != os.getpid()
    with Bench(Signals(), "fresh") as bench:
        first, second = (bench.run(("pid", 0), 60.0).values["answer"] for _ in range(2))
    assert first != second
    assert Bench(Signals(), "none").run(("pid", 0)).values["answer"] == os.getpid()


@pytest.mark.parametrize(
    ("job", "status", "note"),
    [
        (("sleep", 600), "time limit", "stopped at the time limit of 0.1 s"),
        (("signal", signal.SIGKILL), "out of memory", "needs more memory than there is"),
        (("exit", 3), "failed", "its process ended without an answer (exit code 3)"),
        (("no start", 0), "failed", "did not start within 5 s"),
        (("raise", 0), "failed", "ZeroDivisionError: oops"),
    ],
)
def test_what_has_no_answer_says_why(job: tuple[str, int], status: str, note: str) -> None:
    tuning = Tuning(start_seconds=5.0 if job[0] == "no start" else 60.0, grace_seconds=0.1)
    limit = 0.1 if job[0] == "sleep" else 60.0
    with Bench(Signals(), "shared", tuning) as bench:
        outcome = bench.run(job, limit)
        assert (outcome.status, outcome.note) == (status, note)
        assert outcome.seconds == (limit if status == "time limit" else 0.0)


def test_a_method_that_fails_does_not_hide_the_others() -> None:
    comparison = Comparison(small_problem())
    broken = comparison.outcome(Method("broken", "broken", json.loads), None)
    assert broken.failed and broken.note.startswith("failed: TypeError")
    (exponential,) = choose_methods(["exponential"])
    found = comparison.outcome(exponential, None)
    assert found.holds and not found.failed
    assert found.reports is not None and np.allclose(found.reports.sum(axis=1), 1)


def test_both_phases_are_measured_without_a_single_table() -> None:
    (panda,) = choose_methods(["panda"])
    outcome = Comparison(small_problem()).run(panda, 20.0)
    assert outcome.values["holds"] and "downloads" in outcome.note
    assert np.allclose(outcome.values["marginal"].sum(axis=1), 1)


def test_every_method_is_rehearsed_before_the_first_run(tmp_path: Path) -> None:
    names = ("one", "two", "three")
    methods = [Method(name, name, partial(noted, tmp_path / name)) for name in names]
    Comparison(small_problem()).compile_kernels(methods)
    assert {path.name for path in tmp_path.iterdir()} == {*names}


def test_kernels_are_loaded_on_a_problem_that_reaches_them() -> None:
    assert SMALL_RECORDS < REHEARSED
    small = small_problem()
    assert Comparison(small).small.size == small.size, "small problems need no more than themselves"
    domain = pm.Domain.from_vectors(np.random.default_rng(0).uniform(size=(700, 2)))
    large = pm.Problem(domain, [0, 1], domain.distances(None, [0, 1]), 1.0)
    assert Comparison(large).small.size == REHEARSED
    assert Comparison(large).small.domain.metric.kind == domain.metric.kind
