"""What a table means for a person, in words and with a picture."""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.units import amount, per
from panda_mdp.errors import MethodError
from panda_mdp.meaning.attack import Attack, attack
from panda_mdp.meaning.words import (
    distance_words,
    factor_words,
    guess_between_two,
    guess_words,
)
from panda_mdp.space.domain import Domain, check_record
from panda_mdp.table.mechanism import Mechanism, Table

DISTANCES_KM = (0.05, 0.1, 0.2, 0.5, 1.0)
REPORTS = 5
"""Reports of one place that the text speaks of beside a single one."""
WIDTH = 560
INK, BLUE, PALE = "#24292f", "#0072b2", "#dde3ea"
FONT = 'font-family="sans-serif" font-size="12"'


@dataclass(frozen=True, eq=False)
class Step:
    """What epsilon means at one distance."""

    distance: float
    factor: float
    """By how much, at most, one report multiplies the odds between two records this far off."""
    guess: float
    """How often, at most, a guess between two such records that were equally likely is right."""


@dataclass(frozen=True, eq=False)
class Spread:
    """Where the reports of a record lie (of all records, weighed by the prior, where none is)."""

    expected: float
    half: float
    most: float
    """Half, and nine tenths, of the reports lie within this distance."""
    top: float
    """Probability of the likeliest report."""


@dataclass(frozen=True, eq=False)
class Explanation:
    """Plain language about a table: `text`, `html`, and `figure`, a picture as SVG.

    For one record everything here is derived from that record: its repr shows nothing of it.
    """

    text: str
    html: str
    figure: str
    steps: tuple[Step, ...]
    spread: Spread
    attack: Attack
    personal: bool
    """Whether it speaks of one record, and so must be treated like the record itself."""

    def __repr__(self) -> str:
        about = "one record, <hidden>" if self.personal else self.attack.method
        return f"Explanation({about})"

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


def explain(mechanism: Table, record: int | None = None) -> Explanation:
    """What a table means for people, or for the person at `record`, in plain language.

    The distances are steps of the domain's unit; the guarantee's numbers are for the epsilon that
    was asked for and hold for every attacker; the attacker's numbers are exact sums for the
    problem's prior (`panda_mdp.attack`). Where the table has no guarantee the first line says so.

    >>> from panda_mdp import Domain, Problem, exponential
    >>> domain = Domain.from_points([41.90, 41.91], [12.49, 12.50])
    >>> table = exponential(Problem(domain, [0, 1], domain.distances(), epsilon=5.0))
    >>> [line for line in explain(table).text.splitlines() if "100 m" in line][0]
    '  100 m: right at most 62 times in 100 (odds change by at most 1.6)'
    """
    problem = mechanism.problem
    row = None if record is None else check_record(record, problem.size, MethodError)
    result = attack(mechanism)
    steps = _steps(problem.domain, problem.epsilon)
    distances, shares = _reports(mechanism, row)
    where = _spread(distances, shares)
    sections = [
        _guarantee(mechanism, steps),
        _reports_words(mechanism, where, row),
        _attacker_words(mechanism, result, row),
        _several(problem.domain, problem.epsilon),
        _limits(problem.domain),
    ]
    unit = problem.domain.unit
    picture = ladder([(distance_words(s.distance, unit), s.guess) for s in steps])
    picture += spread_chart(distances, shares, unit)
    return Explanation(
        text="\n\n".join("\n".join(lines) for lines in sections) + "\n",
        html=_html(sections, picture),
        figure=picture,
        steps=steps,
        spread=where,
        attack=result,
        personal=row is not None,
    )


def _steps(domain: Domain, epsilon: float) -> tuple[Step, ...]:
    if domain.unit == "km":
        distances: Sequence[float] = DISTANCES_KM
    else:
        distances = [domain.diameter * share for share in (0.01, 0.05, 0.1, 0.25, 1.0)]
    return tuple(
        Step(d, float(np.exp(min(epsilon * d, 700.0))), guess_between_two(epsilon * d))
        for d in distances
    )


def _reports(table: Table, row: int | None) -> tuple[FloatArray, FloatArray]:
    """Distances between record and report, ascending, and their probabilities."""
    domain, outputs = table.problem.domain, table.problem.outputs
    if row is not None:
        distance, shares = domain.distances([row], outputs)[0], table.matrix[row]
    else:
        distance = np.concatenate([block.ravel() for _, block in domain.blocks(outputs)])
        shares = (table.problem.prior[:, None] * table.matrix).ravel()
    order = np.argsort(distance, kind="stable")
    return distance[order], shares[order]


