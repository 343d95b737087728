"""Word vectors from text and arrays."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from panda_mdp.errors import FileFormatError, InvalidInputError
from panda_mdp.space.embeddings import Embeddings, load_embeddings

GLOVE = "the 0.1 0.2 0.3\ncat 1 0 -1.5e-1\nat name@domain.com 0.5 0.5 0.5\ncat 9 9 9\n"


def test_glove_text(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text(GLOVE)
    found = load_embeddings(path)
    assert found.words == ("the", "cat", "at name@domain.com")
    assert found.vectors.tolist() == [[0.1, 0.2, 0.3], [1, 0, -0.15], [0.5, 0.5, 0.5]]
    assert found.index["cat"] == 1
    assert load_embeddings(path, limit=2).words == ("the", "cat")
    assert found.domain().metric.kind == "angular"
    assert found.domain("euclidean").unit == "unit"


def test_word2vec_text_has_a_header(tmp_path: Path) -> None:
    path = tmp_path / "vectors.vec"
    path.write_text("2 3\nnew york 1 2 3\nrome 3 2 1\n")
    assert load_embeddings(path).words == ("new york", "rome")


def test_arrays_with_words(tmp_path: Path) -> None:
    path, words = tmp_path / "vectors.npy", tmp_path / "words.txt"
    np.save(path, np.eye(3, dtype=np.float32))
    words.write_text("a\nb\nc\n")
    assert load_embeddings(path, words=words).vectors.tolist() == np.eye(3).tolist()
    some = load_embeddings(path, words=words, limit=2)
    assert some.words == ("a", "b") and some.vectors[1].tolist() == [0, 1, 0]
    with pytest.raises(FileFormatError, match="without words"):
        load_embeddings(path)
    words.write_text("a\n")
    with pytest.raises(FileFormatError, match=r"shape \(3, 3\) and words.txt 1 words"):
        load_embeddings(path, words=words)
    path.write_bytes(b"damaged")
    with pytest.raises(FileFormatError, match="damaged"):
        load_embeddings(path, words=words)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a 1 2\nb 1 x\n", "line 2"),
        ("a 1 2\nb 1\n", "line 2"),
        ("a 1 2\nb nan 1\n", "line 2"),
        ("a 1 2\n", "gives 1 of the words"),
        ("", "gives 0 of the words"),
    ],
)
def test_damaged_text(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "glove.txt"
    path.write_text(text)
    with pytest.raises(FileFormatError, match=message):
        load_embeddings(path)


def test_wrong_calls(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="does not exist"):
        load_embeddings(tmp_path / "nowhere.txt")
    with pytest.raises(InvalidInputError, match="twice"):
        Embeddings(("a", "a"), np.eye(2))
    with pytest.raises(InvalidInputError, match="one per word"):
        Embeddings(("a",), np.eye(2))
    (tmp_path / "glove.txt").write_text(GLOVE)
    with pytest.raises(InvalidInputError, match="limit is 1"):
        load_embeddings(tmp_path / "glove.txt", limit=1)


def word2vec(path: Path, rows: dict[str, list[float]], end: bytes = b"") -> Path:
    size = len(next(iter(rows.values())))
    body = [word.encode() + b" " + np.array(v, "<f4").tobytes() + end for word, v in rows.items()]
    path.write_bytes(f"{len(rows)} {size}\n".encode() + b"".join(body))
    return path


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_word2vec_binary(tmp_path: Path, end: bytes) -> None:
    rows = {"cat": [1.0, 0.25], "größe": [0.5, -2.0], "dog": [0.0, 1.0]}
    path = word2vec(tmp_path / "v.bin", rows, end)
    read = load_embeddings(path)
    assert read.words == ("cat", "größe", "dog") and read.vectors.tolist() == list(rows.values())
    assert load_embeddings(path, limit=2).words == ("cat", "größe")
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(FileFormatError, match="breaks at word 3 of 3"):
        load_embeddings(path)
    path.write_bytes(b"no header")
    with pytest.raises(FileFormatError, match="no word2vec file"):
        load_embeddings(path)


def test_a_first_word_that_holds_blanks_is_one(tmp_path: Path) -> None:
    path = tmp_path / "glove.txt"
    path.write_text("new york 1 2 3\n. . . 3 2 1\n7 1 1 1\n")
    assert load_embeddings(path).words == ("new york", ". . .", "7")


def safetensors(path: Path, kind: str, raw: bytes, name: str) -> Path:
    about = {"dtype": kind, "shape": [3, 2], "data_offsets": [4, 4 + len(raw)]}
    header = json.dumps({name: about, "pooler.weight": about, "__metadata__": {}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"skip" + raw)
    return path


TOKENS = np.arange(6, dtype="<f4").reshape(3, 2)


@pytest.mark.parametrize(
    ("kind", "raw"),
    [
        ("F32", TOKENS.tobytes()),
        ("F16", TOKENS.astype("<f2").tobytes()),
        ("BF16", (TOKENS.view("<u4") >> 16).astype("<u2").tobytes()),
    ],
)
@pytest.mark.parametrize(
    "name", ["bert.embeddings.word_embeddings.weight", "embedding.weight", "embeddings"]
)
def test_the_table_of_tokens_of_a_model_is_read(
    tmp_path: Path, kind: str, raw: bytes, name: str
) -> None:
    model = safetensors(tmp_path / "model.safetensors", kind, raw, name)
    names, tokenizer = tmp_path / "vocab.txt", tmp_path / "tokenizer.json"
    names.write_text("a\nb\u2028\nc\n", encoding="utf-8")
    tokenizer.write_text(json.dumps({"model": {"vocab": {"c": 2, "a": 0, "b\u2028": 1}}}))
    for words in (names, tokenizer):
        read = load_embeddings(model, words=words)
        assert read.words == ("a", "b\u2028", "c")
        assert np.array_equal(read.vectors, TOKENS)


def test_models_without_a_table_of_tokens_are_refused(tmp_path: Path) -> None:
    names = tmp_path / "vocab.txt"
    names.write_text("a\nb\nc\n")
    model = safetensors(tmp_path / "m.safetensors", "F32", TOKENS.tobytes(), "layer.weight")
    with pytest.raises(FileFormatError, match="0 of its 3 arrays are named like a token table"):
        load_embeddings(model, words=names)
    model = safetensors(tmp_path / "m.safetensors", "I8", TOKENS.tobytes(), "embeddings")
    with pytest.raises(FileFormatError, match=r"damaged or holds no array.*'I8'"):
        load_embeddings(model, words=names)
    model.write_bytes((9).to_bytes(8, "little") + b'{"other"}')
    with pytest.raises(FileFormatError, match="damaged or holds no array"):
        load_embeddings(model, words=names)
    names = tmp_path / "tokenizer.json"
    names.write_text('{"model": {}}')
    with pytest.raises(FileFormatError, match="no tokenizer with a vocabulary"):
        load_embeddings(safetensors(model, "F32", TOKENS.tobytes(), "embeddings"), words=names)
