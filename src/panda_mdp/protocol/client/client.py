"""The client: checks what a server offers, draws on the device, charges, then sends.

    client = Client("https://panda.example", token, "~/.panda-mdp",
                    Allowance(epsilon=5.0, period_epsilon=10.0))
    plan = client.plan("rome")              # fetched, signature and audit checked; no record yet
    answer = client.report(plan, plan.place(41.9, 12.5))

The record stays in this process's memory, sealed. Requests are built from messages that have no
place for it. docs/protocol.md says what a server learns all the same.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import httpx

from panda_mdp.errors import (
    BudgetError,
    LedgerError,
    NotForReleaseError,
    ProtocolError,
    ServerError,
    SignatureError,
)
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.protocol.client import draws
from panda_mdp.protocol.client.anchors import Rounds, pack_anchors
from panda_mdp.protocol.client.cache import TableCache, check_signature
from panda_mdp.protocol.client.plans import (
    AnchorsPlan,
    BallPlan,
    EverywherePlan,
    PandaPlan,
    Plan,
    TablePlan,
    domain_of,
)
from panda_mdp.protocol.client.record import Record
from panda_mdp.protocol.client.statements import Described, check_domain, read_statement
from panda_mdp.protocol.client.trust import Pin, Trust, check_round, place_in
from panda_mdp.protocol.client.wire import Wire
from panda_mdp.protocol.ledger.allowance import Allowance, excess
from panda_mdp.protocol.ledger.books import Books, Entry
from panda_mdp.protocol.ledger.drawn import AnchorsDrawn, BallDrawn, Drawn
from panda_mdp.protocol.ledger.ledger import Ledger
from panda_mdp.protocol.messages.balls import any_ball, plain_rows
from panda_mdp.protocol.messages.catalogue import DomainDetail
from panda_mdp.protocol.messages.deployments import (
    AnchorsDeployment,
    BallDeployment,
    BallRequest,
    DeploymentList,
    PandaDeployment,
    deployment_info,
)
from panda_mdp.protocol.messages.keys import Keyring
from panda_mdp.protocol.messages.log import Log
from panda_mdp.protocol.messages.reports import ReportAccepted, ReportRequest
from panda_mdp.protocol.messages.service import ServiceInfo
from panda_mdp.protocol.messages.signing import (
    VerifyKey,
    rows_bytes,
    statement_bytes,
    table_entry,
)
from panda_mdp.protocol.messages.types import new_id
from panda_mdp.space.domain import Domain
from panda_mdp.table.certificate import Expected
from panda_mdp.table.everywhere import EverywhereMechanism

STALE_S = 60.0
"""A plan that is older than this is compared with what is in force before something is sent."""


@dataclass(frozen=True)
class Answer:
    """What was released. The cost is 0 where the same record was answered before."""

    deployment: str
    output: int
    """A record of the domain."""
    where: tuple[float, float] | None
    """Latitude and longitude of the output, where records are places."""
    cost: Guarantee
    repeated: bool


class Client:
    """A user of one server, with the books and the pinned keys of a folder.

    `key` is the operator's public key where the user knows it (base64 or `VerifyKey`); otherwise
    the one that the server shows first is pinned. `allowance` makes the ledger at first use.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        folder: str | os.PathLike[str],
        allowance: Allowance | None = None,
        *,
        key: VerifyKey | str | None = None,
        timeout_s: float = 30.0,
        allow_plain_http: bool = False,
        transport: httpx.BaseTransport | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = Path(folder).expanduser()
        self.ledger = Ledger.open(self.folder, allowance, clock=clock)
        self.trust = Trust(self.folder)
        self.tables = TableCache(self.folder / "tables")
        self._wire = Wire(
            url,
            token,
            timeout_s=timeout_s,
            allow_plain_http=allow_plain_http,
            transport=transport,
        )
        self._given = VerifyKey.from_base64(key) if isinstance(key, str) else key
        self._key: Keyring | None = None
        self._rounds = Rounds(self._wire, self.ledger, self.log)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._wire.close()

    def __repr__(self) -> str:
        return f"Client({self.server})"

    @property
    def server(self) -> str:
        """The server's address."""
        return self._wire.origin

    @property
    def key(self) -> Keyring:
        """The operator's key (given, pinned from before, or pinned now), and those it certifies."""
        if self._key is None:
            info: ServiceInfo = self._wire.get(ServiceInfo)
            self._key = self.trust.keyring(self.server, info, self._given)
        return self._key

    def log(self) -> Log:
        """The server's log, checked: signed, whole, and a continuation of the one seen before."""
        log: Log = self._wire.get(Log, "log")
        self.trust.check_log(self.server, log, self.key)
        return log

    def deployments(self) -> list[Described]:
        """What the server offers. Nothing of it is checked yet."""
        reply: DeploymentList = self._wire.get(DeploymentList, "deployments")
        return list(reply.deployments)

    def plan(
        self,
        name: str,
        *,
        version: int | None = None,
        accept_update: bool = False,
        expected: Expected | None = None,
    ) -> TablePlan | PandaPlan | BallPlan | AnchorsPlan:
        """Fetch a deployment whole and check it: key, signatures, pinned version, audit, cost.

        `version` asks for one version of the table. `accept_update` takes another version than
        the one that was used before. `expected` is what the user knows from elsewhere. Raises
        `BudgetError` where a release costs more than is allowed, before any record is known.
        """
        # First, so that all deployments ask for the same things in the same order.
        key = self.key
        info: Described = self._wire.get(deployment_info, "deployments", name)
        if info.name != name:
            msg = "the server described another deployment than the one that was asked for"
            raise ProtocolError(msg)
        stated = read_statement(info, key)
        log = self.log()
        place = place_in(log, statement_bytes(name, info.statement), f"deployment {name}")
        self.trust.check_statement(self.server, stated, place)
        # The user's own: a limit that a server could set would tell it, by silence, who is near.
        snap_km = self.ledger.allowance.snap_km
        plan: TablePlan | PandaPlan | BallPlan | AnchorsPlan
        if isinstance(info, AnchorsDeployment):
            check_round(log, name, info.round)
            domain = self._domain(info.domain, None)
            plan = AnchorsPlan.of(self.server, info, domain, snap_km)
        else:
            pin = Pin(info.table.name, info.table.version, info.table.sha256)
            check_signature(info.table, key)
            number = place_in(log, table_entry(info.table), f"table {info.table.name}")
            self.trust.check_version(self.server, name, pin, version, accept_update, number)
            if isinstance(info, BallDeployment):
                domain = self._domain(info.domain, info.table.domain)
                plan = BallPlan.of(self.server, info, domain, snap_km)
            elif isinstance(info, PandaDeployment):
                both = self.tables.get_panda(self._wire, info.table, key)
                self._check_metric(both.problem.domain)
                plan = PandaPlan.of(self.server, info, both, snap_km)
                if (plan.cost.epsilon, plan.cost.delta) != (stated.epsilon, stated.delta):
                    msg = "the file costs something else than its operator signed; do not report"
                    raise SignatureError(msg)
            else:
                table = self.tables.get(self._wire, info.table, key)
                if isinstance(table, EverywhereMechanism):
                    plan = EverywherePlan.over(self.server, info, table)
                else:
                    plan = TablePlan.of(self.server, info, table, snap_km)
                self._check_metric(plan.domain)
        check_domain(stated, plan.domain)
        if expected is not None:
            expected.check(plan.domain, plan.cost.epsilon)
        self._check_cost(plan)
        if not isinstance(info, AnchorsDeployment):
            self.trust.pin_version(self.server, name, pin, number)
        self.trust.pin_statement(self.server, stated, place)
        self.trust.pin_log(self.server, log.head)
        return plan

    def report(
        self,
        plan: TablePlan | PandaPlan | BallPlan | AnchorsPlan,
        record: Record,
        *,
        accept_no_guarantee: bool = False,
        wait_s: float = 60.0,
    ) -> Answer:
        """Release one answer for a record: draw, charge durably, send.

        Within a period the same record gets the same answer, at no further cost and with nothing
        sent. What got lost is sent again unchanged by calling this again, or by `retry`. Where the
        ledger's rule is "fresh", every call draws and charges, after a `retry`. Raises
        `BudgetError` before anything is drawn where the period has too little left. `wait_s` is
        how long an anchors' round may take to be solved.
        """
        if self.ledger.allowance.repeats == "fresh" or isinstance(plan, EverywherePlan):
            # Whatever the record is now, so that a lost report does not tell whether it changed.
            self.retry()
        known = {pending.id for pending in self.ledger.pending(self.server)}
        entry = self._enter(plan, record, accept_no_guarantee)
        repeated = entry.state == "accepted"
        if not repeated:
            if isinstance(plan, BallPlan):
                entry = self._finish_ball(plan, record, entry)
            elif isinstance(plan, AnchorsPlan):
                entry = self._rounds.finish(plan, record, entry, self.key, wait_s)
            if entry.id in known or time.monotonic() - plan.made > STALE_S:
                self._confirm(entry)
            self._send(entry)
        output = _output_of(entry)
        free = Guarantee(0.0, 0.0, plan.cost.unit)
        return Answer(
            plan.name, output, plan.where(output), free if repeated else entry.cost, repeated
        )

    def join(self, plan: AnchorsPlan, record: Record, *, accept_no_guarantee: bool = False) -> None:
        """Draw anchors and upload them to the open round; `report` goes on when it is solved."""
        entry = self._enter(plan, record, accept_no_guarantee)
        if entry.state != "accepted":
            self._rounds.upload(plan, entry)

    def retry(self) -> tuple[int, int]:
        """Send again what was charged and not accepted: how many were accepted, how many remain.

        Needs no record: what is sent was drawn before. Entries that wait for a ball or a round
        need `report`. What a server refuses for good is given up after its period.
        """
        accepted = remaining = 0
        with self.ledger.books() as books:
            running = books.period
        for entry in self.ledger.pending(self.server):
            if entry.drawn(Drawn).output is None:
                remaining += entry.period == running
                if entry.period < running:
                    self.ledger.settle(entry, "given_up")
                continue
            try:
                self._confirm(entry)
                self._send(entry)
                accepted += 1
            except ServerError as error:
                if error.status in (404, 409, 422) and entry.period < running:
                    self.ledger.settle(entry, "given_up")
                else:
                    remaining += 1
        return accepted, remaining

    def _domain(self, name: str, fingerprint: str | None) -> Domain:
        detail: DomainDetail = self._wire.get(DomainDetail, "domains", name)
        domain = domain_of(detail)
        if fingerprint is not None and domain.fingerprint != fingerprint:
            msg = "the deployment's domain is not the one that its table was signed for"
            raise ProtocolError(msg)
        self._check_metric(domain)
        return domain

    def _check_metric(self, domain: Domain) -> None:
        kind, allowed = domain.metric.kind, self.ledger.allowance.metrics
        if kind not in allowed:
            msg = (
                f"distances are of kind {kind!r} and only {', '.join(allowed)} is allowed: for "
                "others the server says how far apart records are. Allow it if you trust that"
            )
            raise BudgetError(msg)

    def _check_cost(self, plan: Plan) -> None:
        if plan.guarantee is None:
            # Refused by `report` unless accepted there by name.
            return
        why = excess(self.ledger.allowance, [], plan.cost)
        if why is not None:
            msg = f"{why}: choose another deployment or allow more"
            raise BudgetError(msg)

    def _enter(
        self, plan: TablePlan | PandaPlan | BallPlan | AnchorsPlan, record: Record, accept: bool
    ) -> Entry:
        """The entry of a record: found, or drawn and charged, in one exclusive transaction."""
        if plan.server != self.server:
            msg = "the plan is of another server; make it with this client"
            raise ProtocolError(msg)
        if not self._wire.has_token:
            msg = "reports need a token; give the client the one that the operator issued"
            raise ProtocolError(msg)
        if not plan.open:
            msg = f"deployment {plan.name} is closed and takes no reports"
            raise ProtocolError(msg)
        if plan.guarantee is None and not accept:
            why = "; ".join(getattr(plan, "reasons", ())) or "none could be proved"
            msg = (
                f"deployment {plan.name} has no guarantee ({why}); accept_no_guarantee=True "
                "releases all the same, and spends everything that is left of the period"
            )
            raise NotForReleaseError(msg)
        with self.ledger.books() as books:
            memo = None
            if isinstance(plan, EverywherePlan):
                return self._draw_and_charge(plan, record, books, memo, accept)
            # With fresh draws, only what has a second step is looked up, to be finished.
            if books.allowance.repeats == "same" or not isinstance(plan, TablePlan | PandaPlan):
                memo = draws.memo_of(record, plan, books)
                entry = books.find(memo)
                if entry is not None and _still_valid(entry, plan):
                    return entry
                if entry is not None:
                    books.settle(entry, "given_up")
            return self._draw_and_charge(plan, record, books, memo, accept)

    def _draw_and_charge(
        self,
        plan: TablePlan | PandaPlan | BallPlan | AnchorsPlan,
        record: Record,
        books: Books,
        memo: bytes | None,
        accept: bool,
    ) -> Entry:
        # Before the draw: what is refused must not depend on what was drawn.
        unproved = accept and plan.guarantee is None
        books.check(plan.account, plan.cost, unproved)
        if isinstance(plan, AnchorsPlan):
            _check_one_set(plan, books)
        content: Drawn
        report, version = new_id(), plan.version
        if isinstance(plan, TablePlan):
            output = draws.draw_output(record, plan)
            content = Drawn(report=report, version=version, table=plan.sha256, output=output)
        elif isinstance(plan, PandaPlan):
            output = draws.draw_both_phases(record, plan)
            content = Drawn(report=report, version=version, table=plan.sha256, output=output)
        elif isinstance(plan, BallPlan):
            ball, centre = new_id(), draws.draw_centre(record, plan)
            content = BallDrawn(
                report=report, version=version, table=plan.sha256, ball=ball, centre=centre
            )
        else:
            anchors = pack_anchors(draws.draw_anchors(record, plan), plan.domain.size)
            content = AnchorsDrawn(report=report, version=version, anchors=anchors)
        return books.charge(
            plan.account,
            self.server,
            plan.name,
            plan.cost,
            content,
            memo=memo,
            size=plan.box_bytes,
            accept_no_guarantee=unproved,
        )

    def _finish_ball(self, plan: BallPlan, record: Record, entry: Entry) -> Entry:
        content = entry.drawn(BallDrawn)
        if content.output is not None:
            return entry
        message = BallRequest(id=content.ball, centre=content.centre, compact=True)
        rows = plain_rows(self._wire.post(any_ball, message, "deployments", plan.name, "balls"))
        signed = rows_bytes(
            plan.name, rows.version, "records", rows.records, rows.outputs, rows.weights
        )
        self.key.verify(signed, rows.signature)
        # The limits of a deployment may have changed since, and its version with them.
        if rows.version not in (content.version, plan.version):
            msg = f"the server sent rows of version {rows.version}; make the plan again"
            raise ProtocolError(msg)
        weights = plan.check(content.centre, rows)
        return self._rounds.draw_once(
            record, plan.domain, entry, rows.records, weights, rows.outputs
        )

    def _confirm(self, entry: Entry) -> None:
        """Raise where what was drawn from is not in force any more. The report does not name it."""
        info: Described = self._wire.get(deployment_info, "deployments", entry.deployment)
        if isinstance(info, AnchorsDeployment):
            # Whoever has rows of the round in force may report, and nobody else.
            return
        drawn = entry.drawn(Drawn)
        if not _of_table(drawn, info.version, info.table.sha256):
            msg = (
                f"deployment {entry.deployment} uses another table since this report was drawn; it "
                "is not sent, and its cost stands: report again with a new plan"
            )
            raise ServerError(msg, code="wrong_version", status=409)

    def _send(self, entry: Entry) -> None:
        drawn = entry.drawn(Drawn)
        message = ReportRequest(id=drawn.report, table=drawn.table, output=_output_of(entry))
        answer = self._wire.post(
            ReportAccepted, message, "deployments", entry.deployment, "reports"
        )
        if answer.id != message.id:
            msg = "the server accepted another report than the one that was sent"
            raise ProtocolError(msg)
        self.ledger.settle(entry, "accepted")


