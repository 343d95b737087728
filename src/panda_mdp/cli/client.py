"""Commands of a user: limits, checks, reports, the ledger. The place comes from standard input."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from panda_mdp.base.atomic import write_private
from panda_mdp.base.sealing import sealed
from panda_mdp.cli.frame import output_console, working, write_json
from panda_mdp.cli.options import Json
from panda_mdp.errors import InvalidInputError

if TYPE_CHECKING:
    from panda_mdp.privacy.guarantee import Guarantee
    from panda_mdp.protocol import Client, Plan, Record

TOKEN = "PANDA_MDP_TOKEN"  # noqa: S105
HOME = Path("~/.local/share/panda-mdp")

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
AtMost = Annotated[
    float | None,
    typer.Option(
        "--at-most", min=0, metavar="NUMBER", help="Refuse a report that costs more epsilon."
    ),
]
UnitOf = Annotated[
    str | None, typer.Option("--unit", metavar="NAME", help="Refuse distances in another unit.")
]
Fingerprint = Annotated[
    str | None, typer.Option("--fingerprint", metavar="HEX", help="Refuse other records.")
]
Period = Annotated[
    float, typer.Option(min=0, metavar="HOURS", help="Length of a period; never changed later.")
]


@client_app.command("init")
def init(
    epsilon: Annotated[
        float, typer.Option(min=0, metavar="NUMBER", help="Most that one report may cost, per km.")
    ],
    period_epsilon: Annotated[
        float, typer.Option(min=0, metavar="NUMBER", help="Most that a period may cost, per km.")
    ],
    delta: Annotated[
        float, typer.Option(min=0, max=1, metavar="NUMBER", help="Most delta of one report.")
    ] = 0.0,
    period_delta: Annotated[
        float | None,
        typer.Option(min=0, max=1, metavar="NUMBER", help="Most delta of a period; as --delta."),
    ] = None,
    reports: Annotated[
        int | None, typer.Option(min=1, metavar="COUNT", help="Most reports of a period.")
    ] = None,
    period: Period = 24.0,
    snap_km: Annotated[
        float, typer.Option(min=0, metavar="KM", help="Farthest that a place is from a record.")
    ] = 1.0,
    fresh: Annotated[
        bool,
        typer.Option(
            "--fresh",
            help="Draw and pay for every report, also of the same place: hides when it changes.",
        ),
    ] = False,
    folder: Folder = HOME,
) -> None:
    """Make a ledger with limits, or change the limits of the one that is there."""
    from panda_mdp.protocol import Allowance, Ledger
    from panda_mdp.protocol.ledger.ledger import KEY

    limits = Allowance(
        epsilon=epsilon,
        period_epsilon=period_epsilon,
        delta=delta,
        period_delta=delta if period_delta is None else period_delta,
        reports=reports,
        period_s=round(3600 * period),
        snap_km=snap_km,
        repeats="fresh" if fresh else "same",
    )
    place = folder.expanduser()
    if (place / KEY).exists():
        Ledger.open(place).change_allowance(limits)
        typer.echo(f"limits changed in {place}")
        return
    Ledger.open(place, limits)
    typer.echo(f"ledger made in {place}; its key file is as secret as your places")


@client_app.command("status")
def status(url: Url, folder: Folder = HOME, plain_http: Plain = False, json: Json = None) -> None:
    """What a server offers and claims, and whether your limits allow it. Nothing is checked."""
    from panda_mdp.cli.printing import facts
    from panda_mdp.privacy.guarantee import Guarantee

    rows: list[tuple[str, object]] = []
    states: list[dict[str, Any]] = []
    with _client(url, None, folder, plain_http) as client:
        rows.append(("operator's key", f"{client.key.id} (pinned)"))
        for offer in client.deployments():
            claim = offer.guarantee
            cost, verdict = "no guarantee", "refused"
            if claim is not None:
                claimed = Guarantee(claim.epsilon, claim.delta, claim.unit)
                excess = client.ledger.allowance.excess([], claimed)
                cost, verdict = _price(claimed), "allowed" if excess is None else "too much"
            state = "open" if offer.open else "closed"
            rows.append((f"{offer.name} ({offer.kind})", f"{cost}; {verdict}; {state}"))
            shown = offer.model_dump(include={"name", "kind", "open"})
            claims = None if claim is None else claim.model_dump()
            states.append({**shown, "claimed": claims, "allowed": verdict == "allowed"})
        key = client.key.id
    output_console().print(facts(url, rows))
    write_json(json, {"key": key, "deployments": states})


@client_app.command("fetch")
def fetch(
    url: Url,
    name: Name,
    version: Annotated[
        int | None, typer.Option(min=1, metavar="NUMBER", help="Only this version of the table.")
    ] = None,
    accept_update: Annotated[
        bool,
        typer.Option("--accept-update", help="Take another table than the one used before."),
    ] = False,
    at_most: AtMost = None,
    unit: UnitOf = None,
    fingerprint: Fingerprint = None,
    folder: Folder = HOME,
    plain_http: Plain = False,
    json: Json = None,
) -> None:
    """Fetch a deployment whole and check it: key, signature, audit over all pairs, cost."""
    from panda_mdp.cli.printing import facts
    from panda_mdp.table.decode import Expected

    expected = Expected(at_most, unit, fingerprint)
    with _client(url, None, folder, plain_http) as client, working("fetching and auditing"):
        plan = client.plan(name, version=version, accept_update=accept_update, expected=expected)
    rows = _described(plan)
    output_console().print(facts(f"{name} of {url}", rows))
    write_json(json, {key.replace(" ", "_"): str(value) for key, value in rows})


@client_app.command(
    "report", context_settings={"allow_extra_args": True, "ignore_unknown_options": True}
)
def report(
    context: typer.Context,
    url: Url,
    name: Name,
    token_file: TokenFile = None,
    wait: Annotated[
        float,
        typer.Option(min=0, metavar="SECONDS", help="How long a round may take to be solved."),
    ] = 60.0,
    accept_no_guarantee: Annotated[
        bool,
        typer.Option(
            "--accept-no-guarantee",
            help="Report through a deployment that has none; spends the whole period.",
        ),
    ] = False,
    at_most: AtMost = None,
    unit: UnitOf = None,
    fingerprint: Fingerprint = None,
    folder: Folder = HOME,
    plain_http: Plain = False,
    json: Json = None,
) -> None:
    """Report a place (`lat,lon`) or a record's index, read from standard input.

    Never from the arguments, which end up in shell histories and process lists. Prints what was
    released and what it cost. The same place gets the same answer within a period.
    """
    from panda_mdp.table.decode import Expected

    if context.args:
        msg = "the place is read from standard input, never from the arguments; give URL NAME alone"
        raise typer.BadParameter(msg)
    with _client(url, read_token(token_file), folder, plain_http) as client:
        with working("fetching and auditing"):
            plan = client.plan(name, expected=Expected(at_most, unit, fingerprint))
        record = _read_sealed(plan)
        with working("reporting"):
            answer = client.report(
                plan, record, accept_no_guarantee=accept_no_guarantee, wait_s=wait
            )
    fields: dict[str, Any] = {"output": answer.output, "repeated": answer.repeated}
    shown = str(answer.output)
    if answer.where is not None:
        lat, lon = answer.where
        shown, fields = f"{lat:.7f},{lon:.7f}", {**fields, "lat": lat, "lon": lon}
    typer.echo(shown)
    paid = "nothing: the same place was reported before" if answer.repeated else _price(answer.cost)
    typer.echo(f"spent {paid}", err=True)
    write_json(json, {**fields, "epsilon": answer.cost.epsilon, "delta": answer.cost.delta})


@client_app.command("retry")
def retry(
    url: Url, token_file: TokenFile = None, folder: Folder = HOME, plain_http: Plain = False
) -> None:
    """Send again, unchanged, what was charged and not accepted. Exit code 1 if some remains."""
    with _client(url, read_token(token_file), folder, plain_http) as client:
        accepted, remaining = client.retry()
    typer.echo(f"{accepted} accepted, {remaining} remain")
    if remaining:
        raise typer.Exit(1)


@client_app.command("ledger")
def ledger(folder: Folder = HOME, json: Json = None) -> None:
    """What was spent in the running period, and what is left."""
    from panda_mdp.cli.printing import facts
    from panda_mdp.protocol import Ledger

    books = Ledger.open(folder.expanduser())
    limits, balances = books.allowance, books.balances()
    rows: list[tuple[str, object]] = [
        (
            "limits",
            f"epsilon {limits.epsilon:g} a report, {limits.period_epsilon:g} in "
            f"{limits.period_s / 3600:g} h, per {limits.unit}; delta {limits.delta:g} and "
            f"{limits.period_delta:g}",
        ),
        ("same place again", "same answer, free" if limits.repeats == "same" else "drawn, paid"),
    ]
    states: list[dict[str, Any]] = []
    for balance in balances:
        ends = datetime.fromtimestamp(balance.ends, UTC).isoformat(timespec="minutes")
        rows += [
            (balance.account, f"{balance.reports} reports, {balance.pending} not accepted yet"),
            ("  spent, by the largest distance", _price(balance.spent)),
            ("  spent, by the sum of distances", _price(balance.against_sum)),
            ("  left", f"epsilon {balance.left_epsilon:g} per {limits.unit} until {ends}"),
            ("  spent in all periods", _price(balance.ever)),
        ]
        kept = ("account", "reports", "pending", "left_epsilon", "ends")
        spent = {"epsilon": balance.spent.epsilon, "delta": balance.spent.delta}
        spent["ever_epsilon"] = balance.ever.epsilon
        states.append({**{field: getattr(balance, field) for field in kept}, **spent})
    output_console().print(facts(f"Ledger in {folder}", rows))
    write_json(json, states)


@client_app.command("forget")
def forget(
    start_over: Annotated[
        bool,
        typer.Option(
            "--start-over",
            help="Throw ledger and key away, also damaged ones; nothing more in this period.",
        ),
    ] = False,
    epsilon: Annotated[
        float | None,
        typer.Option(min=0, metavar="NUMBER", help="With --start-over: most of one report."),
    ] = None,
    period_epsilon: Annotated[
        float | None,
        typer.Option(min=0, metavar="NUMBER", help="With --start-over: most of a period."),
    ] = None,
    period: Period = 24.0,
    folder: Folder = HOME,
) -> None:
    """Erase from the ledger what was drawn and for which places; what was spent stays."""
    from panda_mdp.protocol import Allowance, Ledger

    place = folder.expanduser()
    if not start_over:
        count = Ledger.open(place).forget()
        typer.echo(f"{count} entries erased; what they cost stays")
        return
    if epsilon is None or period_epsilon is None:
        msg = "--start-over needs --epsilon and --period-epsilon for the new ledger"
        raise typer.BadParameter(msg)
    limits = Allowance(
        epsilon=epsilon, period_epsilon=period_epsilon, period_s=round(3600 * period)
    )
    Ledger.start_over(place, limits)
    typer.echo(f"new ledger in {place}; the running period counts as spent")


@client_app.command("trust")
def trust(
    url: Url,
    key: Annotated[
        str | None,
        typer.Option(metavar="BASE64", help="Pin this key, which you have from the operator."),
    ] = None,
    forget_log: Annotated[
        bool,
        typer.Option("--forget-log", help="Begin the server's log anew: it was lost or restored."),
    ] = False,
    folder: Folder = HOME,
    plain_http: Plain = False,
) -> None:
    """Show the pinned key of a server, pin another one, or take its log as it is now."""
    from panda_mdp.protocol import VerifyKey
    from panda_mdp.protocol.client.trust import Trust
    from panda_mdp.protocol.client.wire import origin_of

    place = folder.expanduser()
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    pins = Trust(place, origin_of(url, plain_http)[0])
    if key is not None:
        pins.pin_key(VerifyKey.from_base64(key))
    if forget_log:
        pins.forget_log()
    if pins.key is None:
        typer.echo(f"no key of {url} is pinned; the first one that it shows will be")
        return
    typer.echo(f"{pins.key.id} {pins.key.base64}")


@client_app.command("enrol")
def enrol(
    url: Url,
    token_file: Annotated[
        Path, typer.Option(metavar="FILE", help="New file for the token, mode 0600.")
    ],
    plain_http: Plain = False,
) -> None:
    """Exchange an invitation, read from standard input, for a token of your own."""
    from pydantic import ValidationError

    from panda_mdp.protocol.client.wire import Wire
    from panda_mdp.protocol.messages.service import EnrolRequest, TokenMade

    if token_file.exists():
        msg = f"{token_file} is there already; it may hold a token that is worth keeping"
        raise InvalidInputError(msg)
    try:
        invitation = EnrolRequest(code=sys.stdin.readline().strip())
    except ValidationError:
        msg = "standard input has no invitation, which looks like pmi_0123456789ab_..."
        raise InvalidInputError(msg) from None
    with closing(Wire(url, allow_plain_http=plain_http)) as wire:
        made: TokenMade = wire.post(TokenMade, invitation, "enrol", own=False)
    write_private(token_file, made.token.encode())
    typer.echo(f"enrolled; the token is in {token_file}")


@client_app.command("heads")
def heads(
    url: Url,
    compare: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Lines of other people, one per head, to compare with."),
    ] = None,
    folder: Folder = HOME,
    plain_http: Plain = False,
) -> None:
    """Print the latest head of a server's log, a line to pass on; or compare with those of others.

    Whoever was shown another log than you has a head that yours does not contain.
    """
    with _client(url, None, folder, plain_http) as client:
        if compare is not None:
            number = client.compare_heads(compare.read_text())
            typer.echo(f"{number} heads are of the same log as yours")
            return
        head = client.log().head
        client.trust.pin_log(head)
        # It says nothing about whoever passes it on but the time.
        typer.echo(head.model_dump_json())


@sealed
def _read_sealed(plan: Plan) -> Record:
    """The record of a line `lat,lon` or of an index. No error shows the line."""
    from panda_mdp.cli.perturb import read_first

    return read_first(plan.domain, plan.place, plan.record, sys.stdin)


def _client(url: str, token: str | None, folder: Path, plain_http: bool) -> Client:
    from panda_mdp.protocol import Client as Made

    return Made(url, token, folder, allow_plain_http=plain_http)


def read_token(path: Path | None) -> str:
    """The token, from a file or the environment; never from the arguments."""
    text = os.environ.get(TOKEN, "") if path is None else path.read_text()
    if not text.strip():
        msg = f"no token; set {TOKEN} or give --token-file FILE"
        raise InvalidInputError(msg)
    return text.strip()


def _price(cost: Guarantee) -> str:
    return f"epsilon {cost.epsilon:g} per {cost.unit}, delta {cost.delta:g}"


def _described(plan: Plan) -> list[tuple[str, object]]:
    domain, proved = plan.domain, plan.guarantee is not None
    return [
        ("version", plan.version),
        ("records", f"{domain.size:,} ({domain.metric.kind}, {domain.unit})"),
        ("a report costs", _price(plan.cost) if proved else "NO GUARANTEE"),
        *plan.facts(),
        *([("snapping", plan.snapping)] if domain.geographic and proved else ()),
    ]
