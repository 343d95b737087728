"""What the server computes in processes of its own, so that it goes on answering: the pool of them,
balls, and rounds of anchors, from public inputs and uploaded sets alone.

No function here takes a record. `pm.panda` simulates users and needs theirs; a server has anchor
sets only, and the table depends on nothing else.
"""

from __future__ import annotations

import base64
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import chain
from multiprocessing.connection import wait
from typing import Any, ParamSpec, TypeVar

import numpy as np
import scipy

from panda_mdp.base.arrays import IntArray, owners
from panda_mdp.base.floored import FlooredRows
from panda_mdp.base.text import Facts
from panda_mdp.errors import EmptyAnchorsError
from panda_mdp.panda.selection import PandaOptions
from panda_mdp.protocol.messages.deployments import AnchorsTerms, BallTerms, tile_leaf
from panda_mdp.protocol.messages.log import levels_of, root_from
from panda_mdp.protocol.server.failures import LONGEST, unavailable
from panda_mdp.protocol.server.store.catalogue import domain_of, unpack
from panda_mdp.protocol.server.store.schema import RoundRow
from panda_mdp.space.domain import Domain
from panda_mdp.space.tiles import TILE, order_in_space
from panda_mdp.table.blocks import encode_block, spanning_order
from panda_mdp.table.decode import decode

P = ParamSpec("P")
T = TypeVar("T")
NICENESS = 5
TABLES = 4
"""Tables of balls that a process keeps,"""
TILES = 1 << 14
"""and encoded tiles of each."""
BROKEN = "the process that worked on this ended unexpectedly, perhaps for lack of memory"
SOLVE_SECONDS = 600.0


