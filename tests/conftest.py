"""Fixtures that several parts of the suite use."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

# Workers share the cores already: threads of their own, and of what they start, would only wait for
# each other. Both read this once, when numba and NumPy are first imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("NUMBA_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# The same devices everywhere; JAX_PLATFORMS=cuda runs the JAX tests on an accelerator instead.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import pytest
from outside import LOUD, left_out

from panda_mdp.city.city import City
from panda_mdp.city.maps import load_city

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def road_maps() -> Callable[[str], City]:
    """Real road maps by name ('rome', 'london'); skips where the files are absent."""
    folder = Path(os.environ.get("PANDA_MDP_DATA", ROOT.parent / "shared" / "data"))

    def read(name: str) -> City:
        path = folder / f"{name}.npz"
        if not path.exists():
            left_out("maps", f"{name}.npz is not in {folder}: set PANDA_MDP_DATA to their folder")
        return load_city(path)

    return read


@pytest.fixture(params=["numba", "numpy"])
def backend(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Runs a test twice: with the compiled kernels, and where numba cannot be imported. The name is
    the one that audits take: small domains go through NumPy unless it is given."""
    if request.param == "numpy":
        block_numba(monkeypatch)
        yield "numpy"
        return
    import numba

    # Thousands of tiny calls: waking threads would take longer than the work.
    threads = numba.get_num_threads()
    numba.set_num_threads(1)
    yield "numba"
    numba.set_num_threads(threads)


@pytest.fixture
def without_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes numba impossible to import for one test."""
    block_numba(monkeypatch)


def block_numba(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled = ("panda_mdp.compute.numba.", "panda_mdp.frames.kernel")
    for name in [name for name in sys.modules if name.startswith(compiled)]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "numba", None)


LONG = (
    "tests/protocol/server/test_crash.py",
    "tests/engines",
    "tests/panda_paper",
    "tests/examples",
)
"""What takes longest comes first, so that no worker is left alone with it at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: not item.nodeid.startswith(LONG))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What could not run here, after everything else and once each."""
    reasons = {
        str(report.longrepr[2]).removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple) and LOUD in str(report.longrepr[2])
    }
    for reason in sorted(reasons):
        terminalreporter.write_line(reason, yellow=True, bold=True)
