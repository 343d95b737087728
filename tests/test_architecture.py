"""Floors, one way: what a module may import is decided by where it lies.

The graph is drawn from the source, imports inside functions included; only those under
`if TYPE_CHECKING` are not seen, since nothing runs them.
"""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src"
FLOORS = [
    ("panda_mdp.errors", "panda_mdp.version"),
    ("panda_mdp.base",),
    ("panda_mdp.space",),
    ("panda_mdp.compute",),
    ("panda_mdp.privacy",),
    ("panda_mdp.problem", "panda_mdp.problem", "panda_mdp.loss", "panda_mdp.prior"),
    ("panda_mdp.table",),
    ("panda_mdp.city",),
    ("panda_mdp.methods",),
    ("panda_mdp.panda",),
    ("panda_mdp.meaning",),
    ("panda_mdp.survey",),
    ("panda_mdp.plot",),
    ("panda_mdp.frames",),
    ("panda_mdp.protocol",),
    ("panda_paper",),
    ("panda_mdp.cli",),
    ("panda_mdp",),
]
"""From the ground up; the library's own front page is on top of all."""


@cache
def modules() -> dict[str, Path]:
    """Modules by name."""
    names = {}
    for path in sorted(SOURCE.rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        names[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return names


def floor(name: str) -> int:
    """The number of the floor that a module lies on."""
    for number, rooms in enumerate(FLOORS[:-1]):
        if any(name == room or name.startswith(f"{room}.") for room in rooms):
            return number
    assert name == "panda_mdp", f"{name} lies in no room"
    return len(FLOORS) - 1


@cache
def trees() -> dict[str, ast.Module]:
    """Modules as they are parsed."""
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in modules().items()}


def imported(tree: ast.AST) -> Iterator[str]:
    """What a tree imports, anywhere but under TYPE_CHECKING."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute here"
            for alias in child.names:
                full = f"{child.module}.{alias.name}"
                yield full if full in modules() else str(child.module)
        elif isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.stmt | ast.excepthandler | ast.match_case) and not (
            isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)
        ):
            yield from imported(child)


@cache
def graph() -> dict[str, set[str]]:
    """What each module imports of this project."""
    return {name: set(imported(tree)) & set(modules()) - {name} for name, tree in trees().items()}


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """Groups of modules that reach each other (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in sorted(edges[node]):
            if other not in index:
                visit(other)
                low[node] = min(low[node], low[other])
            elif other in stack:
                low[node] = min(low[node], index[other])
        if low[node] == index[node]:
            group = []
            while not group or group[-1] != node:
                group.append(stack.pop())
            if len(group) > 1:
                groups.append(sorted(group))

    for node in sorted(edges):
        if node not in index:
            visit(node)
    return groups


def upward(edges: dict[str, set[str]]) -> list[str]:
    """Imports of a module on a higher floor."""
    return [
        f"{name} imports {other}"
        for name in sorted(edges)
        for other in sorted(edges[name])
        if floor(other) > floor(name)
    ]


def test_no_module_imports_upwards():
    assert upward(graph()) == []


def test_no_cycles():
    assert cycles(graph()) == []


def test_the_graph_is_drawn_from_what_there_is():
    assert len(graph()) > 150
    assert "panda_mdp.compute.pairs" in graph()["panda_mdp.privacy.audit"]
    assert "panda_mdp.compute.jax.closure" in graph()["panda_mdp.privacy.audit"], "lazy ones count"


@pytest.mark.parametrize(
    ("planted", "kind"),
    [
        ({"panda_mdp.space.domain": {"panda_mdp.city.city"}}, "upward"),
        ({"panda_mdp.city.city": {"panda_mdp.city.network"}}, "cycle"),
    ],
)
def test_what_is_planted_is_caught(planted, kind):
    edges = defaultdict(set, {name: set(others) for name, others in graph().items()})
    for name, others in planted.items():
        edges[name] |= others
    edges["panda_mdp.city.network"] |= {"panda_mdp.city.city"} if kind == "cycle" else set()
    assert (upward(edges) if kind == "upward" else cycles(edges)) != []


def test_files_stay_readable():
    long = [
        f"{n}: {k}" for n, p in modules().items() if (k := len(p.read_text().splitlines())) > 600
    ]
    assert long == []


def repeated_stems() -> set[str]:
    """File names without ending that more than one module has."""
    count = Counter(path.stem for path in modules().values() if path.stem != "__init__")
    return {stem for stem, number in count.items() if number > 1}


def single_importers() -> list[str]:
    """Modules that just one module imports, the front pages of the packages left aside."""
    count = Counter(
        other for name, others in graph().items() if name != "panda_mdp" for other in others
    )
    return sorted(name for name in modules() if count[name] == 1)


PACKAGES = ("base", "space", "compute", "privacy", "table", "city", "methods", "panda", "meaning")
PACKAGES += ("survey", "plot", "frames", "protocol", "cli")


@pytest.mark.parametrize("page", ["README.md", "docs/architecture.md"])
def test_the_folder_list_is_true(page):
    text = (SOURCE.parent / page).read_text(encoding="utf-8")
    listing = text[text.index("    src/panda_mdp/\n") :].split("\n\n")[0]
    inside, _, outside = listing.partition("\n")[2].partition("    src/panda_paper/")
    names = set(re.findall(r"(?<![\w/.])([\w]+/|[\w]+\.py)", inside))
    rooms = {path.name for path in (SOURCE / "panda_mdp").iterdir()}
    assert {f"{package}/" for package in PACKAGES} <= names
    assert {path.name for path in (SOURCE / "panda_mdp").glob("[a-z]*.py")} - names == {
        "version.py"
    }
    folders = {path.name for path in SOURCE.rglob("*") if path.is_dir()}
    for name in names:
        assert name in rooms or name.rstrip("/") in folders, f"{page} names {name}"
    for name in re.findall(r"(?m)(?<![\w/.])(\w+)/(?= )", outside):
        known = (SOURCE.parent / name).is_dir() or (SOURCE / "panda_paper" / name).is_dir()
        assert known or name == "contract", f"{page} names {name}"


def test_the_rooms_on_disk_are_those_of_the_floors():
    rooms = {path.parent.name for path in (SOURCE / "panda_mdp").glob("*/__init__.py")}
    assert rooms == set(PACKAGES)


def test_the_walks_name_files_and_things_that_exist():
    text = (SOURCE.parent / "docs/architecture.md").read_text(encoding="utf-8")
    text = text[text.index("Nothing goes the other way") :]
    paths = [str(path.relative_to(SOURCE)) for path in modules().values()]
    source = "\n".join(path.read_text(encoding="utf-8") for path in modules().values())
    files = 0
    for word in re.findall(r"`([^`\n]+)`", text):
        if word.endswith(".py") and not word.startswith("tests/"):
            files += 1
            assert any(path == word or path.endswith(f"/{word}") for path in paths), word
        elif word.endswith("/"):
            assert any(f"/{word}" in f"/{path}" for path in paths), word
        elif re.fullmatch(r"[A-Za-z_]\w*", word):
            assert re.search(rf"^\s*(?:class|def) {word}\b|^{word}\b", source, re.M), word
    assert files > 30


def test_tests_mirror_the_source():
    tests = SOURCE.parent / "tests"
    own = {"contract", "docs", "engines", "examples", "mutants", "proofs", "support", "vectors"}
    own |= {"benchmarks", "verify", "web"}
    for path in tests.rglob("test_*.py"):
        parts = path.relative_to(tests).parts[:-1]
        if not own & set(parts):
            base = SOURCE if parts[:1] == ("panda_paper",) else SOURCE / "panda_mdp"
            assert base.joinpath(*parts).is_dir(), f"{path} tests no room"
