"""The closure under path metrics: along edges, which imply all pairs (space/paths.py).

z_x <- max(z_x, e^(-eps len) z_x') along the edges until nothing changes: a maximum over paths is
the maximum over all records x' of e^(-eps d(x, x')) z_x'. Values only rise and no cycle raises
them, so it ends, at a table in which no product of an edge, as rounded, exceeds the entry that it
is compared with. It costs edges times outputs whenever rows are raised, which is a few times.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray, IntArray
from panda_mdp.base.threads import in_parts
from panda_mdp.compute.closure import Closure
from panda_mdp.compute.cut import Cut, Links
from panda_mdp.space.domain import Domain


def closure_of(domain: Domain) -> Closure:
    """What closes tables of a domain on the host."""
    links = domain.metric.generating_pairs is not None
    return (LinkClosure if links else Closure)(domain)


class LinkClosure(Closure):
    """Closes along the pairs that imply all others."""

    rest = 0.0
    near_first = False

    @cached_property
    def near(self) -> tuple[IntArray, FloatArray]:
        """The nearest record of every position, which is the end of its shortest link."""
        links = self._whole
        order = np.lexsort((links.lengths, links.firsts))[links.starts[:-1]]
        return links.others[order, None], links.lengths[order, None]

    @cached_property
    def _whole(self) -> Links:
        """The links of all positions."""
        return _links(Cut.whole(self.domain, 1))

    def close(
        self,
        z: FloatArray,
        epsilon: float,
        active: BoolArray | None = None,
        nats: float = np.inf,
    ) -> FloatArray:
        cut = self._cut_for(z)
        out = z.copy()
        raise_along(out, _links(cut), epsilon, None if active is None else active[cut.position])
        return out

    def _reached(self, lifts: FloatArray, cut: Cut, epsilon: float) -> BoolArray:
        # Of e^lift the closure has the logarithm of what is reached, node by node.
        whole = np.zeros((self.domain.size, len(cut.columns)))
        whole[cut.position, cut.group] = np.exp(lifts)
        raise_along(whole, self._whole, epsilon)
        return np.ascontiguousarray(whole.T > 1)

    def _around(self, chosen: BoolArray) -> BoolArray:
        # All: it costs next to nothing, and a few alone are held where they are by the others.
        return np.ones_like(chosen)

    def _excesses(self, sums: FloatArray) -> FloatArray:
        links, logs = self._whole, np.log(sums)
        rate = np.abs(logs[links.firsts] - logs[links.others]) / links.lengths
        return np.maximum.reduceat(rate, links.starts[:-1])

    def broken(
        self, z: FloatArray, epsilon: float, nats: float, gains: tuple[float, float], most: int
    ) -> tuple[IntArray, FloatArray]:
        """None: pairs that are not constrained follow from those that are."""
        return np.empty((0, 2), dtype=np.int64), np.empty(0)


def _links(cut: Cut) -> Links:
    links = cut.links
    if links is None:
        raise NotImplementedError("this metric has no pairs that imply all others")
    return links


def raise_along(
    z: FloatArray, links: Links, epsilon: float, active: BoolArray | None = None
) -> None:
    """z_i <- max(z_i, exp(-epsilon length) z_j) along the links until nothing changes, for the
    active nodes i."""
    from panda_mdp.compute.numba.links import WIDTH, relax

    lent = np.where(links.others >= 0, np.exp(-epsilon * links.lengths), 0.0)
    if active is not None:
        # A node raises its others.
        lent = np.where(active[links.others], lent, 0.0)
    in_parts(relax, -(-z.shape[1] // WIDTH), z, links.starts, links.others, lent)
