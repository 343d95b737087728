"""Selections that keep (epsilon, delta): what each costs in loss, bytes and secrecy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np

from panda_mdp.errors import MethodError
from panda_mdp.methods.coarse import spread_out
from panda_mdp.panda.balls import BallAnchors
from panda_mdp.panda.certificate import MOST_RECORDS
from panda_mdp.panda.coins import BernoulliAnchors, CoinScheme, Decay
from panda_mdp.panda.lattice import radius_for
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.panda.selection import (
    BELOW_1,
    PandaOptions,
    Scheme,
    Selection,
    check_choice,
    check_delta,
)
from panda_mdp.problem import Problem, check_number
from panda_mdp.table.encode import encode
from panda_mdp.table.mechanism import Mechanism

Family = Literal["ball", "candidates", "coins"]
RUNGS = (1e-7, 1e-4, 1e-2, 0.1)
"""What fits is looked for at those of these deltas that are at most the one asked for, and at no
other: whatever is found for a delta is found for every larger one."""
MISSED = (1e-2, 1e-4)
"""How often a ball may leave its record out."""
FEW = 300
"""Domains up to this size are searched with more rates and radii: each look costs K^2."""
MARGIN_WORK = 3e10
"""Surrogates are enumerated for all pairs and pairs of near candidates, up to this many."""
_CALL = "This call works, and everybody fetches the whole table: optimal(problem)"


@dataclass(frozen=True)
class Trial:
    """One set of parameters: what it costs, or which condition it fails."""

    selection: Selection | None
    """What `panda` takes; None for the whole table, which has no Phase I."""
    selection_epsilon: float
    """What the upload alone may tell, per unit of distance."""
    delta: float = 0.0
    """What it was made for and is to be run with: at most the delta that was asked for."""
    download: int = 0
    """Bytes that a user fetches, where the parameters fit: the whole of a file."""
    loss: float | None = None
    """Expected loss over the prior, draws and reports; None where the parameters do not fit."""
    failure: str = ""
    """Empty, or the condition that binds: cost, surrogates, bytes, upload, size."""
    excess: float = 1.0
    """By what factor the binding condition is exceeded; 1 where nothing is."""

    @property
    def fits(self) -> bool:
        """Whether the parameters keep (epsilon, delta) and the limits."""
        return not self.failure

    def __str__(self) -> str:
        if self.selection is None:
            return "the whole table: optimal(problem)"
        return f"{self.selection!r}, delta {self.delta:g}"


@dataclass(frozen=True)
class Calibration:
    """What fits (epsilon, delta), as a frontier of loss, bytes and what the upload tells.

    The whole table for everybody, `compact(optimal(problem))`, is one of the trials: what is no
    better in loss, bytes or secrecy is not on the frontier. With the same search, a larger delta or
    more bytes never give a larger loss: what fits less is tried again for more.
    """

    frontier: tuple[Trial, ...]
    """Fitting trials that no other beats in loss, bytes and secrecy at once; by loss."""
    delta: float
    binding: str
    """Why there is no selection to take, in words; empty where the best has one."""
    tried: tuple[Trial, ...]

    @property
    def best(self) -> Trial | None:
        """The trial of least loss; that of the whole table where it is no worse."""
        return self.frontier[0] if self.frontier else None

    @property
    def knee(self) -> Trial | None:
        """Where the frontier bends most: farthest below the line between its ends, in loss and
        the logarithm of bytes, each over its range."""
        if len(self.frontier) < 3:
            return self.best
        values = np.array([[trial.loss or 0.0, np.log(trial.download)] for trial in self.frontier])
        spread = np.ptp(values, axis=0)
        scaled = (values - values.min(axis=0)) / np.where(spread > 0, spread, 1.0)
        return self.frontier[int(scaled.sum(axis=1).argmin())]

    @property
    def selection(self) -> Selection | None:
        """Of the best trial: for `panda`, with the same problem and the trial's delta."""
        return None if self.best is None else self.best.selection

    def __repr__(self) -> str:
        best = self.best
        if best is None:
            return f"Calibration(nothing of {len(self.tried)} fits: {self.binding})"
        return (
            f"Calibration({best}: expected loss {best.loss:.6g}, {best.download:,} bytes, the "
            f"upload tells {best.selection_epsilon:.3g}; knee: {self.knee}; "
            f"{len(self.frontier)} on the frontier, {len(self.tried)} tried)"
        )


