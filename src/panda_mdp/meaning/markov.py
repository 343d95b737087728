"""An attacker who knows how people move: a Markov model, forward-backward and Viterbi."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray, IntArray, frozen
from panda_mdp.errors import MethodError
from panda_mdp.meaning.attack import columns_of
from panda_mdp.space.domain import Domain, check_indices
from panda_mdp.table.mechanism import Table


@dataclass(frozen=True, eq=False)
class Movement:
    """A Markov chain over records: where a trace starts, (K,), and where it goes, (K, K)."""

    start: FloatArray
    steps: FloatArray

    def __post_init__(self) -> None:
        start = np.asarray(self.start, dtype=np.float64)
        steps = np.asarray(self.steps, dtype=np.float64)
        size = start.size
        if start.shape != (size,) or size == 0 or steps.shape != (size, size):
            msg = (
                f"start has shape {start.shape} and steps {steps.shape}; give one probability per "
                "record, (K,), and one row of them per record, (K, K)"
            )
            raise MethodError(msg)
        rows = np.vstack([start, steps])
        if not ((rows >= 0).all() and np.allclose(rows.sum(axis=1), 1.0, rtol=0, atol=1e-9)):
            msg = "start and every row of steps must be probabilities: not negative, with sum 1"
            raise MethodError(msg)
        object.__setattr__(self, "start", frozen(start))
        object.__setattr__(self, "steps", frozen(steps))

    def __repr__(self) -> str:
        return f"Movement({len(self.start)} records)"

    @classmethod
    def learn(
        cls, traces: Iterable[npt.ArrayLike], size: int, *, smoothing: float = 0.05
    ) -> Movement:
        """The chain of some traces (records in time), what an attacker learns from past data.

        Each row mixes the counts of the traces with a share `smoothing` of their visits (and of
        the uniform distribution where a record has no successor), so no step is impossible.
        """
        if not 0 < smoothing <= 1:
            msg = f"smoothing is {smoothing!r}; it is a share in (0, 1]"
            raise MethodError(msg)
        visits, first, moves = np.zeros(size), np.zeros(size), np.zeros((size, size))
        for trace in traces:
            records = check_indices(trace, size, "records")
            if len(records):
                first[records[0]] += 1
                np.add.at(visits, records, 1.0)
                np.add.at(moves, (records[:-1], records[1:]), 1.0)
        if visits.sum() == 0:
            msg = "there are no records in the traces; give at least one"
            raise MethodError(msg)
        common = 0.5 * visits / visits.sum() + 0.5 / size
        seen = moves.sum(axis=1, keepdims=True)
        learnt = np.where(seen > 0, moves / np.maximum(seen, 1), common)
        steps = (1 - smoothing) * learnt + smoothing * common
        start = (1 - smoothing) * first / first.sum() + smoothing * common
        return cls(start / start.sum(), steps / steps.sum(axis=1, keepdims=True))


def forward_backward(movement: Movement, table: Table, reports: npt.ArrayLike) -> FloatArray:
    """p(record at t | all reports), (T, K), for reports as output indices into the domain.

    The smoothing recursions of hidden Markov models (Rabiner 1989; for locations Shokri et al.,
    S&P 2011), scaled at every step.
    """
    return smooth(movement, _likelihoods(table, reports))


def smooth(movement: Movement, seen: FloatArray) -> FloatArray:
    """The same from the likelihood of what was seen at t for every record, (T, K), whatever was
    seen: a report, an exact place, or that there was none (a row of ones says nothing)."""
    seen = _seen(movement, seen)
    count, size = seen.shape
    forward, backward = np.empty((count, size)), np.ones((count, size))
    belief = movement.start
    for t in range(count):
        joint = belief * seen[t]
        forward[t] = joint / _total(joint)
        belief = forward[t] @ movement.steps
    for t in range(count - 2, -1, -1):
        ahead = movement.steps @ (seen[t + 1] * backward[t + 1])
        backward[t] = ahead / ahead.sum()
    both = forward * backward
    return np.asarray(both / both.sum(axis=1, keepdims=True))


def viterbi(movement: Movement, table: Table, reports: npt.ArrayLike) -> IntArray:
    """The most likely trace given all reports, (T,)."""
    return likeliest(movement, _likelihoods(table, reports))


def likeliest(movement: Movement, seen: FloatArray) -> IntArray:
    """The same from likelihoods, (T, K), as in `smooth`."""
    seen = _seen(movement, seen)
    with np.errstate(divide="ignore"):
        logs = np.log(seen)
        steps, best = np.log(movement.steps), np.log(movement.start) + logs[0]
    back = np.zeros(seen.shape, dtype=np.int64)
    for t in range(1, len(seen)):
        through = best[:, None] + steps
        back[t] = through.argmax(axis=0)
        best = through.max(axis=0) + logs[t]
    if not np.isfinite(best.max()):
        _total(np.zeros(1))
    path = [int(best.argmax())]
    for t in range(len(seen) - 1, 0, -1):
        path.append(int(back[t, path[-1]]))
    return np.array(path[::-1], dtype=np.int64)


@dataclass(frozen=True)
class Tracked:
    """How well traces were followed, as means over all their steps."""

    error: float
    """Distance between the record and the best guess of its place (forward-backward)."""
    right: float
    """How often the likeliest record is the true one (forward-backward)."""
    path_error: float
    """Distance between the record and that of the most likely trace (Viterbi)."""
    steps: int


def track(
    movement: Movement,
    table: Table,
    traces: Iterable[npt.ArrayLike],
    *,
    seed: int = 0,
) -> Tracked:
    """Follow traces through reports that are drawn from the table, one per step, with `seed`.

    For study on public or made-up traces: the draws are predictable.
    """
    simulation = table.simulate(seed)
    domain = table.problem.domain
    off, right, path_off = [], [], []
    for trace in traces:
        records = check_indices(trace, domain.size, "records")
        reports = np.array([simulation.sample(int(record)) for record in records])
        belief = forward_backward(movement, table, reports)
        guess = best_places(domain, belief)
        path = viterbi(movement, table, reports)
        off.append(domain.metric.pairs(guess, records))
        path_off.append(domain.metric.pairs(path, records))
        right.append(belief.argmax(axis=1) == records)
    if not off:
        msg = "there are no traces to follow; give at least one"
        raise MethodError(msg)
    errors = np.concatenate(off)
    return Tracked(
        float(errors.mean()),
        float(np.concatenate(right).mean()),
        float(np.concatenate(path_off).mean()),
        len(errors),
    )


def best_places(domain: Domain, belief: FloatArray) -> IntArray:
    """The record of least expected distance under each belief, (T,)."""
    return np.asarray((belief @ domain.distances()).argmin(axis=1), dtype=np.int64)


def _likelihoods(table: Table, reports: npt.ArrayLike) -> FloatArray:
    """z(report | record) for every report, (T, K)."""
    return np.asarray(table.matrix.T[columns_of(table.problem, reports)])


def _seen(movement: Movement, seen: FloatArray) -> FloatArray:
    """The likelihoods, where they are some for every record that moves."""
    likely = np.asarray(seen, dtype=np.float64)
    size = len(movement.start)
    if likely.ndim != 2 or len(likely) == 0 or likely.shape[1] != size:
        msg = (
            f"the likelihoods have shape {likely.shape}; give one row of {size} per report, one "
            "number for each record of the movement, and at least one report"
        )
        raise MethodError(msg)
    if not (np.isfinite(likely) & (likely >= 0)).all():
        msg = "likelihoods are finite and not negative"
        raise MethodError(msg)
    return likely


def _total(joint: FloatArray) -> float:
    total = float(joint.sum())
    if total <= 0:
        msg = "these reports are impossible under this table and movement; raise the smoothing"
        raise MethodError(msg)
    return total
