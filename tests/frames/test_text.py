"""Texts in, texts out: what is replaced, what stays, and what is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.errors import InvalidInputError, MethodError, NotForReleaseError
from panda_mdp.frames.text import TextSummary, words_of

WORDS = ["cat", "dog", "paris", "rome", "runs"]


def table(epsilon: float, words: list[str] = WORDS) -> pm.Mechanism:
    """Words on a line, 1 apart: at a large epsilon they stay, at a small one they do not."""
    places = np.arange(len(words), dtype=float)[:, None]
    domain = pm.Domain.from_vectors(places).with_labels(words)
    everything = np.arange(len(words))
    with pytest.warns(Warning) if epsilon > 20 else _nothing():
        problem = pm.Problem(domain, everything, domain.distances(), epsilon)
    return pm.exponential(problem)


class _nothing:
    def __enter__(self) -> None: ...
    def __exit__(self, *_: object) -> None: ...


def test_words_are_drawn_and_everything_else_stays() -> None:
    assert (
        pm.sanitise("The Cat; runs - in Rome!\n", table(60.0)) == "paris cat; runs - paris rome!\n"
    )


def test_what_the_table_does_not_have_never_passes_through() -> None:
    given = "Zoë's e-mail is 12.5/77 O'Brien-Smith Ünïcödé 7"
    pieces = [piece for piece, is_word in words_of(given) if is_word]
    assert pieces == ["Zoë's", "e-mail", "is", "12.5/77", "O'Brien-Smith", "Ünïcödé", "7"]
    said = pm.sanitise(given, table(60.0))
    assert set(said.split()) == {"paris"}
    # The table's own unknown word is preferred to the one in the middle.
    assert set(pm.sanitise(given, table(60.0, [*WORDS, "<unk>"])).split()) == {"<unk>"}


def test_pieces_make_up_the_text() -> None:
    text = "  a_b 3,4.  --x--\t“q’s” \n\n"
    assert "".join(piece for piece, _ in words_of(text)) == text
    assert [p for p, is_word in words_of(text) if is_word] == ["a", "b", "3,4", "x", "q’s"]


def test_only_blanks_and_punctuation_are_no_words() -> None:
    text = "x²y №5 ½ a1b2 ١٢٣ 你好_世界 e\u0301 हिन्दी 🙂 a\u200db 12:30 3rd"
    rest = "".join(piece for piece, is_word in words_of(text) if not is_word)
    assert set(rest) == {" ", "_"}
    assert [p for p, is_word in words_of("at 12:30, 3rd") if is_word] == ["at", "12:30", "3rd"]


def test_a_word_is_drawn_by_its_row() -> None:
    mechanism = table(1.0)
    drawn = pm.sanitise(" ".join(["dog"] * 20_000), mechanism).split()
    shares = np.array([drawn.count(word) for word in WORDS]) / len(drawn)
    assert np.abs(shares - mechanism.row(1)).max() < 0.02


def test_lists_and_series_come_back_as_they_are() -> None:
    mechanism = table(60.0)
    assert pm.sanitise(["cat", "Dog."], mechanism) == ["cat", "dog."]
    pandas = pytest.importorskip("pandas")
    series = pandas.Series(["cat", "dog"], index=[5, 7], name="text")
    assert pm.sanitise(series, mechanism).equals(series)
    polars = pytest.importorskip("polars")
    column = polars.Series("text", ["cat", "dog"])
    assert pm.sanitise(column, mechanism).equals(column)


def test_the_summary_counts_and_shows_no_word() -> None:
    summary = TextSummary()
    pm.sanitise(["cat Zebra", "dog dog dog"], table(60.0), summary=summary)
    assert (summary.texts, summary.words, summary.kept) == (2, 5, 4)
    assert (summary.unknown, summary.longest) == (1, 3)
    said = str(summary)
    assert "epsilon 60 per unit" in said and "180 per unit" in said
    assert not any(word in said.lower() for word in ("cat", "zebra", "dog"))
    assert repr(summary) == "TextSummary(<hidden>; print it)"


def test_a_tokenizer_of_ones_own() -> None:
    def letters(text: str) -> list[tuple[str, bool]]:
        return [(text[:3], True), (text[3:], False)]

    assert pm.sanitise("dogcat", table(60.0), tokenizer=letters) == "dogcat"


def test_refusals_show_nothing_of_the_text() -> None:
    with pytest.raises(InvalidInputError) as error:
        pm.sanitise(["cat", 4711], table(60.0))  # type: ignore[list-item]
    assert "4711" not in str(error.value)

    def broken(text: str) -> list[tuple[str, bool]]:
        raise ValueError(text)

    with pytest.raises(MethodError) as failed:
        pm.sanitise("secret", table(60.0), tokenizer=broken)
    assert "secret" not in str(failed.value)
    assert failed.value.__context__ is None
    domain = pm.Domain.from_vectors([[0.0], [1.0]])
    unnamed = pm.exponential(pm.Problem(domain, [0, 1], domain.distances(), 1.0))
    with pytest.raises(MethodError, match="not words"):
        pm.sanitise("a", unnamed)
    loose = pm.NoGuarantee.from_matrix(unnamed.problem, np.eye(2))
    with pytest.raises(NotForReleaseError):
        pm.sanitise("a", loose)  # type: ignore[arg-type]


def test_vectors_to_a_table_to_a_text(tmp_path: Path) -> None:
    from panda_mdp.cli.app import app

    rng = np.random.default_rng(0)
    names = [f"word{'abcdefghij'[k // 10]}{'abcdefghij'[k % 10]}" for k in range(30)]
    lines = [f"{n} " + " ".join(f"{v:.5f}" for v in rng.normal(size=20)) for n in names]
    vectors = tmp_path / "vectors.txt"
    vectors.write_text("\n".join(lines) + "\n")
    made, text, out = (tmp_path / n for n in ("words.pmdp", "in.txt", "out.txt"))
    text.write_text(f"{names[3].upper()}, hidden {names[4]}!\n" * 50)
    run = {"standalone_mode": False}
    assert not app(["words", str(vectors), "-o", str(made), "--epsilon", "1.5"], **run)
    assert not app(["sanitise", str(made), str(text), "-o", str(out)], **run)
    said = out.read_text()
    assert "hidden" not in said
    assert said.count("\n") == 50 and said.count(",") == 50
    assert set(said.replace(",", "").replace("!", "").split()) <= set(names)
    text.write_bytes(b"\xff\xfe\xff")
    out.unlink()
    assert app(["sanitise", str(made), str(text), "-o", str(out)], **run) == 2
    assert not out.exists()
