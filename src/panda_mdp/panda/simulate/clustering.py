"""Clustering coefficients of records under a distance threshold (appendix of the paper)."""

from __future__ import annotations

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.space.domain import Domain


def clustering_coefficient(
    domain: Domain, threshold: float, records: IntArray | None = None
) -> float:
    """The average over records of the share of their neighbours' pairs that are neighbours too.

    Two records are neighbours at a distance of at most `threshold`; a record with fewer than two
    neighbours counts as 0. Restricted to `records` where they are given.
    """
    keep = np.zeros(domain.size, dtype=bool)
    keep[np.arange(domain.size) if records is None else records] = True
    firsts, seconds = [np.empty(0, dtype=np.int64)], [np.empty(0, dtype=np.int64)]
    for i, j, _ in domain.pairs_within(threshold):
        both = keep[i] & keep[j]
        firsts.append(i[both])
        seconds.append(j[both])
    first, second = np.concatenate(firsts), np.concatenate(seconds)
    ones = np.ones(2 * len(first))
    ends = (np.concatenate([first, second]), np.concatenate([second, first]))
    graph = scipy.sparse.csr_array((ones, ends), shape=(domain.size, domain.size))
    degree: FloatArray = np.asarray(graph.sum(axis=1)).ravel()
    # Twice the edges among the neighbours of each record.
    closed: FloatArray = np.asarray((graph @ graph).multiply(graph).sum(axis=1)).ravel()
    possible = degree * (degree - 1)
    share = np.where(possible > 0, closed / np.where(possible > 0, possible, 1), 0.0)
    return float(share[keep].mean())
