"""The best attacker against a table: all measures at once, for every record and on average.

A channel z (K x m, rows on the simplex) carries a secret record x, drawn from a prior p, to an
observed output y. Every measure is a finite sum in float64; nothing is sampled. The attacker
knows p and z and guesses any place, record or not. Names and definitions follow quantitative
information flow (Alvim, Chatzikokolakis, McIver, Morgan, Palamidessi and Smith, The Science of
Quantitative Information Flow, Springer 2020) and, for locations, Shokri et al. (S&P 2011).

A gain g of guesses w has the g-vulnerability sum_y max_w sum_x p_x z_xy g_wx (Alvim et al., CSF
2012): the identity is Bayes vulnerability (Smith, FoSSaCS 2009), 1 within r of a place the chance
of being located, minus a distance the inference error. Entropies and leakages are in bits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy
from numpy.typing import ArrayLike

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray, RebuiltOnCopy, frozen
from panda_mdp.base.text import Facts, picked
from panda_mdp.errors import MethodError
from panda_mdp.panda.panda_table import Seen
from panda_mdp.prior import Prior
from panda_mdp.problem import Outputs, Problem, check_outputs
from panda_mdp.space.domain import Domain
from panda_mdp.space.guesses import (
    CLOSED,
    best_guesses,
    best_records,
    guess_distances,
    held_sets,
)
from panda_mdp.table.mechanism import Release, Table

RADII_KM = (0.1, 0.2, 0.5, 1.0)
BARE = 0.95
"""How often the best guess is right, from which on a table hides nothing."""


def hides_nothing(table: Release | Table) -> str:
    """A loud sentence where the best guess of the record is nearly always right; else nothing.

    >>> from panda_mdp import Domain, Problem, exponential
    >>> domain = Domain.from_vectors([[0.0], [1.0]])
    >>> hides_nothing(exponential(Problem(domain, [0, 1], domain.distances(), epsilon=40.0)))
    'THIS TABLE HIDES NOTHING: who sees a report names the right record 100.0 % of the time.'
    """
    best = np.zeros(table.problem.outputs_count)
    for record, weight in enumerate(table.problem.prior):
        np.maximum(best, weight * table.row(record), out=best)
    right = float(best.sum())
    if right < BARE or table.problem.prior.max() >= BARE:
        return ""
    return (
        "THIS TABLE HIDES NOTHING: who sees a report names the right record "
        f"{100 * right:.1f} % of the time."
    )


@dataclass(frozen=True, eq=False)
class Attack(RebuiltOnCopy):
    """What somebody who knows the table and the prior, and nothing else, learns from one report.

    All numbers are exact sums over the table that is sampled. `by_record` arrays have one entry
    per record of the domain; they are functions of the table alone and as public as it is.
    Where two guesses are equally good the attacker takes the first in the order of the domain.
    """

    method: str
    unit: str
    prior_source: str
    restricted: tuple[float, ...]
    """Radii of `located` at which only records were tried as guesses: there are no places between
    records, or too many to try; somebody who points elsewhere may do better."""
    vulnerability: float
    """How often the best guess of the record is right (Bayes vulnerability)."""
    prior_vulnerability: float
    """The same without any report."""
    worst_posterior: float
    """The largest belief that any output gives in any record."""
    error: float
    """Expected distance between the record and the best guess of its place, in `unit`; the guess is
    any place where there are places between records, to the precision of its search."""
    prior_error: float
    """The same without any report."""
    error_by_record: FloatArray
    """Expected distance of that attacker's guess for each record, (K,)."""
    hit_by_record: FloatArray
    """How often each record is guessed right by the attacker of `vulnerability`, (K,)."""
    located: Mapping[float, float]
    """For each radius, how often the best guess lies within it of the record, wherever it lies."""
    prior_located: Mapping[float, float]
    located_by_record: Mapping[float, FloatArray]
    """For each radius, how often that guess lies within it of each record, (K,)."""
    min_entropy_leakage: float
    """Bits."""
    shannon_leakage: float
    """Mutual information of record and report, bits."""
    prior_entropy: float
    """Bits."""
    capacity: float
    """sum_y max_x z_xy: by which factor a report helps any attacker with any prior and any gain, at
    most (the miracle theorem; attained by Bayes vulnerability at the uniform prior; Braun,
    Chatzikokolakis and Palamidessi 2009)."""

    def __repr__(self) -> str:
        return (
            f"Attack({self.method}: right {self.vulnerability:.4g} of the time "
            f"(before {self.prior_vulnerability:.4g}), off by {self.error:.4g} {self.unit} "
            f"(before {self.prior_error:.4g}), least protected record {self.least_error:.4g} "
            f"{self.unit}; prior {self.prior_source})"
        )

    @property
    def risk(self) -> float:
        """Bayes risk: how often the best guess of the record is wrong."""
        return 1.0 - self.vulnerability

    @property
    def least_error(self) -> float:
        """Expected error of the attacker's guess for the record that is protected least."""
        return float(self.error_by_record.min())

    @property
    def most_hit(self) -> float:
        """How often the record that is guessed best is guessed right."""
        return float(self.hit_by_record.max())

    @property
    def most_located(self) -> dict[float, float]:
        """For each radius, how often the guess lies within it of the record of which that is so
        most often: what who minds the average gains where that is most."""
        return {radius: float(each.max()) for radius, each in self.located_by_record.items()}

    def numbers(self) -> Facts:
        """The numbers that are not arrays, for JSON; entropies and leakages are bits."""
        told = vars(self) | picked(self, "risk", "most_hit", "least_error", "most_located")
        del told["located_by_record"]
        for name in ("located", "prior_located", "most_located"):
            told[name] = {f"{radius:g}": share for radius, share in told[name].items()}
        return {name: value for name, value in told.items() if not isinstance(value, np.ndarray)}


