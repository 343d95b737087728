"""Graphs as sparse matrices that every supported SciPy reads."""

from __future__ import annotations

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray


def adjacency(
    first: IntArray, second: IntArray, nodes: int, weights: FloatArray | None = None
) -> scipy.sparse.csr_array:
    """Edges first -> second among `nodes` as a sparse matrix; weights are 1 where not given.

    Entries that repeat are added up. SciPy before 1.17.1 runs through graphs with indices of 32
    bits alone ("Buffer dtype mismatch"), and nodes are never that many.

    >>> adjacency(np.array([0, 1]), np.array([1, 2]), 3).toarray()
    array([[0., 1., 0.],
           [0., 0., 1.],
           [0., 0., 0.]])
    """
    data = np.ones(len(first)) if weights is None else weights
    ends = (first.astype(np.int32), second.astype(np.int32))
    return scipy.sparse.csr_array((data, ends), shape=(nodes, nodes))
