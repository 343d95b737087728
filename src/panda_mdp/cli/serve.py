"""Commands of an operator: run a server, make tokens on its machine."""

from __future__ import annotations

import gc
import logging
import os
import secrets
import signal
import socket
import subprocess
import sys
import webbrowser
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from panda_mdp.base.atomic import write_private
from panda_mdp.base.packages import need
from panda_mdp.cli.frame import working
from panda_mdp.cli.options import FromOne, comma_separated, described, require
from panda_mdp.errors import InvalidInputError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from panda_mdp.protocol.messages.signing import KeySheet, VerifyKey
    from panda_mdp.protocol.server.context import Settings
    from panda_mdp.protocol.server.store.database import Store

DEFAULT = "panda-mdp.db"
LABEL = 200
Database = Annotated[
    str,
    typer.Option(
        metavar="PATH|URL",
        envvar="PANDA_MDP_DATABASE",
        help="SQLite file, or postgresql://... (better by PANDA_MDP_DATABASE: it has a password).",
    ),
]
Count = Annotated[int, typer.Option(min=1, max=10_000, metavar="NUMBER", help="How many to make.")]
Days = Annotated[
    float,
    typer.Option(min=0, max=3_660, metavar="NUMBER", help="Days until it expires; 0 for never."),
]


def _short(text: str) -> str:
    require(len(text) <= LABEL, f"a label has up to {LABEL} characters, this one {len(text)}")
    return text


Label = Annotated[
    str,
    typer.Option(metavar="TEXT", callback=_short, help="A note for the list; not a person's name."),
]
Rate = Annotated[float, typer.Option(min=0.001)]
Places = Annotated[int, typer.Option(min=1, max=10_000_000)]


@described
def serve(
    database: Database = DEFAULT,
    host: str = "127.0.0.1",
    port: int = 8321,
    init: bool = False,
    key: Path | None = None,
    keys: Path | None = None,
    new_key: bool = False,
    token_rate: Rate = 50.0,
    address_rate: Rate = 50.0,
    enrol_rate: Rate = 10.0,
    proxy: str = "",
    cors: str = "",
    retention_days: FromOne = None,
    log_level: Literal["debug", "info", "warning", "error"] = "info",
    access_log: bool = True,
    log_json: bool = False,
    log_addresses: bool = False,
) -> None:
    """Run the server: tables, deployments, rounds and reports under /v1, and the browser client.

    Prints one line with the address once it answers. TLS is the reverse proxy's business
    (docs/protocol.md). Ends cleanly on SIGTERM and Ctrl-C: what was accepted is stored.

    Options:
        host ADDRESS: Address to listen on.
        port NUMBER: Port; 0 takes a free one.
        init: Make the database and the operator's key if missing, and a first admin token.
        key FILE: The operator's key; beside a SQLite database by default.
        keys FILE: What the offline key says; `signing certify` writes it.
        new_key: Accept another key than before; clients will refuse it.
        token_rate NUMBER: Requests per second of one token.
        address_rate NUMBER: Requests per second of one address without a token.
        enrol_rate NUMBER: People of one address that may enrol in a minute.
        proxy ADDRESSES: Proxies whose X-Forwarded-For is believed, by commas.
        cors ORIGINS: Other origins that may call, by commas.
        retention_days DAYS: Delete what users sent after so many days.
        log_level: What is logged.
        access_log: Log each request: method, route, status, milliseconds.
        log_json: Log one JSON object per line.
        log_addresses: Put clients' addresses into the access log.
    """
    need("fastapi", "a server", "server")
    from panda_mdp.protocol.server.app import create_app
    from panda_mdp.protocol.server.context import Settings
    from panda_mdp.protocol.server.store.database import Store

    _set_logs(log_level, access_log, log_json)
    # Read by the worker processes' linear algebra: its threads would wait for each other, and
    # the solver has its own.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    settings = Settings(
        token_rate=token_rate,
        token_burst=4 * token_rate,
        address_rate=address_rate,
        address_burst=10 * address_rate,
        enrol_rate=enrol_rate / 60,
        enrol_burst=enrol_rate,
        cors_origins=tuple(comma_separated(cors)),
        log_addresses=log_addresses,
        retention_days=retention_days,
    )
    store = Store.create(database) if init else Store.open(database)
    with store.claim():
        store.check_start()
        own = key_path(store, key)
        sheet = None if keys is None else read_sheet(keys)
        if init:
            _initialise(store, own, new_key)
        store.set_value("operator", check_key(store, own, sheet, new_key).base64)
        _run(create_app(store, own, settings, sheet), host, port, proxy, settings)


