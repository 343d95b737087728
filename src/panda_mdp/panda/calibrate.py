"""Selections that keep (epsilon, delta): what each costs in loss, download and secrecy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from panda_mdp.errors import MethodError
from panda_mdp.panda.accounts.certificate import MOST_RECORDS
from panda_mdp.panda.options import Options, check_delta
from panda_mdp.panda.schemes.ball_scheme import BallScheme
from panda_mdp.panda.schemes.scheme import Scheme, Selection
from panda_mdp.panda.selection.ball import BallAnchors
from panda_mdp.panda.selection.bernoulli import BernoulliAnchors, Decay
from panda_mdp.panda.selection.candidates import spread_out
from panda_mdp.problem import Problem

Family = Literal["ball", "candidates", "coins"]
FAMILIES: tuple[Family, ...] = ("ball", "candidates", "coins")
PARTS = (1.0, 0.25, 0.0625)
"""Parts of delta that a ball may miss its record with: larger balls cost less when missed."""
FEW = 300
"""Domains up to this size are searched with more rates and radii: each look costs K^2."""
MARGIN_WORK = 3e10
"""Surrogates are enumerated for all pairs and pairs of near candidates, up to this many."""
RESCUED = 3.0
"""A quantile of the leakage is tried where the supremum exceeds epsilon by at most this factor."""
WHOLE = 0.95
"""A download of this share of the records is the whole table."""
_CALL = "This call works, and everybody downloads the whole table: optimal(problem)"


@dataclass(frozen=True)
class Trial:
    """One set of parameters: what it costs, or which condition it fails."""

    selection: Selection
    delta_selection: float
    anchors: float
    """Rows that a user downloads, on average."""
    selection_epsilon: float
    """What the upload alone may tell, per unit of distance."""
    loss: float | None
    """Expected loss over the prior, draws and reports; None where the parameters do not fit."""
    failure: str
    """Empty, or the condition that binds: cost, surrogates, anchors, size."""
    excess: float
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

    `selection` (with its `delta_selection`) goes to `panda` with the same problem and delta; it is
    the one of least loss that is not degenerate. None where nothing fits, or only the whole table
    for everybody, which `optimal(problem)` gives without a Phase I; `binding` then says why.
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

    @property
    def delta_selection(self) -> float:
        """Of the best trial: Phase I's part of delta."""
        return 0.0 if self.best is None else self.best.delta_selection

    @property
    def loss(self) -> float | None:
        """Of the best trial."""
        return None if self.best is None else self.best.loss

    @property
    def anchors(self) -> float | None:
        """Of the best trial: rows that a user downloads, on average."""
        return None if self.best is None else self.best.anchors

    @property
    def degenerate(self) -> bool:
        """Whether the whole table for everybody is all that fits."""
        return self.best is None and bool(self.frontier)

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


