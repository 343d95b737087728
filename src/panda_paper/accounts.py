"""PAnDA's accounts as cells: what its text asks for, charged in full, and what reports alone tell.

The text's parameters do not fit (epsilon, delta) on the paper's maps, so `panda` refuses to run
them. These cells compute everything all the same, for study: what a user's choice costs, how many
records the LP covers, how the budget is spent, and, where a table is asked for, its loss and what
an audit of the sets that were drawn finds. None of it is a mechanism.

Selection and safety margins are cells too: profiles (Figure 4), margins against lambda and alpha
(Figure 6), and estimated margins against real ones. The margin of two records is the smallest xi
with h(xi) >= 1 - delta (Property 1). Two numbers are computed of it, exactly, from all candidate
values of a pair:

- `margin`: as it is defined; there is none where 1 - h(infinity), the chance that one of the two
  has no anchor within gamma, exceeds delta;
- `within`: the smallest xi with h(xi) >= (1 - delta) h(infinity), the margin given that both have
  an anchor within gamma. It always exists, and is the only one that can be drawn where gamma and
  delta are the paper's.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.sparse import csr_array

from panda_mdp.base.arrays import FloatArray, IntArray, stopwatch
from panda_mdp.base.text import Facts
from panda_mdp.panda.anpo import relaxed_bound, solver_of
from panda_mdp.panda.audit import audit_set
from panda_mdp.panda.coins import BernoulliAnchors
from panda_mdp.panda.law import AnchorLaw
from panda_mdp.panda.leakage import cost_table, worst_leakage
from panda_mdp.panda.margins import MarginPlan, candidate_values
from panda_mdp.panda.run import study_panda
from panda_mdp.panda.selection import PandaOptions, budget_shares
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain
from panda_mdp.survey.bench import Outcome
from panda_paper.published import (
    audit_values,
    draw_sets,
    exchanged,
    near_probability,
    published_law,
    run_published,
)
from panda_paper.study import METRES, Draw

COVERED = 20
"""The largest Gamma of the paper's experiments."""
SAMPLE = 80
"""Anchors of the union that budget shares are averaged over."""
STREAM = 6
AUDITED = 4
"""Users whose set is audited over all pairs."""
NEAR_KM = 2.0
"""Pairs nearer than this are looked at on their own: averages over all pairs are about far ones."""
PARTS = 100
"""The threshold of clustering is d_max over this. The paper does not tell it; this one, on the
published code's distances, gives its values for all records of Rome and of London at every K."""


def run_accounts(draw: Draw) -> Outcome:
    """Records covered by the LP, feasibility and budget shares; no table is computed.

    `anchors` is the expected size of the union of all users' anchors, exactly:
    sum_a (1 - prod_n (1 - w(x_n, a))). Shares are means over pairs of 80 anchors of the union.
    """
    problem = draw.problem
    # The parameters of the paper's text: alpha .95, lambda .5, d_max / 50.
    law = BernoulliAnchors(draw.decay).on(problem.domain)
    weights = covered(law, draw.users)
    total = float(weights.sum())
    generator = np.random.default_rng([draw.seed, STREAM])
    count = min(SAMPLE, int(np.count_nonzero(weights)))
    sample = generator.choice(len(weights), count, replace=False, p=weights / total)
    values = accounted(problem, law, np.sort(sample), draw.delta)
    return Outcome({"anchors": total, "variables": total * problem.outputs_count, **values})


def run_text_table(draw: Draw) -> Outcome:
    """Both phases without a guarantee: loss, time, budget shares, and audits of drawn sets over all
    pairs: the composed mechanism, one user."""
    spent = stopwatch()
    options = PandaOptions(weights="prior", time_limit=draw.limit)
    selection = BernoulliAnchors(draw.decay)
    run = study_panda(draw.problem, draw.users, selection, draw.delta, options, seed=draw.seed)
    ((_, seconds),) = spent("all")
    audits = [
        audit_set(run.scheme, release, run.table)
        for release in run.releases[:AUDITED]
        if len(release)
    ]
    values: Facts = {
        "loss_m": METRES * run.loss,
        "claimed_epsilon": draw.problem.epsilon,
        **audit_values([(one.epsilon, one.violations / one.pairs) for one in audits]),
        **accounted(draw.problem, run.scheme.law, run.anchors, draw.delta),
    }
    return Outcome(values, (*run.stages, ("the rest", max(0.0, seconds - run.seconds))))


def covered(law: AnchorLaw, users: IntArray) -> FloatArray:
    """The probability of each record to be an anchor of some user, (K,)."""
    return -np.expm1(np.log1p(-law.dense(users)).sum(axis=0))


