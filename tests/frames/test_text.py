"""Texts in, texts out: what is replaced, what stays, and what is said."""

from __future__ import annotations

import json
import pickle
from functools import partial
from pathlib import Path

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.errors import InvalidInputError, MethodError, NotForReleaseError
from panda_mdp.frames.text import (
    Replacer,
    TextSummary,
    replaced_batches,
    replacing,
    words_of,
)

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


FRAME = {"text": ["cat Dog.", "", "dog"], "note": ["Zebra!", "cat", ""], "id": [5, 7, 9]}


def test_frames_come_back_with_their_texts_replaced() -> None:
    mechanism, both = table(60.0), ["text", "note"]
    summary = TextSummary()
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(FRAME, index=[4, 2, 8])
    made = pm.sanitise(frame, mechanism, columns=both, summary=summary)
    assert made["text"].tolist() == ["cat dog.", "", "dog"]
    assert made["note"].tolist() == ["paris!", "cat", ""]
    assert made["id"].tolist() == [5, 7, 9] and made.index.tolist() == [4, 2, 8]
    assert (summary.texts, summary.words, summary.unknown) == (6, 5, 1)
    assert frame["text"].tolist() == FRAME["text"], "the frame that was given is changed"
    polars = pytest.importorskip("polars")
    for whole in (polars.DataFrame(FRAME), polars.LazyFrame(FRAME)):
        made = pm.sanitise(whole, mechanism, columns=both)
        assert type(made) is type(whole)
        assert made.lazy().collect()["note"].to_list() == ["paris!", "cat", ""]
    pyarrow = pytest.importorskip("pyarrow")
    made = pm.sanitise(pyarrow.table(FRAME), mechanism, columns="note")
    assert made["note"].to_pylist() == ["paris!", "cat", ""]
    assert made["text"].to_pylist() == FRAME["text"]
    with pytest.raises(InvalidInputError, match="name the columns"):
        pm.sanitise(frame, mechanism)
    with pytest.raises(InvalidInputError, match="no column 'where'"):
        pm.sanitise(frame, mechanism, columns=["where"])
    with pytest.raises(InvalidInputError, match="a value is none") as error:
        pm.sanitise(frame, mechanism, columns=["id"])
    assert "5" not in str(error.value)


def test_by_a_key_a_row_has_the_same_draws_in_whatever_parts_it_comes() -> None:
    """As a cluster does it, which may run a task twice."""
    pyarrow = pytest.importorskip("pyarrow")
    key, mechanism = pm.DrawKey(bytes(range(32))), table(0.3)
    frame = pyarrow.table({"id": [*range(40)], "text": ["dog dog cat"] * 39 + [""]})
    options = {"columns": ["text"], "key": key, "row": "id"}
    made = pm.sanitise(frame, mechanism, **options)
    work = partial(replacing, Replacer.of(mechanism), **options)
    batches = frame.to_batches(max_chunksize=7)
    again = pyarrow.Table.from_batches(replaced_batches(work, batches[::-1]))
    assert again.schema == frame.schema
    assert again.sort_by("id").equals(made)
    drawn = " ".join(made["text"].to_pylist()).split()
    # Draws of one word at different places, and of different rows, are draws of their own.
    shares = np.array([drawn.count(word) for word in WORDS]) / len(drawn)
    wanted = (2 * mechanism.row(1) + mechanism.row(0)) / 3
    assert np.abs(shares - wanted).max() < 0.15
    other = pm.sanitise(frame, mechanism, **(options | {"key": pm.DrawKey(bytes(32))}))
    assert not other.equals(made)
    for wrong in ({"row": "id"}, {"key": key}):
        with pytest.raises(InvalidInputError, match="a key needs"):
            pm.sanitise(frame, mechanism, columns=["text"], **wrong)
    with pytest.raises(InvalidInputError, match="a key needs"):
        pm.sanitise("dog", mechanism, key=key, row="id")


def test_what_travels_to_a_cluster_needs_no_audit() -> None:
    replacer = pickle.loads(pickle.dumps(Replacer.of(table(60.0))))
    assert replacer.texts(["cat dog"]) == ["cat dog"]
    assert "cat" not in repr(replacer)


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


def test_words_are_compared_and_epsilon_is_chosen_by_the_command_line(tmp_path: Path) -> None:
    from panda_mdp.cli.app import app

    rng = np.random.default_rng(0)
    vectors, out = tmp_path / "vectors.txt", tmp_path / "rows.json"
    lines = [f"w{k} " + " ".join(f"{v:.5f}" for v in rng.normal(size=20)) for k in range(40)]
    vectors.write_text("\n".join(lines) + "\n")
    asked = ["--records", "30", "--epsilon", "1", "--methods", "tem,santext-plus"]
    assert not app(["compare", str(vectors), *asked, "--json", str(out)], standalone_mode=False)
    tem, plus = json.loads(out.read_text())
    assert tem["holds"] and tem["audited_epsilon"] <= 1 and tem["unit"] == "unit"
    assert not plus["holds"] and plus["audited_epsilon"] is None
    assert 0 < tem["kept"] < plus["kept"] and 0 < tem["topics"] <= 1
    wish = ["--within", "2", "--odds", "4", "--records", "30"]
    assert not app(["epsilon", str(vectors), *wish, "--json", str(out)], standalone_mode=False)
    choice = json.loads(out.read_text())
    assert choice["noun"] == "word" and choice["epsilon"] == pytest.approx(np.log(4) / 2)