@described
def quickstart(
    folder: Annotated[Path, typer.Option()] = Path("panda-quickstart"), no_page: bool = False
) -> None:
    """A whole survey on this machine: server, table, one private report, and a first estimate.

    Opens the page for a report of your own and serves until Ctrl-C. Everything is in one new
    folder; whoever reports for the first time is made up, somewhere in a synthetic city.

    Options:
        folder DIR: New folder for database, keys, tokens and the made-up person's ledger.
        no_page: Open no page, and end after the estimate.
    """
    need("fastapi", "a server", "server")
    from panda_mdp.city.draw import SYNTHETIC, find_city
    from panda_mdp.cli.publish import publish
    from panda_mdp.loss import distance_loss
    from panda_mdp.methods.optimal.optimal import optimal
    from panda_mdp.problem import Problem
    from panda_mdp.protocol.client.client import Client
    from panda_mdp.protocol.client.wire import Wire
    from panda_mdp.protocol.ledger.allowance import Allowance
    from panda_mdp.protocol.messages.deployments import Estimate
    from panda_mdp.protocol.messages.signing import SigningKey
    from panda_mdp.protocol.server.auth import TokenBook
    from panda_mdp.protocol.server.store.database import Store

    require(not folder.exists(), f"{folder} is there already; give a new --folder")
    folder.mkdir(parents=True)
    with working("making a table of a synthetic city"):
        domain = find_city(SYNTHETIC, 120, 0).domain(120, seed=0)
        outputs = list(range(0, 120, 6))
        problem = Problem(domain, outputs, distance_loss(domain, outputs), epsilon=4.0)
        file = optimal(problem, gap=0.05).save(folder / "city.pmdp")
    database = str(folder / "panda.db")
    with Store.create(database) as store:
        SigningKey.create(key_path(store, None))
        admin, person, yours = (
            TokenBook(store).make(role)[0].token for role in ("admin", "reporter", "reporter")
        )
    write_private(folder / "admin.token", admin.encode())
    line = "from panda_mdp.cli import main; main()"
    # A process of its own, as an operator starts it; it ends with this one.
    server = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", line, *("serve", "--port", "0", "--no-access-log")],
        env={**os.environ, "PANDA_MDP_DATABASE": database},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        url = server.stdout.readline().split()[-1] if server.stdout else ""
        file_of = folder / "admin.token"
        publish(url, file, "city", SYNTHETIC, purpose="a first look", token_file=file_of)
        limits = Allowance(epsilon=4.0, period_epsilon=8.0)
        with Client(url, person, folder / "person", limits) as client:
            plan = client.plan("city")
            made = client.report(plan, plan.record(secrets.randbelow(domain.size)))
        typer.echo(
            f"a private report was accepted: place {made.output}, epsilon {made.cost.epsilon:g}"
        )
        with closing(Wire(url, admin)) as wire:
            found: Estimate = wire.get(Estimate, "deployments", "city", "estimate", own=True)
        widest = max(zone.high - zone.low for zone in found.zones)
        typer.echo(
            f"estimate of {found.reports} report: {len(found.zones)} zones, limits up to "
            f"{widest:.0%} wide; more reports make them narrower"
        )
        if not no_page:
            page = f"{url}/#token={yours}"
            typer.echo(f"your own report: {page}\nthe operator's page: {url}/operator")
            webbrowser.open(page)
            server.wait()
    finally:
        server.terminate()
        server.wait()


@described
def token(
    role: Literal["reporter", "admin", "analyst", "auditor", "monitor"] = "reporter",
    database: Database = DEFAULT,
    label: Label = "",
    days: Days = 0.0,
    count: Count = 1,
    revoke: str = "",
) -> None:
    """Make tokens on the server's machine, one per line, shown this once; or revoke one.

    Works beside a running server, which notices within a second.

    Options:
        role: What its bearer may do.
        revoke ID: Revoke the token of this id, and make none.
    """
    need("fastapi", "a server", "server")
    from panda_mdp.protocol.server.auth import TokenBook
    from panda_mdp.protocol.server.failures import Failure
    from panda_mdp.protocol.server.store.database import Store

    with Store.open(database) as store:
        book = TokenBook(store)
        if revoke:
            try:
                book.revoke(revoke)
            except Failure as failure:
                raise InvalidInputError(failure.message) from None
            typer.echo("revoked")
            return
        for made in book.make(role, label, 86_400 * days or None, count):
            typer.echo(made.token)


