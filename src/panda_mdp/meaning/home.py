"""Home and work from a month of reports: where somebody is at night, and by day."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray
from panda_mdp.errors import MethodError
from panda_mdp.meaning.attack import checked_prior, columns_of
from panda_mdp.prior import Prior
from panda_mdp.space.domain import Domain
from panda_mdp.table.mechanism import Table

AWAY = 0.2


@dataclass(frozen=True, eq=False)
class Zone:
    """What an attacker believes of an anchor place. For a real person this is as secret as it is.

    `belief` is the posterior over the records, (K,); `share` of it lies within `radius` of `place`.
    """

    belief: FloatArray
    place: int
    radius: float
    share: float

    def __repr__(self) -> str:
        return "Zone(<hidden>)"


def locate_anchor(
    table: Table,
    reports: npt.ArrayLike,
    *,
    prior: Prior | npt.ArrayLike | None = None,
    away: float = AWAY,
    share: float = 0.9,
) -> Zone:
    """Where an anchor (home, work) lies, from reports at the hours that somebody is there.

    Each report is of the anchor with probability 1 - `away`, else of a record drawn from the prior:

        p(a | reports)  proportional to  p_a product over reports of
                        ((1 - away) z(y|a) + away sum_x p_x z(y|x)).

    Independent reports let it sharpen without end; a report that is memoised counts once, so hand
    in distinct draws only. The zone is the disc around the best guess that holds `share` of belief.
    """
    if not (0 <= away < 1 and 0 < share <= 1):
        msg = f"away is {away!r} and share {share!r}; give away in [0, 1) and share in (0, 1]"
        raise MethodError(msg)
    problem = table.problem
    weights, _ = checked_prior(problem, prior)
    named = columns_of(problem, reports)
    matrix = table.matrix
    likely = (1 - away) * matrix + away * (weights @ matrix)
    with np.errstate(divide="ignore"):
        logs = np.log(weights) + np.log(likely)[:, named].sum(axis=1)
    if not np.isfinite(logs.max()):
        msg = "no record that the prior knows gives these reports; give the prior more support"
        raise MethodError(msg)
    belief = np.exp(logs - logs.max())
    belief /= belief.sum()
    return _zone(problem.domain, belief, share)


def _zone(domain: Domain, belief: FloatArray, share: float) -> Zone:
    place = int((belief @ domain.distances()).argmin())
    distance = domain.distances([place], None)[0]
    order = np.argsort(distance, kind="stable")
    reached = np.cumsum(belief[order])
    radius = float(distance[order][min(int(np.searchsorted(reached, share)), len(order) - 1)])
    return Zone(belief, place, radius, float(belief[distance <= radius].sum()))