def _spread(distances: FloatArray, shares: FloatArray) -> Spread:
    reached = np.cumsum(shares)
    within = [
        float(distances[min(int(np.searchsorted(reached, share * reached[-1])), len(shares) - 1)])
        for share in (0.5, 0.9)
    ]
    return Spread(float(distances @ shares), within[0], within[1], float(shares.max()))


def _guarantee(table: Table, steps: Sequence[Step]) -> list[str]:
    unit, records = table.problem.domain.unit, _noun(table)
    head = (
        f"Epsilon {table.epsilon:.4g} {per(unit)}: what one report tells about two {records}s, "
        "whatever was known before."
    )
    if not isinstance(table, Mechanism):
        head = (
            "NO GUARANTEE: this table is not private at the epsilon that was asked for; the lines "
            f"below do not hold for it (audited: {table.audit.epsilon:.4g} {per(unit)})."
        )
    lines = [head, f"Somebody who thinks two {records}s this far from each other equally likely is"]
    lines += [
        f"  {distance_words(step.distance, unit)}: right at most {guess_words(step.guess)} "
        f"(odds change by at most {factor_words(step.factor)})"
        for step in steps
    ]
    return lines


def _reports_words(table: Table, where: Spread, row: int | None) -> list[str]:
    unit = table.problem.domain.unit
    whose = f"a {_noun(table)}" if row is None else f"your {_noun(table)}"
    lines = [
        f"Reports of {whose} lie {distance_words(where.expected, unit)} from it on average: half "
        f"within {distance_words(where.half, unit)}, nine in ten within "
        f"{distance_words(where.most, unit)}."
    ]
    if row is None:
        bound = "" if table.lower_bound is None else (
            f"; no table of this epsilon has less than {table.lower_bound:.4g}"
        )  # fmt: skip
        lines.append(
            f"Expected loss {amount(f'{table.loss:.4g}', table.problem.loss_unit)}{bound}."
        )
    else:
        lines.append(f"The likeliest report is drawn {guess_words(where.top)}.")
        own = np.flatnonzero(table.problem.outputs == row)
        share = float(table.matrix[row, own].sum())
        lines.append(f"Your {_noun(table)} itself is reported {guess_words(share)}.")
    return lines


def _attacker_words(table: Table, result: Attack, row: int | None) -> list[str]:
    unit, noun = result.unit, _noun(table)
    if row is not None:
        return [
            f"Who knows this table and how common each {noun} is ({result.prior_source}) guesses "
            f"yours exactly {guess_words(float(result.hit_by_record[row]))}, and is off by "
            f"{distance_words(float(result.error_by_record[row]), unit)} on average."
        ]
    near = min(result.located, key=lambda radius: abs(radius - 0.2)) if result.located else None
    lines = [
        f"Who knows this table and how common each {noun} is ({result.prior_source}) guesses the "
        f"right one {guess_words(result.vulnerability)} (without a report "
        f"{guess_words(result.prior_vulnerability)}),",
        f"and is off by {distance_words(result.error, unit)} on average (without a report "
        f"{distance_words(result.prior_error, unit)}; for the {noun} that is protected least "
        f"{distance_words(result.least_error, unit)}).",
    ]
    if near is not None:
        lines.append(
            f"The guess lies within {distance_words(near, unit)} "
            f"{guess_words(result.located[near])} (without a report "
            f"{guess_words(result.prior_located[near])})."
        )
    return lines


def _several(domain: Domain, epsilon: float) -> list[str]:
    distance = 0.1 if domain.unit == "km" else 0.05 * domain.diameter
    once, often = (guess_between_two(k * epsilon * distance) for k in (1, REPORTS))
    return [
        f"Every further report adds up: of two that are {distance_words(distance, domain.unit)} "
        f"from each other the right one is guessed at most {guess_words(once)} after one report, "
        f"{guess_words(often)} after {REPORTS}."
    ]


def _limits(domain: Domain) -> list[str]:
    lines = ["It does not say what somebody learns who knows more about the person than the prior."]
    if domain.geographic:
        lines.append(
            "A place that is snapped to its nearest record is covered up to the snap limit: "
            "epsilon (d + 2 limit)."
        )
    return lines


