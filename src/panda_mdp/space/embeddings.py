"""Words as vectors, from the files in which embeddings are published."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from pathlib import Path
from typing import Literal

import numpy as np

from panda_mdp.base.arrays import FloatArray, frozen, real_numbers
from panda_mdp.base.atomic import FilePath
from panda_mdp.base.factored import lattice
from panda_mdp.errors import FileFormatError, InvalidInputError
from panda_mdp.space.domain import Domain

WORD_BYTES = 1000
TENSORS = ".safetensors"
VECTORS = (".txt", ".vec", ".bin", ".npy", TENSORS)
"""What files of word vectors end with."""
TOKENS = ("word_embeddings.weight", "embedding.weight", "embeddings", "embed_tokens.weight")
"""Models of sentence-transformers, and what ends the name of their table of tokens: BERT and its
kin, static ones, model2vec's, language models."""
MOST_HEADER = 1 << 24


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Words and their vectors, shape (K, p); word k is record k of the domain.

    >>> pets = Embeddings(("cat", "dog"), np.array([[1.0, 0.1], [0.9, 0.3]]))
    >>> pets.index["dog"], pets.domain()
    (1, Domain(2 records, angular, rad))
    """

    words: tuple[str, ...]
    vectors: FloatArray

    def __post_init__(self) -> None:
        vectors = real_numbers(self.vectors, "vectors", InvalidInputError)
        if vectors.ndim != 2 or len(vectors) != len(self.words):
            raise InvalidInputError(
                f"{len(self.words)} words and vectors of shape {vectors.shape}; give one per word"
            )
        if len(self.index) != len(self.words):
            raise InvalidInputError("a word is listed twice; words are distinct")
        object.__setattr__(self, "vectors", frozen(vectors))

    def __repr__(self) -> str:
        return f"Embeddings({len(self.words):,} words, {self.vectors.shape[1]} dimensions)"

    @cached_property
    def index(self) -> dict[str, int]:
        """The record of each word."""
        return {word: k for k, word in enumerate(self.words)}

    def domain(self, metric: Literal["euclidean", "angular"] = "angular") -> Domain:
        """The words as a domain, by the angle between vectors or by their distance.

        Records are called by their words. Under the euclidean distance vectors are rounded in about
        the seventh digit, to a lattice whose distances are exact: tables are then held in factors,
        and blocks of distances are matrix products.
        """
        vectors = self.vectors
        if metric == "euclidean":
            points, bits = lattice(vectors)
            vectors = np.ldexp(points.astype(float), -bits)
        return Domain.from_vectors(vectors, metric=metric).with_labels(self.words)


def load_embeddings(
    path: FilePath,
    *,
    words: FilePath | None = None,
    limit: int | None = None,
) -> Embeddings:
    """Read word vectors from text (GloVe, word2vec, fastText), word2vec's `.bin`, `.npy`, or the
    table of tokens of a sentence-transformers model (`.safetensors`).

    Text: a word and its numbers per line, separated by blanks; a first line with two whole numbers
    (count and dimensions) is a header. The last two: a (K, p) array, with one word per line in the
    file `words` (a model's `vocab.txt`, or its `tokenizer.json`). `limit` keeps the first words of
    the file; the text is streamed, so memory is that of what is kept.
    """
    source = Path(path)
    if not source.exists():
        raise FileNotFoundError(f"{source} does not exist")
    if limit is not None and limit < 2:
        raise InvalidInputError(f"limit is {limit}; keep at least 2 words")
    rows = _rows(source)
    if source.suffix in (".npy", TENSORS):
        rows = _array_rows(source, words)
    elif source.suffix == ".bin":
        rows = _binary_rows(source)
    vectors: dict[str, FloatArray] = {}
    for number, (word, vector) in enumerate(rows, start=1):
        if not np.isfinite(vector).all():
            raise FileFormatError(f"{source.name}, word {number}: its vector is not finite")
        # Published files repeat a few words; the first, most frequent one counts.
        vectors.setdefault(word, vector)
        if len(vectors) == limit:
            break
    if len(vectors) < 2:
        raise FileFormatError(
            f"{source.name} gives {len(vectors)} of the words; a domain needs at least 2"
        )
    return Embeddings(tuple(vectors), np.stack(list(vectors.values())))


def _rows(path: Path) -> Iterator[tuple[str, FloatArray]]:
    dimensions = 0
    with path.open(encoding="utf-8", errors="replace") as stream:
        for number, line in enumerate(stream, start=1):
            parts = line.rstrip().split(" ")
            if number == 1 and len(parts) == 2 and all(part.isdigit() for part in parts):
                dimensions = int(parts[1])
                continue
            if parts == [""]:
                continue
            # Some words hold blanks, so the numbers are counted from the end of the line.
            numbers = takewhile(_is_number, reversed(parts[1:]))
            dimensions = dimensions or max(1, sum(1 for _ in numbers))
            word = " ".join(parts[:-dimensions])
            try:
                vector = np.array(parts[-dimensions:], dtype=float)
            except ValueError:
                word = ""
            if not word or not np.isfinite(vector).all():
                raise FileFormatError(
                    f"{path.name}, line {number}: not a word and {dimensions} finite numbers"
                )
            yield word, vector


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _binary_rows(path: Path) -> Iterator[tuple[str, FloatArray]]:
    """word2vec's binary format: a header of two numbers, then a word, a blank and floats each."""
    with path.open("rb") as stream:
        header = stream.readline(64).split()
        if len(header) != 2 or not all(part.isdigit() and len(part) < 10 for part in header):
            raise FileFormatError(
                f"{path.name} does not begin with two numbers: it is no word2vec file"
            )
        count = int(header[0])
        dimensions = int(header[1])
        for number in range(count):
            word = bytearray()
            while (byte := stream.read(1)) not in (b" ", b"") and len(word) < WORD_BYTES:
                word += byte
            raw = stream.read(4 * dimensions)
            if byte != b" " or len(raw) != 4 * dimensions or not dimensions:
                raise FileFormatError(f"{path.name} ends or breaks at word {number + 1} of {count}")
            vector = np.frombuffer(raw, dtype="<f4").astype(float)
            # Some writers end each vector with a new line, which then begins the next word.
            yield word.lstrip(b"\n").decode("utf-8", errors="replace"), vector


def _tensor(path: Path) -> FloatArray:
    """The table of tokens of a model in safetensors: a length, a header in JSON, the numbers."""
    with path.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        header = json.loads(stream.read(min(length, MOST_HEADER)))
    named = [key for key in header if key.endswith(TOKENS)]
    if len(named) != 1:
        raise ValueError(f"{len(named)} of its {len(header)} arrays are named like a token table")
    about = header[named[0]]
    # The upper half of a float32 is what bfloat16 has.
    kind = {"F32": "<f4", "F16": "<f2", "F64": "<f8", "BF16": "<u2"}[about["dtype"]]
    begin = 8 + length + about["data_offsets"][0]
    table = np.memmap(path, kind, "r", begin, tuple(about["shape"]))
    return (table.astype("<u4") << 16).view("<f4") if kind == "<u2" else table


def _array_rows(path: Path, words: FilePath | None) -> Iterator[tuple[str, FloatArray]]:
    if words is None:
        raise FileFormatError(
            f"{path.name} holds vectors without words; name their file: "
            "words='words.txt', or --names words.txt"
        )
    try:
        vectors = _tensor(path) if path.suffix == TENSORS else np.load(path, "r")
    except (ValueError, EOFError, KeyError, TypeError) as error:
        raise FileFormatError(
            f"{path.name} is damaged or holds no array of word vectors ({error})"
        ) from error
    names = _names(Path(words))
    if vectors.ndim != 2 or len(vectors) != len(names):
        raise FileFormatError(
            f"{path.name} has shape {vectors.shape} and {Path(words).name} {len(names)} words; "
            "give one row per word"
        )
    for name, vector in zip(names, vectors, strict=True):
        yield name, np.array(vector, dtype=float)


def _names(path: Path) -> list[str]:
    """The words of a vocabulary, one per line, or of a tokenizer in JSON, by their numbers."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".json":
        return text.removesuffix("\n").split("\n")
    try:
        vocabulary = json.loads(text)["model"]["vocab"]
        return sorted(vocabulary, key=vocabulary.__getitem__)
    except (ValueError, KeyError, TypeError) as error:
        raise FileFormatError(
            f"{path.name} is no tokenizer with a vocabulary; give a file with one word per line"
        ) from error
