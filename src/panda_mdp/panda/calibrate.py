"""Search for parameters that fit (epsilon, delta), and say what binds where nothing does."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from panda_mdp.base.arrays import IntArray
from panda_mdp.errors import MethodError
from panda_mdp.panda.accounts.budgets import MOST_RECORDS
from panda_mdp.panda.options import Options, check_delta
from panda_mdp.panda.selection.ball import BallAnchors
from panda_mdp.panda.selection.bernoulli import BernoulliAnchors, Decay
from panda_mdp.panda.selection.candidates import covering_radius, spread_out
from panda_mdp.panda.selection.law import surrogate_law
from panda_mdp.problem import Problem

Family = Literal["bernoulli", "ball"]
RESCUED = 4.0
"""Costs beyond this multiple of epsilon are not tried again with a failure probability."""
SPLIT_WORK = 3e6
"""Quantiles of the leakage are bounded for all pairs and near candidates, up to this many."""
MARGIN_WORK = 3e10
"""Margins are computed for all pairs and pairs of near candidates, up to this many."""


@dataclass(frozen=True)
class Trial:
    """One set of parameters: what it would cost, and which condition it fails, if any."""

    selection: BernoulliAnchors | BallAnchors
    delta_selection: float
    anchors: float
    """Anchors that a user selects, on average."""
    loss: float | None
    """Expected loss over the prior, draws and reports; None where the parameters do not fit."""
    failure: str
    """Empty, or the condition that binds: cost, shortfall, coverage, surrogates, anchors."""
    excess: float
    """By what factor the binding condition is exceeded; 1 where nothing is."""
    work: float = 0.0
    """Pairs of records times near candidates: what checking it costs."""

    @property
    def fits(self) -> bool:
        return not self.failure


@dataclass(frozen=True)
class Calibration:
    """The best parameters found, or why nothing fits.

    `selection` (with its `delta_selection`) goes to `panda` with the same problem and delta.
    """

    selection: BernoulliAnchors | BallAnchors | None
    delta_selection: float
    delta: float
    loss: float | None
    anchors: float | None
    degenerate: bool
    """Whether anchors are drawn without regard to the record: no leakage, and no locality."""
    binding: str
    """Which condition binds most often where nothing fits, in words; empty where something fits."""
    tried: tuple[Trial, ...]

    def __repr__(self) -> str:
        if self.selection is None:
            return f"Calibration(nothing of {len(self.tried)} fits: {self.binding})"
        note = ", degenerate: anchors do not depend on the record" if self.degenerate else ""
        return (
            f"Calibration({self.selection!r}, delta {self.delta:g}: expected loss "
            f"{self.loss:.6g}, {self.anchors:.4g} anchors per user{note}; {len(self.tried)} tried)"
        )


def calibrate(
    problem: Problem,
    delta: float = 1e-7,
    *,
    families: Sequence[Family] = ("bernoulli",),
    decays: Sequence[Decay] = ("power", "exponential", "logistic"),
    alphas: Sequence[float] | None = None,
    rates: Sequence[float] = (0.5, 0.1, 0.01),
    radii: Sequence[float] | None = None,
    candidate_counts: Sequence[int] | None = None,
    most_anchors: float | None = None,
    splits: Sequence[float] = (0.0, 0.5),
    centre_shares: Sequence[float] = (0.1, 0.25, 0.5),
    gap: float = 0.02,
) -> Calibration:
    """Search for the selection of least expected loss that keeps (epsilon, delta).

    Independent selection: all combinations of `decays`, `alphas`, `rates` and `radii` (fractions of
    the diameter by default) with public candidate sets of `candidate_counts` records that are
    spread out, and of `splits`, the share of delta that Phase I may use. Selection without regard
    to the record (rate 0) is always among them, with Gamma large enough to cover every record; it
    fits whenever its margins leave something to spend, and it is called degenerate. `families`
    may include "ball": `centre_shares` of epsilon for the centre, the rest for table and report.

    `most_anchors` bounds what a user uploads and downloads on average. The loss is exact: over
    the prior, over the drawing of surrogates and over reports, for the table of all candidates.
    Conditions are checked from cheap to dear, so what cannot fit costs little.
    """
    check_delta(delta)
    if delta == 0:
        msg = (
            "delta is 0: independent selection always leaves a chance of no anchor; give delta > 0"
        )
        raise MethodError(msg)
    tried: list[Trial] = []
    if "bernoulli" in families:
        for selection in _selections(
            problem, delta, decays, alphas, rates, radii, candidate_counts
        ):
            for split in sorted(set(splits) | {0.0}):
                # A quantile of the leakage can rescue what the supremum misses by a little.
                if split > 0 and not (
                    tried[-1].failure == "cost"
                    and tried[-1].excess <= RESCUED
                    and tried[-1].work <= SPLIT_WORK
                ):
                    continue
                tried.append(_try(problem, selection, delta, split * delta, most_anchors, gap))
    if "ball" in families:
        for share in centre_shares:
            ball = BallAnchors(share * problem.epsilon, delta)
            tried.append(_try_ball(problem, ball, most_anchors, gap))
    fitting = [trial for trial in tried if trial.loss is not None]
    if not fitting:
        return Calibration(
            None, 0.0, delta, None, None, False, _binding(problem, delta, tried), tuple(tried)
        )
    best = min(fitting, key=lambda trial: (trial.loss, trial.anchors))
    chosen = best.selection
    return Calibration(
        selection=chosen,
        delta_selection=best.delta_selection,
        delta=delta,
        loss=best.loss,
        anchors=best.anchors,
        degenerate=isinstance(chosen, BernoulliAnchors) and chosen.rate == 0,
        binding="",
        tried=tuple(tried),
    )


def _selections(
    problem: Problem,
    delta: float,
    decays: Sequence[Decay],
    alphas: Sequence[float] | None,
    rates: Sequence[float],
    radii: Sequence[float] | None,
    counts: Sequence[int] | None,
) -> Iterable[BernoulliAnchors]:
    domain, size = problem.domain, problem.size
    strengths = (0.95, 1 - delta / 4) if alphas is None else tuple(alphas)
    if radii is None:
        # Larger radii put more candidates into every row, up to all of them.
        parts = [50, *([10] if size <= 2_000 else []), *([1] if size <= 200 else [])]
        radii = [domain.diameter / part for part in parts]
    numbers = sorted({size, max(1, size // 4), max(1, size // 16)} if counts is None else counts)
    for count in numbers:
        candidates: IntArray | None = None
        reach = domain.diameter / 1_000
        if count < size:
            candidates = spread_out(domain, count)
            reach = 1.001 * covering_radius(domain, candidates)
        # Without regard to the record: the nearest candidate is in the set almost surely.
        yield BernoulliAnchors(
            "exponential",
            alpha=1 - delta / 4,
            rate=0.0,
            radius=reach,
            candidates=candidates,
            neighbours=size,
        )
        for decay in decays:
            for alpha in strengths:
                for rate in rates:
                    for radius in radii:
                        yield BernoulliAnchors(
                            decay,
                            alpha=alpha,
                            rate=rate,
                            radius=radius,
                            candidates=candidates,
                            neighbours=size,
                        )


def _try(
    problem: Problem,
    selection: BernoulliAnchors,
    delta: float,
    delta_selection: float,
    most: float | None,
    gap: float,
) -> Trial:
    law = selection.on(problem.domain)
    rows = law.all_rows
    near = np.zeros(problem.size)
    np.add.at(near, rows.owner, rows.probability - law.tail)
    anchors = float(problem.prior @ near) + law.tail * len(law.candidates)
    listed = len(rows.anchor) / problem.size
    work = problem.size**2 * listed

    def failed(reason: str, excess: float) -> Trial:
        return Trial(selection, delta_selection, anchors, None, reason, excess, work)

    if most is not None and anchors > most:
        return failed("anchors", anchors / most)
    if problem.size > MOST_RECORDS:
        return failed("size", problem.size / MOST_RECORDS)
    options = Options(delta_selection=delta_selection, gap=gap)
    scheme = selection.scheme(problem, delta, options)
    cost = scheme.conditions.cost.rate
    if cost > problem.epsilon:
        return failed("cost", cost / problem.epsilon)
    if work * listed > MARGIN_WORK:
        return failed("size", work * listed / MARGIN_WORK)
    failure = scheme.failure
    if failure is not None:
        return failed("surrogates", failure.value / failure.limit if failure.limit else np.inf)
    loss = expected_loss(problem, selection, scheme.whole_table().matrix)
    return Trial(selection, delta_selection, anchors, loss, "", 1.0, work)


def expected_loss(problem: Problem, selection: BernoulliAnchors, matrix: np.ndarray) -> float:
    """sum_x p_x sum_a v(x, a) c_x z_a, exactly, for a table over all candidates.

    An empty set reports the output that is best without any record.
    """
    law = selection.on(problem.domain)
    total = 0.0
    for x in np.flatnonzero(problem.prior):
        v = surrogate_law(law, int(x))[law.candidates]
        row = v @ matrix
        empty = max(0.0, 1.0 - float(v.sum()))
        blind = float(problem.loss[x, problem.best_single_output])
        total += float(problem.prior[x]) * (float(row @ problem.loss[x]) + empty * blind)
    return total


def _try_ball(problem: Problem, ball: BallAnchors, most: float | None, gap: float) -> Trial:
    law = ball.on(problem.domain)
    anchors = law.expected_size(problem.prior)
    if most is not None and anchors > most:
        return Trial(ball, 0.0, anchors, None, "anchors", anchors / most)
    table = ball.scheme(problem, ball.delta, Options(gap=gap)).mechanism
    # Outside the ball, with probability at most delta, the loss is at most the largest.
    worst = float(problem.prior @ (law.missed * problem.loss.max(axis=1)))
    return Trial(ball, 0.0, anchors, table.loss + worst, "", 1.0)


def _binding(problem: Problem, delta: float, tried: Sequence[Trial]) -> str:
    """In words: which condition comes nearest to being met, and by how much it is missed."""
    if not tried:
        return "no parameters were tried; name at least one family"
    nearest = min(tried, key=lambda trial: trial.excess)
    counts = {
        reason: sum(trial.failure == reason for trial in tried)
        for reason in dict.fromkeys(trial.failure for trial in tried)
    }
    words = {
        "cost": f"Phase I costs more than epsilon = {problem.epsilon:g}",
        "shortfall": f"no anchor within the radius, more often than delta = {delta:g}",
        "coverage": f"covered records miss the users' more often than delta = {delta:g}",
        "surrogates": f"surrogates of one set differ too much, more often than delta = {delta:g}",
        "anchors": "more anchors than most_anchors allows",
        "size": "too many records or near candidates for margins of all pairs",
    }
    told = "; ".join(
        f"{words[reason]} ({count} of {len(tried)})" for reason, count in counts.items()
    )
    return (
        f"{told}. Nearest: {nearest.selection!r}, which exceeds '{nearest.failure}' by a factor "
        f"{nearest.excess:.3g}"
    )
