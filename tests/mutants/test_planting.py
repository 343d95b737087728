"""The list of deliberate bugs does not rot: each has its place in the source, and its tests."""

from __future__ import annotations

import json
import re

import pytest
from planting import ROOT, Bug, bugs, main, merged, sources

BUGS = bugs()
AREAS = {
    "src/panda_mdp/privacy/": 15,
    "src/panda_mdp/compute/": 20,
    "src/panda_mdp/panda/": 20,
    "src/panda_mdp/protocol/": 15,
    "verify/panda_verify.py": 10,
    "web/src/core/": 15,
}


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: f"{bug.list}: {bug.name}")
def test_every_bug_can_be_planted_and_names_tests_that_exist(bug: Bug) -> None:
    text = (ROOT / bug.file).read_text()
    assert bug.planted(text) != text
    assert bug.tests
    for test in bug.tests:
        path, _, name = test.partition("::")
        assert (ROOT / path).exists(), test
        for part in name.split("::") if name else ():
            assert re.search(rf"(def|class) {part}\b", (ROOT / path).read_text()), test


def test_names_are_distinct_and_every_area_has_bugs() -> None:
    assert len({(bug.list, bug.name) for bug in BUGS}) == len(BUGS) >= 69
    for start, least in AREAS.items():
        assert sum(bug.file.startswith(start) for bug in BUGS) >= least, start


def test_a_bug_without_its_place_is_an_error() -> None:
    gone = Bug("none", "gone", "x.py", "old", "new", ("tests",))
    for text in ("nothing", "old and old"):
        with pytest.raises(ValueError, match="places"):
            gone.planted(text)
    assert gone.planted("an old one") == "an new one"


def test_tables_of_two_machines_make_one_where_their_sources_are_the_same(tmp_path, capsys) -> None:
    """What one machine could not run counts as not run, and another's verdict takes its place."""
    names = [f"{bug.list}: {bug.name}" for bug in BUGS]
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    verdicts = dict.fromkeys(names, "killed") | {names[0]: "not run: No module named 'uvicorn'"}
    first.write_text(json.dumps({"sources": sources(), "verdicts": verdicts}))
    assert main(["--merge", str(first)]) == 1
    assert "NOT RUN: NO MODULE NAMED 'UVICORN'" in capsys.readouterr().out
    second.write_text(json.dumps({"sources": sources(), "verdicts": {names[0]: "killed"}}))
    assert main(["--merge", str(first), str(second)]) == 0
    assert f"all       {len(BUGS)} of {len(BUGS)} killed (100.0%)" in capsys.readouterr().out
    second.write_text(json.dumps({"sources": "0" * 64, "verdicts": {names[0]: "killed"}}))
    with pytest.raises(ValueError, match="other sources"):
        merged([first, second])
