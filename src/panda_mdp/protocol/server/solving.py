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
from itertools import pairwise
from multiprocessing.connection import wait
from typing import Any, ParamSpec, TypeVar

import numpy as np
import scipy

from panda_mdp.base.arrays import IntArray, owners
from panda_mdp.base.floored import FlooredRows
from panda_mdp.base.text import Facts
from panda_mdp.errors import EmptyAnchorsError
from panda_mdp.panda.lattice import BallLaw
from panda_mdp.panda.selection import PandaOptions
from panda_mdp.protocol.messages.catalogue import Places
from panda_mdp.protocol.messages.deployments import (
    AnchorsTerms,
    BallRows,
    BallTerms,
    tile_leaf,
)
from panda_mdp.protocol.messages.log import levels_of, root_from, root_of
from panda_mdp.protocol.server.failures import LONGEST, unavailable
from panda_mdp.protocol.server.store.catalogue import pack, unpack
from panda_mdp.protocol.server.store.schema import RoundRow
from panda_mdp.space.tiles import TILE, order_in_space
from panda_mdp.table.blocks import encode_block, spanning_order
from panda_mdp.table.decode import decode

P = ParamSpec("P")
T = TypeVar("T")
NICENESS = 5
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


def ball_facts(file: bytes, terms: BallTerms) -> tuple[Facts, bytes]:
    """What a ball deployment promises and is signed with, and its table cut into `Tiles`. Runs in a
    worker process."""
    table = decode(file)
    domain, weights = table.problem.domain, table.weights
    law = terms.law(domain, table.epsilon)
    places = np.stack([domain.lat, domain.lon], axis=1)
    floors = FlooredRows.over(weights).floor
    order, starts = order_in_space(law.places, TILE)
    leaves, blocks = [], []
    for part in np.split(order, starts[1:-1]):
        at = law.places[part]
        along, parent = spanning_order(scipy.spatial.distance.cdist(at, at))
        part[:] = part[along]
        rows = weights[part]
        leaves.append(tile_leaf(places[part], rows))
        blocks.append(base64.b64encode(encode_block(rows, parent, floors)))
    outputs = table.problem.outputs.tolist()
    # Those of the outputs, and of records that have the plane and box of all.
    shown = [*dict.fromkeys([*outputs, *law.corners.tolist()])]
    lat, lon = places[shown].T.tolist()
    facts = {
        "guarantee": {"epsilon": law.epsilon + law.second, "delta": 0.0, "unit": domain.unit},
        "outputs": outputs,
        "places": {"lat": lat, "lon": lon},
        "rows": root_of(leaves).hex(),
        "tiles": len(leaves),
        "box": [end.tolist() for end in law.box],
    }
    arrays: dict[str, Any] = {
        "starts": starts,
        "places": places[order],
        "floors": floors,
        "leaves": np.array([[*leaf] for leaf in leaves], np.uint8),
        "blocks": np.frombuffer(b" ".join(blocks), np.uint8),
    }
    return facts, pack(arrays)


class Tiles:
    """A table cut into tiles of near records, as `ball_facts` packed it, and the tree over them:
    what is sent of a tile was encoded when the deployment was made."""

    def __init__(self, packed: bytes, law: BallLaw) -> None:
        arrays = unpack(packed)
        starts = arrays["starts"]
        self._law = law
        self._places = arrays["places"]
        self._parts = [slice(*ends) for ends in pairwise(starts.tolist())]
        self._home = owners(starts)
        self._near: Any = scipy.spatial.cKDTree(law.flat(*self._places.T), balanced_tree=False)
        self._floors = [*map(str, arrays["floors"].tolist())]
        self._blocks = arrays["blocks"].tobytes().split(b" ")
        self._tree = levels_of([leaf.tobytes() for leaf in arrays["leaves"]])

    def __len__(self) -> int:
        """How many bytes it takes, about."""
        return 6 * self._places.nbytes

    def ball(self, version: int, centre: tuple[int, int]) -> BallRows:
        """The tiles that reach into a ball, and what proves that they are cut from this table."""
        at = np.array(centre) / self._law.exponent
        inside = self._near.query_ball_point(at, self._law.radius)
        tiles = np.unique(self._home[inside]).tolist()
        parts = [self._places[self._parts[tile]] for tile in tiles]
        lat, lon = np.concatenate([self._places[:0], *parts]).T.tolist()
        proof = bytearray()

        def sibling(level: int, at: int) -> bytes:
            proof.extend(self._tree[level][at])
            return self._tree[level][at]

        leaves = self._tree[0]
        if tiles:
            root_from({tile: leaves[tile] for tile in tiles}, len(leaves), sibling)
        return BallRows.model_construct(
            version=version,
            centre=centre,
            tiles=tiles,
            sizes=[*map(len, parts)],
            lat=lat,
            lon=lon,
            floors=self._floors,
            blocks=[self._blocks[tile].decode() for tile in tiles],
            proof=base64.b64encode(proof).decode("ascii"),
        )


# Anchors


def anchors_facts(terms: AnchorsTerms, places: Places) -> Facts:
    """The guarantee of an anchors deployment on places, or the reasons why there is none. Runs in a
    worker process."""
    scheme = terms.scheme(places.domain())
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


def solve_round(terms: AnchorsTerms, places: Places, sets: Iterable[Iterable[int]]) -> Solution:
    """AnPO over the union of the sets. Runs in a worker process.

    Budgets depend on no upload, so whatever somebody uploads changes nobody else's guarantee. A
    user without anchors takes part without rows.
    """
    union = np.array(sorted(set().union(*sets)), dtype=np.int64)
    if not len(union):
        raise EmptyAnchorsError(
            "no anchors entered this round: nobody uploaded any", value=0.0, limit=1.0
        )
    scheme = terms.scheme(places.domain(), PandaOptions(time_limit=SOLVE_SECONDS))
    table = scheme.solve((union,))
    weights = table.mechanism.weights[: int(table.row.max()) + 1]
    return Solution(table.anchors, table.row, weights, scheme.problem.outputs)
