"""Brute force over all anchor sets, in extended precision, as the judge of Phase I."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import strategies as st

import panda_mdp as pm
from panda_mdp.panda.coins import BernoulliAnchors

DECAYS = ("power", "exponential", "logistic")


@dataclass
class BruteForce:
    """Everything that Phase I computes, from the definition: 2^K sets, long doubles."""

    domain: pm.Domain
    selection: BernoulliAnchors

    def __post_init__(self) -> None:
        size = self.domain.size
        law = self.selection.on(self.domain)
        self.w = law.dense(np.arange(size))
        self.radius = law.radius
        self.candidates = law.candidates
        bits = np.arange(1 << len(self.candidates))[:, None] >> np.arange(len(self.candidates))
        self.sets = np.zeros((len(bits), size), dtype=bool)
        self.sets[:, self.candidates] = (bits & 1).astype(bool)
        wide = self.w[:, self.candidates].astype(np.longdouble)
        member = self.sets[:, self.candidates]
        self.logs = np.where(member[None], np.log(wide)[:, None], np.log1p(-wide)[:, None]).sum(-1)
        """log P_x(A), one row per record, one column per set."""
        self.probabilities = np.exp(self.logs)
        apart = self.domain.distances()
        order = np.lexsort((np.broadcast_to(np.arange(size), apart.shape), apart), axis=1)
        self.surrogate = np.full((size, len(self.sets)), -1)
        for x in range(size):
            ranked = self.sets[:, order[x]]
            found = ranked.any(axis=1)
            self.surrogate[x, found] = order[x][ranked[found].argmax(axis=1)]
        self.apart = apart

    def ratio(self, x: int, x2: int) -> np.ndarray:
        return self.logs[x] - self.logs[x2]

    def leakage(self, x: int, x2: int) -> float:
        return float(np.abs(self.ratio(x, x2)).max())

    def surrogate_probability(self, x: int) -> np.ndarray:
        out = np.zeros(self.domain.size, dtype=np.longdouble)
        found = self.surrogate[x] >= 0
        np.add.at(out, self.surrogate[x][found], self.probabilities[x][found])
        return out

    def candidate_values(self, x: int, x2: int, epsilon: float) -> tuple[np.ndarray, np.ndarray]:
        """Delta and probability of every surrogate pair within the radius."""
        near = [a for a in self.candidates if self.apart[x, a] < self.radius]
        near2 = [a for a in self.candidates if self.apart[x2, a] < self.radius]
        v, v2 = self.surrogate_probability(x), self.surrogate_probability(x2)
        own = epsilon * self.apart[x, x2] - self.leakage(x, x2)
        values = [
            epsilon * self.apart[a, b] - self.leakage(a, b) - own for a in near for b in near2
        ]
        masses = [v[a] * v2[b] for a in near for b in near2]
        return np.array(values), np.array(masses)


@st.composite
def cases(draw: st.DrawFn, most: int = 9) -> tuple[pm.Domain, BernoulliAnchors]:
    """A small domain (planar, on a line with ties, or a random metric) and a selection on it."""
    size = draw(st.integers(2, most))
    kind = draw(st.sampled_from(["plane", "line", "matrix"]))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    if kind == "plane":
        domain = pm.Domain.from_vectors(rng.normal(size=(size, 2)))
    elif kind == "line":
        domain = pm.Domain.from_vectors(rng.permutation(size)[:, None] * 0.5)
    else:
        table = 1 + rng.random((size, size))
        domain = pm.Domain.from_matrix(np.triu(table, 1) + np.triu(table, 1).T)
    selection = BernoulliAnchors(
        draw(st.sampled_from(DECAYS)),
        alpha=draw(st.sampled_from([0.3, 0.95, 0.9999])),
        rate=draw(st.sampled_from([0.05, 0.5, 3.0])),
        radius=draw(st.sampled_from([None, 0.6, 1.4, 10.0])),
        tail=draw(st.sampled_from(["clip", 1e-4, 0.2])),
        candidates=draw(st.sampled_from([None, range(size), range(0, size, 2)])),
    )
    return domain, selection


@pytest.fixture(scope="session")
def brute_force() -> type[BruteForce]:
    return BruteForce


@pytest.fixture(scope="session")
def small_cases() -> st.SearchStrategy[tuple[pm.Domain, BernoulliAnchors]]:
    return cases()


@pytest.fixture(scope="session")
def tiny_cases() -> st.SearchStrategy[tuple[pm.Domain, BernoulliAnchors]]:
    return cases(most=5)
