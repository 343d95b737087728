"""What users who upload adversarial anchors can do to the others: a bound that no upload exceeds.

Nobody's guarantee depends on what others upload: budgets are fixed before anybody draws, every
table keeps them, and the certificate asks for no more. The loss may. Let H be the anchors of the
honest users, M what the others add, p the weights of anchors, c_a the losses of anchor a, z* the
public table over all candidates. AnPO minimises the sum over H + M of p_a c_a z_a, and z* is
feasible for it, because all candidates constrain it. A table within a gap g of the least then has

    sum_H p_a c_a z_a  <=  (1 + g) sum_{H + M} p_a c_a z*_a  -  sum_M p_a min_y c_a(y),

and every term of M adds to the right-hand side, so M = all other candidates bounds every adversary.
With a public table, tables for each user, or balls, no upload changes anybody's row at all.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from panda_mdp.errors import MethodError
from panda_mdp.panda.result import PandaRun
from panda_mdp.panda.schemes.coin_scheme import CoinScheme
from panda_mdp.panda.schemes.scheme import mean_loss


def manipulation_bound(run: PandaRun, honest: Sequence[int]) -> float:
    """The largest mean loss over honest users' anchors, whatever anybody else uploads.

    `honest` are positions of users. The mean is over the union of their anchors, weights and losses
    being AnPO's: those of Eq. 42, or of the records behind them (`weights="surrogate"`). Holds
    for runs whose table reached the gap that was asked for; where uploads have no influence it is
    the loss itself.

    >>> import panda_mdp as pm
    >>> domain = pm.Domain.from_vectors([[0.0], [1.0], [2.0], [3.0]])
    >>> problem = pm.Problem(domain, [0, 3], domain.distances(None, [0, 3]), epsilon=2.0)
    >>> alike = pm.BernoulliAnchors("exponential", 1 - 1e-3, 0.0, 1.0)
    >>> run = pm.panda(problem, [1, 2], alike, delta=0.01, pairs="public", seed=1)
    >>> bool(manipulation_bound(run, [0]) < 2.0)
    True
    """
    if len(honest) == 0:
        msg = "honest is empty; name the position of at least one honest user"
        raise MethodError(msg)
    own = np.unique(np.concatenate([run.anchor_sets[n] for n in honest]))
    scheme, problem = run.scheme, run.problem
    if not isinstance(scheme, CoinScheme) or scheme.options.pairs == "public":
        return mean_loss(problem, run.tables[0], own)
    if scheme.options.pairs == "own":
        each = [mean_loss(problem, run.tables[n], run.anchor_sets[n]) for n in honest]
        return float(np.mean(each))
    public, gap = scheme.whole_table(), scheme.options.gap
    weights, losses = scheme.objective(public.anchors)
    spent = (losses * public.rows(public.anchors)).sum(axis=1)
    others = ~np.isin(public.anchors, own)
    worst = (1 + gap) * float(weights @ spent) - float(weights @ (losses.min(axis=1) * others))
    total = float(weights[~others].sum())
    return worst / total if total > 0 else float(losses.max())
