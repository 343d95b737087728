"""Bounds of other things than the loss of all private tables, from inputs and multipliers.

Other things than the loss are bounded by terms v_k: the loss, or what somebody gains who guesses,

    v_k(z) = sum_y max_g sum_x p_x a_gx z_xy,

a_gx = 1 where guess g is record x (vulnerability) or lies within a radius of it (located), or minus
their distance (error). Of tables with v_k <= limit_k + grows_k t for all k, t is what is made
least. Any shares w of the guesses that sum to 1 for every output give v_k >= <b_k, z> with b_k =
p_x sum_g w_gy a_gx; so for any prices, and multipliers that prove <sum_k price_k b_k, z> >= L for
all private tables,

    t  >=  (L - sum_k price_k limit_k) / sum_k price_k grows_k.

A bound of every point is one of the vertices' averages (methods/everywhere.py has why).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy

from panda_mdp.base.arrays import (
    BLOCK_ENTRIES,
    AnyArray,
    FloatArray,
    IntArray,
    RebuiltOnCopy,
    frozen,
)
from panda_mdp.errors import MethodError, ProblemError
from panda_mdp.problem import Outputs, Problem, quiet_scale
from panda_mdp.space.domain import Domain
from panda_mdp.space.guesses import CLOSED, as_guesses, check_guesses, coordinates, place_distances
from panda_mdp.space.mesh import Mesh
from panda_mdp.table.bound import Multipliers, Proved, dual_bound

NO_GUESSES = frozen(np.zeros((0, 0)))
LOSS, VULNERABILITY, LOCATED, ERROR = range(4)
ROUNDED = 1e-11
"""Relative, and more than distances and sums of tens of thousands of terms of one sign can err."""
FAINTEST_SHARE = 1e-6
"""Guesses of smaller shares are left out of a proof."""


class Term(NamedTuple):
    """One term of a bound, and the shares of its guesses."""

    kind: int
    prior: FloatArray
    price: float
    limit: float
    grows: float
    radius: float = 0.0
    guesses: AnyArray = NO_GUESSES
    """(G,) records or (G, p) points of the embedding, or of each output its own, (m, G, ...)."""
    shares: FloatArray = NO_GUESSES
    """(G, m)."""


@dataclass(frozen=True, eq=False)
class Terms(RebuiltOnCopy):
    """The terms of a bound as files hold them."""

    kinds: IntArray
    """(T, 2): LOSS, VULNERABILITY, LOCATED or ERROR, and a prior: 0 the problem's, j `priors[j -
    1]`."""
    numbers: FloatArray
    """(T, 4): price, limit, grows, radius."""
    guesses: IntArray
    """(n, 3): the term, the output and the guess, a record or K and a number of `places`."""
    weights: FloatArray
    """(n,) of the guesses; what they are of the sum of their term and output are shares."""
    priors: FloatArray
    """(J, K), any weights."""
    places: FloatArray
    """(P, 2) degrees or (P, p) vectors: guesses that are no records."""

    @classmethod
    def of(cls, problem: Problem, given: Sequence[Term]) -> Terms:
        """Those of some terms, without guesses of faint shares."""
        own = as_guesses(problem.domain, np.arange(problem.size))
        known = {problem.prior.tobytes(): 0}
        index = {point.tobytes(): k for k, point in enumerate(own)}
        guesses, weights = [np.zeros((0, 3), np.int64)], [np.zeros(0)]
        for k, term in enumerate(given):
            known.setdefault(term.prior.tobytes(), len(known))
            if term.kind == LOSS:
                continue
            which, y = np.nonzero(term.shares > FAINTEST_SHARE * term.shares.max(axis=0))
            listed = term.guesses[y, which] if term.guesses.ndim > own.ndim else term.guesses[which]
            places = [index.setdefault(point.tobytes(), len(index)) for point in listed]
            guesses.append(np.stack([np.full(len(y), k), y, places], axis=1))
            weights.append(term.shares[which, y])
        between = np.frombuffer(b"".join([*index][problem.size :]), own.dtype)
        return cls(
            np.array([(term.kind, known[term.prior.tobytes()]) for term in given]),
            np.array([term[2:6] for term in given], dtype=float),
            np.concatenate(guesses),
            np.concatenate(weights),
            np.frombuffer(b"".join([*known][1:])).reshape(-1, problem.size),
            coordinates(problem.domain, between.reshape(-1, *own.shape[1:])),
        )

    def __post_init__(self) -> None:
        for part in fields(self):
            object.__setattr__(self, part.name, frozen(getattr(self, part.name)))

    def check(self, problem: Problem) -> None:
        """Refuse what is not about a problem."""
        if not self._fit(problem):
            raise ProblemError("the terms of a bound name what is not there, or are out of range")
        if len(self.places):
            check_guesses(problem.domain, self.places)

    def _fit(self, problem: Problem) -> bool:
        """Whether all that is named is there, and every output of a term has a guess."""
        kinds, numbers, guesses, weights = self.kinds, self.numbers, self.guesses, self.weights
        size, outputs = problem.size, problem.outputs_count
        most = [len(kinds), outputs, size + len(self.places)]
        given = numbers[:, [0, 2, 3]], weights, self.priors
        signed = all(np.isfinite(part).all() and (part >= 0).all() for part in given)
        named = ((kinds >= 0) & (kinds < [ERROR + 1, len(self.priors) + 1])).all()
        if not (signed and named and ((guesses >= 0) & (guesses < most)).all()):
            return False
        kind = kinds[guesses[:, 0], 0]
        sums = np.zeros((len(kinds), outputs))
        np.add.at(sums, tuple(guesses.T[:2]), weights)
        return bool(
            np.isfinite(numbers[:, 1]).all()
            and (kind != LOSS).all()
            and (guesses[kind == VULNERABILITY, 2] < size).all()
            and (sums[kinds[:, 0] != LOSS] > 0).all()
            and (numbers[:, 0] * numbers[:, 2] > 0).any()
        )

    def cost(self, problem: Problem) -> FloatArray:
        """A table below sum_k price_k b_k, roundings accounted for, (K, m)."""
        shape = problem.size, problem.outputs_count
        total, sizes = np.zeros((2, *shape))
        known = problem.size + len(self.places)
        for k, ((kind, prior), (price, _, _, radius)) in enumerate(
            zip(self.kinds, self.numbers, strict=True)
        ):
            p = problem.prior if prior == 0 else self.priors[prior - 1]
            if kind == LOSS:
                part = np.asarray(problem.loss)
            else:
                own = self.guesses[:, 0] == k
                _, y, guess = self.guesses[own].T
                weights = self.weights[own]
                shares = weights / np.bincount(y, weights, shape[1])[y]
                held = scipy.sparse.csr_array((shares, (guess, y)), shape=(known, shape[1]))
                part = np.zeros(shape) if kind != VULNERABILITY else held[: shape[0]].toarray()
                used = np.unique(guess) if kind != VULNERABILITY else guess[:0]
                step = max(1, BLOCK_ENTRIES // shape[0])
                for some in (used[a : a + step] for a in range(0, len(used), step)):
                    far = self._distances(problem, some)
                    gain = 1.0 * (far <= radius * CLOSED) if kind == LOCATED else -far
                    part += (held[some].T @ gain).T
            part = price * p[:, None] * part
            total += part
            sizes += np.abs(part)
        return np.asarray(total - ROUNDED * sizes)

    def _distances(self, problem: Problem, guesses: IntArray) -> FloatArray:
        """How far guesses, ascending, are from all records."""
        size = problem.size
        records, places = np.split(guesses, [np.searchsorted(guesses, size)])
        far = [problem.domain.distances(records, None)] if len(records) else []
        if len(places):
            far.append(place_distances(problem.domain.metric, self.places[places - size]))
        return np.concatenate(far)


@dataclass(frozen=True, eq=False, repr=False)
class Traded(Proved):
    """A bound on what is made least where something is limited, with its proof: multipliers at the
    cost of some terms."""

    multipliers: Multipliers
    terms: Terms

    def __post_init__(self) -> None:
        super().__post_init__()
        self.terms.check(self.problem)

    def bounds(self, problem: Problem) -> bool:
        return False

    @cached_property
    def value(self) -> float:
        """No epsilon-mDP table within the limits has less."""
        with np.errstate(over="ignore", invalid="ignore"):
            cost = self.terms.cost(self.problem)
            least = dual_bound(self.problem, self.multipliers, cost)
            price, limit, grows, _ = self.terms.numbers.T
            taken = price * limit
            error = ROUNDED * 1e-4 * (abs(least) + np.abs(taken).sum())
            found = float((least - taken.sum() - error) / (price * grows).sum())
        return found - 1e-15 * abs(found) if math.isfinite(found) else -math.inf

    @property
    def about(self) -> tuple[str, float]:
        """Which of `details` holds it, and the sign of what it says there."""
        grow = np.flatnonzero(self.terms.numbers[:, 2])
        kinds = self.terms.kinds[grow, 0]
        if LOSS in kinds:
            return "limited", 1.0
        if len(grow) > 1 or self.terms.numbers[grow[0], 2] != 1:
            return "dominates", 1.0
        return "second", -1.0 if kinds[0] == ERROR else 1.0


def mesh_of(problem: Problem) -> Mesh:
    """The mesh of a problem; `MethodError` where it has none, or people on its rim."""
    mesh = problem.domain.mesh
    if mesh is None:
        raise MethodError(
            "every point of an area needs a mesh, and this domain has none; "
            "make the domain by Domain.from_area(...)"
        )
    rim = np.flatnonzero(~mesh.interior & (problem.prior > 0))
    if len(rim):
        raise MethodError(
            f"the prior of vertex {rim[0]} is {problem.prior[rim[0]]:.3g} and it lies on the "
            "area's rim; people are where all six neighbours lie in the area: leave the prior "
            "out, or make it 0 there"
        )
    return mesh


def spread(problem: Problem) -> Problem:
    """The problem whose expected loss is the one over points that draw at random vertices."""
    mesh = mesh_of(problem)
    weight = mixing(mesh, problem)
    prior = weight.sum(axis=1)
    total = weight @ problem.loss
    loss = np.divide(total, prior[:, None], out=np.zeros_like(total), where=prior[:, None] > 0)
    return replace(problem, loss=loss, prior=prior / prior.sum())


def mixing(mesh: Mesh, problem: Problem) -> scipy.sparse.csr_array:
    """Q of methods/everywhere.py, (K, K)."""
    corners = mesh.triangles
    people = problem.prior[corners]
    pairs = people[:, :, None] + people[:, None, :] + people.sum(axis=1)[:, None, None]
    values = (1 + np.eye(3)) * pairs / 120
    rows = np.repeat(corners, 3, axis=1)
    columns = np.tile(corners, 3)
    places = (rows.ravel(), columns.ravel())
    return scipy.sparse.csr_array((values.ravel(), places), shape=(problem.size, problem.size))


OWN = 1 / 2
OTHER = 1 / 12
"""Integrals of hat_v times hat_v, and times the hat of a neighbour, over |hat_v|."""
VARIATION = (0.2, 0.05)
"""The same with another factor 1 - hat_v: 1/2 - 3/10 and 1/12 - 1/30."""
INFLATED = 1 + 1e-12
"""Above the rounding of the plane's coordinates and of the sums here."""


def lower_problem(
    problem: Problem, mesh: Mesh, variation: tuple[float, float] = VARIATION
) -> Problem:
    """The vertices' own problem in the plane, its losses lowered by beta."""
    people = np.flatnonzero(problem.prior > 0)
    with quiet_scale():
        return Problem(
            Domain.from_vectors(mesh.plane[people], unit="km"),
            Outputs.labels(list(range(problem.outputs_count))),
            lowered(problem, mesh, variation)[people],
            problem.epsilon * INFLATED,
            prior=problem.prior[people],
        )


def lowered(problem: Problem, mesh: Mesh, variation: tuple[float, float] = VARIATION) -> FloatArray:
    """cbar - beta, at least 0, (K, m); 0 for vertices without six neighbours."""
    whole = np.all(mesh.neighbours >= 0, axis=1)
    loss = problem.loss
    around = loss[np.where(whole[:, None], mesh.neighbours, 0)]
    mean = OWN * loss + OTHER * around.sum(axis=1)
    own, other = variation
    off = own * np.abs(loss - mean) + other * np.abs(around - mean[:, None]).sum(axis=1)
    nats = problem.epsilon * mesh.spacing
    beta = np.expm1(nats) * np.exp(nats / 2) * off * INFLATED
    return np.where(whole[:, None], np.maximum(mean / INFLATED - beta, 0.0), 0.0)


DIFFERING = 1e-12
"""By which prior and losses over points may differ from those that others sum up."""


class Averaged(Proved):
    """A lower bound of every point with its proof: multipliers of the averages' problem, which
    follows from `problem`, the one that was given (methods/everywhere.py)."""

    multipliers: Multipliers

    def __post_init__(self) -> None:
        super().__post_init__()
        people = np.count_nonzero(self.problem.prior)
        if self.multipliers.pairs.max(initial=-1) >= people:
            raise ProblemError(f"the bound's multipliers name more than {people} places of people")

    def bounds(self, problem: Problem) -> bool:
        mesh = self.problem.domain.mesh
        people = self.problem.prior > 0
        if mesh is None or np.count_nonzero(people) < 2 or not mesh.interior[people].all():
            return False
        own = spread(self.problem)
        return (
            own.domain.fingerprint == problem.domain.fingerprint
            and own.epsilon == problem.epsilon
            and own.loss.shape == problem.loss.shape
            and np.allclose(own.prior, problem.prior, rtol=DIFFERING, atol=0.0)
            and np.allclose(own.loss, problem.loss, rtol=DIFFERING, atol=0.0)
        )

    @cached_property
    def value(self) -> float:
        averages = lower_problem(self.problem, mesh_of(self.problem))
        return max(Proved(averages, self.multipliers).value * (1 - 4 * DIFFERING), 0.0)
