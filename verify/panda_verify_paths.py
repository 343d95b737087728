"""Path metrics, for panda_verify.py: shortest paths over edges between records, in whole numbers of
2^-30 units. What holds along every edge holds for all pairs: multiply along a shortest path.
"""

import heapq
import math

from panda_verify import METRICS, SIZES, Q, need, shift

def records(table):
    """How many records the edges join, and the sections that say where they lie."""
    edges = table.take("edges", None, 2)
    table.size = max(edges, default=-1) + 1
    need(table.size <= len(table.take("steps", len(edges) // 2)) + 1, "records that no path joins")
    METRICS["graph"], SIZES["graph"] = Paths, (1, 1 << 53)
    return table.size, ["lat", "lon"] if "lat" in table.parts else []

class Paths:
    """`pairs` are the edges; `exponent` as that of every metric."""
    def __init__(self, table):
        ends, steps = table.values["edges"], table.values["steps"]
        self.pairs = [*zip(ends[::2], ends[1::2])]
        good = self.pairs == sorted({*self.pairs}) and min(steps) > 0
        need(good and all(0 <= i < j for i, j in self.pairs), "edges that are none, or no length")
        need(sum(steps) < 1 << 53, "edges too long for float64")
        places = zip(*(table.values.get(name, ()) for name in ("lat", "lon")))
        need(all(-90 <= a <= 90 and -180 <= b < 180 for a, b in places), "a record is no place")
        self.around, self.known = [[] for _ in range(table.size)], {}
        for (i, j), length in zip(self.pairs, steps):
            self.around[i].append((j, length)), self.around[j].append((i, length))
        for i, near in enumerate(self.around):
            best = self.search(i, max((length for _, length in near), default=0))
            last = ((best.get(v, a), b, a) for j, a in near for v, b in self.around[j] if v != i)
            need(all(far + b > a for far, b, a in last), f"a path around an edge of {i} is as short")
        need(len(self.search(0, math.inf)) == table.size, "records that no path joins")
        self.said = f"shortest paths over {len(self.pairs):,} edges, which imply all pairs"
    def search(self, source, limit):  # steps of the shortest paths from a record, up to a limit
        best, heap = {source: 0}, [(0, source)]
        while heap:
            far, i = heapq.heappop(heap)
            for j, length in self.around[i] if far == best[i] else ():
                if far + length <= limit and far + length < best.get(j, math.inf):
                    best[j] = far + length
                    heapq.heappush(heap, (best[j], j))
        return best
    def exponent(self, i, j, n, e, above=False):
        length = dict(self.around[i]).get(j)
        if length is None:  # no edge: of losses and bounds alone
            self.known = self.known if j in self.known else {j: self.search(j, math.inf)}
            length = self.known[j][i]
        return shift(length * n, e + Q - 30) + above
