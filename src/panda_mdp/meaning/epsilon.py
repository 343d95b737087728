"""Which epsilon: from odds that are acceptable, from a loss, or from an attacker's error."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from panda_mdp.base.text import amount, inverse, per
from panda_mdp.city.city import City
from panda_mdp.city.draw import draw_displacement
from panda_mdp.errors import GapWarning, InfeasibleError, MethodError
from panda_mdp.meaning.attack import attack
from panda_mdp.meaning.explain import (
    distance_words,
    guess_between_two,
    guess_words,
    noun_of,
    word_lines,
)
from panda_mdp.methods.certify import Budget
from panda_mdp.methods.optimal.optimal import optimal
from panda_mdp.methods.second.dominate import (
    RADII,
    checked_references,
    least_factor,
    measures_of,
)
from panda_mdp.problem import Problem, check_number
from panda_mdp.table.mechanism import Mechanism, Table

GAP = 0.02
STEPS = 12
HALVINGS = 6
"""Doublings of epsilon, and bisections of what lies between two of them: to about 1 %."""
CURVE_ROW = "{epsilon:14.4g}  {loss:12.4g}  {lower_bound:12.4g}  {error:12.4g}"
AROUND = (0.25, 0.5, 1.0, 2.0, 4.0)
"""The curve's epsilons, in multiples of the one that was chosen."""
WORTHLESS = 0.95
BARE = 0.05
FREE = 0.005
"""Shares: a loss above the first of a constant report's makes a report worthless; an attacker's
error below the second of what it is without a report protects nothing, nor does a table whose loss
lies within the third of the way from no privacy to a constant report."""


@dataclass(frozen=True)
class Point:
    """One epsilon: what it costs, and what an attacker gets."""

    epsilon: float
    loss: float
    """Of the optimal table, private over all pairs."""
    lower_bound: float
    error: float
    """Expected error of the best attacker against the optimal table, in the domain's unit."""
    vulnerability: float


@dataclass(frozen=True, eq=False)
class Choice:
    """An epsilon, why, and what it means; `curve` has the epsilons around it, ascending."""

    epsilon: float
    reason: str
    curve: tuple[Point, ...]
    chosen: Point
    """The one of the curve that has this epsilon."""
    constant_loss: float
    """The loss of the best report that ignores the record: no epsilon costs more."""
    free_loss: float
    """The loss without any privacy."""
    prior_error: float
    """The attacker's error without any report: no epsilon protects more."""
    unit: str
    loss_unit: str | None
    noun: str = "record"
    """What a record is."""
    words: tuple[str, ...] = ()
    """What the chosen table does to words, where records are words."""

    def __repr__(self) -> str:
        return f"Choice(epsilon {self.epsilon:.4g} {per(self.unit)}: {self.reason}; {self.verdict})"

    def __str__(self) -> str:
        return self.text

    @property
    def verdict(self) -> str:
        """Whether a report is worth anything, and whether anything is protected."""
        point = self.chosen
        constant = self.constant_loss
        free = self.free_loss
        if point.loss >= WORTHLESS * constant:
            return (
                "so small that the report is worthless: it loses "
                f"{amount(f'{point.loss:.4g}', self.loss_unit)} and always reporting one "
                f"{self.noun} loses {constant:.4g}"
            )
        if point.error <= BARE * self.prior_error:
            return (
                "so large that it protects nothing: the best attacker is off by "
                f"{point.error / self.prior_error:.1%} of what a guess without any report is"
            )
        if point.loss - free <= FREE * (constant - free):
            return (
                "so large that a report is as good as without privacy "
                f"({amount(f'{free:.4g}', self.loss_unit)}): only that there are fewer outputs "
                "than records protects anybody"
            )
        return "neither worthless nor without protection"

    @property
    def text(self) -> str:
        """All of it, with the curve as a table."""
        far = partial(distance_words, unit=self.unit)
        distance = 0.1 if self.unit == "km" else 1.0
        guess = guess_between_two(self.epsilon * distance)
        lines = [
            f"Epsilon {self.epsilon:.4g} {per(self.unit)}: {self.reason}.",
            f"It is {self.verdict}.",
            f"Two {self.noun}s {far(distance)} from each other: a guess between them is "
            f"right at most {guess_words(guess)}.",
            f"The best attacker is off by {far(self.chosen.error)} on average (without a "
            f"report {far(self.prior_error)}) and names the right {self.noun} "
            f"{guess_words(self.chosen.vulnerability)}.",
            *self.words,
            "",
            f"epsilon [{inverse(self.unit)}]  optimal loss  proven bound  attacker off",
        ]
        for point in self.curve:
            lines.append(CURVE_ROW.format(**vars(point)) + ("  <-" if point is self.chosen else ""))
        most = amount(f"{self.constant_loss:.4g}", self.loss_unit)
        return "\n".join([*lines, f"Always the same report loses {most}: no epsilon costs more.\n"])