@described
def invite(
    database: Database = DEFAULT,
    places: Places = 1,
    count: Count = 1,
    label: Label = "",
    days: Days = 30.0,
    revoke: str = "",
) -> None:
    """Make invitations, one per line, shown this once: people exchange them for tokens themselves.

    `panda-mdp client enrol` does. One code for many tells who enrolled least.

    Options:
        places NUMBER: How many people may use one code.
        revoke ID: Make the code of this id worthless; make none.
    """
    need("fastapi", "a server", "server")
    from panda_mdp.protocol.server.auth import invite as make
    from panda_mdp.protocol.server.auth import revoke_invitation
    from panda_mdp.protocol.server.store.database import Store

    with Store.open(database) as store, store.write() as session:
        if revoke:
            if not revoke_invitation(session, revoke):
                raise InvalidInputError(
                    "there is no invitation of this id, or it is revoked already"
                )
            typer.echo("revoked")
            return
        codes = [make(session, places, label, days or None) for _ in range(count)]
    for code in codes:
        typer.echo(code)


def key_path(store: Store, given: Path | None) -> Path:
    """The file of the server's key."""
    if given is None and store.path is None:
        raise InvalidInputError(
            "a PostgreSQL database has no folder for the operator's key; give --key FILE"
        )
    return given or Path(f"{store.path}.key")


def _initialise(store: Store, key: Path, new_key: bool) -> None:
    from panda_mdp.protocol.messages.signing import SigningKey
    from panda_mdp.protocol.server.auth import TokenBook

    if not key.exists():
        if store.value("operator") and not new_key:
            raise InvalidInputError(
                f"{key}: the operator's key is missing, and what is published was signed with it; "
                "restore it from a backup, or certify another one with the offline key (`panda-mdp "
                "signing certify`). --new-key makes one that every client refuses until its user "
                "accepts it"
            )
        SigningKey.create(key)
    book = TokenBook(store)
    if not book.count("admin"):
        made = book.make("admin", "first")[0]
        typer.echo(f"admin token, shown this once: {made.token}")


def read_sheet(path: Path) -> KeySheet:
    """The sheet of keys in a file."""
    from panda_mdp.protocol.messages.signing import KeySheet

    if not path.exists():
        raise InvalidInputError(
            f"{path}: there is no such file; `panda-mdp signing certify --keys {path}` writes one"
        )
    return KeySheet.load(path)


def check_key(store: Store, path: Path, sheet: KeySheet | None, new_key: bool = False) -> VerifyKey:
    """The operator's key; refused where clients of this database would refuse it."""
    from panda_mdp.protocol.messages.signing import Keyring, SigningKey, VerifyKey, follow

    key = SigningKey.load(path).public
    operator = key if sheet is None else VerifyKey.from_base64(sheet.operator)
    ring = Keyring.of(operator, [] if sheet is None else sheet.certificates)
    if key not in ring.keys:
        raise InvalidInputError(
            f"{path}: the offline key has not certified key {key.id} for today; `panda-mdp signing "
            "certify` does"
        )
    known = store.value("operator")
    if known is not None and known != operator.base64 and not new_key:
        before = VerifyKey.from_base64(known)
        if sheet is None or follow(before, sheet.successions) != operator:
            raise InvalidInputError(
                f"{path}: what is published was signed for operator {before.id}, and this is "
                f"{operator.id}, which clients refuse: use the key of before, or let it name its "
                "successor (`panda-mdp signing succeed`). --new-key goes on all the same"
            )
    return operator


def _set_logs(level: str, access: bool, as_json: bool) -> None:
    from panda_mdp.protocol.server.gate import JsonLines

    handler = logging.StreamHandler(sys.stderr)
    lines = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonLines() if as_json else lines)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    logging.getLogger("panda_mdp").setLevel(level.upper())
    if not access:
        logging.getLogger("panda_mdp.access").setLevel(logging.WARNING)


def _run(app: ASGIApp, host: str, port: int, proxy: str, settings: Settings) -> None:
    import uvicorn

    from panda_mdp.protocol.server.http import options

    class Announcing(uvicorn.Server):
        """Says where it listens once it does."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets=sockets)
            # What is there by now stays; looking through it for garbage takes a tenth of a second.
            gc.collect()
            gc.freeze()
            if self.started:
                shown = f"[{host}]" if ":" in host else host
                typer.echo(f"panda-mdp serves http://{shown}:{listener.getsockname()[1]}")
                sys.stdout.flush()

    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=2_048)
    except OSError as error:
        raise InvalidInputError(
            f"cannot listen on {host} port {port}: {os.strerror(error.errno or 0)}"
        ) from None
    # uvicorn shuts down on SIGTERM and then raises it again; by then all is stored.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    with listener:
        Announcing(uvicorn.Config(app, **options(settings, proxy))).run(sockets=[listener])
