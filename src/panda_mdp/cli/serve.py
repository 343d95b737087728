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
from dataclasses import dataclass
from inspect import unwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from panda_mdp.base.atomic import write_private
from panda_mdp.base.packages import need
from panda_mdp.base.text import picked
from panda_mdp.city.draw import SYNTHETIC
from panda_mdp.cli.client import Account, Address
from panda_mdp.cli.frame import working
from panda_mdp.cli.options import Drawn, MaybePath, comma_separated, described, require
from panda_mdp.cli.publish import Survey, publish
from panda_mdp.errors import InvalidInputError
from panda_mdp.methods.optimal.optimal import optimal

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


@dataclass(frozen=True)
class Service:
    """A server's database and what it signs with.

    Options:
        key FILE: The server's key; beside a SQLite database by default.
        keys FILE: The sheet of keys that the server is given.
    """

    database: Database = DEFAULT
    key: MaybePath = None
    keys: MaybePath = None

    def key_path(self, store: Store) -> Path:
        """The file of the server's key."""
        if self.key is None and store.path is None:
            raise InvalidInputError(
                "a PostgreSQL database has no folder for the operator's key; give --key FILE"
            )
        return self.key or Path(f"{store.path}.key")

    @property
    def sheet(self) -> KeySheet | None:
        """The sheet of keys, where there is one."""
        from panda_mdp.protocol.messages.signing import KeySheet

        if self.keys is None:
            return None
        if not self.keys.exists():
            raise InvalidInputError(
                f"{self.keys}: there is no such file; `panda-mdp signing certify --keys "
                f"{self.keys}` writes one"
            )
        return KeySheet.load(self.keys)

    def operator(self, store: Store, *, new_key: bool = False) -> VerifyKey:
        """The operator's key; refused where clients of this database would refuse it."""
        from panda_mdp.protocol.messages.signing import (
            Keyring,
            KeySheet,
            SigningKey,
            VerifyKey,
            follow,
        )

        path = self.key_path(store)
        key = SigningKey.load(path).public
        sheet = self.sheet or KeySheet(operator=key.base64)
        operator = VerifyKey.from_base64(sheet.operator)
        if key not in Keyring.of(operator, sheet.certificates).keys:
            raise InvalidInputError(
                f"{path}: the offline key has not certified key {key.id} for today; `panda-mdp "
                "signing certify` does"
            )
        known_operator = store.value("operator")
        if known_operator is not None and not new_key:
            before = VerifyKey.from_base64(known_operator)
            if operator not in (before, follow(before, sheet.successions)):
                raise InvalidInputError(
                    f"{path}: what is published was signed for operator {before.id}, and this is "
                    f"{operator.id}, which clients refuse: use the key of before, or let it name "
                    "its successor (`panda-mdp signing succeed`). --new-key goes on all the same"
                )
        return operator


@dataclass(frozen=True)
class Logs:
    """What is logged, and how.

    Options:
        log_level: What is logged; with info each request: method, route, status, milliseconds.
        log_json: Log one JSON object per line.
        log_addresses: Put clients' addresses into the access log.
    """

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_json: bool = False
    log_addresses: bool = False

    def begin(self) -> None:
        """Log to standard error."""
        from panda_mdp.protocol.server.gate import JsonLines

        handler = logging.StreamHandler(sys.stderr)
        lines = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
        handler.setFormatter(JsonLines() if self.log_json else lines)
        logging.basicConfig(level=logging.WARNING, handlers=[handler])
        logging.getLogger("panda_mdp").setLevel(self.log_level.upper())


@dataclass(frozen=True)
class Bounds:
    """How much is answered.

    Options:
        token_rate NUMBER: Requests per second of one token.
        address_rate NUMBER: Requests per second of one address without a token.
        enrol_rate NUMBER: People of one address that may enrol in a minute.
        cors ORIGINS: Other origins that may call, by commas.
    """

    token_rate: Rate = 50.0
    address_rate: Rate = 50.0
    enrol_rate: Rate = 10.0
    cors: str = ""

    def settings(self, log_addresses: bool) -> Settings:
        """As the server takes them."""
        from panda_mdp.protocol.server.context import Settings

        return Settings(
            **picked(self, "token_rate", "address_rate"),
            token_burst=4 * self.token_rate,
            address_burst=10 * self.address_rate,
            enrol_rate=self.enrol_rate / 60,
            enrol_burst=self.enrol_rate,
            cors_origins=tuple(comma_separated(self.cors)),
            log_addresses=log_addresses,
        )


