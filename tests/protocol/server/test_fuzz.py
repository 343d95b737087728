"""What nobody should send. The full run: benchmarks/protocol_fuzz.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from protocol_fuzz import Target, log_problems, prepare, run_cases, schemathesis
from protocol_malformed import MAKERS
from protocol_servers import Running


@pytest.fixture(scope="module")
def where(server: Running, tmp_path_factory: pytest.TempPathFactory) -> Target:
    return prepare(server, tmp_path_factory.mktemp("fuzz"))


def test_malformed_requests_are_refused_and_not_logged(server: Running, where: Target) -> None:
    verdict = run_cases(server, where, count=30 * len(MAKERS), seed=11)
    assert verdict.wrong == []
    assert verdict.sent == 30 * len(MAKERS)
    assert log_problems(server, where) == []


def test_the_description_is_kept(make_server: Callable[..., Running], tmp_path: Path) -> None:
    server = make_server()
    where = prepare(server, tmp_path)
    for token in (where.admin, where.reporter):
        good, output = schemathesis(server, token, tmp_path, 5, seed=5, phases="fuzzing")
        assert good, output
    assert log_problems(server, where) == []