def accounted(problem: Problem, law: AnchorLaw, anchors: IntArray, delta: float) -> Facts:
    """How eps d is spent between anchors, how often nothing of it is left, and whether it fits."""
    plan = MarginPlan.over(problem, law, anchors, delta, neighbours=COVERED)
    fit = plan.feasibility
    return {
        **spending("share", problem, plan.distance, plan.leakage, plan.margin),
        "clipped": plan.clipped / max(1, plan.pair_count),
        "fits": fit.fits,
        "cost_epsilon": fit.cost.rate,
        "shortfall": fit.shortfall,
    }


def spending(
    name: str, problem: Problem, distance: FloatArray, cost: FloatArray, margin: FloatArray
) -> dict[str, float]:
    """Mean shares of eps d over pairs of anchors, Phase I at most everything and the margin at most
    what is left; and what Phase I costs of it in the median of near pairs, not cut off at 1."""
    whole = problem.epsilon * distance
    shares = budget_shares(whole, cost, margin)
    near_pairs = np.triu(distance < NEAR_KM, k=1)
    rates = cost[near_pairs] / whole[near_pairs]
    return {
        "near_cost": float(np.median(rates)) if len(rates) else float("nan"),
        f"{name}_selection": shares.selection,
        f"{name}_margin": shares.margin,
        f"{name}_rest": shares.remaining,
    }


def run_bound(draw: Draw) -> Outcome:
    """Relaxed AnPO over the anchors of a published run, and audits of its reports alone.

    `relaxed_m` is a rigorous lower bound on the loss over those anchors (Proposition 6), `ratio`
    the paper's approximation ratio against it. `report_...` count the report as if the anchors had
    told nothing: the part that the paper's violation rate is about. `real_...` are budget shares
    of the same run with Phase I charged what Proposition 1 says, all factors of it.
    """
    run = run_published(draw)
    weights = np.full(len(run.anchors), 1 / len(run.anchors))
    bound = relaxed_bound(draw.problem, run.anchors, weights, solver_of(time_limit=draw.limit))
    nothing = np.zeros(draw.problem.size)
    reports = [run.scan(one, nothing)[1] for one in run.anchor_sets if len(one)][:AUDITED]
    cost = cost_table(run.law, run.law.rows(run.anchors), run.distance)
    margin = np.maximum(run.margin, run.margin.T)
    values: Facts = {
        "report_violated": float(np.mean(reports)),
        **spending("real", draw.problem, run.distance, cost, margin),
    }
    if bound:
        values |= {"relaxed_m": METRES * bound, "ratio": run.anchor_loss / bound}
    return Outcome(values)


def run_clustering(draw: Draw) -> Outcome:
    """The average clustering coefficient where records nearer than d_max / 100 are neighbours.

    "Origin" is that of all records, the others those of the union of the users' anchors, drawn by
    the published code's selection. Distances are the published code's (latitude and longitude
    exchanged). Table 13 of the paper.
    """
    domain = exchanged(draw.problem.domain)
    anchors = None
    if draw.cell.method != "Origin":
        law = published_law(draw.decay, domain, draw.study.name)
        anchors = np.flatnonzero(draw_sets(law, draw.users, draw.seed).any(axis=0))
    values = {
        "coefficient": clustering_coefficient(domain, domain.diameter / PARTS, anchors),
        "anchors": domain.size if anchors is None else len(anchors),
    }
    return Outcome(values)


def clustering_coefficient(
    domain: Domain, threshold: float, records: IntArray | None = None
) -> float:
    """The average over records of the share of their neighbours' pairs that are neighbours too.

    Two records are neighbours at a distance of at most `threshold`; a record with fewer than two
    neighbours counts as 0. Restricted to `records` where they are given.
    """
    kept = np.arange(domain.size) if records is None else records
    near = domain.distances(kept, kept) <= threshold
    np.fill_diagonal(near, False)
    graph = csr_array(near, dtype=float)
    degree = graph.sum(axis=1)
    # Twice the edges among the neighbours of each record.
    closed = (graph @ graph).multiply(graph).sum(axis=1)
    return float(np.mean(closed / np.maximum(degree * (degree - 1), 1)))


RATES = (0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1.0, 1.5, 2.0)
PAIRS = 200
"""Random pairs of records that a mean margin is taken over, but no more than records."""
ANCHORS = 60
"""Records that stand for anchors where estimated margins are compared with real ones."""
PAIR_STREAM = 5
"""Of the seed, for the pairs and anchors that are looked at."""
RADIUS_KM = 2.0
"""gamma of the paper's Figure 4."""
REACH_KM = 4.0
STEPS = 161


