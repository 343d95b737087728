"""The anchors' rounds as a client goes through them: upload, wait, rows, one draw."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from panda_mdp.base.arrays import IntArray
from panda_mdp.errors import LedgerError, ProtocolError, ServerError
from panda_mdp.protocol.client import draws
from panda_mdp.protocol.client.plans import AnchorsPlan
from panda_mdp.protocol.client.record import Record
from panda_mdp.protocol.client.trust import check_round
from panda_mdp.protocol.client.wire import Wire
from panda_mdp.protocol.ledger.books import Entry
from panda_mdp.protocol.ledger.drawn import AnchorsDrawn, Drawn
from panda_mdp.protocol.ledger.ledger import Ledger
from panda_mdp.protocol.messages.deployments import (
    AnchorsAccepted,
    AnchorsDeployment,
    AnchorsRequest,
    RoundInfo,
    RoundRows,
    deployment_info,
)
from panda_mdp.protocol.messages.keys import Keyring
from panda_mdp.protocol.messages.log import Log
from panda_mdp.protocol.messages.signing import rows_bytes
from panda_mdp.protocol.messages.types import new_id
from panda_mdp.space.domain import Domain

POLL_S = 0.25
LONGEST_POLL_S = 5.0


class Rounds:
    """Steps of a round. What was drawn is in the ledger before each step, so all can be redone."""

    def __init__(self, wire: Wire, ledger: Ledger, log: Callable[[], Log]) -> None:
        self._wire = wire
        self._ledger = ledger
        self._log = log

    def upload(self, plan: AnchorsPlan, entry: Entry) -> Entry:
        """Upload the anchors of an entry to the open round. The same anchors go to a later round
        where the one that was meant has closed: that tells nothing more."""
        content = entry.drawn(AnchorsDrawn)
        if content.uploaded:
            return entry
        if content.round is not None:
            # Sent before, and perhaps accepted: the same id tells.
            try:
                return self._send(plan, entry)
            except ServerError as error:
                if error.code != "round_closed":
                    raise
        return self._send(plan, self._aim(entry, self._open_round(plan)))

    def _send(self, plan: AnchorsPlan, entry: Entry) -> Entry:
        content = entry.drawn(AnchorsDrawn)
        if content.round is None or content.upload is None:
            msg = "an upload was begun without a round; report again"
            raise LedgerError(msg)
        number = content.round
        message = AnchorsRequest(id=content.upload, anchors=unpack_anchors(content.anchors))
        address = ("deployments", plan.name, "rounds", str(number), "anchors")
        answer = self._wire.post(AnchorsAccepted, message, *address)
        if answer.id != message.id or answer.round != number:
            msg = "the server accepted another upload than the one that was sent"
            raise ProtocolError(msg)
        return self._amend(entry, uploaded=True, version=number)

    def finish(
        self, plan: AnchorsPlan, record: Record, entry: Entry, key: Keyring, wait_s: float
    ) -> Entry:
        """Wait for the round, check the rows, draw the output once."""
        entry = self.upload(plan, entry)
        content = entry.drawn(AnchorsDrawn)
        if content.output is not None:
            return entry
        number = str(content.round)
        state = self._wait(plan, number, wait_s)
        if state.state == "failed":
            self._amend(entry, uploaded=False, round=None)
            msg = (
                f"round {number} failed ({state.error or 'no reason given'}); report again when "
                "another is open: the same anchors are used, nothing is drawn again"
            )
            raise ProtocolError(msg)
        rows = self._rows(plan, number, entry)
        signed = rows_bytes(
            plan.name, rows.round, "anchors", rows.anchors, rows.outputs, rows.weights
        )
        key.verify(signed, rows.signature)
        if rows.round != content.round:
            msg = f"the server sent rows of round {rows.round}; this user is in round {number}"
            raise ProtocolError(msg)
        weights = plan.check(unpack_anchors(content.anchors), rows)
        return self.draw_once(record, plan.domain, entry, rows.anchors, weights, rows.outputs)

    def draw_once(
        self,
        record: Record,
        domain: Domain,
        entry: Entry,
        members: list[int],
        weights: IntArray,
        outputs: list[int],
    ) -> Entry:
        """Draw an entry's output, unless another process has: then its draw stands."""
        with self._ledger.books() as books:
            current = books.get(entry.id)
            content = current.drawn(Drawn)
            if content.output is not None:
                return current
            output = draws.draw_from_rows(
                record, domain, np.array(members), weights, np.array(outputs)
            )
            return books.settle(current, current.state, content.but(output=output))

    def _rows(self, plan: AnchorsPlan, number: str, entry: Entry) -> RoundRows:
        address = ("deployments", plan.name, "rounds", number, "rows")
        try:
            rows: RoundRows = self._wire.get(RoundRows, *address, own=True)
        except ServerError as error:
            if error.code == "conflict":
                # Left out of this round by the server's filter; another one may take the anchors.
                self._amend(entry, uploaded=False, round=None)
            raise
        return rows

    def _aim(self, entry: Entry, number: int) -> Entry:
        """Give the upload an id for this round, on disk before it is sent: retries use the same."""
        with self._ledger.books() as books:
            current = books.get(entry.id)
            content = current.drawn(AnchorsDrawn)
            if content.round == number:
                return current
            aimed = content.but(round=number, upload=new_id())
            return books.settle(current, current.state, aimed)

    def _amend(self, entry: Entry, **changes: Any) -> Entry:
        """Note how far the upload is, unless another process has gone further."""
        with self._ledger.books() as books:
            current = books.get(entry.id)
            content = current.drawn(AnchorsDrawn)
            if content.output is not None:
                return current
            return books.settle(current, current.state, content.but(**changes))

    def _open_round(self, plan: AnchorsPlan) -> int:
        info = self._wire.get(deployment_info, "deployments", plan.name)
        if not isinstance(info, AnchorsDeployment) or info.round is None:
            msg = f"no round of deployment {plan.name} is open; wait until the operator opens one"
            raise ProtocolError(msg)
        if info.round != plan.round:
            check_round(self._log(), plan.name, info.round)
        return info.round

    def _wait(self, plan: AnchorsPlan, number: str, wait_s: float) -> RoundInfo:
        """Poll until the round is solved or failed. When to ask depends on the clock alone."""
        deadline = time.monotonic() + wait_s
        pause = POLL_S
        while True:
            info: RoundInfo = self._wire.get(RoundInfo, "deployments", plan.name, "rounds", number)
            if info.state in ("solved", "failed"):
                return info
            if time.monotonic() + pause > deadline:
                msg = (
                    f"round {number} is {info.state} and not solved after {wait_s:g} s; report "
                    "again later: the anchors are uploaded and nothing is drawn again"
                )
                raise ProtocolError(msg)
            time.sleep(pause)
            pause = min(1.5 * pause, LONGEST_POLL_S)


def pack_anchors(anchors: list[int], size: int) -> str:
    """Anchors as hexadecimal digits, one bit per record: as long for few as for many.

    >>> unpack_anchors(pack_anchors([0, 3, 9], 12))
    [0, 3, 9]
    """
    mask = np.zeros(size, dtype=bool)
    mask[anchors] = True
    return np.packbits(mask).tobytes().hex()


def unpack_anchors(text: str) -> list[int]:
    """The anchors of `pack_anchors`, ascending."""
    bits = np.unpackbits(np.frombuffer(bytes.fromhex(text), dtype=np.uint8))
    return [int(anchor) for anchor in np.flatnonzero(bits)]
