"""Public subsets of a domain: records that cover it, chosen without any user's data."""

from __future__ import annotations

import numpy as np
import scipy

from panda_mdp.base.arrays import IntArray
from panda_mdp.methods.closed_forms import loss_exponential
from panda_mdp.methods.coarse import check_count, spread_out
from panda_mdp.panda.law import surrogates
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain

MOST_LINKED = 4_000
"""Records that candidates are chosen among by all pairs; beyond, cells of `central`."""
ROUNDS = 15
"""How often medoids are moved."""
MEMBERS = 512
"""Records of a cell that may become its medoid."""


def central(domain: Domain, count: int) -> IntArray:
    """`count` records that stand for the others, ascending: medoids of the cells around them.

    Begins with `spread_out`, which minds the farthest record alone; then each is replaced by the
    record of its cell with the least sum of distances to the others, as long as that moves any.
    Public: a function of the domain.

    >>> line = Domain.from_vectors([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]])
    >>> central(line, 2).tolist()
    [1, 4]
    """
    chosen = spread_out(domain, count)
    for _ in range(ROUNDS if count < domain.size else 0):
        cell = surrogates(domain, chosen)
        order = np.argsort(cell, kind="stable")
        cells = np.split(order, np.searchsorted(cell[order], np.arange(1, count)))
        moved = np.sort([_medoid(domain, some) for some in cells])
        if np.array_equal(moved, chosen):
            break
        chosen = moved
    return chosen


def serving(problem: Problem, count: int) -> IntArray:
    """`count` records whose rows serve the records around them, ascending. Public.

    Records are linked (complete linkage, so that groups have small diameters) by their distance
    plus what both lose with each other's row of the loss exponential mechanism, each in units of
    its mean; the medoid of a group is its candidate. Distances between groups are what the
    certificate leaves of epsilon, and the loss is what a group's common row costs.

    >>> line = Domain.from_vectors([[0.0], [1.0], [5.0], [6.0]])
    >>> serving(Problem(line, [0, 3], line.distances(None, [0, 3]), 1.0), 2).tolist()
    [0, 2]
    """
    domain = problem.domain
    check_count(domain, count)
    links = domain.distances()
    rows = loss_exponential(problem).matrix
    losses = problem.loss @ rows.T
    excess = np.maximum(0.0, losses - losses.diagonal()[:, None])
    excess += excess.T
    links /= links.mean()
    # Records that lose nothing with any row, or whose table is all alike, are linked by distance.
    links += excess / (excess.mean() or 1.0)
    links = (links + links.T) / 2
    np.fill_diagonal(links, 0.0)
    group = scipy.cluster.hierarchy.fcluster(
        scipy.cluster.hierarchy.linkage(
            scipy.spatial.distance.squareform(links, checks=False), "complete"
        ),
        count,
        "maxclust",
    )
    order = np.argsort(group, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(group[order])) + 1)
    medoids = [int(some[links[np.ix_(some, some)].sum(axis=1).argmin()]) for some in groups]
    # Ties in the linkage can leave fewer groups than asked for.
    rest = np.setdiff1d(spread_out(domain, count), medoids)[: count - len(medoids)]
    return np.sort(np.concatenate([medoids, rest]).astype(np.int64))


def _medoid(domain: Domain, records: IntArray) -> int:
    """The record with the least sum of distances to the others, of a few hundred at most."""
    some = records[:: max(1, len(records) // MEMBERS)]
    return int(some[domain.distances(some, records).sum(axis=1).argmin()])


def covering_radius(domain: Domain, chosen: IntArray) -> float:
    """The largest distance of a record from the nearest of the chosen ones."""
    nearest = chosen[surrogates(domain, chosen)]
    return float(domain.metric.pairs(np.arange(domain.size), nearest).max())
