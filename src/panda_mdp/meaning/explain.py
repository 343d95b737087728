"""What a table means for a person, in words.

Numbers in words that a person reads without a manual: the browser page's, in Python; and what a
table of words does to them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np

from panda_mdp.base.text import amount, per
from panda_mdp.errors import MethodError
from panda_mdp.meaning.attack import Attack, attack, hides_nothing, radii_holding
from panda_mdp.space.domain import Domain, check_record
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
    problem = table.problem
    labels = table.problem.domain.labels
    records = problem.reports.records
    if noun_of(problem.domain) != "word" or labels is None or records is None:
        return []
    kept = table.matrix[records, np.arange(len(records))]
    after = problem.prior[:, None] * table.matrix
    left = (after >= OPEN * after.max(axis=0)).sum(axis=0)
    often = [
        f"Words are kept {guess_words(float(problem.prior[records] @ kept))}, the one that is kept "
        f"most {guess_words(kept.max())}.",
        f"A report leaves {int(np.median(left)):,} words open in the median and {left.min():,} at "
        f"least: each at least {OPEN:g} times as likely as the likeliest one.",
    ]
    if row is None:
        return often
    top = np.argsort(-table.matrix[row], kind="stable")[:NAMED]
    named = [f"{labels[records[y]]} ({guess_words(table.matrix[row, y])})" for y in top]
    return [*often, f"Your word is reported most often as {', '.join(named)}."]


def _round(value: float) -> int:
    """To the nearest whole number, halves up, as the browser does."""
    return math.floor(value + 0.5)


DISTANCES_KM = (0.05, 0.1, 0.2, 0.5, 1.0)
SHARES = (0.01, 0.05, 0.1, 0.25, 1.0)
"""Of the diameter: the distances where the unit is not km."""
REPORTS = 5
"""Reports of one place that the text speaks of beside a single one."""
PRICE = (
    "This table was made for the least loss alone, and that helps who guesses; one of a little "
    "more loss that minds guesses (`dominate`, `solve --radius`) gives less away."
)
Words = Callable[[float], str]
"""A distance in words."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """Plain language about a table.

    For one record everything here is derived from that record: its repr shows nothing of it.
    """

    text: str
    about: str
    """The table's method; that it speaks of one record, and so must be treated like the record
    itself, where it does."""

    def __repr__(self) -> str:
        return f"Explanation({self.about})"

    def __str__(self) -> str:
        return self.text


def explain(
    mechanism: Table, record: int | None = None, *, against: Table | None = None
) -> Explanation:
    """What a table means for people, or for the person at `record`, in plain language.

    The distances are steps of the domain's unit; the guarantee's numbers are for the epsilon that
    was asked for and hold for every attacker; the attacker's numbers are exact sums for the
    problem's prior (`panda_mdp.attack`). Where the table has no guarantee the first line says so;
    `against` is another table over the same records, whose numbers are said beside.

    >>> from panda_mdp import Domain, Problem, exponential
    >>> domain = Domain.from_points([41.90, 41.91], [12.49, 12.50])
    >>> table = exponential(Problem(domain, [0, 1], domain.distances(), epsilon=5.0))
    >>> [line for line in explain(table).text.splitlines() if "100 m" in line][0]
    '  100 m: right at most 62 times in 100 (odds change by at most 1.6)'
    """
    domain = mechanism.problem.domain
    epsilon = mechanism.problem.epsilon
    row = None if record is None else check_record(record, domain.size, MethodError)
    result = attack(mechanism)
    known = domain.unit == "km"
    distances = DISTANCES_KM if known else [domain.diameter * share for share in SHARES]
    guesses = [guess_between_two(epsilon * distance) for distance in distances]
    far = partial(distance_words, unit=domain.unit)
    noun = noun_of(domain)
    listed = [
        f"  {far(distance)}: right at most {guess_words(guess)} "
        f"(odds change by at most {factor_words(np.exp(min(epsilon * distance, 700.0)))})"
        for distance, guess in zip(distances, guesses, strict=True)
    ]
    often = guess_between_two(REPORTS * epsilon * distances[1])
    sections = [
        [*_guarantee(mechanism, noun), *listed],
        [*_reports(mechanism, row, far, noun), *word_lines(mechanism, row)],
        [
            *filter(None, [hides_nothing(mechanism)]),
            *_attacker(result, row, far, noun),
            *_beside(mechanism, result, row, against),
        ],
        [
            f"Every further report adds up: of two that are {far(distances[1])} from each other "
            f"the right one is guessed at most {guess_words(guesses[1])} after one report, "
            f"{guess_words(often)} after {REPORTS}."
        ],
        ["It does not say what somebody learns who knows more about the person than the prior."],
    ]
    if domain.geographic:
        sections[-1].append(
            "A place is reported as its nearest record is: along paths records alone are covered."
            if domain.metric.kind == "graph"
            else "A place that is snapped to its nearest record is covered up to the snap limit: "
            "epsilon (d + 2 limit)."
        )
    text = "\n\n".join("\n".join(lines) for lines in sections) + "\n"
    about = mechanism.method if row is None else "one record, <hidden>"
    return Explanation(text, about)


def _reports(table: Table, row: int | None, far: Words, noun: str) -> list[str]:
    problem = table.problem
    distance = problem.domain.distances(None if row is None else [row], problem.outputs).ravel()
    shares = (problem.prior[:, None] * table.matrix).ravel() if row is None else table.matrix[row]
    half, most = radii_holding(distance, shares, 0.5, 0.9)
    lines = [
        f"Reports of {'a' if row is None else 'your'} {noun} lie {far(float(distance @ shares))} "
        f"from it on average: half within {far(half)}, nine in ten within {far(most)}."
    ]
    if row is not None:
        itself = guess_words(shares[problem.outputs == row].sum())
        return [
            *lines,
            f"The likeliest report is drawn {guess_words(shares.max())}.",
            f"Your {noun} itself is reported {itself}.",
        ]
    bound = ""
    if table.bound is not None:
        least = f"no table of this epsilon has less than {table.bound.value:.4g}"
        bound = f"; {least} ({table.bound.words})"
    loss = amount(f"{table.loss:.4g}", problem.loss_unit)
    return [*lines, f"Expected loss {loss}{bound}."]


def _guarantee(table: Table, noun: str) -> list[str]:
    unit = per(table.problem.domain.unit)
    head = (
        f"Epsilon {table.epsilon:.4g} {unit}: what one report tells about two {noun}s, "
        "whatever was known before."
    )
    if table.warning:
        head = (
            "NO GUARANTEE: this table is not private at the epsilon that was asked for; the lines "
            f"below do not hold for it (audited: {table.audit.epsilon:.4g} {unit})."
        )
    return [head, f"Somebody who thinks two {noun}s this far from each other equally likely is"]


def _attacker(result: Attack, row: int | None, far: Words, noun: str) -> list[str]:
    who = f"Who knows this table and how common each {noun} is ({result.prior_source}) guesses"
    if row is not None:
        hits = guess_words(result.hit_by_record[row])
        error = far(result.error_by_record[row])
        return [f"{who} yours exactly {hits}, and is off by {error} on average."]
    lines = [
        f"{who} the right one {guess_words(result.vulnerability)} (without a report "
        f"{guess_words(result.prior_vulnerability)}),",
        f"and is off by {far(result.error)} on average (without a report {far(result.prior_error)};"
        f" for the {noun} that is protected least {far(result.least_error)}).",
    ]
    for near in sorted(result.located, key=lambda radius: abs(radius - 0.2))[:1]:
        lines.append(
            f"The guess lies within {far(near)} {guess_words(result.located[near])} (without a "
            f"report {guess_words(result.prior_located[near])})."
        )
    return lines


def _beside(table: Table, seen: Attack, row: int | None, against: Table | None) -> list[str]:
    """What another table gives away, measure by measure; of one that was made for its loss alone,
    that this has a price."""
    minded = {"dominates", "second", "limited"} & set(table.details)
    if against is None:
        alone = table.method.startswith("optimal") and not minded
        return [PRICE] if alone else []
    theirs = attack(against, radii=tuple(seen.located))
    unit = seen.unit
    if row is not None:
        pairs = [("your place exactly", seen.hit_by_record[row], theirs.hit_by_record[row])]
    else:
        pairs = [
            ("the right place", seen.vulnerability, theirs.vulnerability),
            *((f"within {r:g} {unit}", seen.located[r], theirs.located[r]) for r in seen.located),
            ("the place that is hit most", seen.most_hit, theirs.most_hit),
        ]
    loss = f"{table.loss:.3g} against {against.loss:.3g} {table.problem.loss_unit}"
    return [
        f"Beside it {against.method} ({'no guarantee' if against.warning else 'private too'}), "
        f"displacement {loss}; of 100 guesses are right here, and there:",
        *(f"{name}: {100 * ours:.1f}, {100 * other:.1f}." for name, ours, other in pairs),
    ]
