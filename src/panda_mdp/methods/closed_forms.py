"""Tables in closed form: no solver, and privacy by a sentence of proof beside the audit."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray, Stages, stopwatch
from panda_mdp.compute.closure import Closure, closure_of
from panda_mdp.errors import MethodError
from panda_mdp.privacy.audit import audit_weights, largest_rate
from panda_mdp.privacy.quantise import BITS, quantise
from panda_mdp.problem import Problem, check_number
from panda_mdp.table.mechanism import FLOOR_SHARE, Mechanism, mix, release

TIGHTNESS = 1e-4
"""How far below epsilon, relatively, a tight table's audited epsilon may end."""
SMALLEST_ENTRY = 2.0 ** (24 - BITS)
"""Entries below this lose too many digits as integers of 62 bits; the floor lifts them."""
LARGEST_FACTOR = 2.0**20
"""No exponent is raised further: a table that still has room tells (almost) nothing apart."""


def exponential(problem: Problem, tight: bool = False) -> Mechanism:
    """The exponential mechanism (EM): weights exp(-epsilon d(x, y) / 2) over the outputs y.

    Guarantee: epsilon-mDP. By the triangle inequality the weight of an output changes by a factor
    of at most exp(epsilon d(x, x') / 2) between two records, and so does the row's sum, by which
    it is divided. (The paper's text has epsilon d in the exponent, which is twice the budget; its
    published code has epsilon d / 2.)

    `tight=True` gives weights exp(-a d(x, y)) with the exponent a raised from epsilon / 2 until
    the audit of the final integers meets epsilon: within 1e-4 relative, never above. The guarantee
    is then the audit's.

    >>> from panda_mdp import Domain
    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0]])
    >>> loss = [[0.0, 2.0], [1.0, 1.0], [2.0, 0.0]]
    >>> em = exponential(Problem(domain, [0, 2], loss, epsilon=1.0))
    >>> em.matrix[:, 0].round(4).tolist(), em.audit.holds
    ([0.7311, 0.5, 0.2689], True)
    """
    spent = stopwatch()
    distances = problem.reports.distances(problem.domain)
    stages = spent("distances")
    return from_scores(problem, distances, tight=tight, method="exponential", stages=stages)


def from_scores(
    problem: Problem,
    scores: FloatArray,
    *,
    tight: bool,
    method: str,
    stages: Stages = (),
    **details: float,
) -> Mechanism:
    """Weights exp(-epsilon s(x, y) / 2) for scores s, shape (K, m), that are 1-Lipschitz in x.

    Is epsilon-mDP: weight and row sum each change by at most exp(epsilon d(x, x') / 2).
    """
    spent = stopwatch()
    exponent = tight_exponent(problem, scores) if tight else problem.epsilon / 2
    matrix = softmax(-exponent * scores)
    return release(
        problem,
        floored(matrix) if tight else matrix,
        method=f"{method}, tight" if tight else method,
        stages=stages + spent("weights"),
        details={**details, "tight": tight, "exponent": exponent},
    )


def tight_exponent(problem: Problem, scores: FloatArray) -> float:
    """The exponent a >= epsilon / 2 for which exp(-a s) just meets epsilon on its integers.

    The largest one that was audited and holds; it ends within `TIGHTNESS` below epsilon unless no
    exponent up to `LARGEST_FACTOR` times epsilon / 2 reaches epsilon (a single output, or scores
    that do not depend on the record).
    """
    target = problem.epsilon
    holding = [target / 2]

    def missing(exponent: float) -> float:
        weights = quantise(floored(softmax(-exponent * scores)))
        rate = audit_weights(problem.domain, problem.outputs, weights, target).epsilon
        if rate <= target:
            holding.append(exponent)
        # A rate is almost linear in the exponent, and may be infinite.
        return min(rate / target, 2.0) - (1 - TIGHTNESS / 2)

    high = target / 2
    while missing(high) < 0 and high < LARGEST_FACTOR * target / 2:
        high *= 2
    if high > max(holding):
        scipy.optimize.brentq(missing, high / 2, high, rtol=TIGHTNESS / 8)
    return max(holding)


def floored(matrix: FloatArray) -> FloatArray:
    """The matrix, with a share of 1e-8 of the uniform row where entries are too small to round."""
    return matrix if matrix.min() >= SMALLEST_ENTRY else mix(matrix, FLOOR_SHARE)


def softmax(logits: FloatArray) -> FloatArray:
    """Rows exp(logit) over their sums, without overflow."""
    shifted = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


NATS = 600.0
"""That losses of an output are apart, at most, before exp is taken of them."""
SEARCH_TOLERANCE = 0.01
"""Of log L: the loss is flat at its minimum, so a hundredth costs about 1e-5 of it."""


