"""Floors, one way: what a module may import is decided by where it lies.

The graph is drawn from the source, imports inside functions included; only those under
`if TYPE_CHECKING` are not seen, since nothing runs them.
"""

from __future__ import annotations

import ast
from collections import defaultdict
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
    ("panda_mdp.problem", "panda_mdp.outputs", "panda_mdp.loss", "panda_mdp.prior"),
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

EMPTY_WORDS = {"apart", "burying", "found", "kept", "told"}
"""Participles that say what happened to a thing, and not what it is."""
PUBLIC_WORDS = {"panda_mdp.methods.prune: kept"}
"""A field of a public class keeps its name."""


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


def imported(tree: ast.AST) -> set[str]:
    """Modules of this project that a tree imports, anywhere but under TYPE_CHECKING."""
    names = set()
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        if isinstance(child, ast.ImportFrom):
            assert child.level == 0, "imports are absolute here"
            for alias in child.names:
                full = f"{child.module}.{alias.name}"
                names.add(full if full in modules() else str(child.module))
        elif isinstance(child, ast.Import):
            names.update(alias.name for alias in child.names)
        names |= imported(child)
    return names & set(modules())


@cache
def graph() -> dict[str, set[str]]:
    """What each module imports."""
    return {
        name: imported(ast.parse(path.read_text(encoding="utf-8"))) - {name}
        for name, path in modules().items()
    }


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
    assert "panda_mdp.compute.rate" in graph()["panda_mdp.privacy.audit"]
    assert "panda_mdp.compute.jax.closure" in graph()["panda_mdp.privacy.audit"], "lazy ones count"


@pytest.mark.parametrize(
    ("planted", "kind"),
    [
        ({"panda_mdp.space.domain": {"panda_mdp.city.city"}}, "upward"),
        ({"panda_mdp.city.city": {"panda_mdp.city.travel"}}, "cycle"),
    ],
)
def test_what_is_planted_is_caught(planted, kind):
    edges = defaultdict(set, {name: set(others) for name, others in graph().items()})
    for name, others in planted.items():
        edges[name] |= others
    edges["panda_mdp.city.travel"] |= {"panda_mdp.city.city"} if kind == "cycle" else set()
    assert (upward(edges) if kind == "upward" else cycles(edges)) != []


def test_files_stay_readable():
    long = [
        f"{n}: {k}" for n, p in modules().items() if (k := len(p.read_text().splitlines())) > 600
    ]
    assert long == []


def bound_names(tree: ast.AST) -> set[str]:
    """Names that a tree gives: to variables, parameters, fields, functions and classes."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
            names.add(node.id if isinstance(node, ast.Name) else node.attr)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias) and node.asname:
            names.add(node.asname)
    return names


def empty_words(name: str, tree: ast.AST) -> list[str]:
    """Names of a module that use a word of `EMPTY_WORDS`."""
    return [
        f"{name}: {one}"
        for one in sorted(bound_names(tree))
        if EMPTY_WORDS & set(one.lower().split("_"))
    ]


def test_names_are_nouns_of_the_field():
    words = [
        word
        for name, path in modules().items()
        for word in empty_words(name, ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert set(words) == PUBLIC_WORDS


@pytest.mark.parametrize(
    "line",
    [
        "found = 1",
        "def told(): ...",
        "def f(*, apart): ...",
        "x.not_kept = 2",
        "class C:\n    kept: int",
        "for i, found in []: ...",
        "lambda found: 0",
        "import a as told",
    ],
)
def test_an_empty_word_is_caught(line):
    assert len(empty_words("m", ast.parse(line))) == 1
