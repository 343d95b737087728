"""The closure along links, compiled."""

from __future__ import annotations

import numpy as np
from numba import njit

WIDTH = 32
"""Outputs that a thread takes at a time."""


@njit(cache=True, nogil=True, error_model="numpy")
def relax(begin, end, z, starts, others, factors):
    """z_i <- max(z_i, factor z_j) along the links of nodes until nothing changes, in place; rows
    that were raised raise their neighbours, first come, first served. A link of factor 0 is none.
    """
    nodes = len(starts) - 1
    waiting = np.arange(nodes)
    queued = np.ones(nodes, np.bool_)
    for block in range(begin, end):
        left = block * WIDTH
        right = min(left + WIDTH, z.shape[1])
        for i in range(nodes):
            waiting[i] = i
            queued[i] = True
        head = 0
        count = nodes
        while count > 0:
            node = waiting[head]
            head = head + 1 if head + 1 < nodes else 0
            count -= 1
            queued[node] = False
            source = z[node, left:right]
            for e in range(starts[node], starts[node + 1]):
                factor = factors[e]
                if factor == 0.0:
                    continue
                other = others[e]
                row = z[other, left:right]
                lacking = 0
                for y in range(len(row)):
                    lacking += factor * source[y] > row[y]
                if lacking == 0:
                    continue
                for y in range(len(row)):
                    row[y] = max(row[y], factor * source[y])
                if not queued[other]:
                    queued[other] = True
                    tail = head + count
                    waiting[tail if tail < nodes else tail - nodes] = other
                    count += 1
