"""Every block of Python in the documentation runs, top to bottom, page by page.

What a block needs that its reader has and a test has not, a file of one's own say, is made by the
comment `<!-- given` above it, which no reader sees. A block is left out where the line above it
says `<!-- not run: why -->`.
"""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import panda_mdp as pm
from panda_mdp import errors

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted((ROOT / "docs").glob("*.md")) + sorted((ROOT / "docs" / "tutorials").glob("*.md"))
BLOCK = re.compile(
    r"^(?P<mark><!-- not run: [^>]+ -->\n)?(?:<!-- given\n(?P<given>.*?)-->\n)?"
    r"```python\n(?P<code>.*?)^```",
    re.M | re.S,
)


def program(text: str) -> str:
    """The blocks of a page that run, one after the other, each after what is given for it."""
    found = [block for block in BLOCK.finditer(text) if not block["mark"]]
    return "\n".join(part for block in found for part in (block["given"] or "", block["code"]))


RUN = [page for page in PAGES if program(page.read_text())]


def test_what_is_given_comes_before_its_block_and_a_mark_leaves_one_out() -> None:
    given = "<!-- given\na\n-->\n```python\nb\n```\n\n"
    marked = "<!-- not run: why -->\n```python\nc\n```\n\n<!-- other -->\n```python\nd\n```\n"
    assert program(given + marked).split() == ["a", "b", "d"]


def test_every_tutorial_has_code() -> None:
    assert {page.stem for page in RUN} >= {"app", "trips", "research", "operator", "words"}


@pytest.mark.parametrize("page", RUN, ids=lambda page: page.stem)
def test_the_code_of_a_page_runs(page: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", program(page.read_text())],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def given_names() -> set[str]:
    """Every public name, and the parameters and attributes of what is public."""
    names = set(pm.__all__) | set(vars(errors))
    for one in map(vars(pm).get, pm.__all__):
        if callable(one):
            names |= set(inspect.signature(one).parameters)
        if inspect.isclass(one):
            names |= set(dir(one)) | set(getattr(one, "__dataclass_fields__", {}))
    return names


def test_names_in_the_glossary_exist() -> None:
    """`name`, `name(...)` and `Name.attribute` in the column of ours are names of the library."""
    page = (ROOT / "docs/glossary.md").read_text().partition("## Words of")[0]
    rows = [re.split(r"(?<!\\)\|", line) for line in page.splitlines()]
    text = "|".join(row[2] for row in rows if len(row) > 3).replace("(...)", "")
    subjects = {"domain": pm.Domain, "problem": pm.Problem, "mechanism": pm.Mechanism}
    subjects |= {"audit": pm.Audit}
    known = given_names()
    checked = 0
    for name in re.findall(r"`([A-Za-z_]\w*(?:\.\w+)?)", text):
        base, _, attribute = name.partition(".")
        if attribute:
            owner = subjects.get(base) or getattr(pm, base)
            fields = getattr(owner, "__dataclass_fields__", {})
            assert hasattr(owner, attribute) or attribute in fields, name
        else:
            assert base in known, name
        checked += 1
    assert checked > 35