def attack(
    mechanism: Table | Seen,
    prior: Prior | ArrayLike | None = None,
    *,
    radii: Sequence[float] | None = None,
    guesses: Outputs | ArrayLike | None = None,
) -> Attack:
    """What the best attacker gains from one report of `mechanism`, exactly.

    The attacker knows the table and `prior` (the problem's own where None: the table may have been
    optimised for one prior and be attacked with another). The place that is guessed need not be a
    record (`panda_mdp.space.guesses`); in metrics without places between records it is one. Where
    `guesses` are given, as outputs or indices of records, it is one of these, such as the cells of
    a grid: who is free does no worse.
    Distances are the domain's. `radii` are in its unit; by default 100 m to 1 km, or a tenth of
    the diameter where the unit is not km. Works on any table, one without a guarantee included,
    and on what a server sees of both phases of PAnDA, anchors and report together
    (`PandaTable.seen`).

    What it does not say: what an attacker gains who sees several reports, or knows more of the
    person than the prior (`panda_mdp.meaning.several`). Epsilon bounds what
    one report adds for every prior; these numbers are for one.

    >>> from panda_mdp import Domain, Problem, exponential
    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0]])
    >>> problem = Problem(domain, [0, 1, 2], domain.distances(), epsilon=2.0)
    >>> one = attack(exponential(problem))
    >>> round(one.vulnerability, 3), round(one.error, 3), round(one.prior_error, 3)
    (0.636, 0.424, 0.667)
    """
    problem = mechanism.problem
    domain = problem.domain
    matrix = mechanism.matrix
    weights, source = checked_prior(problem, prior)
    within = _radii(domain, radii)
    both = weights[:, None] * matrix
    seen = both.sum(axis=0)
    likeliest = both.max(axis=0)
    # The prior is one more column.
    columns = np.column_stack([both, weights])
    apart = None if guesses is None else check_outputs(guesses, None, domain).distances(domain).T
    if apart is None:
        found, off = best_guesses(domain, columns)
        far = guess_distances(domain, found[:-1])
    else:
        costs = apart @ columns
        off = costs.min(axis=0)
        far = apart[costs[:, :-1].argmin(axis=0)]
    near = {radius: _within(domain, columns, radius, apart) for radius in within}
    guess = both.argmax(axis=0)
    hits = np.bincount(guess, matrix[guess, np.arange(len(guess))], problem.size)
    return Attack(
        method=mechanism.method,
        unit=domain.unit,
        prior_source=source,
        restricted=tuple(radius for radius in within if near[radius][2]),
        vulnerability=float(likeliest.sum()),
        prior_vulnerability=float(weights.max()),
        worst_posterior=float((likeliest / np.where(seen > 0, seen, 1.0)).max()),
        error=float(off[:-1].sum()),
        prior_error=float(off[-1]),
        error_by_record=frozen(np.einsum("yx,xy->x", far, matrix)),
        hit_by_record=frozen(hits),
        located={radius: float(share[:-1].sum()) for radius, (share, *_) in near.items()},
        prior_located={radius: float(share[-1]) for radius, (share, *_) in near.items()},
        located_by_record={
            radius: frozen(np.einsum("yx,xy->x", inside[:-1], matrix))
            for radius, (_, inside, _) in near.items()
        },
        min_entropy_leakage=float(np.log2(likeliest.sum() / weights.max())),
        # Term by term: a difference of entropies would cancel.
        shannon_leakage=_bits(scipy.special.rel_entr(both, weights[:, None] * seen)),
        prior_entropy=_bits(scipy.special.entr(weights)),
        capacity=float(matrix.max(axis=0).sum()),
    )


