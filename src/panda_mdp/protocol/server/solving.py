"""What the server computes for balls and anchors, from public inputs and uploaded sets alone.

No function here takes a record. `pm.panda` simulates users and needs theirs; a server has anchor
sets only, and the table depends on nothing else. Runs in worker processes.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.base.floored import FlooredRows
from panda_mdp.errors import EmptyAnchorsError, MethodError, ProblemError
from panda_mdp.loss import distance_loss
from panda_mdp.panda.anpo import AnchorTable
from panda_mdp.panda.options import Options
from panda_mdp.panda.schemes.coin_scheme import CoinScheme
from panda_mdp.panda.schemes.scheme import mean_loss
from panda_mdp.panda.selection.ball import BallAnchors
from panda_mdp.panda.selection.bernoulli import BernoulliAnchors
from panda_mdp.panda.selection.centres import BallLaw
from panda_mdp.panda.selection.law import surrogates
from panda_mdp.panda.simulate.users import Screen, distance_screen, median_screen
from panda_mdp.problem import Problem
from panda_mdp.protocol.messages.balls import pack_rows
from panda_mdp.protocol.messages.catalogue import DistanceLoss, Loss, MatrixLoss
from panda_mdp.protocol.messages.deployments import AnchorsDeploymentRequest
from panda_mdp.protocol.messages.signing import rows_digest
from panda_mdp.protocol.server.store.catalogue import read_table
from panda_mdp.space.domain import Domain, check_indices
from panda_mdp.table.pmdc.codec import Rows
from panda_mdp.table.pmdc.compact import CompactTable

NEAREST_SLACK = {"matrix": 4e-9}
"""How far d(x, s(x')) <= 2 d(x, x') may be off, relatively: see `panda.schemes.ball_scheme`."""
SOLVE_SECONDS = 600.0
ROUND_GAP = 0.01


def loss_table(domain: Domain, outputs: list[int], loss: Loss) -> FloatArray:
    """Losses as a table, K x m."""
    if isinstance(loss, DistanceLoss):
        return np.asarray(distance_loss(domain, outputs))
    return _rectangular(loss)


def _rectangular(loss: MatrixLoss) -> FloatArray:
    if len({len(row) for row in loss.values}) > 1:
        msg = "loss.values has rows of different lengths; give records x outputs"
        raise ProblemError(msg)
    return np.asarray(loss.values, dtype=np.float64)


# Balls


def ball_facts(
    file: bytes, epsilon_1: float, delta: float, candidates: list[int] | None
) -> dict[str, Any]:
    """What a ball deployment promises with a table: (epsilon_1 + 2 epsilon_2, delta).

    The factor 2 is the triangle inequality of the nearest record inside; where rounding could make
    it more, the audited epsilon of the table, which is a little below the claimed one, pays.
    """
    table = read_table(file)
    law = _balls(epsilon_1, delta, candidates).on(table.domain)
    slack = NEAREST_SLACK.get(table.domain.metric.kind, 1e-12)
    exact = epsilon_1 + 2 * table.audit.epsilon * (1 + slack)
    return {
        "epsilon": max(exact, epsilon_1 + 2 * table.epsilon),
        "delta": delta,
        "unit": table.domain.unit,
        "radius": law.radius,
        "centres": law.centres.tolist(),
    }


def ball_rows(
    file: bytes, epsilon_1: float, delta: float, candidates: list[int] | None, centre: int
) -> tuple[list[int], list[int], list[list[str]]]:
    """Records of the ball around a centre, outputs, and the records' weights."""
    chosen = None if candidates is None else tuple(candidates)
    outputs, table, law = _ball_law(file, epsilon_1, delta, chosen)
    place = np.flatnonzero(law.centres == centre)
    if len(place) == 0:
        msg = "the centre is not one of the public centres of this deployment"
        raise MethodError(msg)
    records = law.ball(int(place[0]))
    return records.tolist(), outputs, decimal_rows(table[records])


def compact_ball(
    file: bytes, epsilon_1: float, delta: float, candidates: list[int] | None, centre: int
) -> dict[str, Any]:
    """The ball around a centre in blocks cut from the compact table, and what its signature is
    over. The centre is one of the public ones."""
    chosen = None if candidates is None else tuple(candidates)
    outputs, _, law = _ball_law(file, epsilon_1, delta, chosen)
    records = np.sort(law.ball(int(np.flatnonzero(law.centres == centre)[0])))
    everything, floors = _stored_rows(file)
    rows = everything.take(records)
    order, blocks = pack_rows(law.domain, records, rows, floors)
    weights = decimal_rows(rows.weights)
    return {
        "records": order,
        "outputs": outputs,
        "floors": [str(floor) for floor in floors.tolist()],
        "blocks": blocks,
        "digest": rows_digest("records", records.tolist(), outputs, weights),
    }


@lru_cache(maxsize=4)
def _stored_rows(file: bytes) -> tuple[Rows, IntArray]:
    table = _table(file)
    return table.rows(np.arange(table.domain.size))


@lru_cache(maxsize=4)
def _table(file: bytes) -> CompactTable:
    return read_table(file)


@lru_cache(maxsize=4)
def _ball_law(
    file: bytes, epsilon_1: float, delta: float, candidates: tuple[int, ...] | None
) -> tuple[list[int], IntArray | FlooredRows, BallLaw]:
    """Outputs, rows and centres: reading and auditing takes longer than cutting many balls."""
    table = _table(file)
    chosen = None if candidates is None else list(candidates)
    law = _balls(epsilon_1, delta, chosen).on(table.domain)
    return table.outputs.tolist(), table.weights(), law


def _balls(epsilon_1: float, delta: float, candidates: list[int] | None) -> BallAnchors:
    chosen = None if candidates is None else np.array(candidates, dtype=np.int64)
    # Clients compute the law for themselves, on any machine: the one that needs no fit.
    return BallAnchors(epsilon_1, delta, chosen, centre="exponential")


def decimal_rows(weights: IntArray) -> list[list[str]]:
    """Weights as they travel."""
    return [[str(value) for value in row] for row in weights.tolist()]


# Anchors


@dataclass(frozen=True, eq=False)
class AnchorsTask:
    """An anchors deployment as a problem with its Phase I."""

    problem: Problem
    selection: BernoulliAnchors
    delta: float
    options: Options
    screen: Screen | None

    @classmethod
    def of(cls, request: AnchorsDeploymentRequest, domain: Domain) -> AnchorsTask:
        """The task of a request; raises where its parts do not fit each other."""
        chosen = request.selection
        candidates = None
        if chosen.candidates is not None:
            candidates = check_indices(
                chosen.candidates, domain.size, "selection.candidates", MethodError
            )
        selection = BernoulliAnchors(
            chosen.decay,
            chosen.alpha,
            chosen.rate,
            chosen.radius,
            chosen.tail,
            candidates,
            chosen.neighbours,
        )
        losses = loss_table(domain, request.outputs, request.loss)
        return cls(
            problem=Problem(domain, np.array(request.outputs), losses, request.epsilon),
            selection=selection,
            delta=request.delta,
            options=Options(
                neighbours=chosen.neighbours,
                delta_selection=chosen.delta_selection,
                gap=ROUND_GAP,
                time_limit=SOLVE_SECONDS,
            ),
            screen=_screen(request),
        )

    def scheme(self) -> CoinScheme:
        """What can be proved before anybody uploads, for every set that anybody may draw."""
        return self.selection.scheme(self.problem, self.delta, self.options)

    def facts(self, scheme: CoinScheme) -> dict[str, Any]:
        """The scheme in plain values: a guarantee, or the reasons why there is none."""
        failure, cost = scheme.failure, scheme.conditions.cost.rate
        promised = None if failure is not None else asdict(scheme.guarantee)
        violation = min(1.0, scheme.certificate.violation) if scheme.affordable else None
        return {
            "guarantee": promised,
            "reasons": [] if failure is None else [str(failure)[:1_900]],
            "violation": violation,
            "phase_one_epsilon": cost if np.isfinite(cost) else None,
        }


def _screen(request: AnchorsDeploymentRequest) -> Screen | None:
    if request.screen == "none":
        return None
    if request.screen == "median":
        return median_screen(request.screen_limit or 5.0)
    if request.screen_limit is None:
        msg = "screen 'distance' needs screen_limit, the farthest an anchor may be from the middle"
        raise MethodError(msg)
    return distance_screen(request.screen_limit)


@dataclass(frozen=True, eq=False)
class Solution:
    """The table of a round: rows of the union's anchors, as integers that sum to 2^62."""

    anchors: IntArray
    row: IntArray
    """The row of `weights` that belongs to each anchor."""
    weights: IntArray
    outputs: IntArray

    def rows(self, anchors: IntArray) -> IntArray:
        """The weights of some anchors, in their order."""
        return np.asarray(self.weights[self.row[np.searchsorted(self.anchors, anchors)]])

    def start(self, domain: Domain, anchors: IntArray) -> FloatArray:
        """Rows to begin the next round with: the nearest known anchor's."""
        nearest = surrogates(domain, self.anchors, anchors)
        return np.asarray(self.weights[self.row[nearest]] / 2.0**62)


@dataclass(frozen=True, eq=False)
class Solved:
    """A round's outcome."""

    solution: Solution
    admitted: BoolArray
    """Which of the uploads entered the union."""
    plan: dict[str, Any]


def solve_round(
    task: AnchorsTask, sets: tuple[IntArray, ...], previous: Solution | None = None
) -> Solved:
    """AnPO over the union of the sets that the screen lets through.

    Budgets depend on no upload, so whatever somebody uploads changes nobody else's guarantee. A
    user without anchors takes part without rows.
    """
    admitted = np.ones(len(sets), dtype=bool)
    filled = np.array([len(chosen) > 0 for chosen in sets], dtype=bool)
    if task.screen is not None and filled.any():
        some = tuple(chosen for chosen in sets if len(chosen))
        admitted[filled] = task.screen(task.problem.domain, some)
    entering = [chosen for chosen, keep in zip(sets, admitted & filled, strict=True) if keep]
    if not entering:
        msg = "no anchors entered this round: nobody uploaded any, or the screen left all out"
        raise EmptyAnchorsError(msg, value=0.0, limit=1.0)
    problem, scheme = task.problem, task.scheme()
    union = np.unique(np.concatenate(entering))
    start = None if previous is None else lambda some: previous.start(problem.domain, some)
    tables = scheme.solve((union,), start)
    facts = task.facts(scheme) | {
        "anchors": len(union),
        "loss": mean_loss(problem, tables[0], union),
        "lower_bound": scheme.lower_bound(tables, union),
    }
    return Solved(_solution(problem, tables[0]), admitted, facts)


def _solution(problem: Problem, table: AnchorTable) -> Solution:
    used = int(table.row.max()) + 1
    return Solution(table.anchors, table.row, table.mechanism.weights[:used], problem.outputs)
