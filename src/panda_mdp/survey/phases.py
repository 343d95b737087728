"""PAnDA beside methods that give one table: what one user's two phases cost and keep."""

from __future__ import annotations

from dataclasses import dataclass

from panda_mdp.errors import MethodError
from panda_mdp.panda.options import Options
from panda_mdp.panda.schemes.scheme import Scheme
from panda_mdp.panda.selection.ball import BallAnchors
from panda_mdp.panda.selection.bernoulli import BernoulliAnchors
from panda_mdp.problem import Problem

CENTRE_SHARE = 0.3
"""Share of epsilon that the centre of a ball may tell."""
GAP = 0.02


@dataclass(frozen=True)
class Phases:
    """What a scheme gives: no single table, so neither weights nor an attacker's figures."""

    loss: float
    """Expected, over the prior, the draws and the reports."""
    audited_epsilon: float
    holds: bool
    note: str


def panda_ball(problem: Problem, time_limit: float | None = None, delta: float = 1e-2) -> Phases:
    """Both phases with balls: a private centre, the ball's rows, a report from the own row."""
    options = Options(gap=GAP, time_limit=time_limit)
    scheme = BallAnchors(CENTRE_SHARE * problem.epsilon).scheme(problem, delta, options)
    return _measured(scheme, scheme.law.mechanism.audit.epsilon + scheme.mechanism.audit.epsilon)


def panda_candidates(
    problem: Problem, time_limit: float | None = None, delta: float = 1e-7
) -> Phases:
    """Both phases with a public quarter of the records as anchors of everybody."""
    count = max(1, problem.size // 4)
    selection = BernoulliAnchors.alike(problem.domain, count, delta)
    options = Options(gap=GAP, time_limit=time_limit)
    return _measured(selection.scheme(problem, delta, options), problem.epsilon)


def panda_logistic(
    problem: Problem, time_limit: float | None = None, delta: float = 1e-7
) -> Phases:
    """Both phases with the paper's gentlest decay and everything accounted for: mostly refused."""
    options = Options(gap=GAP, time_limit=time_limit)
    scheme = BernoulliAnchors("logistic").scheme(problem, delta, options)
    if scheme.failure is not None:
        msg = f"does not fit: {str(scheme.failure).split('. ')[0]}"
        raise MethodError(msg)
    return _measured(scheme, problem.epsilon)


def _measured(scheme: Scheme, epsilon: float) -> Phases:
    account = scheme.account()
    holds = account is not None and account.violation <= scheme.delta
    share = scheme.expected_anchors / scheme.problem.size
    note = (
        f"epsilon holds but for delta {scheme.delta:g}; a user downloads {share:.0%} of the table"
    )
    return Phases(scheme.expected_loss(), epsilon, holds, note if holds else "no guarantee")