def _bits(nats: FloatArray) -> float:
    return float(nats.sum() / np.log(2))


def _within(
    domain: Domain, columns: FloatArray, radius: float, apart: FloatArray | None
) -> tuple[FloatArray, BoolArray, bool]:
    """Of the guesses that hold most of each column of weights within a radius: how much, which
    records, (columns, K), and whether only records were tried; guesses that are `apart`, (n, K),
    from the records, or any."""
    if apart is not None:
        inside = apart <= radius * CLOSED
        gained = inside @ columns
        return gained.max(axis=0), inside[gained.argmax(axis=0)], False
    held = held_sets(domain, radius)
    if held is None:
        least, best = best_records(domain, columns, radius)
        return -least, domain.distances(best, None) <= radius, True
    gained = held[0] @ columns
    return gained.max(axis=0), held[0][gained.argmax(axis=0)].toarray() > 0, False


def checked_prior(problem: Problem, prior: Prior | ArrayLike | None) -> tuple[FloatArray, str]:
    """The attacker's prior, (K,), and its source: the problem's own where None."""
    if prior is None:
        return problem.prior, problem.prior_source
    if isinstance(prior, Prior):
        return prior.on(problem).prior, prior.source
    return replace(problem, prior=np.asarray(prior), prior_source="given").prior, "given"


def radii_holding(distance: FloatArray, weights: FloatArray, *shares: float) -> list[float]:
    """The least radius within which each share of all weight lies, of places at a distance."""
    order = np.argsort(distance, kind="stable")
    reached = np.cumsum(weights[order])
    # A last share is reached although sums are rounded.
    at = np.searchsorted(reached, np.multiply(shares, (1 - 1e-12) * reached[-1]))
    return distance[order[at]].tolist()


def columns_of(known: Iterable[Any], reports: ArrayLike) -> IntArray:
    """The columns of some reports, by what those of each output are known as."""
    place = {name: y for y, name in enumerate(known)}
    given = np.asarray(reports)
    named, which = np.unique(given, return_inverse=True)
    columns = np.array([place.get(name, -1) for name in named.tolist()], np.int64)
    if given.ndim != 1 or given.dtype.kind == "b" or (columns < 0).any():
        raise MethodError(
            "some reports are no outputs of this table; give a list of what it reports"
        )
    return columns[which.reshape(-1)]


def _radii(domain: Domain, radii: Sequence[float] | None) -> tuple[float, ...]:
    if radii is None:
        return RADII_KM if domain.unit == "km" else (domain.diameter / 10,)
    try:
        distances = tuple(map(float, radii))
    except (TypeError, ValueError):
        distances = (-1.0,)
    if not all(0 <= distance < np.inf for distance in distances):
        raise MethodError(
            f"radii are {radii!r}; give a list of distances in {domain.unit}, finite and >= 0"
        )
    return distances
