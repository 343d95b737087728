"""Commands of a user: limits, checks, reports, the ledger. The place comes from standard input."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from panda_mdp.base.atomic import write_private
from panda_mdp.base.text import Facts, picked
from panda_mdp.cli.frame import working, write_json
from panda_mdp.cli.options import (
    FromOne,
    Json,
    MaybePath,
    MaybeText,
    NonNegative,
    Promise,
    Share,
    described,
    require,
)
from panda_mdp.cli.perturb import PLACES_IN_ARGUMENTS, read_lines
from panda_mdp.cli.printing import show, tell
from panda_mdp.errors import InvalidInputError, sealed
from panda_mdp.privacy.guarantee import Guarantee

if TYPE_CHECKING:
    from panda_mdp.protocol import Allowance, Client, Plan, Record

TOKEN = "PANDA_MDP_TOKEN"  # noqa: S105
HOME = Path("~/.local/share/panda-mdp")

LIMITS = {
    "limits": "epsilon {0.epsilon:g} a report, {0.period_epsilon:g} in {hours:g} h, per {0.unit}; "
    "delta {0.delta:g} and {0.period_delta:g}",
    "same place again": "{again}",
}
PRICE = "epsilon {0.epsilon:g} per {0.unit}, delta {0.delta:g}"
USED = "{0.reports} reports, {0.pending} not accepted yet"
BALANCE = {
    "  spent, by the largest distance": PRICE.replace("0.", "0.spent."),
    "  spent, by the sum of distances": PRICE.replace("0.", "0.against_sum."),
    "  left": "epsilon {0.left_epsilon:g} per {unit} until {ends}",
    "  spent in all periods": PRICE.replace("0.", "0.ever."),
}

client_app = typer.Typer(
    help="Report to a server without telling it where you are.", rich_markup_mode=None
)

Url = Annotated[str, typer.Argument(metavar="URL", help="Address of the server, https://...")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="A deployment of the server.")]
Folder = Annotated[
    Path,
    typer.Option(
        metavar="DIR", envvar="PANDA_MDP_HOME", help="Folder of the ledger, keys and tables."
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help=f"File that holds the token; otherwise the variable {TOKEN}."
    ),
]
Plain = Annotated[
    bool,
    typer.Option("--plain-http", help="Allow an address that is not encrypted and not local."),
]
Period = Annotated[
    float, typer.Option(min=0, metavar="HOURS", help="Length of a period; never changed later.")
]


@dataclass(frozen=True)
class Address:
    """A server as anybody calls it."""

    url: Url
    plain_http: Plain = False

    def wire(self, token: str | None = None, **options: Any) -> Any:
        """A connection, closed at the end of a block."""
        from panda_mdp.protocol.client.wire import Wire

        return closing(Wire(self.url, token, allow_plain_http=self.plain_http, **options))


@dataclass(frozen=True)
class Account(Address):
    """A server as the bearer of a token calls it."""

    token_file: TokenFile = None

    def wire(self, token: str | None = None, **options: Any) -> Any:
        """A connection with the token of the file or the environment."""
        return super().wire(token or read_token(self.token_file), **options)


@dataclass(frozen=True)
class Server(Address):
    """A server as somebody with a ledger sees it."""

    folder: Folder = HOME

    @property
    def place(self) -> Path:
        """The folder, made where it is missing."""
        place = self.folder.expanduser()
        place.mkdir(parents=True, exist_ok=True, mode=0o700)
        return place

    def client(self, token: str | None = None) -> Client:
        """The client, to be used in a block."""
        from panda_mdp.protocol import Client as Made

        return Made(self.url, token, self.folder, allow_plain_http=self.plain_http)


@dataclass(frozen=True)
class Limits:
    """What reports may cost.

    Options:
        epsilon NUMBER: Most that one report may cost, per km.
        period_epsilon NUMBER: Most that a period may cost, per km.
        delta NUMBER: Most delta of one report.
        period_delta NUMBER: Most delta of a period; as --delta.
        reports COUNT: Most reports of a period.
        snap_km KM: Farthest that a point of a deployment's area is from a record.
        fresh: Draw and pay for every report, also of the same place: hides when it changes.
    """

    epsilon: NonNegative
    period_epsilon: NonNegative
    delta: Annotated[float, typer.Option(min=0, max=1)] = 0.0
    period_delta: Share = None
    reports: FromOne = None
    period: Period = 24.0
    snap_km: NonNegative = 10.0
    fresh: bool = False

    @property
    def allowance(self) -> Allowance:
        """As the ledger keeps them."""
        from panda_mdp.protocol import Allowance

        return Allowance(
            **picked(self, "epsilon", "period_epsilon", "delta", "reports", "snap_km"),
            period_delta=self.delta if self.period_delta is None else self.period_delta,
            period_s=round(3600 * self.period),
            repeats="fresh" if self.fresh else "same",
        )


@client_app.command("init")
@described
def init(limits: Limits, start_over: bool = False, folder: Folder = HOME) -> None:
    """Make a ledger with limits, or change the limits of the one that is there.

    Options:
        start_over: Throw ledger and key away, also damaged ones; nothing more in this period.
    """
    from panda_mdp.protocol import Ledger
    from panda_mdp.protocol.ledger.ledger import KEY

    place = folder.expanduser()
    done = f"ledger made in {place}; its key file is as secret as your places"
    if start_over:
        Ledger.start_over(place, limits.allowance)
        done = f"new ledger in {place}; the running period counts as spent"
    elif (place / KEY).exists():
        Ledger.open(place).change_allowance(limits.allowance)
        done = f"limits changed in {place}"
    else:
        Ledger.open(place, limits.allowance)
    typer.echo(done)


@client_app.command("status")
@described
def status(server: Server, json: Json = None) -> None:
    """What a server offers and claims, and whether your limits allow it. Nothing is checked."""
    with server.client() as client:
        key = client.key.id
        offers = client.deployments()
        limits = client.ledger.allowance
    rows: list[tuple[str, object]] = [("operator's key", f"{key} (pinned)")]
    states: list[Facts] = []
    for offer in offers:
        said = offer.model_dump(include={"name", "kind", "open", "guarantee"})
        cost = "no guarantee; refused"
        said["allowed"] = False
        if offer.guarantee is not None:
            claimed = Guarantee(**said["guarantee"])
            said["allowed"] = not limits.excess([], claimed)
            cost = f"{PRICE.format(claimed)}; {'allowed' if said['allowed'] else 'too much'}"
        state = "open" if offer.open else "closed"
        rows.append((f"{offer.name} ({offer.kind})", f"{cost}; {state}"))
        states.append(said)
    show(server.url, rows, json, {"key": key, "deployments": states})


@client_app.command("fetch")
@described
def fetch(
    server: Server,
    name: Name,
    promise: Promise,
    accept_update: bool = False,
    json: Json = None,
) -> None:
    """Fetch a deployment whole and check it: key, signature, audit over all pairs, cost.

    Options:
        accept_update: Take another table than the one used before.
    """
    with server.client() as client, working("fetching and auditing"):
        plan = client.plan(name, accept_update=accept_update, expected=promise.expected)
    domain = plan.domain
    proved = plan.guarantee is not None
    rows = [
        ("version", plan.version),
        ("records", f"{plan.size:,} ({domain.metric.kind}, {domain.unit})"),
        ("a report costs", PRICE.format(plan.cost) if proved else "NO GUARANTEE"),
        *plan.facts(),
        *([("snapping", plan.snapping)] if domain.geographic and proved else ()),
    ]
    told = {key.replace(" ", "_"): str(value) for key, value in rows}
    show(f"{name} of {server.url}", rows, json, told)


@client_app.command("report", context_settings=PLACES_IN_ARGUMENTS)
@described
def report(
    context: typer.Context,
    server: Server,
    name: Name,
    promise: Promise,
    token_file: TokenFile = None,
    wait: NonNegative = 60.0,
    accept_no_guarantee: bool = False,
    json: Json = None,
) -> None:
    """Report a place (`lat,lon`) or a record's index, read from standard input.

    Never from the arguments, which end up in shell histories and process lists. Prints what was
    released and what it cost. The same place gets the same answer within a period.

    Options:
        wait SECONDS: How long a round may take to be solved.
        accept_no_guarantee: Report through a deployment that has none; spends the whole period.
    """
    require(
        not context.args,
        "the place is read from standard input, never from the arguments; give URL NAME alone",
    )
    with server.client(read_token(token_file, needed=False) or None) as client:
        with working("fetching and auditing"):
            plan = client.plan(name, expected=promise.expected)
        if not plan.info.one_use:
            read_token(token_file)
        record = _read_sealed(plan)
        with working("reporting"):
            answer = client.report(
                plan, record, accept_no_guarantee=accept_no_guarantee, wait_s=wait
            )
    cost = answer.cost
    facts = picked(answer, "output", "repeated", "receipt") | picked(cost, "epsilon", "delta")
    shown = str(answer.output)
    if answer.where is not None:
        facts["lat"], facts["lon"] = answer.where
        shown = "{:.7f},{:.7f}".format(*answer.where)
    typer.echo(shown)
    paid = "nothing: the same place was reported before" if answer.repeated else PRICE.format(cost)
    typer.echo(f"spent {paid}; receipt {answer.receipt}", err=True)
    write_json(json, facts)


@client_app.command("collect")
@described
def collect(server: Server, name: Name, token_file: TokenFile = None) -> None:
    """Collect the period's one-use tokens of a deployment that takes reports with them alone.

    The server sees who collects and, later, a report that is nobody's. Collect hours before you
    report, or from another network: address and time would join the two.
    """
    with server.client(read_token(token_file)) as client:
        with working("fetching and auditing"):
            plan = client.plan(name)
        count = client.collect(plan)
    typer.echo(f"{count} one-use tokens are at hand for this period")


@client_app.command("retry")
@described
def retry(server: Server, token_file: TokenFile = None) -> None:
    """Send again, unchanged, what was charged and not accepted. Exit code 1 if some remains."""
    with server.client(read_token(token_file, needed=False) or None) as client:
        accepted, remaining = client.retry()
    typer.echo(f"{accepted} accepted, {remaining} remain")
    raise typer.Exit(min(remaining, 1))


@client_app.command("ledger")
def ledger(folder: Folder = HOME, json: Json = None) -> None:
    """What was spent in the running period, and what is left."""
    from panda_mdp.protocol import Ledger

    books = Ledger.open(folder.expanduser())
    limits = books.allowance
    balances = books.balances()
    again = "same answer, free" if limits.repeats == "same" else "drawn, paid"
    rows = tell(LIMITS, limits, hours=limits.period_s / 3600, again=again)
    for balance in balances:
        ends = datetime.fromtimestamp(balance.ends, UTC).isoformat(timespec="minutes")
        rows += tell({balance.account: USED, **BALANCE}, balance, unit=limits.unit, ends=ends)
    show(f"Ledger in {folder}", rows, json, balances)


@client_app.command("forget")
def forget(folder: Folder = HOME) -> None:
    """Erase from the ledger what was drawn and for which places; what was spent stays."""
    from panda_mdp.protocol import Ledger

    count = Ledger.open(folder.expanduser()).forget()
    typer.echo(f"{count} entries erased; what they cost stays")


@client_app.command("trust")
@described
def trust(
    server: Server, key: MaybeText = None, witness: MaybeText = None, forget_log: bool = False
) -> None:
    """Show the pinned key of a server, pin another one, or take its log as it is now.

    Options:
        key BASE64: Pin this key, which you have from the operator.
        witness BASE64: Believe only what this witness of the log has signed too.
        forget_log: Begin the server's log anew: it was lost or restored.
    """
    from panda_mdp.protocol import VerifyKey
    from panda_mdp.protocol.client.trust import Trust
    from panda_mdp.protocol.client.wire import origin_of

    pins = Trust(server.place, origin_of(server.url, server.plain_http)[0])
    if key is not None:
        pins.pin_key(VerifyKey.from_base64(key))
    if witness is not None:
        pins.pin_witness(VerifyKey.from_base64(witness))
    if forget_log:
        pins.forget_log()
    shown = f"no key of {server.url} is pinned; the first one that it shows will be"
    typer.echo(f"{pins.key.id} {pins.key.base64}" if pins.key else shown)


@client_app.command("enrol")
@described
def enrol(server: Address, token_file: Annotated[Path, typer.Option()]) -> None:
    """Exchange an invitation, read from standard input, for a token of your own.

    Options:
        token_file FILE: New file for the token, mode 0600.
    """
    from pydantic import ValidationError

    from panda_mdp.protocol.messages.service import EnrolRequest, TokenMade

    if token_file.exists():
        raise InvalidInputError(
            f"{token_file} is there already; it may hold a token that is worth keeping"
        )
    try:
        invitation = EnrolRequest(code=sys.stdin.readline().strip())
    except ValidationError:
        raise InvalidInputError(
            "standard input has no invitation, which looks like pmi_0123456789ab_..."
        ) from None
    with server.wire() as wire:
        made = wire.post(TokenMade, invitation, "enrol", own=False)
    write_private(token_file, made.token.encode())
    typer.echo(f"enrolled; the token is in {token_file}")


@client_app.command("withdraw")
@described
def withdraw(account: Account) -> None:
    """Have the server erase everything that was reported with your token.

    What was spent stays spent: whoever has read a report may remember it.
    """
    from panda_mdp.protocol.messages.service import RemovalDone

    with account.wire() as wire:
        done = wire.get(RemovalDone, "reports", own=True, method="DELETE")
    typer.echo(f"{done.reports} reports erased")


@client_app.command("heads")
@described
def heads(server: Server, compare: MaybePath = None) -> None:
    """Print the latest head of a server's log, a line to pass on; or compare with those of others.

    Whoever was shown another log than you has a head that yours does not contain.

    Options:
        compare FILE: Lines of other people, one per head, to compare with.
    """
    with server.client() as client:
        if compare is not None:
            number = client.compare_heads(compare.read_text())
            typer.echo(f"{number} heads are of the same log as yours")
            return
        # It says nothing about whoever passes it on but the time.
        typer.echo(client.log().head.model_dump_json())


@sealed
def _read_sealed(plan: Plan) -> Record:
    """The record of a line `lat,lon` or of an index. No error shows the line."""
    given = next(read_lines(plan.domain, sys.stdin))
    return plan.record(given) if isinstance(given, int) else plan.place(*given)


def read_token(path: Path | None, needed: bool = True) -> str:
    """The token, from a file or the environment; never from the arguments."""
    text = os.environ.get(TOKEN, "") if path is None else path.read_text()
    if needed and not text.strip():
        raise InvalidInputError(f"no token; set {TOKEN} or give --token-file FILE")
    return text.strip()
