"""PAnDA beside methods that give one table: what one user's two phases cost and keep."""

from __future__ import annotations

from dataclasses import dataclass

from panda_mdp.base.arrays import FloatArray
from panda_mdp.errors import MethodError
from panda_mdp.panda.options import Options
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.panda.schemes.ball_scheme import BallScheme
from panda_mdp.panda.selection.ball import BallAnchors
from panda_mdp.panda.selection.bernoulli import BernoulliAnchors, Decay
from panda_mdp.panda.selection.candidates import spread_out
from panda_mdp.problem import Problem

CENTRE_SHARE = 0.3
"""Share of epsilon that the centre of a ball may tell."""
GAP = 0.02
CENTRES = 400
"""Public centres of balls. With 1,000 a user downloads 65 % of the demo's table instead of 69 %,
and choosing their law takes four times as long."""


@dataclass(frozen=True, eq=False)
class Phases:
    """What both phases give: no single table of records, so no attacker's figures."""

    loss: float
    """Expected, over the prior, the draws and the reports."""
    audited_epsilon: float
    holds: bool
    note: str
    marginal: FloatArray
    """Pr[report | record], both phases summed: for pictures, it has no file of its own."""

    @classmethod
    def of(cls, table: PandaTable) -> Phases:
        """What a table of PAnDA keeps and costs; it exists only where its guarantee holds."""
        note = (
            f"epsilon holds but for delta {table.delta:g}; a user downloads "
            f"{table.download:.0%} of the table"
        )
        return cls(table.loss, _audited(table), holds=True, note=note, marginal=table.marginal)


def panda_ball(
    problem: Problem, time_limit: float | None = None, delta: float = 1e-2
) -> PandaTable:
    """Both phases with balls: a private centre, the ball's rows, a report from the own row."""
    options = Options(gap=GAP, time_limit=time_limit)
    centres = spread_out(problem.domain, min(problem.size, CENTRES))
    selection = BallAnchors(CENTRE_SHARE * problem.epsilon, candidates=centres)
    return PandaTable.of(selection.scheme(problem, delta, options))


def panda_candidates(
    problem: Problem, time_limit: float | None = None, delta: float = 1e-7
) -> PandaTable:
    """Both phases with a public quarter of the records as anchors of everybody."""
    count = max(1, problem.size // 4)
    selection = BernoulliAnchors.alike(problem.domain, count, delta, problem)
    options = Options(gap=GAP, time_limit=time_limit)
    return PandaTable.of(selection.scheme(problem, delta, options))


def panda_decay(
    problem: Problem,
    time_limit: float | None = None,
    delta: float = 1e-7,
    decay: Decay = "logistic",
) -> PandaTable:
    """Both phases with one of the paper's decays and everything accounted for: mostly refused."""
    options = Options(gap=GAP, time_limit=time_limit)
    scheme = BernoulliAnchors(decay).scheme(problem, delta, options)
    if scheme.failure is not None:
        msg = (
            f"does not fit: {str(scheme.failure).split('. ')[0]}; `panda`, with balls, or "
            "`panda_candidates` fit"
        )
        raise MethodError(msg)
    return PandaTable.of(scheme)


def _audited(table: PandaTable) -> float:
    if isinstance(table.scheme, BallScheme):
        return table.selection_epsilon + table.scheme.mechanism.audit.epsilon
    return table.epsilon