def choose_epsilon(
    subject: City | Problem,
    *,
    within: float | None = None,
    odds: float | None = None,
    loss: float | None = None,
    error: float | None = None,
    records: int = 400,
    outputs: int = 60,
    seed: int = 0,
) -> Choice:
    """The epsilon for a wish that people can state, with what it costs and what it leaves.

    Give one of three: `within` and `odds` ("places within 0.2 km are told with odds of at most 4 to
    1": epsilon = log(odds) / within, a promise for every attacker); `loss` (the smallest epsilon
    at which a certified table loses at most that, in the loss's unit); `error` (the largest epsilon
    at which the best attacker, who knows table and prior, is off by at least that on average).
    The last two are solved for by bisection over tables of `optimal` within 2 % of their bound, on
    the problem, or on `records` places and `outputs` drawn from a city with distance as the loss.

    The epsilon is per unit of the domain's metric. It is public: do not compute it from people's
    data.

    >>> from panda_mdp import Domain
    >>> domain = Domain.from_points([41.90, 41.91, 41.90], [12.49, 12.50, 12.51])
    >>> problem = Problem(domain, [0, 1, 2], domain.distances(), epsilon=1.0)
    >>> choice = choose_epsilon(problem, within=0.2, odds=4)
    >>> round(choice.epsilon, 3), choice.unit
    (6.931, 'km')
    """
    _check(within, odds, loss, error)
    if isinstance(subject, Problem):
        problem = subject
    else:
        domain = subject.domain(min(records, subject.nodes), seed)
        problem = draw_displacement(domain, min(outputs, domain.size), 1.0, seed)
    unit = problem.domain.unit
    loss_unit = problem.loss_unit
    noun = noun_of(problem.domain)
    # Between reports that can tell nothing and reports that tell neighbours from each other.
    nearest = np.median(problem.domain.neighbours(1)[1])
    start = (nearest * problem.domain.diameter) ** -0.5

    def at(epsilon: float) -> Mechanism:
        with warnings.catch_warnings():
            # A gap that is not reached (a loss of nearly 0) is seen in the curve.
            warnings.simplefilter("ignore", GapWarning)
            return optimal(problem.with_epsilon(epsilon), gap=GAP)

    if within is not None and odds is not None:
        epsilon = float(np.log(odds) / within)
        reason = (
            f"{noun}s within {distance_words(within, unit)} are told from each other with odds of "
            f"at most {odds:g} to 1"
        )
    elif loss is not None:
        epsilon = _edge(start, lambda e: at(e).loss <= loss, True, "loss", problem)
        reason = f"the least at which a table loses at most {amount(f'{loss:g}', loss_unit)}"
    else:
        least = float(error or 0.0)
        epsilon = _edge(start, lambda e: attack(at(e)).error >= least, False, "error", problem)
        reason = f"the largest at which the best attacker is off by {distance_words(least, unit)}"
    tables = [at(factor * epsilon) for factor in AROUND]
    middle = AROUND.index(1.0)
    attacks = [attack(table) for table in tables]
    curve = tuple(
        Point(table.epsilon, table.loss, table.lower_bound or 0.0, seen.error, seen.vulnerability)
        for table, seen in zip(tables, attacks, strict=True)
    )
    return Choice(
        epsilon=epsilon,
        reason=reason,
        curve=curve,
        chosen=curve[middle],
        constant_loss=float(problem.mean_loss.min()),
        free_loss=float(problem.prior @ problem.loss.min(axis=1)),
        prior_error=attacks[middle].prior_error,
        unit=unit,
        loss_unit=loss_unit,
        noun=noun,
        words=tuple(word_lines(tables[middle])),
    )


def least_epsilon(
    problem: Problem,
    references: Table | Sequence[Table],
    *,
    radii: Sequence[float] = RADII,
    budget: Budget | None = None,
) -> tuple[Mechanism, float]:
    """The table at the least epsilon at which one is found that beats `references` by every measure
    of `dominate`, to 2 %; and the largest epsilon at which it is proved that none does, or 0.

    What is private at an epsilon is so at a larger one, so the least lies between the two. It is
    looked for from the problem's epsilon; `budget` is that of each table, and one that is not found
    within it counts as none.
    """
    others = checked_references(problem, references)
    measures = measures_of(problem, others, radii)
    each = budget or Budget(GAP / 4)
    found: dict[float, Mechanism] = {}
    refuted = [0.0]

    def holds(epsilon: float) -> bool:
        try:
            table = least_factor(problem.with_epsilon(epsilon), others, measures, each, decide=True)
            told = table.details["dominates"]
            proved = told["bound"] > 1
        except InfeasibleError as error:
            told = {"holds": False}
            proved = error.value > error.limit
        if told["holds"]:
            found[epsilon] = table
        elif proved:
            refuted.append(epsilon)
        return bool(told["holds"])

    _edge(problem.epsilon, holds, True, "references, beaten by every measure", problem)
    return found[min(found)], max(refuted)


def _edge(
    epsilon: float, holds: Callable[[float], bool], above: bool, wish: str, problem: Problem
) -> float:
    """The end of the epsilons at which a wish holds, which it does above it, or below: from one
    epsilon by doubling or halving, then between the two that differ."""
    first = holds(epsilon)
    factor = 0.5 if first == above else 2.0
    for _ in range(STEPS):
        last = epsilon
        epsilon = factor * epsilon
        if holds(epsilon) != first:
            break
    else:
        if first:
            return epsilon
        edge, other = ("largest", "larger") if above else ("smallest", "smaller")
        raise MethodError(
            f"no epsilon meets this {wish}: even the {edge} that is tried, {epsilon:.4g} "
            f"{per(problem.domain.unit)}, does not; ask for a {other} one"
        )
    inside, outside = (last, epsilon) if first else (epsilon, last)
    for _ in range(HALVINGS):
        middle = (inside * outside) ** 0.5
        inside, outside = (middle, outside) if holds(middle) else (inside, middle)
    return inside


def _check(
    within: float | None, odds: float | None, loss: float | None, error: float | None
) -> None:
    if (within is None) != (odds is None):
        raise MethodError(
            "within and odds belong together: places within this distance, odds of at most so many"
        )
    wishes = {"within": within, "loss": loss, "error": error}
    stated = len(wishes) - [*wishes.values()].count(None)
    if stated != 1:
        raise MethodError(
            f"{stated} wishes are stated; give one of within and odds, loss, or error"
        )
    for name, value in wishes.items():
        check_number(value, name, "positive and finite")
    check_number(odds, "odds", "above 1, such as 4 for 4 to 1", least=np.nextafter(1.0, 2.0))
