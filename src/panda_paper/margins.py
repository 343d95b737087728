"""Selection and safety margins as cells: profiles (Figure 4), margins against lambda and alpha
(Figure 6), and estimated margins against real ones.

The margin of two records is the smallest xi with h(xi) >= 1 - delta (Property 1). Two numbers are
computed of it, exactly, from all candidate values of a pair:

- `margin`: as it is defined; there is none where 1 - h(infinity), the chance that one of the two
  has no anchor within gamma, exceeds delta;
- `within`: the smallest xi with h(xi) >= (1 - delta) h(infinity), the margin given that both have
  an anchor within gamma. It always exists, and is the only one that can be drawn where gamma and
  delta are the paper's.
"""

from __future__ import annotations

import numpy as np

from panda_mdp.base.arrays import IntArray
from panda_mdp.base.text import Facts
from panda_mdp.panda.coins import BernoulliAnchors
from panda_mdp.panda.law import AnchorLaw
from panda_mdp.panda.leakage import worst_leakage
from panda_mdp.panda.margins import CandidateValues, MarginPlan, candidate_values
from panda_mdp.space.domain import Domain
from panda_mdp.survey.bench import Outcome
from panda_paper.published import near_probability, published_law
from panda_paper.study import Draw

RATES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0)
PAIRS = 200
"""Random pairs of records that a mean margin is taken over, but no more than records."""
ANCHORS = 60
"""Records that stand for anchors where estimated margins are compared with real ones."""
STREAM = 5
"""Of the seed, for the pairs and anchors that are looked at."""
RADIUS_KM = 2.0
"""gamma of the paper's Figure 4."""
REACH_KM = 4.0
STEPS = 161


def within_margin(values: CandidateValues, delta: float) -> float:
    """The smallest xi with h(xi) >= (1 - delta) h(infinity), in nats.

    >>> pair = CandidateValues(np.array([3.0, 1.0]), np.array([0.1, 0.3]), shortfall=0.6)
    >>> pair.margin(0.1), within_margin(pair, 0.1), within_margin(pair, 0.3)
    (inf, 3.0, 1.0)
    """
    failing = np.cumsum(values.mass)
    needed = int(np.searchsorted(failing, delta * failing[-1], side="right"))
    return float(values.delta[min(needed, len(values.delta) - 1)])


def mean_margins(law: AnchorLaw, pairs: IntArray, epsilon: float, delta: float) -> dict[str, float]:
    """Exact margins of the pairs (n, 2) of records, averaged, in nats.

    `margin` is the mean over the pairs that have one, NaN where none has; `none` the share of those
    that have none; `within` the mean of the margins given an anchor within gamma.
    """
    values = [candidate_values(law, int(x), int(x2), epsilon) for x, x2 in pairs]
    defined = np.array([one.margin(delta) for one in values])
    finite = np.isfinite(defined)
    return {
        "margin": float(defined[finite].mean()) if finite.any() else float("nan"),
        "none": float(1 - finite.mean()),
        "within": float(np.mean([within_margin(one, delta) for one in values])),
    }


def random_pairs(domain: Domain, count: int, seed: int) -> IntArray:
    """Pairs of distinct records, drawn uniformly, (count, 2)."""
    generator = np.random.default_rng([seed, STREAM])
    first = generator.integers(domain.size, size=count)
    second = (first + generator.integers(1, domain.size, size=count)) % domain.size
    return np.stack([first, second], axis=1)


def run_margins(draw: Draw) -> Outcome:
    """Mean margins of a decay and an alpha at all rates; `draw.cell.method` is the decay.

    Options: `alpha`, `part` (gamma is the diameter over it), `pairs`.
    """
    domain = draw.problem.domain
    alpha, part = draw.cell.option("alpha", 0.95), draw.cell.option("part", 50.0)
    count = min(int(draw.cell.option("pairs", PAIRS)), domain.size)
    pairs = random_pairs(domain, count, draw.seed)
    means = []
    for rate in RATES:
        selection = BernoulliAnchors(draw.decay, alpha, rate, domain.diameter / part)
        law = selection.on(domain)
        means.append(mean_margins(law, pairs, draw.problem.epsilon, draw.delta))
    values = {name: [one[name] for one in means] for name in ("margin", "none", "within")}
    return Outcome({"rates": list(RATES), **values}, draw.clock.lap("margins"))


def run_estimates(draw: Draw) -> Outcome:
    """Estimated margins (Eq. 37) beside real ones, for pairs of 60 records, at the cell's delta.

    Both as Algorithm 2 clips them, at 0. Where no margin suffices, both stand at the largest
    candidate; where the covered records cannot hold the users' often enough, the estimate uses
    delta itself, as if coverage were 1. How many pairs that concerns is in `none` and `uncovered`.
    """
    problem = draw.problem
    radius = problem.domain.diameter / draw.cell.option("part", 50.0)
    selection = BernoulliAnchors(draw.decay, radius=radius)
    generator = np.random.default_rng([draw.seed, STREAM])
    anchors = np.sort(generator.choice(problem.size, min(ANCHORS, problem.size), replace=False))
    law = selection.on(problem.domain)
    real = MarginPlan.over(problem, law, anchors, draw.delta, neighbours=1)
    estimated = MarginPlan.over(problem, law, anchors, draw.delta, neighbours=selection.neighbours)
    upper = np.triu_indices(len(anchors), k=1)
    real_margins, guess = real.margin[upper], estimated.margin[upper]
    pairs = len(real_margins)
    values = {
        "real": float(real_margins.mean()),
        "estimated": float(guess.mean()),
        "none": real.unreached_pairs / pairs,
        "uncovered": estimated.uncovered_pairs / pairs,
    }
    return Outcome(values, draw.clock.lap("margins"))


def run_selection(draw: Draw) -> Outcome:
    """A decay's profile with the text's gamma of 2 km, and both forms of it on the cell's domain.

    `text_...` are the numbers of the paper's parameters (gamma = d_max / 50, clipped at h(gamma)),
    `code_...` those of the published code: mean number of records that a user selects within gamma
    and beyond, and the largest cost of Phase I over all pairs, per km (Proposition 1).
    """
    domain = draw.problem.domain
    decay, text = draw.decay, BernoulliAnchors(draw.decay, radius=RADIUS_KM)
    distance = np.linspace(0, REACH_KM, STEPS)
    published = published_law(decay, domain, draw.study.name)
    near_law = near_probability(decay, distance)
    values: Facts = {
        "distance": distance.tolist(),
        "text": text.h(np.minimum(distance, RADIUS_KM)).tolist(),
        "code": np.where(distance < published.radius, near_law, published.tail).tolist(),
        **_counts("text", BernoulliAnchors(decay).on(domain)),
        **_counts("code", published),
    }
    return Outcome(values, draw.clock.lap("law"))


def _counts(name: str, law: AnchorLaw) -> dict[str, float]:
    """Expected anchors of a user within the radius and beyond, and the worst cost of Phase I."""
    rows, size = law.all_rows, law.domain.size
    return {
        f"{name}_near": float(rows.probability.sum()) / size,
        f"{name}_far": law.tail * (len(law.candidates) - len(rows.anchor) / size),
        f"{name}_worst_epsilon": worst_leakage(law).rate,
    }