def loss_exponential(
    problem: Problem, lipschitz: float | None = None, tight: bool = False
) -> Mechanism:
    """The exponential mechanism over the loss: weights exp(-epsilon C~(x, y) / (2 L)), with

        C~(x, y) = min over all records x' of  C(x', y) + L d(x, x'),

    the largest function below the loss C that is L-Lipschitz in x.

    Guarantee: epsilon-mDP, whatever the loss. C~ / L changes by at most d(x, x') between two
    records, so the weight of an output and the row's sum each change by a factor of at most
    exp(epsilon d(x, x') / 2). No solver is involved.

    `lipschitz` is L, in units of loss per unit of distance. By default it is the one with the
    smallest expected loss, found by a scan and a bounded search over log L. No L above the loss's
    own Lipschitz constant can be best (C~ is C from there on, and a larger L only flattens it).
    Beyond 2,048 records candidates are compared on the exact rows of 2,048 records spread evenly
    in space; the table is always computed in full.
    `tight=True` raises the exponent until the audit meets epsilon, as in `exponential`.

    Time K^2 m at worst, far less where L is large: distant tiles of records are passed over when
    they cannot lower an entry. Memory a few K x m tables; K x K is formed for 512 records at most.

    >>> from panda_mdp import Domain
    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0]])
    >>> problem = Problem(domain, [0, 2], [[0, 2], [1, 1], [2, 0]], epsilon=1.0)
    >>> loss_exponential(problem, lipschitz=1.0).matrix[:, 0].round(4).tolist()
    [0.7311, 0.5, 0.2689]
    """
    spent = stopwatch()
    units = f"{problem.loss_unit} per {problem.domain.unit}"
    rule = f"a positive, finite number of {units}, or None to search for the best"
    check_number(lipschitz, "lipschitz", rule)
    envelope = Envelope(problem)
    constant = best_constant(envelope) if lipschitz is None else float(lipschitz)
    return from_scores(
        problem,
        envelope(constant) / constant,
        tight=tight,
        method="loss exponential",
        stages=spent("Lipschitz envelope"),
        lipschitz=constant,
        loss_lipschitz=envelope.limit,
    )