def mean_margins(law: AnchorLaw, pairs: IntArray, epsilon: float, delta: float) -> dict[str, float]:
    """Exact margins of the pairs (n, 2) of records, averaged, in nats.

    `margin` is the mean over the pairs that have one, NaN where none has; `none` the share of those
    that have none; `within` the mean of the margins given an anchor within gamma, the smallest xi
    with h(xi) >= (1 - delta) h(infinity).
    """
    values = [candidate_values(law, int(x), int(x2), epsilon) for x, x2 in pairs]
    given = [replace(one, mass=one.mass / one.mass.sum(), shortfall=0.0) for one in values]
    defined = np.array([one.margin(delta) for one in values])
    finite = defined[np.isfinite(defined)]
    return {
        "margin": float(finite.mean()) if len(finite) else float("nan"),
        "none": 1 - len(finite) / len(values),
        "within": float(np.mean([one.margin(delta) for one in given])),
    }


def random_pairs(domain: Domain, count: int, seed: int) -> IntArray:
    """Pairs of distinct records, drawn uniformly, (count, 2)."""
    generator = np.random.default_rng([seed, PAIR_STREAM])
    first = generator.integers(domain.size, size=count)
    second = (first + generator.integers(1, domain.size, size=count)) % domain.size
    return np.stack([first, second], axis=1)


def run_margins(draw: Draw) -> Outcome:
    """Mean margins of a decay and an alpha at all rates; `draw.cell.method` is the decay.

    Options: `alpha`, `part` (gamma is the diameter over it), `pairs`.
    """
    domain = draw.problem.domain
    options = {"pairs": PAIRS, **dict(draw.cell.options)}
    pairs = random_pairs(domain, min(int(options["pairs"]), domain.size), draw.seed)
    radius = domain.diameter / options["part"]
    means = [
        mean_margins(
            BernoulliAnchors(draw.decay, options["alpha"], rate, radius).on(domain),
            pairs,
            draw.problem.epsilon,
            draw.delta,
        )
        for rate in RATES
    ]
    values = {name: [one[name] for one in means] for name in ("margin", "none", "within")}
    return Outcome({"rates": list(RATES), **values})


def run_estimates(draw: Draw) -> Outcome:
    """Estimated margins (Eq. 37) beside real ones, for pairs of 60 records, at the cell's delta.

    Both as Algorithm 2 clips them, at 0. Where no margin suffices, both stand at the largest
    candidate; where the covered records cannot hold the users' often enough, the estimate uses
    delta itself, as if coverage were 1. How many pairs that concerns is in `none` and `uncovered`.
    """
    problem = draw.problem
    radius = problem.domain.diameter / dict(draw.cell.options)["part"]
    selection = BernoulliAnchors(draw.decay, radius=radius)
    generator = np.random.default_rng([draw.seed, PAIR_STREAM])
    anchors = np.sort(generator.choice(problem.size, min(ANCHORS, problem.size), replace=False))
    law = selection.on(problem.domain)
    real, estimated = (
        MarginPlan.over(problem, law, anchors, draw.delta, neighbours=count)
        for count in (1, selection.neighbours)
    )
    upper = np.triu_indices(len(anchors), k=1)
    values = {
        "real": float(real.margin[upper].mean()),
        "estimated": float(estimated.margin[upper].mean()),
        "none": real.unreached_pairs / real.pair_count,
        "uncovered": estimated.uncovered_pairs / real.pair_count,
    }
    return Outcome(values)


def run_selection(draw: Draw) -> Outcome:
    """A decay's profile with the text's gamma of 2 km, and both forms of it on the cell's domain.

    `text_...` are the numbers of the paper's parameters (gamma = d_max / 50, clipped at h(gamma)),
    `code_...` those of the published code: mean number of records that a user selects within gamma
    and beyond, and the largest cost of Phase I over all pairs, per km (Proposition 1).
    """
    domain = draw.problem.domain
    distance = np.linspace(0, REACH_KM, STEPS)
    profile = BernoulliAnchors(draw.decay, radius=RADIUS_KM)
    published = published_law(draw.decay, domain, draw.study.name)
    near_law = near_probability(draw.decay, distance)
    values: Facts = {
        "distance": distance.tolist(),
        "text": profile.h(np.minimum(distance, RADIUS_KM)).tolist(),
        "code": np.where(distance < published.radius, near_law, published.tail).tolist(),
    }
    laws = {"text": BernoulliAnchors(draw.decay).on(domain), "code": published}
    for name, law in laws.items():
        near = law.all_rows
        values |= {
            f"{name}_near": float(near.probability.sum()) / domain.size,
            f"{name}_far": law.tail * (len(law.candidates) - len(near.anchor) / domain.size),
            f"{name}_worst_epsilon": worst_leakage(law).rate,
        }
    return Outcome(values)