def calibrate(
    problem: Problem,
    delta: float = 1e-7,
    *,
    families: Sequence[Family] = FAMILIES,
    most_anchors: float | None = None,
    most_selection_epsilon: float | None = None,
    centre_shares: Sequence[float] = (0.1, 0.2, 0.3, 0.45, 0.6),
    candidate_counts: Sequence[int] | None = None,
    decays: Sequence[Decay] = ("power", "exponential", "logistic"),
    alphas: Sequence[float] | None = None,
    rates: Sequence[float] | None = None,
    radii: Sequence[float] | None = None,
    splits: Sequence[float] = (0.0, 0.5),
    rounds: int = 1,
    gap: float = 0.02,
) -> Calibration:
    """What keeps (epsilon, delta), given what may be downloaded and what the upload may tell.

    `most_anchors` bounds the rows that a user downloads on average, `most_selection_epsilon` what
    the upload alone may tell per unit of distance. Three families:

    - "ball": a private centre, for `centre_shares` of epsilon, each with balls that miss their
      record with all of delta, a quarter and a sixteenth; then, `rounds` times, the shares half-way
      from the best to its neighbours, and balls that miss a quarter as often; one table serves
      everybody;
    - "candidates": public candidate sets of `candidate_counts` records that serve the others,
      selected alike by everybody: the upload tells nothing;
    - "coins": the paper's decays, with `alphas`, `rates`, `radii` (fractions of the diameter by
      default) and `splits`, the share of delta that Phase I may use.

    Losses are exact, over the prior, the draws and the reports. Conditions are checked from cheap
    to dear, so what cannot fit costs little.
    """
    check_delta(delta)
    if delta == 0:
        msg = "delta is 0, and a selection always leaves a chance of no anchor; give delta > 0"
        raise MethodError(msg)
    _check_limits(most_anchors, most_selection_epsilon, centre_shares, splits)
    unknown = [family for family in families if family not in FAMILIES]
    if unknown:
        msg = f"there is no family {unknown[0]!r}; choose from {', '.join(FAMILIES)}"
        raise MethodError(msg)
    tried: list[Trial] = []
    if "ball" in families:
        first: dict[float, BallScheme] = {}

        def weigh(share: float, part: float) -> Trial:
            if share not in first:
                ball = BallAnchors(share * problem.epsilon, part * delta)
                first[share] = ball.scheme(problem, delta, Options(gap=gap))
            around, spent = first[share], share * problem.epsilon
            within = most_selection_epsilon is None or spent <= most_selection_epsilon
            if within and spent < problem.epsilon:
                around = around.missing(part * delta)
            return _weigh(around, spent, most_anchors, most_selection_epsilon)

        settings = [(share, part) for share in sorted(set(centre_shares)) for part in PARTS]
        balls = {setting: weigh(*setting) for setting in settings}
        for _ in range(rounds):
            for setting in _between(balls):
                balls[setting] = weigh(*setting)
        tried += [balls[setting] for setting in sorted(balls)]
    counts = _counts(problem.size, candidate_counts)
    if "candidates" in families:
        for count in counts:
            selection = BernoulliAnchors.alike(problem.domain, count, delta, problem)
            scheme = selection.scheme(problem, delta, Options(gap=gap))
            tried.append(_weigh(scheme, 0.0, most_anchors, most_selection_epsilon))
    if "coins" in families:
        for selection in _decaying(problem, delta, decays, alphas, rates, radii, counts):
            # A quantile of the leakage can rescue what the supremum misses.
            for split in sorted(set(splits) | {0.0}):
                if split > 0 and not _rescuable(tried[-1], problem.size):
                    continue
                options = Options(delta_selection=split * delta, gap=gap)
                tried.append(
                    _toss(problem, selection, delta, options, most_anchors, most_selection_epsilon)
                )
    frontier = _frontier([trial for trial in tried if trial.fits])
    only = frontier and all(trial.degenerate for trial in frontier)
    return Calibration(
        frontier=frontier,
        delta=delta,
        binding="" if frontier and not only else _binding(problem, delta, tried),
        tried=tuple(tried),
    )


def _rescuable(trial: Trial, size: int) -> bool:
    """Whether a quantile of Phase I's cost is worth its time after the supremum."""
    return trial.failure == "cost" and trial.excess <= RESCUED and size <= FEW


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