def _still_valid(entry: Entry, plan: Plan) -> bool:
    """Whether an entry answers for a plan: it was accepted, or can still be."""
    if entry.content is None:
        return False
    if entry.state == "accepted" or isinstance(plan, AnchorsPlan):
        return True
    return _of_table(entry.content, plan.version, plan.sha256)


def _of_table(drawn: Drawn, version: int, sha256: str | None) -> bool:
    """Whether something was drawn from the table in force. A version also changes with the limits,
    which are nothing that a draw depends on; earlier versions of this library noted it alone."""
    if drawn.table is None or sha256 is None:
        return drawn.version == version
    return drawn.table == sha256


def _output_of(entry: Entry) -> int:
    output = entry.drawn(Drawn).output
    if output is None:
        msg = "an entry of the ledger has no output yet; report again"
        raise LedgerError(msg)
    return output


def _check_one_set(plan: AnchorsPlan, books: Books) -> None:
    """Refuse a second anchor set for a round, which the server would read and not take."""
    for entry in books.pending(plan.server):
        same = entry.deployment == plan.name and isinstance(entry.content, AnchorsDrawn)
        if same and entry.drawn(AnchorsDrawn).round == plan.round is not None:
            msg = (
                f"another record's anchors are in round {plan.round} already, and a round takes "
                "one set of a user; finish that report or wait for the next round"
            )
            raise ProtocolError(msg)