@dataclass(frozen=True)
class SearchSpace:
    """What `calibrate` looks at, and the limits that it keeps."""

    families: Sequence[Family] = ("ball", "candidates", "coins")
    most_bytes: float | None = None
    """What a user fetches, at most."""
    most_selection_epsilon: float | None = None
    """What the upload alone may tell per unit of distance, at most."""
    centre_shares: Sequence[float] = (0.1, 0.2, 0.3, 0.45, 0.6)
    """Shares of epsilon for the centre of a ball."""
    candidate_counts: Sequence[int] | None = None
    """Sizes of public candidate sets; half and a quarter of the records where None."""
    decays: Sequence[Decay] = ("power", "exponential", "logistic")
    rates: Sequence[float] | None = None
    """Rates of the decays; a few by the domain's size where None."""

    def __post_init__(self) -> None:
        for family in self.families:
            check_choice("a family", family, Family)
        check_number(self.most_bytes, "most_bytes", "positive: a user fetches at least a byte")
        upload = self.most_selection_epsilon
        check_number(upload, "most_selection_epsilon", "at least 0, or None", least=0.0)
        for share in self.centre_shares:
            check_number(share, "a share in centre_shares", "between 0 and 1", most=BELOW_1)

    def counts(self, size: int) -> list[int]:
        """Sizes of candidate sets of a domain, ascending."""
        given = self.candidate_counts
        return sorted({max(1, size // 2), max(1, size // 4)} if given is None else set(given))


def calibrate(
    problem: Problem,
    delta: float = 1e-7,
    search: SearchSpace | None = None,
    *,
    gap: float = 0.02,
) -> Calibration:
    """What keeps (epsilon, delta), given what may be fetched and what the upload may tell.

    Three families, and the whole table beside them:

    - "ball": a private centre, for shares of epsilon, each with balls that miss their record with
      all of delta and a sixteenth; one table serves everybody;
    - "candidates": public candidate sets of records that serve the others, selected alike by
      everybody: the upload tells nothing;
    - "coins": the paper's decays.

    Losses are exact, over the prior, the draws and the reports; bytes are those of the files.
    Conditions are checked from cheap to dear, so what cannot fit costs little.
    """
    check_delta(delta)
    if delta == 0:
        raise MethodError(
            "delta is 0, and a selection always leaves a chance of no anchor; give delta > 0"
        )
    search = search or SearchSpace()
    options = PandaOptions(gap=gap)
    rungs = [rung for rung in RUNGS if rung <= delta] or [delta]
    tried = [_whole(problem, search, options)]
    if "ball" in search.families:
        tried += _balls(problem, search, options)
    if "candidates" in search.families:
        for count in search.counts(problem.size):
            # Everybody's candidate is there almost surely: a larger delta would buy nothing.
            selection = BernoulliAnchors.alike(problem.domain, count, rungs[0], problem)
            tried.append(_weigh(selection.scheme(problem, rungs[0], options), 0.0, search))
    if "coins" in search.families:
        tried += _coins(problem, rungs, search, options)
    frontier = _frontier([trial for trial in tried if trial.fits])
    useful = frontier and frontier[0].selection is not None
    binding = "" if useful else _binding(problem, delta, tried)
    return Calibration(frontier, delta, binding, tuple(tried))


def wire_bytes(table: Mechanism) -> int:
    """Bytes of a table's file as clients need it, without notes of how long it took."""
    return len(encode(table.with_facts(stages=(), details={}), losses=False))


def _whole(problem: Problem, search: SearchSpace, options: PandaOptions) -> Trial:
    """Everybody fetches one table and spends all of epsilon on the report."""
    table = options.short_table(problem)
    size = wire_bytes(table)
    most = search.most_bytes
    if most is not None and size > most:
        return Trial(None, 0.0, failure="bytes", excess=size / most)
    return Trial(None, 0.0, download=size, loss=table.loss)


def _balls(problem: Problem, search: SearchSpace, options: PandaOptions) -> Iterator[Trial]:
    """Balls by the share of epsilon for the centre, and how often they leave their record out."""
    for share in sorted(set(search.centre_shares)):
        spent = share * problem.epsilon
        most = search.most_selection_epsilon
        first = BallAnchors(spent).scheme(problem, 0.0, options)
        for missed in MISSED if most is None or spent <= most else MISSED[:1]:
            selection = BallAnchors(spent, radius_for(spent, missed))
            scheme = selection.scheme(problem, 0.0, options).holding(mechanism=first.mechanism)
            yield _weigh(scheme, spent, search)


def _coins(
    problem: Problem, rungs: Sequence[float], search: SearchSpace, options: PandaOptions
) -> Iterator[Trial]:
    """Selections with a decay, for every delta; what costs too much does so at any."""
    domain = problem.domain
    size = problem.size
    few = size <= FEW
    counts = search.counts(size)
    rates = search.rates or ((0.5, 0.1, 0.01) if few else (0.1,))
    radii = [domain.diameter / part for part in ((50, 10, 1) if few else (50,))]
    some = counts if few else counts[-1:]
    sets = [spread_out(domain, count) if count < size else None for count in some]

    def decaying(alpha: float) -> list[BernoulliAnchors]:
        every = product(search.decays, rates, radii, sets)
        return [
            BernoulliAnchors(decay, alpha, rate, radius, candidates=some, neighbours=size)
            for decay, rate, radius, some in every
        ]

    usual = decaying(0.95)
    for rung in rungs:
        dear = []
        for selection in usual + decaying(1 - rung / 4):
            trial = _toss(selection.scheme(problem, rung, options), search)
            dear += [selection] if trial.failure == "cost" else []
            yield trial
        usual = [selection for selection in usual if selection not in dear]


def _toss(scheme: CoinScheme, search: SearchSpace) -> Trial:
    """A selection with a decay: what cannot fit is seen before budgets are computed."""
    limits = (
        ("cost", scheme.selection_epsilon, scheme.problem.epsilon),
        ("size", scheme.problem.size, MOST_RECORDS),
        ("size", len(scheme.law.all_rows.anchor) ** 2, MARGIN_WORK),
    )
    return _weigh(scheme, scheme.selection_epsilon, search, *limits)


def _weigh(
    scheme: Scheme, cost: float, search: SearchSpace, *limits: tuple[str, float, float]
) -> Trial:
    """A trial: limits, then the certificate, then the loss; the first that is exceeded ends it."""

    def conditions() -> Iterator[tuple[str, float, float | None]]:
        yield from limits
        yield "upload", cost, search.most_selection_epsilon
        if scheme.failure is not None:
            yield "surrogates", scheme.failure.value, scheme.failure.limit
        yield "bytes", PandaTable(scheme).download, search.most_bytes

    value: float = 0
    for name, value, limit in conditions():
        if limit is not None and value > limit:
            excess = value / limit if limit > 0 else np.inf
            return Trial(scheme.selection, cost, scheme.delta, failure=name, excess=excess)
    return Trial(scheme.selection, cost, scheme.delta, int(value), scheme.expected_loss)


def _frontier(trials: Sequence[Trial]) -> tuple[Trial, ...]:
    """Trials that no other beats in loss, bytes and what the upload tells; by loss."""
    # Settings that come to the same are one: the first.
    worth = {
        (float(trial.loss or 0.0), trial.download, trial.selection_epsilon): trial
        for trial in reversed(trials)
    }
    values = np.array(sorted(worth)).reshape(-1, 3)
    beaten = (values[:, None] >= values).all(axis=2).sum(axis=1) > 1
    return tuple(worth[tuple(row)] for row in values[~beaten].tolist())


def _binding(problem: Problem, delta: float, tried: Sequence[Trial]) -> str:
    """In words: which condition comes nearest to being met, and by how much it is missed."""
    if any(trial.fits for trial in tried):
        return (
            "fetch the whole table, without any Phase I: of what keeps these limits nothing loses "
            f"less. {_CALL}"
        )
    nearest = min(tried, key=lambda trial: trial.excess)
    counts = Counter(trial.failure for trial in tried)
    words = {
        "cost": f"Phase I costs more than epsilon = {problem.epsilon:g}",
        "surrogates": f"surrogates of one set differ too much, more often than delta = {delta:g}",
        "bytes": "more bytes than most_bytes allows",
        "upload": "the upload tells more than most_selection_epsilon allows",
        "size": "too many records or near candidates for an account of all pairs",
    }
    said = "; ".join(f"{words[reason]} ({n} of {len(tried)})" for reason, n in counts.items())
    return (
        f"{said}. Nearest: {nearest}, which exceeds '{nearest.failure}' by a factor "
        f"{nearest.excess:.3g}. {_CALL}"
    )
