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
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from panda_mdp.base.text import per
from panda_mdp.errors import InvalidInputError, MethodError, NotForReleaseError, sealed
from panda_mdp.methods.optimal.program import middle
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


def sanitise(
    texts: Texts,
    table: Mechanism,
    tokenizer: Tokenizer | None = None,
    summary: TextSummary | None = None,
) -> Texts:
    """Replace every word of a text, of a list of texts or of a series by a draw of the table.

    Words and numbers are replaced by the rules of the module's head: nothing passes through. Each
    word spends the table's epsilon times its own distances; the words of a text add up.
    `tokenizer` cuts a text into (piece, is it a word), whose pieces make up the text; `summary`
    collects counts.

    >>> from panda_mdp import Domain, Problem, exponential
    >>> domain = Domain.from_vectors([[0.0], [9.0]]).with_labels(["cat", "dog"])
    >>> table = exponential(Problem(domain, [0, 1], domain.distances(), epsilon=8.0))
    >>> sanitise("The dog, dog!", table)
    'cat dog, dog!'
    """
    if not isinstance(table, Mechanism):
        raise NotForReleaseError(
            f"{type(table).__name__} has no guarantee; sanitise needs a Mechanism"
        )
    labels = table.problem.domain.labels
    if labels is None or not all(isinstance(label, str) for label in labels):
        raise MethodError(
            "the table's records are not words; load_embeddings(path).domain() or "
            "domain.with_labels(words) names them"
        )
    given: Any = texts
    series = hasattr(given, "to_list") and hasattr(given, "name")
    listed = [given] if isinstance(given, str) else given.to_list() if series else list(given)
    if not all(isinstance(text, str) for text in listed):
        raise InvalidInputError("sanitise takes texts; a value is none (it is not shown)")
    made: Any = _replaced(listed, table, tokenizer or words_of, summary)
    if isinstance(given, str):
        (made,) = made
    elif series and hasattr(given, "index"):
        made = type(given)(made, name=given.name, index=given.index)
    elif series:
        made = type(given)(given.name, made)
    answer: Texts = made
    return answer


@sealed
def _replaced(
    listed: list[str], table: Mechanism, tokenizer: Tokenizer, summary: TextSummary | None
) -> list[str]:
    """Every text with its words drawn anew."""
    problem = table.problem
    labels = table.problem.domain.labels
    pieces = [list(tokenizer(text)) for text in listed]
    words = [piece for text in pieces for piece, is_word in text if is_word]
    index: dict[Any, int] = {label: k for k, label in enumerate(labels or ())}
    records = np.array([index.get(w, index.get(w.lower(), -1)) for w in words], dtype=np.int64)
    unknown = records < 0
    if unknown.any():
        marked = next((mark for mark in UNKNOWN if mark in index), None)
        records[unknown] = middle(problem) if marked is None else index[marked]
    drawn = table.sample(records) if words else ()
    named = labels if problem.reports.records is not None else None
    reported = [str(k if named is None else named[int(k)]) for k in drawn]
    if summary is not None:
        lengths = [sum(is_word for _, is_word in text) for text in pieces]
        summary.epsilon = table.epsilon
        summary.unit = problem.domain.unit
        summary.texts += len(pieces)
        summary.words += len(words)
        summary.kept += sum(a in (b, b.lower()) for a, b in zip(reported, words, strict=True))
        summary.unknown += int(unknown.sum())
        summary.longest = max([summary.longest, *lengths])
    put = iter(reported)
    return ["".join(next(put) if is_word else piece for piece, is_word in text) for text in pieces]