def _noun(table: Table) -> str:
    return "place" if table.problem.domain.geographic else "record"


def _html(sections: Sequence[Sequence[str]], picture: str) -> str:
    parts = []
    for lines in sections:
        items = [line.strip() for line in lines if line.startswith("  ")]
        words = " ".join(line for line in lines if not line.startswith("  "))
        listed = "".join(f"<li>{html.escape(item)}</li>" for item in items)
        parts.append(f"<p>{html.escape(words)}</p>" + (f"<ul>{listed}</ul>" if items else ""))
    return f'<div class="panda-mdp-explanation">{"".join(parts)}{picture}</div>'


def ladder(steps: Sequence[tuple[str, float]]) -> str:
    """How often a guess between two records is right, by their distance: bars from 50 to 100."""
    left, height = 90, 22
    wide = WIDTH - left - 130
    rows = [
        f'<text x="0" y="14" fill="{INK}" {FONT} font-weight="bold">A guess between two, after '
        "one report, is right at most</text>"
    ]
    for k, (name, guess) in enumerate(steps):
        y = 26 + k * height
        length = max(1.0, wide * (guess - 0.5) / 0.5)
        rows.append(
            f'<text x="{left - 8}" y="{y + 12}" text-anchor="end" fill="{INK}" {FONT}>'
            f"{html.escape(name)}</text>"
            f'<rect x="{left}" y="{y}" width="{wide}" height="15" fill="{PALE}"/>'
            f'<rect x="{left}" y="{y}" width="{length:.1f}" height="15" fill="{BLUE}"/>'
            f'<text x="{left + wide + 8}" y="{y + 12}" fill="{INK}" {FONT}>'
            f"{guess_words(guess)}</text>"
        )
    below = 26 + len(steps) * height
    rows.append(
        f'<text x="{left}" y="{below + 12}" fill="{INK}" {FONT}>50: knows nothing</text>'
        f'<text x="{left + wide}" y="{below + 12}" text-anchor="end" fill="{INK}" {FONT}>100: '
        "knows</text>"
    )
    return _svg(below + 22, rows, "What one report tells about two records, by distance")


def spread_chart(distances: FloatArray, shares: FloatArray, unit: str) -> str:
    """What share of the reports lies within which distance: a curve, to 99 % of the reports."""
    left, top, wide, high = 48, 30, WIDTH - 70, 130
    reached = np.cumsum(shares) / shares.sum()
    last = min(int(np.searchsorted(reached, 0.99)), len(reached) - 1)
    reach = float(distances[last]) or 1.0
    edges = np.linspace(0.0, reach, 120)
    at = np.searchsorted(distances, edges, side="right") - 1
    height = np.where(at >= 0, reached[np.maximum(at, 0)], 0.0)
    points = " ".join(
        f"{left + wide * x / reach:.1f},{top + high * (1 - y):.1f}"
        for x, y in zip(edges, height, strict=True)
    )
    rows = [
        f'<text x="0" y="14" fill="{INK}" {FONT} font-weight="bold">Share of reports within a '
        "distance</text>",
        f'<polyline points="{points}" fill="none" stroke="{BLUE}" stroke-width="2"/>',
    ]
    for share in (0.0, 0.5, 1.0):
        y = top + high * (1 - share)
        rows.append(
            f'<line x1="{left}" x2="{left + wide}" y1="{y:.1f}" y2="{y:.1f}" stroke="{PALE}"/>'
            f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end" fill="{INK}" {FONT}>'
            f"{100 * share:.0f} %</text>"
        )
    for share in (0.0, 0.5, 1.0):
        x = left + wide * share
        anchor = "start" if share == 0 else "end" if share == 1 else "middle"
        name = html.escape(distance_words(reach * share, unit))
        rows.append(
            f'<text x="{x:.1f}" y="{top + high + 16}" text-anchor="{anchor}" fill="{INK}" {FONT}>'
            f"{name}</text>"
        )
    return _svg(top + high + 26, rows, "Share of reports within a distance")


def _svg(height: float, rows: Sequence[str], title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'width="{WIDTH}" height="{height:.0f}"><title>{html.escape(title)}</title>'
        f"{''.join(rows)}</svg>"
    )