def _counts(size: int, given: Sequence[int] | None) -> list[int]:
    return sorted({size, size // 2, max(1, size // 4)} if given is None else set(given))


def _decaying(
    problem: Problem,
    delta: float,
    decays: Sequence[Decay],
    alphas: Sequence[float] | None,
    rates: Sequence[float] | None,
    radii: Sequence[float] | None,
    counts: Sequence[int],
) -> Iterator[BernoulliAnchors]:
    domain, size = problem.domain, problem.size
    few = size <= FEW
    strengths = (0.95, 1 - delta / 4) if alphas is None else tuple(alphas)
    speeds = ((0.5, 0.1, 0.01) if few else (0.1,)) if rates is None else tuple(rates)
    if radii is None:
        radii = [domain.diameter / part for part in ((50, 10, 1) if few else (50,))]
    for count in counts if few else counts[-1:]:
        candidates = spread_out(domain, count) if count < size else None
        for decay in decays:
            for alpha in strengths:
                for rate in speeds:
                    for radius in radii:
                        yield BernoulliAnchors(
                            decay, alpha, rate, radius, candidates=candidates, neighbours=size
                        )


def _toss(
    problem: Problem,
    selection: BernoulliAnchors,
    delta: float,
    options: Options,
    most_anchors: float | None,
    most_epsilon: float | None,
) -> Trial:
    """A selection with a decay: what cannot fit is seen before budgets are computed."""
    scheme = selection.scheme(problem, delta, options)
    near = len(scheme.law.all_rows.anchor) / problem.size
    work = (problem.size * near) ** 2
    cost, epsilon = scheme.conditions.cost.rate, problem.epsilon
    failure, excess = "", 1.0
    if cost > epsilon:
        failure, excess = "cost", cost / epsilon
    elif problem.size > MOST_RECORDS or work > MARGIN_WORK:
        failure, excess = "size", max(problem.size / MOST_RECORDS, work / MARGIN_WORK)
    if failure:
        share = options.delta_selection
        return Trial(selection, share, scheme.expected_anchors, cost, None, failure, excess)
    return _weigh(scheme, cost, most_anchors, most_epsilon)


def _weigh(
    scheme: Scheme, cost: float, most_anchors: float | None, most_epsilon: float | None
) -> Trial:
    """A trial: limits, then the certificate, then the loss."""
    share, size = scheme.options.delta_selection, scheme.problem.size
    if most_epsilon is not None and cost > most_epsilon:
        excess = cost / most_epsilon if most_epsilon > 0 else np.inf
        return Trial(scheme.selection, share, 0.0, cost, None, "upload", excess)
    failure = scheme.failure
    if failure is not None:
        excess = failure.value / failure.limit if failure.limit else np.inf
        return Trial(scheme.selection, share, 0.0, cost, None, "surrogates", excess)
    anchors = scheme.expected_anchors
    if most_anchors is not None and anchors > most_anchors:
        over = anchors / most_anchors
        return Trial(scheme.selection, share, anchors, cost, None, "anchors", over)
    return Trial(
        selection=scheme.selection,
        delta_selection=share,
        anchors=anchors,
        selection_epsilon=cost,
        loss=scheme.expected_loss(),
        failure="",
        excess=1.0,
        degenerate=anchors > WHOLE * size,
    )


def _check_limits(
    most_anchors: float | None,
    most_epsilon: float | None,
    centre_shares: Sequence[float],
    splits: Sequence[float],
) -> None:
    if most_anchors is not None and not most_anchors > 0:
        msg = f"most_anchors is {most_anchors!r}; a user downloads at least a row, or None for all"
        raise MethodError(msg)
    if most_epsilon is not None and not most_epsilon >= 0:
        msg = f"most_selection_epsilon is {most_epsilon!r}; it is at least 0, or None for epsilon"
        raise MethodError(msg)
    for share in centre_shares:
        if not 0 < share < 1:
            msg = f"centre_shares has {share!r}; a share of epsilon lies between 0 and 1"
            raise MethodError(msg)
    for split in splits:
        if not 0 <= split <= 1:
            msg = f"splits has {split!r}; a share of delta lies between 0 and 1"
            raise MethodError(msg)


def _frontier(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Trials that no other beats in loss, download and what the upload tells; by loss."""

    def worth(trial: Trial) -> tuple[float, float, float]:
        loss = np.inf if trial.loss is None else trial.loss
        return loss, trial.anchors, trial.selection_epsilon

    best = [
        trial
        for trial in trials
        if not any(
            worth(other) != worth(trial)
            and all(a <= b for a, b in zip(worth(other), worth(trial), strict=True))
            for other in trials
        )
    ]
    # Settings that come to the same are one.
    return tuple(sorted({worth(trial): trial for trial in reversed(best)}.values(), key=worth))


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
    counts = {
        reason: sum(trial.failure == reason for trial in tried)
        for reason in dict.fromkeys(trial.failure for trial in tried)
    }
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
