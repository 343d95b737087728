"""Scripts beside the library take nothing from it that is not there."""

from __future__ import annotations

import ast
import importlib
import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPTS = [path for folder in ("benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")]


def names_taken(tree: ast.AST) -> set[tuple[str, str]]:
    """Modules of ours, and the names that are imported from them or looked up in them."""
    nodes = list(ast.walk(tree))
    taken = {
        (node.module, alias.name)
        for node in nodes
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("panda_")
        for alias in node.names
    }
    short = {
        alias.asname or alias.name: alias.name
        for node in nodes
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name in ("panda_mdp", "panda_paper")
    }
    return taken | {
        (short[node.value.id], node.attr)
        for node in nodes
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in short
    }


def there(module: str, name: str) -> bool:
    if hasattr(importlib.import_module(module), name):
        return True
    return importlib.util.find_spec(f"{module}.{name}") is not None


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_a_script_takes_is_there(path):
    taken = sorted(names_taken(ast.parse(path.read_text(encoding="utf-8"))))
    assert [pair for pair in taken if not there(*pair)] == []
