"""What a release says about itself agrees, and the scripts that set up and check decide rightly."""

from __future__ import annotations

import gzip
import importlib.util
import json
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

import panda_mdp as pm

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def script(name: str) -> ModuleType:
    """A script of `.ci`, imported."""
    spec = importlib.util.spec_from_file_location(name, ROOT / ".ci" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


provide, release_check = script("provide"), script("release_check")


def test_one_version() -> None:
    assert "version" in PROJECT["dynamic"]
    assert release_check.version() == pm.__version__
    assert f"## [{pm.__version__}]" in (ROOT / "CHANGELOG.md").read_text()
    assert f"\nversion: {pm.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    for package in ("web/package.json", "web/package/package.json", "web/package-lock.json"):
        assert json.loads((ROOT / package).read_text())["version"] == pm.__version__, package


def test_the_lowest_versions_are_the_declared_ones() -> None:
    lines = (ROOT / ".ci" / "lowest.txt").read_text().splitlines()
    held = dict(line.split("==") for line in lines if not line.startswith("#"))
    declared = dict(line.split(">=") for line in PROJECT["dependencies"])
    assert held.keys() == declared.keys()
    for name, version in held.items():
        assert re.fullmatch(rf"{re.escape(declared[name])}(\.0)*", version), name


def test_the_extras_lowest_versions_are_the_declared_ones() -> None:
    lines = (ROOT / ".ci" / "lowest-extras.txt").read_text().splitlines()
    held = dict(line.split("==") for line in lines if not line.startswith("#"))
    extras = PROJECT["optional-dependencies"]
    shown = [
        line
        for name in ("plot", "paper", "geo", "frames", "server", "client")
        for line in extras[name]
    ]
    declared = dict(re.sub(r"\[\w+\]|;.*", "", line).split(">=") for line in shown if ">=" in line)
    assert held.keys() == declared.keys()
    for name, version in held.items():
        assert re.fullmatch(rf"{re.escape(declared[name])}(\.0)*", version), name


def names(needs: tuple[object, ...]) -> list[str]:
    return [need.name for need in needs]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("present", "root", "apt", "installs", "left_out"),
    [
        ({"node", "postgresql", "chromium"}, False, False, [], []),
        ({"node"}, True, True, ["postgresql", "chromium"], []),
        ({"node"}, False, True, [], ["postgresql", "chromium"]),
        ({"node"}, True, False, [], ["postgresql", "chromium"]),
        (set(), True, True, ["postgresql", "chromium"], ["node"]),
        (set(), False, False, [], ["node", "postgresql", "chromium"]),
    ],
)
def test_only_root_installs_and_the_rest_is_left_out(
    present: set[str], root: bool, apt: bool, installs: list[str], left_out: list[str]
) -> None:
    decided = provide.plan(present, root=root, apt=apt)
    assert names(decided.installs) == installs
    assert names(decided.left_out) == left_out
    said = "\n".join(decided.says())
    assert ("as root, system-wide: apt-get install" in said) == bool(installs)
    assert [line.split()[3].rstrip(":") for line in said.splitlines() if "NOT RUN" in line] == (
        left_out
    )


@pytest.mark.parametrize(
    ("said", "enough"),
    [("v20.19.0\n", True), ("v22.1.0\n", True), ("v20.18.9\n", False), ("", False)],
)
def test_an_old_node_counts_as_none(said: str, enough: bool) -> None:
    assert provide.new_enough(said) is enough


def test_a_package_that_lacks_or_carries_the_wrong_files_is_named() -> None:
    wrong = release_check.complaints(["a", "docs/results/x"], ("a", "b"), ("docs/results/",))
    assert wrong == ["b is missing", "docs/results/x should not be there"]
    assert release_check.complaints(["a"], ("a",), ("docs/",)) == []


def test_what_is_missing_outside_is_skipped_or_required(monkeypatch: pytest.MonkeyPatch) -> None:
    from outside import LOUD, left_out

    monkeypatch.delenv("PANDA_MDP_REQUIRE", raising=False)
    monkeypatch.delenv("PANDA_MDP_WITHOUT", raising=False)
    with pytest.raises(pytest.skip.Exception, match=LOUD):
        left_out("Chromium", "install it")
    monkeypatch.setenv("PANDA_MDP_REQUIRE", "all")
    with pytest.raises(pytest.fail.Exception, match="Chromium is missing; install it"):
        left_out("Chromium", "install it")
    monkeypatch.setenv("PANDA_MDP_WITHOUT", "maps java")
    with pytest.raises(pytest.fail.Exception, match="Chromium is missing; install it"):
        left_out("Chromium", "install it")
    monkeypatch.setenv("PANDA_MDP_WITHOUT", "maps chromium")
    with pytest.raises(pytest.skip.Exception, match=LOUD):
        left_out("Chromium", "install it")
    with pytest.raises(ValueError, match="is none of"):
        left_out("Netscape", "")


def test_cells_of_trees_that_are_not_known_are_counted_where_results_are_described() -> None:
    """Cells name their version with the commit; docs say how many do not."""
    said = " ".join((ROOT / "docs" / "reproduce.md").read_text().split())
    counted = {}
    for city in ("rome", "london", "nyc"):
        lines = gzip.decompress((ROOT / f"docs/results/{city}/cells.jsonl.gz").read_bytes())
        versions = [json.loads(line)["version"] for line in lines.splitlines()]
        unknown = sum("+" not in version for version in versions)
        changed = sum(version.endswith("-changed") for version in versions)
        counted[city] = f"{unknown:,}", f"{len(versions):,}", changed
    (rome, rome_of, changed), (london, london_of, none), (nyc, _, no) = counted.values()
    assert f"{rome} of Rome's {rome_of} and {london} of London's {london_of}" in said
    assert f"{changed} of Rome's (method" in said and (none, nyc, no) == (0, "0", 0)
