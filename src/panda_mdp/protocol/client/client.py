"""The client: checks what a server offers, draws on the device, charges, then sends.

    client = Client("https://panda.example", token, "~/.panda-mdp",
                    Allowance(epsilon=5.0, period_epsilon=10.0))
    plan = client.plan("rome")              # fetched, signature and audit checked; no record yet
    answer = client.report(plan, plan.place(41.9, 12.5))

The record stays in this process's memory, sealed. Requests are built from messages that have no
place for it. docs/protocol.md says what a server learns all the same.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from panda_mdp.base.atomic import FilePath, atomic_file, digest_of_file
from panda_mdp.errors import (
    BudgetError,
    DomainError,
    NotForReleaseError,
    ProtocolError,
    ServerError,
    SignatureError,
)
from panda_mdp.privacy.guarantee import Guarantee
from panda_mdp.protocol.client.plans import Plan, Record, TablePlan
from panda_mdp.protocol.client.rounds import AnchorsPlan, BallPlan
from panda_mdp.protocol.client.trust import Trust, check_heads, read_statement
from panda_mdp.protocol.client.wire import Network, Wire
from panda_mdp.protocol.ledger.books import (
    LEAST_AREA_KM2,
    LEAST_PLACES,
    Allowance,
    Books,
    Drawn,
    Entry,
)
from panda_mdp.protocol.ledger.ledger import Ledger
from panda_mdp.protocol.messages.blind import (
    MOST_ONE_USE,
    Envelope,
    Issued,
    Issuer,
    IssueRequest,
    OneUse,
    to_block,
)
from panda_mdp.protocol.messages.catalogue import DomainDetail, TableInfo
from panda_mdp.protocol.messages.deployments import (
    AnyDeployment,
    Deployment,
    DeploymentList,
    ReportAccepted,
    ReportRequest,
)
from panda_mdp.protocol.messages.log import Log
from panda_mdp.protocol.messages.service import ServiceInfo
from panda_mdp.protocol.messages.signing import Keyring, VerifyKey
from panda_mdp.space.domain import Domain
from panda_mdp.table.decode import Expected

LARGEST_FILE = 1 << 30
PLANS: dict[str, Callable[[Any, Any], Plan]] = {
    "table": TablePlan.of,
    "panda": TablePlan.of,
    "ball": BallPlan.of,
    "anchors": AnchorsPlan.of,
}
"""How a deployment of each kind is checked."""


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
    receipt: str
    """The id of the report, by which an operator finds and removes it."""


class Client(AbstractContextManager["Client"]):
    """A user of one server, with the books and the pinned keys of a folder.

    `key` is the operator's public key where the user knows it (base64 or `VerifyKey`); otherwise
    the one that the server shows first is pinned. `allowance` makes the ledger at first use.
    """

    def __init__(
        self,
        url: str,
        token: str | None,
        folder: FilePath,
        allowance: Allowance | None = None,
        *,
        key: VerifyKey | str | None = None,
        allow_plain_http: bool = False,
        network: Network | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.folder = Path(folder).expanduser()
        self.ledger = Ledger.open(self.folder, allowance, clock=clock)
        self.wire = Wire(url, token, allow_plain_http=allow_plain_http, network=network)
        self.trust = Trust(self.folder, self.server)
        self._given = VerifyKey.from_base64(key) if isinstance(key, str) else key
        self._key: Keyring | None = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self.wire.close()

    @property
    def server(self) -> str:
        """The server's address."""
        return self.wire.origin

    @property
    def key(self) -> Keyring:
        """The operator's key (given, pinned from before, or pinned now), and those it certifies."""
        if self._key is None:
            info = self.wire.get(ServiceInfo)
            self._key = self.trust.keyring(info, self._given)
        return self._key

    def log(self) -> Log:
        """The server's log, checked: signed, whole, and a continuation of the one seen before.
        It is remembered, so that none that was shown once can be taken back."""
        log = self.wire.get(Log, "log")
        self.trust.check_log(log, self.key)
        self.trust.pin_log(log.head)
        return log

    def compare_heads(self, text: str) -> int:
        """How many heads, one a line, that others were shown are of the log that this client is
        shown; raises `SignatureError` for another log."""
        return check_heads(text, self.log(), self.key)

    def deployments(self) -> list[AnyDeployment]:
        """What the server offers. Nothing of it is checked yet."""
        reply = self.wire.get(DeploymentList, "deployments")
        return list(reply.deployments)

    def plan(
        self,
        name: str,
        *,
        accept_update: bool = False,
        expected: Expected | None = None,
    ) -> Plan:
        """Fetch a deployment whole and check it: key, signatures, pinned version, audit, cost.

        `accept_update` takes another version of the table than the one that was used before.
        `expected` is what the user knows from elsewhere. Raises `BudgetError` where a release costs
        more than is allowed, before any record is known. The result is the `Plan` of the
        deployment's kind.
        """
        # First, so that all deployments ask for the same things in the same order.
        key = self.key
        described: Any = Deployment
        info: AnyDeployment = self.wire.get(described, "deployments", name)
        if info.name != name:
            raise ProtocolError(
                "the server described another deployment than the one that was asked for"
            )
        stated = read_statement(info, key)
        log = self.trust.witnessed(self.log())
        number = log.number_of(info.signed, f"deployment {name}")
        self.trust.check_statement(stated, number)
        if info.kind == "anchors":
            log.check_round(name, info.round)
        else:
            table = info.table
            table.verify(key)
            log.number_of(table.signed, f"table {table.name}")
            self.trust.check_version(stated, accept_update)
        plan = PLANS[info.kind](self, info)
        plan.check_stated(stated)
        if expected is not None:
            whole = plan.table if isinstance(plan, TablePlan) else None
            expected.check(plan.domain, plan.cost.epsilon, whole)
        self._check_allowed(plan)
        self.trust.accept(stated, number)
        return plan

    def file(self, info: TableInfo) -> Path:
        """The file of a table, from disk or from the server, by its digest.

        It counts as a table only after the audit that is made when it is read.
        """
        what = f"table {info.name} version {info.version}"
        path = self.folder / "tables" / f"{info.sha256}.pmdp"
        if not (path.exists() and digest_of_file(path) == info.sha256):
            if info.size_bytes > LARGEST_FILE:
                raise ProtocolError(
                    f"{what} has {info.size_bytes} bytes; this client takes {LARGEST_FILE}"
                )
            address = ("tables", info.name, str(info.version), "file")
            with atomic_file(path) as target:
                if not self.wire.download(target, info.size_bytes, info.sha256, *address):
                    raise SignatureError(
                        f"the file of {what} is not the one that was signed; it was damaged or "
                        "changed on the way: fetch it again"
                    )
        return path

    def domain(self, name: str) -> Domain:
        """A domain of the server, whole, checked as any other, with its fingerprint."""
        detail = self.wire.get(DomainDetail, "domains", name)
        try:
            made = detail.domain()
        except (DomainError, ValueError) as error:
            raise ProtocolError(f"the server's domain cannot be used: {error}") from None
        if made.fingerprint != detail.fingerprint:
            raise ProtocolError(
                "the server's domain is not the one of its fingerprint; fetch it again"
            )
        return made

    def _check_allowed(self, plan: Plan) -> None:
        """Raise where the user's own limits leave a plan out."""
        kind = plan.domain.metric.kind
        limits = self.ledger.allowance
        if kind not in limits.metrics:
            raise BudgetError(
                f"distances are of kind {kind!r} and only {', '.join(limits.metrics)} is allowed: "
                "for others the server says how far apart records are. Allow it if you trust that"
            )
        if plan.places is not None:
            self._check_area(plan)
        # One without a guarantee is refused by `report`, unless it is accepted there by name.
        why = None if plan.guarantee is None else limits.excess([], plan.cost)
        if why is not None:
            raise BudgetError(f"{why}: choose another deployment or allow more")

    def _check_area(self, plan: Plan) -> None:
        """Raise where a deployment has few places, a small area, or holes in it."""
        places = plan.size
        size_km2 = plan.area.size_km2
        limits = self.ledger.allowance
        if places < LEAST_PLACES or size_km2 < LEAST_AREA_KM2:
            raise ProtocolError(
                f"deployment {plan.name} has {places} places in {size_km2:.2g} square km, and this "
                f"client takes part from {LEAST_PLACES} in {LEAST_AREA_KM2:g}: with less, taking "
                "part tells where somebody is"
            )
        if plan.snap_km > limits.snap_km:
            raise BudgetError(
                f"the area of deployment {plan.name} has points {plan.snap_km:.3g} km from every "
                f"place of it, and {limits.snap_km:g} km is allowed: choose another deployment, or "
                "allow more (snap_km)"
            )

    def report(
        self,
        plan: Plan,
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
        if plan.always_fresh or self.ledger.allowance.repeats == "fresh":
            # Whatever the record is now, so that a lost report does not tell whether it changed.
            self.retry()
        entry = self._enter(plan, record, accept_no_guarantee)
        repeated = entry.state == "accepted"
        if not repeated:
            entry = plan.finish(self, record, entry, wait_s)
            self._send(entry)
        cost = Guarantee(0.0, 0.0, plan.cost.unit) if repeated else entry.cost
        where = plan.where(entry.output)
        receipt = entry.drawn(Drawn).report
        return Answer(plan.name, entry.output, where, cost, repeated, receipt)

    def join(self, plan: AnchorsPlan, record: Record, *, accept_no_guarantee: bool = False) -> None:
        """Draw anchors and upload them to the open round; `report` goes on when it is solved."""
        entry = self._enter(plan, record, accept_no_guarantee)
        if entry.state != "accepted":
            plan.upload(self, entry)

    def collect(self, plan: Plan) -> int:
        """Have the one-use tokens of the running period signed; how many are at hand then.

        All that the quota allows, at once. The server knows who collects and not, later, whose a
        report is, unless address or time tell it: collect some time before, or from elsewhere.
        """
        charge, address = plan.charge(), ("deployments", plan.name)
        if not plan.info.one_use:
            raise ProtocolError(f"deployment {plan.name} takes reports with your token alone")
        issuer = self.wire.get(Issuer, *address, "issuer")
        self.trust.witnessed(self.log()).check_issuer(plan.name, issuer)
        with self.ledger.books() as books:
            tokens = books.tokens(charge)
            if tokens is not None:
                return len(tokens)
            if issuer.period != books.quota_period(charge):
                raise ProtocolError(
                    "the server signs one-use tokens of another period than the one that this "
                    "device's clock says; set the clock right, or try again in a minute"
                )
            facts = issuer.model_dump()
            secret = books.secret(purse=charge.purse, **facts)
        numbers = range(min(plan.info.reports_per_period, MOST_ONE_USE))
        made = [Envelope.of(secret, number, plan.name, issuer) for number in numbers]
        blinded = [to_block(each.blinded) for each in made]
        message = IssueRequest(period=issuer.period, blinded=blinded)
        issued = self.wire.post(Issued, message, *address, "issue")
        if len(issued.signatures) != len(made):
            raise ProtocolError("the server signed another number of tokens than it was asked for")
        tokens = {
            each.id: OneUse(period=issuer.period, signature=each.opened(block, issuer))
            for each, block in zip(made, issued.signatures, strict=True)
        }
        with self.ledger.books() as books:
            return books.keep_tokens(charge, issuer.period, tokens)

    def retry(self) -> tuple[int, int]:
        """Send again what was charged and not accepted: how many were accepted, how many remain.

        Needs no record: what is sent was drawn before. Entries that wait for a ball or a round
        need `report`. What a server refuses for good is given up after its period.
        """
        accepted = remaining = 0
        with self.ledger.books() as books:
            running = books.period
            pending = books.pending(self.server)
        for entry in pending:
            ended = entry.period < running
            try:
                if entry.drawn(Drawn).output is not None:
                    self._send(entry)
                    accepted += 1
                    continue
            except ServerError as error:
                ended = ended and error.status in (404, 409, 422)
            if ended:
                with self.ledger.books() as books:
                    books.settle(entry, "given_up")
            else:
                remaining += 1
        return accepted, remaining

    def _enter(self, plan: Plan, record: Record, accept_no_guarantee: bool) -> Entry:
        """The entry of a record: found, or drawn and charged, in one exclusive transaction."""
        if plan.server != self.server:
            raise ProtocolError("the plan is of another server; make it with this client")
        if not (self.wire.has_token or plan.info.one_use):
            raise ProtocolError(
                "reports need a token; give the client the one that the operator issued"
            )
        if not plan.info.open:
            raise ProtocolError(f"deployment {plan.name} is closed and takes no reports")
        if plan.guarantee is None and not accept_no_guarantee:
            why = "; ".join(plan.reasons) or "none could be proved"
            raise NotForReleaseError(
                f"deployment {plan.name} has no guarantee ({why}); accept_no_guarantee=True "
                "releases all the same, and spends everything that is left of the period"
            )
        with self.ledger.books() as books:
            memo = _memo(plan, record, books)
            entry = None if memo is None else books.find(memo)
            if entry is not None:
                if plan.still_valid(entry):
                    return entry
                books.settle(entry, "given_up")
            charge = plan.charge(accept_no_guarantee)
            # Before the draw: what is refused must not depend on what was drawn.
            books.check(charge)
            plan.check_draw(books)
            drawn = plan.draw(record)
            if plan.info.one_use:
                drawn = books.stamp(charge, drawn)
            return books.charge(charge, drawn, plan.box_bytes, memo)

    def _send(self, entry: Entry) -> None:
        drawn = entry.drawn(Drawn)
        message = ReportRequest(
            id=drawn.report, table=drawn.table, output=entry.output, proof=drawn.proof
        )
        address = ("deployments", entry.charge.deployment, "reports")
        own = drawn.proof is None
        answer = self.wire.post(ReportAccepted, message, *address, own=own)
        if answer.id != message.id:
            raise ProtocolError("the server accepted another report than the one that was sent")
        with self.ledger.books() as books:
            books.settle(entry, "accepted")


def _memo(plan: Plan, record: Record, books: Books) -> str | None:
    """The keyed hash that a record's answer is found by, or None where each report draws anew."""
    fresh = plan.always_fresh or books.allowance.repeats == "fresh"
    if fresh and not plan.second_step:
        return None
    context = {
        "server": plan.server,
        "deployment": plan.name,
        "domain": plan.domain.fingerprint,
    }
    return record.unseal(plan.domain, lambda index: books.memo(index, context))