@dataclass(frozen=True, eq=False)
class Envelope:
    """The loss of a problem made Lipschitz: call it with L to get C~, K x m, and with `rows`
    (records) to get only those rows."""

    problem: Problem
    search_rows: int = 2048
    """Rows on which candidate constants are compared; all of them up to this many records."""

    @cached_property
    def limit(self) -> float:
        """The loss's own Lipschitz constant, from above: C~ is C for every L >= limit."""
        loss = self.problem.loss
        return largest_rate(self.problem.domain, loss, loss.view(np.int64))[0]

    def __call__(self, constant: float, rows: IntArray | slice = slice(None)) -> FloatArray:
        loss = self.problem.loss
        if constant >= self.limit:
            return loss[rows]
        places = self._closure.place[rows]
        active = np.isin(np.arange(len(loss)), places)
        closed = self._closure.close(self._exponentials, self._unit * constant, active)
        return loss.min(axis=0) - np.log(closed[places]) / self._unit

    @cached_property
    def sample(self) -> IntArray:
        """Records on which candidates are compared: evenly along the order of the tiles."""
        order = self.problem.domain.tiles.order
        count = min(self.search_rows, len(order))
        return order[(np.arange(count) * len(order)) // count]

    def expected_loss(self, constant: float) -> float:
        """Expected loss of the mechanism at L, over the sample."""
        rows = self.sample
        matrix = softmax(-self.problem.epsilon / (2 * constant) * self(constant, rows))
        losses = np.einsum("xy,xy->x", self.problem.loss[rows], matrix)
        prior = self.problem.prior[rows]
        return float(np.average(losses, weights=prior if prior.any() else None))

    @cached_property
    def _closure(self) -> Closure:
        """C~ is the closure of exp(-C), in logarithms."""
        return closure_of(self.problem.domain)

    @cached_property
    def _unit(self) -> float:
        """Nats for a unit of loss: all losses of an output are within the range of exp."""
        return NATS / np.ptp(self.problem.loss, axis=0).max()

    @cached_property
    def _exponentials(self) -> FloatArray:
        loss = self.problem.loss
        return np.exp(-self._unit * (loss - loss.min(axis=0)))[self._closure.order]


def best_constant(envelope: Envelope) -> float:
    """L with the smallest expected loss: a scan by factors of 2, then a bounded search.

    The scan runs from the loss's own Lipschitz constant down to a thousandth of the loss's spread
    over the diameter, below which C~ / L hardly changes.
    """
    spread = np.ptp(envelope.problem.loss, axis=0).max()
    if spread == 0.0:
        # The loss does not depend on the record: neither does the table, so any L is private,
        # and a tiny one reports the best output.
        return float(np.finfo(np.float64).tiny ** 0.25)
    top = envelope.limit
    bottom = min(top, 1e-3 * spread / envelope.problem.domain.diameter)
    grid = np.geomspace(bottom, top, max(int(np.ceil(np.log2(top / bottom))) + 1, 3))
    losses = [envelope.expected_loss(constant) for constant in grid]
    k = int(np.argmin(losses))
    optimum = scipy.optimize.minimize_scalar(
        lambda log: envelope.expected_loss(np.exp(log)),
        bounds=np.log(grid[[max(k - 1, 0), min(k + 1, len(grid) - 1)]]).tolist(),
        method="bounded",
        options={"xatol": SEARCH_TOLERANCE},
    )
    return float(np.exp(optimum.x)) if optimum.fun < losses[k] else float(grid[k])


def permute_and_flip(problem: Problem) -> Mechanism:
    """Take the outputs in random order; report y with probability exp(-epsilon (d_xy - d_x) / 2).

    d_xy is the distance of record and output and d_x that of the nearest output, which is reported
    when its turn comes. An output's turn is a uniform time t, so with p_y the probability above

        z(y|x) = p_y * integral over t in [0, 1] of the product over s != y of (1 - p_s t),

    a polynomial of degree m - 1: Gauss-Legendre with m / 2 points is exact. Never a larger expected
    distance than the exponential mechanism of the same scores (McKenna and Sheldon, NeurIPS 2020).

    Guarantee: epsilon-mDP. Scores move by at most d(x, x') between records, and permute-and-flip
    at epsilon / 2 then changes probabilities by at most exp(2 (epsilon / 2) d(x, x')), their
    proposition 1. The audit confirms the result.

    >>> from panda_mdp import Domain
    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0]])
    >>> problem = Problem(domain, [0, 2], [[0, 2], [1, 1], [2, 0]], epsilon=1.0)
    >>> permute_and_flip(problem).matrix.round(4).tolist()
    [[0.8161, 0.1839], [0.5, 0.5], [0.1839, 0.8161]]
    """
    spent = stopwatch()
    distance = problem.reports.distances(problem.domain)
    chance = np.exp(-0.5 * problem.epsilon * (distance - distance.min(axis=1, keepdims=True)))
    return release(
        problem,
        flip_probabilities(chance),
        method="permute and flip",
        stages=spent("integrate"),
    )


def flip_probabilities(chance: FloatArray) -> FloatArray:
    """The distribution over outputs, row by row, for chances p with a 1 in every row; (K, m)."""
    nodes, weights = np.polynomial.legendre.leggauss((chance.shape[1] + 1) // 2)
    total = np.zeros_like(chance)
    for node, weight in zip(0.5 * (nodes + 1), 0.5 * weights, strict=True):
        miss = 1.0 - node * chance
        total += weight * (chance * np.exp(np.log(miss).sum(axis=1, keepdims=True)) / miss)
    return total / total.sum(axis=1, keepdims=True)


def tight_constraints(problem: Problem) -> Mechanism:
    """z(y|x) = mu_y exp(-epsilon d(x, y)) with mu >= 0 such that all rows sum to 1.

    Every record is an output, so mu solves the linear system sum_y exp(-epsilon d(x, y)) mu_y = 1:
    no optimisation, one factorisation of a K x K matrix. Where mu has a negative entry the
    mechanism does not exist at this epsilon (it does for every larger one in which the matrix
    is diagonally dominant), and `MethodError` says so. ElSalamouny, Chatzikokolakis, Palamidessi,
    Generalized differential privacy: regions of priors that admit robust optimal mechanisms, 2014.
    On a line with equal steps it is the truncated geometric mechanism, which after a remap has the
    least loss of all for every prior and every loss that grows with |x - y| (Ghosh, Roughgarden and
    Sundararajan, STOC 2009).

    Guarantee: epsilon-mDP, by the triangle inequality, whatever mu is; rows sum to 1 by the system.
    The audit confirms the result.

    >>> from panda_mdp import Domain
    >>> domain = Domain.from_vectors([[0.0], [1.0], [2.0]])
    >>> problem = Problem(domain, [0, 1, 2], domain.distances(), epsilon=1.0)
    >>> tight_constraints(problem).matrix.round(4).tolist()
    [[0.7311, 0.17, 0.0989], [0.2689, 0.4621, 0.2689], [0.0989, 0.17, 0.7311]]
    """
    spent = stopwatch()
    if problem.outputs_count != problem.size:
        raise MethodError(
            f"tight-constraints reports any record, and this problem has {problem.outputs_count} "
            f"outputs for {problem.size} records; make every record an output, or use optimal"
        )
    decay = np.exp(-problem.epsilon * problem.reports.distances(problem.domain))
    try:
        share = np.asarray(scipy.linalg.solve(decay, np.ones(len(decay))))
    except scipy.linalg.LinAlgError:
        share = np.full(len(decay), -1.0)
    if not share.min() >= 0:
        raise MethodError(
            f"the tight-constraints mechanism does not exist at epsilon {problem.epsilon:g}: its "
            "linear system has a negative solution; raise epsilon, or use exponential or optimal"
        )
    return release(
        problem,
        decay * share,
        method="tight constraints",
        stages=spent("solve"),
        details={"least_share": float(share.min())},
    )
