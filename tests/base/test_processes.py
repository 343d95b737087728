"""Work in a process of its own: answers, limits, and processes that end."""

from __future__ import annotations

import os
import signal

import pytest
from worker_jobs import prepared

from panda_mdp.base.processes import NoAnswer, Worker


@pytest.fixture(scope="module")
def worker():
    with Worker(prepared) as made:
        yield made


def test_one_process_answers_all_and_it_is_another(worker):
    first, second = (worker.answer(("pid", 0), 60.0) for _ in range(2))
    assert first == second != os.getpid()


def test_work_beyond_its_limit_is_stopped_and_a_new_process_goes_on(worker):
    before = worker.answer(("pid", 0))
    assert worker.answer(("sleep", 600), 0.05) == NoAnswer("time limit")
    assert worker.answer(("pid", 0), 60.0) != before


def test_a_start_has_a_limit_of_its_own(worker):
    assert worker.answer(("no start", 0), start_limit=0.05) == NoAnswer("slow start")


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (("signal", signal.SIGKILL), NoAnswer("out of memory", -signal.SIGKILL)),
        (("signal", signal.SIGABRT), NoAnswer("out of memory", -signal.SIGABRT)),
        (("signal", signal.SIGTERM), NoAnswer("ended", -signal.SIGTERM)),
        (("exit", 3), NoAnswer("ended", 3)),
    ],
)
def test_a_process_that_is_killed_differs_from_one_that_ends(worker, request_, expected):
    assert worker.answer(request_, 60.0) == expected


def test_nothing_is_left_running():
    with Worker(prepared) as worker:
        pid = worker.answer(("pid", 0), 60.0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
