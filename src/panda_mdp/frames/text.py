"""`sanitise`: a text in, a text out, every word of it drawn from a table of words.

The rules, which are public:

- blanks and punctuation (ASCII's and the usual marks of quotation, pauses and questions) stay as
  they are, and so does where words stand: how many words a text has is not hidden. *Words* are the
  runs of all other characters, of whatever script, digits and symbols included, with apostrophes or
  hyphens inside; numbers with points, commas, colons or slashes inside. All of them are replaced.
- a word is looked up as it is written, then in lower case. Its capitals are not carried over: the
  report is written as the table writes it.
- a word that the table does not have, be it a name, a number or a foreign word, takes one public
  row: that of the table's unknown word (`<unk>`, `[UNK]`, `UNK`, `unknown`), or where it has none
  of the word nearest to the mean of all vectors. Nothing passes through, and nothing marks it.

What that guarantees. Two texts with the same number of words, whose words differ by d_1, .., d_n in
the table's metric, are told apart by at most epsilon (d_1 + .. + d_n): each word spends its own. A
word that the table does not have counts as the word whose row it takes.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np

from panda_mdp.base.floored import Weights
from panda_mdp.base.text import per
from panda_mdp.errors import InvalidInputError, MethodError, NotForReleaseError, sealed
from panda_mdp.frames.columns import narwhals_of, need_columns
from panda_mdp.frames.drawing import reported_columns
from panda_mdp.frames.key import DrawKey
from panda_mdp.methods.optimal.program import middle
from panda_mdp.privacy.quantise import TOTAL, BitSource, GivenBits, SystemBits, choose_rows
from panda_mdp.table.mechanism import Mechanism

Texts = TypeVar("Texts")
Tokenizer = Callable[[str], Iterable[tuple[str, bool]]]
"""Cuts a text into pieces that make it up again, and says of each whether it is a word."""
PUNCTUATION = string.punctuation + "“”„‘’…–—«»¿¡·"
LETTER = rf"[^\s{re.escape(PUNCTUATION)}]"
WORD = re.compile(rf"\d+(?:[.,:/]\d+)*(?!{LETTER})|{LETTER}+(?:['’\-]{LETTER}+)*")
UNKNOWN = ("<unk>", "[UNK]", "<UNK>", "UNK", "unknown")


def words_of(text: str) -> Iterator[tuple[str, bool]]:
    """The pieces of a text by the rules above.

    >>> [piece for piece, is_word in words_of("It's 3.5 km, Rome!") if is_word]
    ["It's", '3.5', 'km', 'Rome']
    """
    end = 0
    for found in WORD.finditer(text):
        yield text[end : found.start()], False
        yield found.group(), True
        end = found.end()
    yield text[end:], False


@dataclass
class TextSummary:
    """Counts of words, filled while texts are sanitised. They are exact, and so the writers' own:
    read them (`print(summary)`), do not publish them. The repr shows none."""

    epsilon: float = 0.0
    unit: str = ""
    texts: int = 0
    words: int = 0
    kept: int = 0
    """Words that were drawn as they were."""
    unknown: int = 0
    """Words that the table does not have."""
    longest: int = 0
    """Words of the longest text."""

    def __repr__(self) -> str:
        return "TextSummary(<hidden>; print it)"

    def __str__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """What happened, in words; no word of a text is among them."""
        each = f"{self.epsilon:g} {per(self.unit)}"
        most = self.epsilon * self.longest
        return [
            f"{self.words:,} words of {self.texts:,} texts: {self.kept:,} drawn as they were, "
            f"{self.unknown:,} that the table does not have, which took its unknown word's row",
            f"a word spends epsilon {each}, and the words of a text add up: where all words of the "
            f"longest text, {self.longest:,}, change it is {most:g} {per(self.unit)}",
            "not hidden: how many words a text has, and its punctuation",
        ]


@dataclass(frozen=True, eq=False, repr=False)
class Replacer:
    """A table of words, ready to be drawn from; picklable, without an audit."""

    weights: Weights
    records: Mapping[str, int]
    """Of the words."""
    reported: Sequence[str]
    """What every column says."""
    unknown: int
    """The record of words that the table does not have."""
    price: tuple[float, str]
    """Epsilon and the unit that it is per."""
    identity: bytes
    """Of the table, which keys are derived for."""
    tokenizer: Tokenizer

    @classmethod
    def of(cls, table: Mechanism, tokenizer: Tokenizer | None = None) -> Replacer:
        """The words of a mechanism: nothing without a guarantee gets this far."""
        if not isinstance(table, Mechanism):
            raise NotForReleaseError(
                f"{type(table).__name__} has no guarantee; sanitise needs a Mechanism"
            )
        problem = table.problem
        labels = problem.domain.labels
        if labels is None or not all(isinstance(label, str) for label in labels):
            raise MethodError(
                "the table's records are not words; load_embeddings(path).domain() or "
                "domain.with_labels(words) names them"
            )
        records = {str(label): k for k, label in enumerate(labels)}
        marked = [records[mark] for mark in UNKNOWN if mark in records]
        told = reported_columns(problem.domain, problem.reports)["reported"]
        return cls(
            table.weights,
            records,
            [str(word) for word in told],
            marked[0] if marked else middle(problem.domain),
            (table.epsilon, problem.domain.unit),
            bytes.fromhex(table.identity),
            tokenizer or words_of,
        )

    @sealed
    def texts(
        self,
        texts: Sequence[str],
        summary: TextSummary | None = None,
        key: DrawKey | None = None,
        names: Sequence[str] = (),
    ) -> list[str]:
        """Every text with its words drawn anew; by a key the same ones at every call, of texts that
        have these names."""
        pieces = [list(self.tokenizer(text)) for text in texts]
        lengths = [sum(is_word for _, is_word in text) for text in pieces]
        words = [piece for text in pieces for piece, is_word in text if is_word]
        known = self.records
        found = (known.get(word, known.get(word.lower(), -1)) for word in words)
        records = np.array([*found], dtype=np.int64)
        unknown = records < 0
        records[unknown] = self.unknown
        bits: BitSource = SystemBits()
        if key is not None:
            from panda_mdp.frames.kernel import CONSTANTS, keyed_words

            places = [
                (n, str(k)) for n, size in zip(names, lengths, strict=True) for k in range(size)
            ]
            nonces = key.nonces(self.identity, places)
            secret = key.draw_key(self.identity)
            drawn = keyed_words(secret, nonces, np.arange(len(words)), records, CONSTANTS)
            bits = GivenBits((drawn & np.uint64(TOTAL - 1)).astype(np.int64))
        reported = [self.reported[k] for k in choose_rows(self.weights, records, bits)]
        if summary is not None:
            summary.epsilon, summary.unit = self.price
            summary.texts += len(pieces)
            summary.words += len(words)
            summary.kept += sum(a in (b, b.lower()) for a, b in zip(reported, words, strict=True))
            summary.unknown += int(unknown.sum())
            summary.longest = max([summary.longest, *lengths])
        put = iter(reported)
        return [
            "".join(next(put) if is_word else piece for piece, is_word in text) for text in pieces
        ]


def sanitise(
    texts: Texts,
    table: Mechanism,
    tokenizer: Tokenizer | None = None,
    summary: TextSummary | None = None,
    *,
    columns: Sequence[str] = (),
    key: DrawKey | None = None,
    row: str | None = None,
) -> Texts:
    """Replace every word of a text, of a list of texts, of a series, or of some `columns` of a
    frame by a draw of the table.

    Words and numbers are replaced by the rules of the module's head: nothing passes through. Each
    word spends the table's epsilon times its own distances; the words of a text add up, and so do
    those of all columns of a row. `tokenizer` cuts a text into (piece, is it a word), whose pieces
    make up the text; `summary` collects counts.

    Frames are those of pandas, Polars, PyArrow and Spark; other columns stay as they are. Spark may
    run a task twice, and two draws of a word are two reports of it: with a `key`, and the column
    `row` that names every row, each has one. Its counts stay on the cluster.

    >>> from panda_mdp import Domain, Problem, exponential
    >>> domain = Domain.from_vectors([[0.0], [9.0]]).with_labels(["cat", "dog"])
    >>> table = exponential(Problem(domain, [0, 1], domain.distances(), epsilon=8.0))
    >>> sanitise("The dog, dog!", table)
    'cat dog, dog!'
    """
    replacer = Replacer.of(table, tokenizer)
    given: Any = texts
    if (key is None) != (row is None) or (key is not None and not columns):
        raise InvalidInputError("a key needs a frame, its columns and row, which names every row")
    if columns:
        work = partial(replacing, replacer, columns=columns, key=key, row=row)
        return cast("Texts", _spark(given, work) if _of_spark(given) else work(given, summary))
    if hasattr(given, "columns"):
        raise InvalidInputError("name the columns of texts: sanitise(frame, table, columns=[...])")
    series = hasattr(given, "to_list") and hasattr(given, "name")
    listed = [given] if isinstance(given, str) else given.to_list() if series else list(given)
    made: Any = replacer.texts(_checked(listed), summary)
    if isinstance(given, str):
        (made,) = made
    elif series and hasattr(given, "index"):
        made = type(given)(made, name=given.name, index=given.index)
    elif series:
        made = type(given)(given.name, made)
    return cast("Texts", made)


def _checked(texts: list[Any]) -> list[str]:
    if not all(isinstance(text, str) for text in texts):
        raise InvalidInputError("sanitise takes texts; a value is none (it is not shown)")
    return texts


def _of_spark(frame: Any) -> bool:
    return type(frame).__module__.startswith("pyspark")


def replacing(
    replacer: Replacer,
    frame: Any,
    summary: TextSummary | None = None,
    *,
    columns: Sequence[str],
    key: DrawKey | None,
    row: str | None,
) -> Any:
    """A frame in memory with its texts replaced."""
    narwhals = narwhals_of()
    wrapped = narwhals.from_native(frame)
    lazy = isinstance(wrapped, narwhals.LazyFrame)
    # Drawn here and once: what is computed at each look would be drawn at each look.
    wrapped = wrapped.collect() if lazy else wrapped
    columns = [columns] if isinstance(columns, str) else columns
    need_columns(wrapped, [*columns, *([] if row is None else [row])])
    backend = narwhals.get_native_namespace(wrapped)
    rows = [] if row is None else wrapped[row].to_list()
    fresh = []
    for name in columns:
        names = [f"{name} {number}" for number in rows]
        made = replacer.texts(_checked(wrapped[name].to_list()), summary, key, names)
        fresh.append(narwhals.new_series(name, made, wrapped[name].dtype, backend=backend))
    result = wrapped.with_columns(*fresh)
    return (result.lazy() if lazy else result).to_native()


def _spark(frame: Any, work: Any) -> Any:
    """The same on a cluster, batch by batch."""
    if work.keywords["key"] is None:
        raise InvalidInputError(
            "Spark may run a task twice; give key=... (pm.DrawKey) and row=..., the column that "
            "names every row, so that it draws once"
        )
    held = frame.sparkSession.sparkContext.broadcast(work)

    def draw(batches: Iterator[Any]) -> Iterator[Any]:
        yield from replaced_batches(held.value, batches)

    return frame.mapInArrow(draw, frame.schema)


def replaced_batches(work: Callable[[Any], Any], batches: Iterable[Any]) -> Iterator[Any]:
    """Arrow batches one after the other, in the memory of one."""
    import pyarrow

    for batch in batches:
        made = work(pyarrow.Table.from_batches([batch])).cast(batch.schema)
        yield from made.combine_chunks().to_batches()
