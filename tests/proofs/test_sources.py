"""Every main theorem is in the book, and the book names no theorem that is not proved."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FILES = {path.stem: path.read_text(encoding="utf-8") for path in (ROOT / "proofs").glob("*.v")}
PROVED = {
    name
    for text in FILES.values()
    for name in re.findall(r"^(?:Theorem|Lemma|Corollary) (\w+)", text, re.MULTILINE)
}
MAIN = re.findall(r"^Print Assumptions (\w+)\.", FILES["Assumptions"], re.MULTILINE)
BOOK = (ROOT / "docs" / "proofs.md").read_text(encoding="utf-8")


def test_main_theorems_are_proved_and_in_the_book():
    assert len(MAIN) >= 20
    assert set(MAIN) <= PROVED
    assert not [name for name in MAIN if f"`{name}`" not in BOOK]


def test_the_book_names_what_is_proved():
    rows = [line for line in BOOK.splitlines() if line.startswith("| `")]
    named = {
        name
        for line in rows
        for name in re.findall(r"`([a-z_]+)`", line.split("|")[1])
        if ".v" not in line.split("|")[1]
    }
    assert len(named) >= 30
    assert not named - PROVED


def test_nothing_is_left_open():
    for name, text in FILES.items():
        code = re.sub(r"\(\*.*?\*\)", "", text, flags=re.DOTALL)
        assert not re.search(r"\b(Admitted|admit|Axioms?|Parameters?|Conjecture|Abort)\b", code), (
            name
        )
        # One proof for each statement.
        stated = len(re.findall(r"^(?:Theorem|Lemma|Corollary)\b", code, re.MULTILINE))
        assert stated == len(re.findall(r"\bQed\.", code)), name


def test_every_file_opens_with_what_it_is_about():
    for name, text in FILES.items():
        assert text.startswith("(** "), name
        assert len(text.splitlines()) < 600, name
