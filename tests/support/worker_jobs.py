"""What the tests of processes ask for: in a module that a fresh process can import."""

from __future__ import annotations

import os
import pickle
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import panda_mdp as pm
from panda_mdp.survey.bench import Outcome


def prepared(request: tuple[str, int]) -> Callable[[], int]:
    """Asked in the worker's process."""
    what, number = request
    if what == "no start":
        time.sleep(600)
    return {
        "pid": os.getpid,
        "sleep": partial(_asleep, number),
        "signal": partial(os.kill, os.getpid(), number),
        "exit": partial(os._exit, number),
    }.get(what, os.getpid)  # type: ignore[return-value]


def _asleep(seconds: int) -> int:
    time.sleep(seconds)
    return seconds


def reported(task: tuple[bytes, Any]) -> list[float]:
    """Latitudes that a pickled perturber reports for a frame."""
    perturber = pickle.loads(task[0])
    return list(perturber.frame(task[1])["reported_lat"])


class Signals:
    """A laboratory whose jobs sleep, end their process, fail, or say which process they ran in."""

    def rehearse(self, job: tuple[str, int]) -> None:
        """Nothing is to be loaded; one job never starts."""
        if job[0] == "no start":
            time.sleep(600)

    def run(self, job: tuple[str, int], limit: float | None) -> Outcome:
        """Do it."""
        if job[0] == "raise":
            msg = "oops"
            raise ZeroDivisionError(msg)
        return Outcome({"answer": prepared(job)()})


def noted(path: Path, problem: pm.Problem) -> pm.Mechanism:
    """A method that leaves a file where it ran."""
    path.write_text("made")
    return pm.exponential(problem)
