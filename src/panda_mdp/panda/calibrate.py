"""Selections that keep (epsilon, delta): what each costs in loss, download and secrecy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from panda_mdp.errors import MethodError
from panda_mdp.panda.balls import BallAnchors, BallScheme
from panda_mdp.panda.candidates import spread_out
from panda_mdp.panda.certificate import MOST_RECORDS
from panda_mdp.panda.coins import BernoulliAnchors, CoinScheme, Decay
from panda_mdp.panda.selection import (
    PandaOptions,
    Scheme,
    Selection,
    check_choice,
    check_delta,
    check_rules,
)
from panda_mdp.problem import Problem

Family = Literal["ball", "candidates", "coins"]
PARTS = (1.0, 0.25, 0.0625)
"""Parts of delta that a ball may miss its record with: larger balls cost less when missed."""
FEW = 300
"""Domains up to this size are searched with more rates and radii: each look costs K^2."""
MARGIN_WORK = 3e10
"""Surrogates are enumerated for all pairs and pairs of near candidates, up to this many."""
WHOLE = 0.95
"""A download of this share of the records is the whole table."""
_CALL = "This call works, and everybody downloads the whole table: optimal(problem)"


@dataclass(frozen=True)
class Trial:
    """One set of parameters: what it costs, or which condition it fails."""

    selection: Selection
    selection_epsilon: float
    """What the upload alone may tell, per unit of distance."""
    anchors: float = 0.0
    """Rows that a user downloads, on average, where the parameters fit."""
    loss: float | None = None
    """Expected loss over the prior, draws and reports; None where the parameters do not fit."""
    failure: str = ""
    """Empty, or the condition that binds: cost, surrogates, anchors, upload, size."""
    excess: float = 1.0
    """By what factor the binding condition is exceeded; 1 where nothing is."""
    degenerate: bool = False
    """Whether everybody downloads the whole table: no Phase I worth the name."""

    @property
    def fits(self) -> bool:
        """Whether the parameters keep (epsilon, delta) and the limits."""
        return not self.failure


@dataclass(frozen=True)
class Calibration:
    """What fits (epsilon, delta), as a frontier of loss, download and what the upload tells.

    `selection` goes to `panda` with the same problem and delta; it is the one of least loss that is
    not degenerate. None where nothing fits, or only the whole table for everybody, which
    `optimal(problem)` gives without a Phase I; `binding` then says why.
    """

    frontier: tuple[Trial, ...]
    """Fitting trials that no other beats in loss, download and secrecy at once; by loss."""
    delta: float
    binding: str
    """Which condition binds most often where nothing fits, in words; empty where something fits."""
    tried: tuple[Trial, ...]

    @property
    def best(self) -> Trial | None:
        """The trial of least loss that is not degenerate."""
        return next((trial for trial in self.frontier if not trial.degenerate), None)

    @property
    def selection(self) -> Selection | None:
        """Of the best trial."""
        return None if self.best is None else self.best.selection

    def __repr__(self) -> str:
        best = self.best
        if best is None:
            return f"Calibration(nothing of {len(self.tried)} fits: {self.binding})"
        return (
            f"Calibration({best.selection!r}, delta {self.delta:g}: expected loss "
            f"{best.loss:.6g}, {best.anchors:.4g} rows per user, the upload tells "
            f"{best.selection_epsilon:.3g}; {len(self.frontier)} on the frontier, "
            f"{len(self.tried)} tried)"
        )


@dataclass(frozen=True)
class SearchSpace:
    """What `calibrate` looks at, and the limits that it keeps."""

    families: Sequence[Family] = ("ball", "candidates", "coins")
    most_anchors: float | None = None
    """Rows that a user downloads on average, at most."""
    most_selection_epsilon: float | None = None
    """What the upload alone may tell per unit of distance, at most."""
    centre_shares: Sequence[float] = (0.1, 0.2, 0.3, 0.45, 0.6)
    """Shares of epsilon for the centre of a ball."""
    rounds: int = 1
    """How often shares half-way from the best ball to its neighbours are looked at."""
    candidate_counts: Sequence[int] | None = None
    """Sizes of public candidate sets; all records, half and a quarter of them where None."""
    decays: Sequence[Decay] = ("power", "exponential", "logistic")
    rates: Sequence[float] | None = None
    """Rates of the decays; a few by the domain's size where None."""

    def __post_init__(self) -> None:
        for family in self.families:
            check_choice("a family", family, Family)
        rows, upload = self.most_anchors, self.most_selection_epsilon
        shares = [0 < share < 1 for share in self.centre_shares]
        check_rules(
            self,
            ("most_anchors", rows is None or rows > 0, "a user downloads at least a row"),
            ("most_selection_epsilon", upload is None or upload >= 0, "it is at least 0, or None"),
            ("centre_shares", all(shares), "a share of epsilon lies between 0 and 1"),
        )

    def counts(self, size: int) -> list[int]:
        """Sizes of candidate sets of a domain, ascending."""
        given = self.candidate_counts
        return sorted({size, size // 2, max(1, size // 4)} if given is None else set(given))


def calibrate(
    problem: Problem,
    delta: float = 1e-7,
    search: SearchSpace | None = None,
    *,
    gap: float = 0.02,
) -> Calibration:
    """What keeps (epsilon, delta), given what may be downloaded and what the upload may tell.

    Three families:

    - "ball": a private centre, for shares of epsilon, each with balls that miss their record with
      all of delta, a quarter and a sixteenth; then the shares half-way from the best to its
      neighbours, and balls that miss a quarter as often; one table serves everybody;
    - "candidates": public candidate sets of records that serve the others, selected alike by
      everybody: the upload tells nothing;
    - "coins": the paper's decays.

    Losses are exact, over the prior, the draws and the reports. Conditions are checked from cheap
    to dear, so what cannot fit costs little.
    """
    check_delta(delta)
    if delta == 0:
        raise MethodError(
            "delta is 0, and a selection always leaves a chance of no anchor; give delta > 0"
        )
    search = search or SearchSpace()
    options = PandaOptions(gap=gap)
    tried: list[Trial] = []
    if "ball" in search.families:
        tried += _balls(problem, delta, search, options)
    if "candidates" in search.families:
        for count in search.counts(problem.size):
            selection = BernoulliAnchors.alike(problem.domain, count, delta, problem)
            tried.append(_weigh(selection.scheme(problem, delta, options), 0.0, search))
    if "coins" in search.families:
        for selection in _decaying(problem, delta, search):
            tried.append(_toss(selection.scheme(problem, delta, options), search))
    frontier = _frontier([trial for trial in tried if trial.fits])
    useful = any(not trial.degenerate for trial in frontier)
    binding = "" if useful else _binding(problem, delta, tried)
    return Calibration(frontier, delta, binding, tuple(tried))


def _balls(
    problem: Problem, delta: float, search: SearchSpace, options: PandaOptions
) -> Iterator[Trial]:
    """Balls by the share of epsilon for the centre and the part of delta for a miss."""
    first: dict[float, BallScheme] = {}

    def weigh(share: float, part: float) -> Trial:
        spent = share * problem.epsilon
        if share not in first:
            first[share] = BallAnchors(spent, part * delta).scheme(problem, delta, options)
        around, most = first[share], search.most_selection_epsilon
        if most is None or spent <= most:
            around = around.missing(part * delta)
        return _weigh(around, spent, search)

    shares = sorted(set(search.centre_shares))
    balls = {(share, part): weigh(share, part) for share in shares for part in PARTS}
    for _ in range(search.rounds):
        for setting in _between(balls):
            balls[setting] = weigh(*setting)
    yield from (balls[setting] for setting in sorted(balls))


def _between(balls: dict[tuple[float, float], Trial]) -> list[tuple[float, float]]:
    """Settings next to the best that is no whole table: (share of epsilon, part of delta).

    Shares half-way to its neighbours, and balls that miss their record a quarter as often: they are
    larger, and what is outside costs less. Three at most.
    """
    useful = [key for key, trial in balls.items() if trial.fits and not trial.degenerate]
    if not useful:
        return []
    share, part = min(useful, key=lambda key: (balls[key].loss, key))
    shares = sorted({key[0] for key in balls})
    at = shares.index(share)
    near = [(share + shares[k]) / 2 for k in (at - 1, at + 1) if 0 <= k < len(shares)]
    return [*((other, part) for other in near), (share, part / 4)]


def _decaying(problem: Problem, delta: float, search: SearchSpace) -> Iterator[BernoulliAnchors]:
    domain, size = problem.domain, problem.size
    few = size <= FEW
    counts = search.counts(size)
    rates = search.rates or ((0.5, 0.1, 0.01) if few else (0.1,))
    radii = [domain.diameter / part for part in ((50, 10, 1) if few else (50,))]
    alphas = (0.95, 1 - delta / 4)
    for count in counts if few else counts[-1:]:
        candidates = spread_out(domain, count) if count < size else None
        for decay, alpha, rate, radius in product(search.decays, alphas, rates, radii):
            yield BernoulliAnchors(
                decay, alpha, rate, radius, candidates=candidates, neighbours=size
            )


def _toss(scheme: CoinScheme, search: SearchSpace) -> Trial:
    """A selection with a decay: what cannot fit is seen before budgets are computed."""
    problem, cost = scheme.problem, scheme.selection_epsilon
    limits = (
        ("cost", cost, problem.epsilon),
        ("size", problem.size, MOST_RECORDS),
        ("size", len(scheme.law.all_rows.anchor) ** 2, MARGIN_WORK),
    )
    return _weigh(scheme, cost, search, *limits)


def _weigh(
    scheme: Scheme, cost: float, search: SearchSpace, *limits: tuple[str, float, float]
) -> Trial:
    """A trial: limits, then the certificate, then the loss; the first that is exceeded ends it."""

    def conditions() -> Iterator[tuple[str, float, float | None]]:
        yield from limits
        yield "upload", cost, search.most_selection_epsilon
        if scheme.failure is not None:
            yield "surrogates", scheme.failure.value, scheme.failure.limit
        yield "anchors", scheme.expected_anchors, search.most_anchors

    for name, value, limit in conditions():
        if limit is not None and value > limit:
            excess = value / limit if limit > 0 else np.inf
            return Trial(scheme.selection, cost, failure=name, excess=excess)
    anchors = scheme.expected_anchors
    whole = anchors > WHOLE * scheme.problem.size
    return Trial(scheme.selection, cost, anchors, scheme.expected_loss, degenerate=whole)


def _frontier(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Trials that no other beats in loss, download and what the upload tells; by loss."""
    # Settings that come to the same are one: the first.
    worth = {
        (float(trial.loss or 0.0), trial.anchors, trial.selection_epsilon): trial
        for trial in reversed(trials)
    }
    values = np.array(sorted(worth)).reshape(-1, 3)
    beaten = (values[:, None] >= values).all(axis=2).sum(axis=1) > 1
    return tuple(worth[tuple(row)] for row in values[~beaten].tolist())


def _binding(problem: Problem, delta: float, tried: Sequence[Trial]) -> str:
    """In words: which condition comes nearest to being met, and by how much it is missed."""
    if not tried:
        return "no parameters were tried; name at least one family"
    if any(trial.fits for trial in tried):
        return (
            "only the whole table for everybody keeps these limits; optimal(problem) gives that "
            "without any Phase I; allow a larger delta, more rows or a larger epsilon of the "
            f"upload. {_CALL}"
        )
    nearest = min(tried, key=lambda trial: trial.excess)
    counts = Counter(trial.failure for trial in tried)
    words = {
        "cost": f"Phase I costs more than epsilon = {problem.epsilon:g}",
        "surrogates": f"surrogates of one set differ too much, more often than delta = {delta:g}",
        "anchors": "more rows than most_anchors allows",
        "upload": "the upload tells more than most_selection_epsilon allows",
        "size": "too many records or near candidates for an account of all pairs",
    }
    said = "; ".join(f"{words[reason]} ({n} of {len(tried)})" for reason, n in counts.items())
    return (
        f"{said}. Nearest: {nearest.selection!r}, which exceeds '{nearest.failure}' by a factor "
        f"{nearest.excess:.3g}. {_CALL}"
    )
