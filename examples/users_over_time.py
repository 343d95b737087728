"""Users of PAnDA over time, simulated: joining, leaving, manipulating, moving (section 3.1).

    python examples/users_over_time.py [FOLDER]

Draws what honest users lose while others come, go and upload forged anchors
(users_over_time.png). Take the functions for studies of your own.

Nobody's guarantee depends on what others upload: budgets are fixed before anybody draws, every
table keeps them, and the certificate asks for no more. The loss may. Let H be the anchors of the
honest users, M what the others add, p the weights of anchors, c_a the losses of anchor a, z* the
public table over all candidates. AnPO minimises the sum over H + M of p_a c_a z_a, and z* is
feasible for it, because all candidates constrain it. A table within a gap g of the least then has

    sum_H p_a c_a z_a  <=  (1 + g) sum_{H + M} p_a c_a z*_a  -  sum_M p_a min_y c_a(y),

and every term of M adds to the right-hand side, so M = all other candidates bounds every adversary.
With a public table or balls, no upload changes anybody's row at all.

Two sequences x, x' of records release the same sets and reports with a log-ratio of at most
sum_t epsilon_t d(x_t, x'_t), epsilon_t the cost of step t. Hence (sum of the epsilon_t) times the
largest distance, and (the largest epsilon_t) times the sum of the distances; deltas add. Anchors
are drawn anew at every step: a set that is reused or extended was drawn for another record, so
nothing is promised, and a user who redraws because the record left the anchors' region tells just
that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

import panda_mdp as pm
from panda_mdp import plot
from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.errors import MethodError
from panda_mdp.panda.run import PandaResult, PandaRun
from panda_mdp.panda.selection import check_users, mean_loss, source_of
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.space.domain import Domain, check_indices

R = TypeVar("R", bound=PandaRun)
Screen = Callable[[Domain, tuple[IntArray, ...]], BoolArray]


def reoptimise(
    run: R,
    *,
    join: npt.ArrayLike = (),
    leave: npt.ArrayLike = (),
    upload: Mapping[int, npt.ArrayLike] | None = None,
    screen: Screen | None = None,
    seed: int | None = None,
) -> R:
    """The run after some users left or fell silent and others joined.

    `join` are true records of new users (simulation only), who draw anchors; `leave` are positions
    of users who are gone or did not answer. Those who stay keep their anchors, so Phase I costs
    them nothing more. The table is optimised again over the new union; with balls it stays as it
    is, since it serves everyone.

    `upload` replaces what users (by position) upload, as a manipulating user would; `screen` is
    the server's filter, which decides from the uploads alone whose anchors enter the union
    (`median_screen`, `distance_screen`). Whoever is screened out is treated as not answering.
    Neither changes anybody else's guarantee: budgets depend on no upload. What it may cost the
    others is at most `manipulation_bound`.
    """
    scheme, bits, sets = run.scheme, source_of(seed), dict(enumerate(run.releases))
    for position, anchors in (upload or {}).items():
        check_indices([position], run.users, "users", MethodError)
        if not isinstance(scheme.selection, pm.BernoulliAnchors):
            raise MethodError("a ball is one of a public list; its table is public, and stays")
        sets[position] = scheme.law.check(anchors)
    gone = np.asarray(leave, dtype=np.int64).ravel()
    for departed in check_indices(gone, run.users, "users", MethodError).tolist():
        sets.pop(departed, None)
    fresh = np.asarray(join)
    fresh = check_users(fresh, run.problem.size) if fresh.size else np.empty(0, np.int64)
    staying = [*sets.values(), *(scheme.draw(int(record), bits) for record in fresh)]
    records = np.concatenate([run._records[list(sets)], fresh])
    if screen is not None:
        passed = screen(run.problem.domain, tuple(map(scheme.anchors, staying)))
        staying, records = [*compress(staying, passed)], records[passed]
    if not staying:
        raise MethodError("nobody is left; a run needs at least one user")
    seeded = run.seeded or seed is not None
    return type(run).over(scheme, records, tuple(staying), seeded=seeded)


def median_screen(factor: float = 5.0) -> Screen:
    """Keep users whose set is about as wide as others' (median-based filtering).

    The width of a set is its anchors' mean distance from its middle one; it may differ from the
    median over users by at most `factor` times the median difference (or a tenth of the median).
    """

    def screen(domain: Domain, sets: tuple[IntArray, ...]) -> BoolArray:
        widths = np.array([_distances_from_middle(domain, chosen).mean() for chosen in sets])
        middle = float(np.median(widths))
        usual = max(float(np.median(np.abs(widths - middle))), middle / 10)
        return np.asarray(np.abs(widths - middle) <= factor * usual)

    return screen


def distance_screen(limit: float, share: float = 0.0) -> Screen:
    """Keep users of whose anchors at most `share` lie beyond `limit` from their middle one.

    Distance-based outlier detection: independent selection with a small tail puts nearly all
    anchors within the radius of one record.
    """

    def screen(domain: Domain, sets: tuple[IntArray, ...]) -> BoolArray:
        beyond = [(_distances_from_middle(domain, chosen) > limit).mean() for chosen in sets]
        return np.asarray(np.array(beyond) <= share)

    return screen


def _distances_from_middle(domain: Domain, chosen: IntArray) -> FloatArray:
    """Distances of a set's anchors from the one with the least median distance to the others."""
    if len(chosen) == 0:
        return np.zeros(1)
    # A few hundred anchors are enough to find a middle.
    some = chosen[:: max(1, len(chosen) // 256)]
    distance = domain.distances(some, chosen)
    return np.asarray(distance[np.median(distance, axis=1).argmin()])


def manipulation_bound(run: PandaRun, honest: Sequence[int]) -> float:
    """The largest mean loss over honest users' anchors, whatever anybody else uploads.

    `honest` are positions of users. The mean is over the union of their anchors, weights and losses
    being AnPO's: those of Eq. 42, or of the records behind them (`weights="surrogate"`). Holds
    for runs whose table reached the gap that was asked for; where uploads have no influence it is
    the loss itself.
    """
    if len(honest) == 0:
        raise MethodError("honest is empty; name the position of at least one honest user")
    own = np.unique(np.concatenate([run.anchor_sets[n] for n in honest]))
    scheme, problem = run.scheme, run.problem
    if scheme.options.pairs == "public" or scheme.objective(own) is None:
        return mean_loss(problem, run.table, own)
    public = scheme.whole_table
    weights, losses = scheme.objective(public.anchors)
    spent = (losses * public.matrix).sum(axis=1)
    others = ~np.isin(public.anchors, own)
    worst = weights @ ((1 + scheme.options.gap) * spent - losses.min(axis=1) * others)
    total = float(weights[~others].sum())
    return float(worst) / total if total > 0 else float(losses.max())


@dataclass(frozen=True)
class Trajectory:
    """A sequence whose anchors are redrawn at every step, and what is promised for it."""

    steps: int
    step: Guarantee
    """Of one step: anchors and report."""

    @property
    def against_largest(self) -> Guarantee:
        """Per unit of the largest distance between the two sequences: costs add."""
        return Guarantee(self.steps * self.step.epsilon, self._delta, self.step.unit)

    @property
    def against_sum(self) -> Guarantee:
        """Per unit of the sum of distances along the sequences: the largest cost counts."""
        return Guarantee(self.step.epsilon, self._delta, self.step.unit)

    @property
    def _delta(self) -> float:
        return min(1.0, self.steps * self.step.delta)


def trajectory(run: PandaResult, records: npt.ArrayLike) -> Trajectory:
    """What is promised to a user who draws anew for each of a sequence of records.

    Every step costs the whole guarantee of the run.
    """
    return Trajectory(len(check_users(records, run.problem.size)), run.guarantee)


def main(out: Path = Path("out/examples"), records: int = 60, users: int = 8) -> Path:
    """Four rounds of the same users, and the bound that holds whatever is uploaded."""
    from matplotlib.figure import Figure

    out.mkdir(parents=True, exist_ok=True)
    domain = pm.synthetic_city(nodes=5000, seed=0).domain(records, seed=0)
    outputs = np.arange(0, records, 6)
    problem = pm.Problem(domain, outputs, domain.distances(None, outputs), epsilon=2.0)
    every_second = np.arange(0, records, 2)
    selection = pm.BernoulliAnchors(
        "exponential", 0.15, 0.0, 100.0, candidates=every_second, neighbours=len(every_second)
    )
    run = pm.study_panda(problem, range(users), selection, 0.01, seed=0)
    honest = range(1, users)
    anchors = np.unique(np.concatenate([run.anchor_sets[n] for n in honest]))
    rounds = {
        "as they are": run,
        "three join": reoptimise(run, join=range(records - 3, records), seed=1),
        "one uploads all": reoptimise(run, upload={0: every_second}),
        "one uploads\nthe farthest": reoptimise(run, upload={0: every_second[-3:]}),
    }
    losses = {name: mean_loss(problem, each.table, anchors) for name, each in rounds.items()}
    bound = manipulation_bound(run, honest)
    for name, loss in losses.items():
        print(f"{name.replace(chr(10), ' ')}: honest anchors lose {loss:.4f} km")
    print(f"whatever anybody uploads: at most {bound:.4f} km")
    figure = Figure(figsize=(7, 3.6), layout="constrained")
    axes = figure.subplots()
    bars = axes.bar(list(losses), list(losses.values()), color="#2a6f97")
    axes.bar_label(bars, fmt="%.3f")
    axes.axhline(bound, color="#bc4749", label=f"bound for every upload, {bound:.3f}")
    axes.set_ylabel("mean loss of honest\nusers' anchors in km")
    axes.legend(loc="lower right")
    axes.set_title("Uploads of others hardly move what honest users lose")
    return plot.save_figure(figure, out / "users_over_time.png")


if __name__ == "__main__":
    print("drawn to", main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path("out/examples")))