@described
def serve(
    service: Service,
    logs: Logs,
    bounds: Bounds,
    host: str = "127.0.0.1",
    port: int = 8321,
    init: bool = False,
    new_key: bool = False,
    proxy: str = "",
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
        proxy ADDRESSES: Proxies whose X-Forwarded-For is believed, by commas.
    """
    need("fastapi", "a server", "server")
    from panda_mdp.protocol.server.app import create_app
    from panda_mdp.protocol.server.store.database import Store

    logs.begin()
    # Read by the worker processes' linear algebra: its threads would wait for each other, and
    # the solver has its own.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    settings = bounds.settings(logs.log_addresses)
    store = (Store.create if init else Store.open)(service.database)
    with store.claim():
        store.check_start()
        key = service.key_path(store)
        if init:
            _initialise(store, key, new_key)
        store.set_value("operator", service.operator(store, new_key=new_key).base64)
        _run(create_app(store, key, settings, service.sheet), host, port, proxy, settings)


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
    from panda_mdp.protocol.client.client import Client
    from panda_mdp.protocol.ledger.books import Allowance
    from panda_mdp.protocol.messages.deployments import Estimate
    from panda_mdp.protocol.messages.signing import SigningKey
    from panda_mdp.protocol.server.auth import TokenBook
    from panda_mdp.protocol.server.store.database import Store

    require(not folder.exists(), f"{folder} is there already; give a new --folder")
    folder.mkdir(parents=True)
    with working("making a table of a synthetic city"):
        _, problem = Drawn(records=120, outputs=20, epsilon=4.0).read(SYNTHETIC)
        file = optimal(problem, gap=0.05).save(folder / "city.pmdp")
    database = str(folder / "panda.db")
    with Store.create(database) as store:
        SigningKey.create(Service(database).key_path(store))
        admin, person, yours = (
            TokenBook(store).make(role)[0].token for role in ("admin", "reporter", "reporter")
        )
    write_private(folder / "admin.token", admin.encode())
    line = "from panda_mdp.cli import main; main()"
    options = ("--database", database, "--port", "0", "--log-level", "warning")
    # A process of its own, as an operator starts it; it ends with this one.
    server = subprocess.Popen(  # noqa: S603
        [sys.executable, "-c", line, "serve", *options], stdout=subprocess.PIPE, text=True
    )
    try:
        url = server.stdout.readline().split()[-1] if server.stdout else ""
        account = Account(url, token_file=folder / "admin.token")
        unwrap(publish)(account, file, Survey("city", purpose="a first look"), SYNTHETIC)
        limits = Allowance(epsilon=4.0, period_epsilon=8.0)
        with Client(url, person, folder / "person", limits) as client:
            plan = client.plan("city")
            made = client.report(plan, plan.record(secrets.randbelow(problem.size)))
        typer.echo(
            f"a private report was accepted: place {made.output}, epsilon {made.cost.epsilon:g}"
        )
        with Address(url).wire(admin) as wire:
            found = wire.get(Estimate, "deployments", "city", "estimate", own=True)
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
    from panda_mdp.protocol.server.store.database import Store
    from panda_mdp.protocol.server.store.database import revoke as end
    from panda_mdp.protocol.server.store.schema import InvitationRow

    with Store.open(database) as store, store.write() as session:
        if revoke:
            if not end(session, InvitationRow, InvitationRow.id == revoke):
                raise InvalidInputError(
                    "there is no invitation of this id, or it is revoked already"
                )
            typer.echo("revoked")
            return
        codes = [make(session, places, days or None) for _ in range(count)]
    for code in codes:
        typer.echo(code)


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
