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
from multiprocessing.connection import wait
from typing import ParamSpec, TypeVar

import numpy as np

from panda_mdp.base.arrays import IntArray
from panda_mdp.base.floored import FlooredRows
from panda_mdp.base.text import Facts
from panda_mdp.errors import EmptyAnchorsError
from panda_mdp.loss import distance_loss
from panda_mdp.panda.coins import CoinScheme
from panda_mdp.panda.lattice import BallLaw
from panda_mdp.panda.selection import PandaOptions
from panda_mdp.problem import Problem
from panda_mdp.protocol.messages.deployments import (
    AnchorsDeploymentRequest,
    pack_rows,
    row_leaves,
)
from panda_mdp.protocol.messages.log import levels_of, root_from
from panda_mdp.protocol.server.failures import LONGEST, unavailable
from panda_mdp.protocol.server.store.catalogue import domain_of, unpack
from panda_mdp.protocol.server.store.schema import RoundRow
from panda_mdp.space.domain import Domain
from panda_mdp.table.blocks import BLOCK_ROWS
from panda_mdp.table.decode import decode
from panda_mdp.table.mechanism import Mechanism

P = ParamSpec("P")
T = TypeVar("T")
NICENESS = 5
BROKEN = "the process that worked on this ended unexpectedly, perhaps for lack of memory"
SOLVE_SECONDS = 600.0
ROUND_GAP = 0.01


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
            ended, self._executor = self._executor, None
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


@dataclass(frozen=True)
class BallTable:
    """The table of a ball deployment, and how centres are drawn."""

    file: bytes
    epsilon_1: float
    edge: float
    radius: float

    def facts(self) -> Facts:
        """What the deployment promises, and what it is signed with."""
        table, low, high = _read_table(self.file), *self.law.box
        problem = table.problem
        epsilon = self.epsilon_1 + table.epsilon + self.edge
        return {
            "guarantee": {"epsilon": epsilon, "delta": 0.0, "unit": problem.domain.unit},
            "outputs": problem.outputs.tolist(),
            "rows": _tree_of(self.file)[-1][0].hex(),
            "box": [low.tolist(), high.tolist()],
        }

    @property
    def law(self) -> BallLaw:
        """How centres are drawn."""
        return _ball_law(self.file, self.epsilon_1, self.edge, self.radius)

    def ball(self, centre: tuple[int, int]) -> Facts:
        """The ball around a centre in blocks cut from the compact table, and what proves that it
        is cut from it."""
        table, law = _read_table(self.file), self.law
        records = law.ball(centre)
        weights, floors = table.weights[records], FlooredRows.over(table.weights).floor
        order, blocks = pack_rows(law.domain, records, weights, floors)
        tree, proof = _tree_of(self.file), bytearray()

        def sibling(level: int, at: int) -> bytes:
            proof.extend(tree[level][at])
            return tree[level][at]

        if len(records):
            known = {record: tree[0][record] for record in records.tolist()}
            root_from(known, law.domain.size, sibling)
        return {
            "records": order,
            "floors": [str(floor) for floor in floors.tolist()],
            "blocks": blocks,
            "proof": base64.b64encode(proof).decode("ascii"),
        }


@lru_cache(maxsize=4)
def _read_table(file: bytes) -> Mechanism:
    """A stored table. Reading and auditing it takes longer than cutting many balls."""
    return decode(file)


@lru_cache(maxsize=4)
def _ball_law(file: bytes, epsilon_1: float, edge: float, radius: float) -> BallLaw:
    table = _read_table(file)
    return BallLaw(table.problem.domain, epsilon_1, radius, table.epsilon + edge, edge)


@lru_cache(maxsize=4)
def _tree_of(file: bytes) -> list[list[bytes]]:
    """The tree over all rows of a table, in the order of records."""
    weights, leaves = _read_table(file).weights, []
    for start in range(0, len(weights), BLOCK_ROWS):
        some = range(start, min(start + BLOCK_ROWS, len(weights)))
        leaves += row_leaves(some, weights[np.array(some)])
    return levels_of(leaves)


# Anchors


def anchors_scheme(request: AnchorsDeploymentRequest, domain: Domain) -> CoinScheme:
    """What can be proved before anybody uploads, for every set that anybody may draw; raises where
    the parts of a request do not fit each other."""
    selected = request.selection
    losses = distance_loss(domain, request.outputs)
    problem = Problem(domain, np.array(request.outputs), losses, request.epsilon)
    options = PandaOptions(gap=ROUND_GAP, time_limit=SOLVE_SECONDS)
    return selected.law().scheme(problem, request.delta, options)


def anchors_facts(request: AnchorsDeploymentRequest, domain: bytes) -> Facts:
    """What an anchors deployment can promise. Runs in a worker process."""
    return scheme_facts(anchors_scheme(request, domain_of(domain)))


def scheme_facts(scheme: CoinScheme) -> Facts:
    """A scheme's guarantee, or the reasons why there is none."""
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
    request: AnchorsDeploymentRequest, domain: Domain | bytes, sets: Iterable[Iterable[int]]
) -> Solution:
    """AnPO over the union of the sets, on a domain or a stored one. Runs in a worker process.

    Budgets depend on no upload, so whatever somebody uploads changes nobody else's guarantee. A
    user without anchors takes part without rows.
    """
    domain = domain_of(domain) if isinstance(domain, bytes) else domain
    union = np.array(sorted(set().union(*sets)), dtype=np.int64)
    if not len(union):
        raise EmptyAnchorsError(
            "no anchors entered this round: nobody uploaded any", value=0.0, limit=1.0
        )
    scheme = anchors_scheme(request, domain)
    table = scheme.solve((union,))
    weights = table.mechanism.weights[: int(table.row.max()) + 1]
    return Solution(table.anchors, table.row, weights, scheme.problem.outputs)
