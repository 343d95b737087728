"""Numbers in words that a person reads without a manual: the browser page's, in Python; and what a
table of words does to them."""

from __future__ import annotations

import math

import numpy as np

from panda_mdp.base.text import amount
from panda_mdp.space.domain import Domain
from panda_mdp.table.mechanism import Table

OPEN = 0.01
"""Records that are this likely, beside the likeliest, after a report are left open by it."""
NAMED = 3
"""Reports of a word that are named."""


def distance_words(distance: float, unit: str = "km") -> str:
    """A distance; kilometres become metres where they are short.

    >>> distance_words(0.1), distance_words(0.4567), distance_words(12.4), distance_words(3, "year")
    ('100 m', '460 m', '12 km', '3 years')
    """
    if unit != "km":
        return amount(f"{distance:.3g}", unit)
    metres = 1000 * distance
    if metres < 99.5:
        return f"{max(0, _round(metres))} m"
    if metres < 995:
        return f"{10 * _round(metres / 10)} m"
    return f"{_round(10 * distance) / 10:g} km" if distance < 9.95 else f"{_round(distance)} km"


def factor_words(factor: float) -> str:
    """A factor by which odds change.

    >>> factor_words(1.648), factor_words(12.18), factor_words(403.4), factor_words(math.exp(40))
    ('1.6', '12.2', '403', 'more than a million')
    """
    if factor >= 1e6:
        return "more than a million"
    if factor >= 100:
        return f"{_round(factor):,}"
    return f"{factor:.2g}" if factor < 10 else f"{factor:.3g}"


def guess_words(share: float) -> str:
    """How often a guess is right, of 100.

    >>> guess_words(0.6225), guess_words(0.9945), guess_words(0.99999)
    ('62 times in 100', '99.5 times in 100', 'nearly always')
    """
    percent = 100 * share
    if percent >= 99.95:
        return "nearly always"
    if 0 < percent < 1:
        return f"{percent:.2g} times in 100"
    shown = f"{percent:.1f}" if percent >= 99 else f"{_round(percent)}"
    return f"{shown} time in 100" if shown == "1" else f"{shown} times in 100"


def guess_between_two(nats: float) -> float:
    """How often, at most, somebody who thinks two records equally likely guesses right after a
    report, where the odds change by at most exp(nats): exp(nats) / (1 + exp(nats)).

    >>> round(guess_between_two(0.5), 4)
    0.6225
    """
    return 1.0 / (1.0 + math.exp(-nats))


def noun_of(domain: Domain) -> str:
    """What a record is: a place, a word where vectors have names, else a record."""
    named = domain.metric.kind in ("euclidean", "angular") and domain.labels
    word = named and all(isinstance(label, str) for label in domain.labels or ())
    return "place" if domain.geographic else "word" if word else "record"


def word_lines(table: Table, row: int | None = None) -> list[str]:
    """How often words are kept, which others a report leaves open, and what stands for the word of
    `row`; nothing where records are no words."""
    problem, labels = table.problem, table.problem.domain.labels
    records = problem.reports.records
    if noun_of(problem.domain) != "word" or labels is None or records is None:
        return []
    kept = table.matrix[records, np.arange(len(records))]
    after = problem.prior[:, None] * table.matrix
    left = (after >= OPEN * after.max(axis=0)).sum(axis=0)
    often = [
        f"Words are kept {guess_words(float(problem.prior[records] @ kept))}, the one that is kept "
        f"most {guess_words(float(kept.max()))}.",
        f"A report leaves {int(np.median(left)):,} words open in the median and {left.min():,} at "
        f"least: each at least {OPEN:g} times as likely as the likeliest one.",
    ]
    if row is None:
        return often
    top = np.argsort(-table.matrix[row], kind="stable")[:NAMED]
    named = [f"{labels[records[y]]} ({guess_words(float(table.matrix[row, y]))})" for y in top]
    return [*often, f"Your word is reported most often as {', '.join(named)}."]


def _round(value: float) -> int:
    """To the nearest whole number, halves up, as the browser does."""
    return math.floor(value + 0.5)
