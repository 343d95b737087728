"""Loops shared among threads: every part once, errors and Ctrl-C as from one loop, after a fork."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import numba
import numpy as np
import pytest

from panda_mdp.base.threads import by_slices, check_time, in_parts, within
from panda_mdp.errors import TimeLimitError


@pytest.fixture(params=[1, 3])
def threads(request, monkeypatch):
    """As many as numba says, whatever this machine has."""
    monkeypatch.setattr(numba, "get_num_threads", lambda: request.param)
    return request.param


@pytest.mark.parametrize("count", [0, 1, 2, 7, 1000])
def test_every_place_is_visited_once(threads, count):
    visits = np.zeros(count, dtype=np.int64)

    def loop(begin, end, step):
        visits[begin:end] += step

    in_parts(loop, count, 2)
    assert (visits == 2).all()


def test_threads_work_at_the_same_time(threads):
    meet = threading.Barrier(threads, timeout=300)
    met = []

    def loop(begin, end):
        if begin == 0 or len(met) < threads:
            met.append(threading.get_ident())
            meet.wait()

    in_parts(loop, threads)
    assert len(set(met)) == threads


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_error_ends_it_and_nothing_goes_on(threads, error):
    begun = []

    def loop(begin, end):
        begun.append(begin)
        raise error

    with pytest.raises(error):
        in_parts(loop, 1000)
    assert len(begun) <= threads


FORKED = """
import os, sys
import numba, numpy
from panda_mdp.base.threads import in_parts

numba.set_num_threads(int(sys.argv[1]))
in_parts(lambda begin, end: None, 10)
child = os.fork()
visits = numpy.zeros(10)
in_parts(lambda begin, end: visits.__setitem__(slice(begin, end), 1), 10)
if child == 0:
    os._exit(0 if visits.all() else 1)
sys.exit(os.waitpid(child, 0)[1] or not visits.all())
"""


@pytest.mark.parametrize("threads", ["1", "3"])
def test_a_forked_process_has_threads_of_its_own(threads):
    # In a process of its own: other tests have started JAX in this one, which warns of forks.
    environment = os.environ | {"NUMBA_NUM_THREADS": "3"}
    command = [sys.executable, "-W", "ignore", "-c", FORKED, threads]
    subprocess.run(command, env=environment, timeout=300, check=True)


@pytest.mark.parametrize(("size", "step"), [(0, 3), (1, 3), (3, 3), (10, 3), (1000, 1)])
def test_slices_cover_every_place_once(size, step):
    visits = np.zeros(size, dtype=int)

    def work(part: slice) -> None:
        assert 0 < part.stop - part.start <= step
        visits[part] += 1

    by_slices(work, size, step)
    assert (visits == 1).all()


def test_an_error_in_a_slice_is_raised():
    def work(part: slice) -> None:
        if part.start == 4:
            raise ValueError("the third")

    with pytest.raises(ValueError, match="the third"):
        by_slices(work, 10, 2)


def test_where_time_is_over_no_part_is_begun():
    now, done = [0.0], []

    def work(part: slice) -> None:
        done.append(part)
        now[0] += 1.0

    with within(10.0, lambda: now[0]), within(2.5, lambda: now[0]), pytest.raises(TimeLimitError):
        by_slices(work, 1000, 1)
    assert len(done) <= 3 + (os.cpu_count() or 1)
    with within(None):
        check_time()
    check_time()