class Pool:
    """A few processes for audits, certificates and estimates.

    They start when needed, yield to the server, and end with it, however it ends.
    """

    def __init__(self, processes: int = 2) -> None:
        self._processes = processes
        self._executor: ProcessPoolExecutor | None = None
        self._lock = threading.Lock()

    def submit(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have a function of the library computed elsewhere."""
        with self._lock:
            while True:
                if self._executor is None:
                    # Not forked: a fork of a process with threads may hang.
                    self._executor = ProcessPoolExecutor(
                        self._processes, multiprocessing.get_context("spawn"), follow_parent
                    )
                try:
                    return self._executor.submit(work, *args, **kwargs)
                except BrokenProcessPool:
                    self._executor = None

    def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The result of a function of the library, computed elsewhere; its errors are raised."""
        try:
            return self.submit(work, *args, **kwargs).result()
        except BrokenProcessPool:
            raise unavailable(BROKEN, "try again; see the server's log") from None

    def close(self) -> None:
        """End the processes; what they work on is lost, and later work begins others."""
        with self._lock:
            ended = self._executor
            self._executor = None
        if ended is None:
            return
        workers = list((ended._processes or {}).values())
        ended.shutdown(wait=False, cancel_futures=True)
        for worker in workers:
            worker.kill()
            worker.join()


def follow_parent() -> None:
    """Let the server go first, leave Ctrl-C to it, and end when it has ended."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_end_with, args=(parent.sentinel,), daemon=True).start()


def _end_with(sentinel: int) -> None:
    wait([sentinel])
    os._exit(1)


# Balls


class BallTable:
    """A stored table cut into tiles of near records, and the tree over them. Reading and auditing
    takes longer than cutting many balls; a tile is encoded when it is first asked for."""

    def __init__(self, file: bytes, terms: BallTerms) -> None:
        table = decode(file)
        domain = table.problem.domain
        self.law = terms.law(domain, table.epsilon)
        self.outputs = table.problem.outputs.tolist()
        order, starts = order_in_space(self.law.places, TILE)
        self._parts = np.split(order, starts[1:-1])
        self._home = owners(starts)[np.argsort(order)]
        self._near: Any = scipy.spatial.cKDTree(self.law.places)
        self._weights = table.weights
        self._floors = FlooredRows.over(table.weights).floor
        self.places = np.stack([domain.lat, domain.lon], axis=1)
        self.tree = levels_of(
            [tile_leaf(self.places[part], self._weights[part]) for part in self._parts]
        )
        self._tile = lru_cache(maxsize=TILES)(self._encode)

    def _encode(self, tile: int) -> tuple[list[float], list[float], str]:
        part = self._parts[tile]
        at = self.law.places[part]
        along, parent = spanning_order(scipy.spatial.distance.cdist(at, at))
        lat, lon = self.places[part[along]].T.tolist()
        block = encode_block(self._weights[part[along]], parent, self._floors)
        return lat, lon, base64.b64encode(block).decode("ascii")

    def cut(self, centre: tuple[int, int]) -> Facts:
        """The tiles that reach into a ball, and what proves that they are cut from this table."""
        at = np.array(centre) / self.law.exponent
        inside = self._near.query_ball_point(at, self.law.radius)
        tiles = np.unique(self._home[inside]).tolist()
        proof = bytearray()

        def sibling(level: int, at: int) -> bytes:
            proof.extend(self.tree[level][at])
            return self.tree[level][at]

        if tiles:
            root_from({tile: self.tree[0][tile] for tile in tiles}, len(self._parts), sibling)
        lats, lons, blocks = ([self._tile(tile)[k] for tile in tiles] for k in range(3))
        return {
            "tiles": tiles,
            "sizes": [*map(len, lats)],
            "lat": [*chain(*lats)],
            "lon": [*chain(*lons)],
            "floors": [str(floor) for floor in self._floors.tolist()],
            "blocks": blocks,
            "proof": base64.b64encode(proof).decode("ascii"),
        }


ball_table = lru_cache(maxsize=TABLES)(BallTable)


def ball_facts(file: bytes, terms: BallTerms) -> Facts:
    """What a ball deployment promises, and what it is signed with. Runs in a worker process."""
    table = ball_table(file, terms)
    law = table.law
    # Those of the outputs, and of records that have the plane and box of all.
    shown = [*dict.fromkeys([*table.outputs, *law.corners.tolist()])]
    lat, lon = table.places[shown].T.tolist()
    return {
        "guarantee": {"epsilon": law.epsilon + law.second, "delta": 0.0, "unit": law.domain.unit},
        "outputs": table.outputs,
        "places": {"lat": lat, "lon": lon},
        "rows": table.tree[-1][0].hex(),
        "tiles": len(table.tree[0]),
        "box": [end.tolist() for end in law.box],
    }


_files: dict[str, bytes] = {}
"""Tables of balls that this worker was sent."""


def cut_named(
    name: str, terms: BallTerms, centre: tuple[int, int], file: bytes | None = None
) -> Facts:
    """The ball of a table that this worker is sent, or was sent before: sending a large file takes
    longer than cutting a ball. `KeyError` where it has none. Runs in a worker process."""
    if file is not None:
        while len(_files) >= TABLES:
            del _files[next(iter(_files))]
        _files[name] = file
    return ball_table(_files[name], terms).cut(centre)


# Anchors


def anchors_facts(terms: AnchorsTerms, domain: Domain | bytes) -> Facts:
    """The guarantee of an anchors deployment on a domain or a stored one, or the reasons why there
    is none. Runs in a worker process."""
    scheme = terms.scheme(domain_of(domain))
    if scheme.failure is not None:
        return {"guarantee": None, "reasons": [str(scheme.failure)[:LONGEST]]}
    return {"guarantee": asdict(scheme.guarantee), "reasons": []}


@dataclass(frozen=True, eq=False)
class Solution:
    """The table of a round: rows of the union's anchors, as integers that sum to 2^62."""

    anchors: IntArray
    row: IntArray
    """The row of `weights` that belongs to each anchor."""
    weights: IntArray
    outputs: IntArray

    @classmethod
    def of(cls, row: RoundRow) -> Solution:
        """The table of a round that is solved."""
        return cls(**unpack(row.solution or b""))

    def rows(self, anchors: IntArray) -> IntArray:
        """The weights of some anchors, in their order."""
        return np.asarray(self.weights[self.row[np.searchsorted(self.anchors, anchors)]])


def solve_round(
    terms: AnchorsTerms, domain: Domain | bytes, sets: Iterable[Iterable[int]]
) -> Solution:
    """AnPO over the union of the sets, on a domain or a stored one. Runs in a worker process.

    Budgets depend on no upload, so whatever somebody uploads changes nobody else's guarantee. A
    user without anchors takes part without rows.
    """
    union = np.array(sorted(set().union(*sets)), dtype=np.int64)
    if not len(union):
        raise EmptyAnchorsError(
            "no anchors entered this round: nobody uploaded any", value=0.0, limit=1.0
        )
    scheme = terms.scheme(domain_of(domain), PandaOptions(time_limit=SOLVE_SECONDS))
    table = scheme.solve((union,))
    weights = table.mechanism.weights[: int(table.row.max()) + 1]
    return Solution(table.anchors, table.row, weights, scheme.problem.outputs)
