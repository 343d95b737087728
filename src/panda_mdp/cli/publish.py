"""From a table and a map to a survey that people can take part in: one command of an operator."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

from panda_mdp.base.text import picked
from panda_mdp.city.city import City
from panda_mdp.city.draw import find_city
from panda_mdp.cli.client import Account, Period, Server, read_token
from panda_mdp.cli.frame import working
from panda_mdp.cli.options import Crs, MaybePath, MaybeText, Positive, described, require
from panda_mdp.errors import InvalidInputError
from panda_mdp.panda.file import load
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.space.domain import Domain

if TYPE_CHECKING:
    from panda_mdp.protocol.messages.catalogue import Streets

MARGIN_DEGREES = 0.02
"""Around the records, so that the map does not end where they do."""


@dataclass(frozen=True)
class Survey:
    """What a deployment says of itself, signed.

    Options:
        name NAME: Of table, records and survey.
        collector TEXT: Who collects; signed.
        purpose TEXT: What for; signed.
        until DAY: Last day, as 2027-03-31 (UTC); signed.
        reports COUNT: Reports of a token in a period.
        one_use: Take reports with one-use tokens that name nobody (docs/protocol.md); signed.
    """

    name: Annotated[str, typer.Option()]
    collector: str = ""
    purpose: str = ""
    until: str = ""
    reports: Positive = 1
    period: Period = 24.0
    one_use: bool = False

    def deployment(self, kind: str) -> Any:
        """As the server is asked for it."""
        from pydantic import ValidationError

        from panda_mdp.protocol.messages.catalogue import TableRef
        from panda_mdp.protocol.messages.deployments import deployment_request

        asked = {
            **picked(self, "name", "collector", "purpose", "one_use"),
            "kind": kind,
            "table": TableRef(name=self.name, version=1),
            "until": self.until or None,
            "reports_per_period": self.reports,
            "period_s": round(3600 * self.period),
        }
        try:
            return deployment_request.validate_python(asked)
        except ValidationError as error:
            field = error.errors(include_input=False)[0]
            raise InvalidInputError(
                f"{'.'.join(map(str, field['loc']))}: {field['msg']}; see --help"
            ) from None


@described
def publish(
    account: Account,
    file: Path,
    survey: Survey,
    city: Annotated[str, typer.Option("--map")] = "",
    names: MaybePath = None,
    crs: Crs = None,
) -> None:
    """Publish a table with its streets and their names, and open a deployment of it.

    The token is an admin's. The server audits and signs the table; streets and names are for
    drawing and searching alone, on people's own devices.

    Options:
        file FILE: A table (.pmdp).
        city MAP: Road map to draw below, or 'synthetic'.
        names FILE: Names of streets and landmarks (.csv, .osm.pbf).
    """
    from panda_mdp.protocol.client.wire import Network
    from panda_mdp.protocol.messages.catalogue import DomainInfo, DomainRequest, TableInfo, TableRef
    from panda_mdp.protocol.messages.deployments import Deployment

    name = survey.name
    streets = None
    with working("reading the table and the map"):
        table = load(file)
        records = table.problem.domain
        places = records.metric.kind == "haversine"
        if city:
            require(places, "the table's records are not places on a map; leave it out", "--map")
            streets = _streets(find_city(city, records.size, 0, crs), names or Path(city), records)
    deployment = survey.deployment("panda" if isinstance(table, PandaTable) else "table")
    with account.wire(network=Network(timeout_s=900)) as wire, working("publishing"):
        if places:
            lat, lon = records.lat.tolist(), records.lon.tolist()
            domain = DomainRequest(name=name, lat=lat, lon=lon, streets=streets)
            wire.post(DomainInfo, domain, "domains")
        info = wire.upload(TableInfo, file.read_bytes(), "tables", name)
        ref = TableRef(name=name, version=info.version)
        wire.post(Deployment, deployment.model_copy(update={"table": ref}), "deployments")
    drawn = "no streets, 0 names"
    if streets is not None:
        drawn = f"{len(streets.u):,} streets, {len(streets.names):,} names"
    typer.echo(
        f"{name}, version {info.version}: {info.records:,} records, {info.outputs} outputs, "
        f"epsilon {info.epsilon:g} per {info.unit}; {drawn}; open at {account.url}"
    )


@described
def remove(
    account: Account,
    token: MaybeText = None,
    batch: MaybeText = None,
    receipt: MaybeText = None,
    exclude: bool = False,
    include: bool = False,
) -> None:
    """Erase reports of a server by token, by batch or by a person's receipt; or set them aside.

    Tokens are revoked with their reports, invitations with their batch. Counts, exports and
    estimates follow; the public log says that something was removed. The token is an admin's.

    Options:
        token ID: A reporter's token.
        batch ID: All tokens of an invitation, or made in one request.
        receipt ID: One report, by the receipt that its client printed.
        exclude: Set the reports aside, and keep them.
        include: Take back what was set aside.
    """
    from pydantic import ValidationError

    from panda_mdp.protocol.messages.service import RemovalDone, RemovalRequest

    require(not (exclude and include), "--exclude or --include, not both")
    action: Any = "exclude" if exclude else "include" if include else "erase"
    try:
        removal = RemovalRequest(action=action, token=token, batch=batch, receipt=receipt)
    except ValidationError:
        raise InvalidInputError(
            "give one of --token, --batch (12 hexadecimal digits) and --receipt (a report's id)"
        ) from None
    with account.wire() as wire:
        done = wire.post(RemovalDone, removal, "removals")
    typer.echo(f"{action}: {done.reports} reports; {done.tokens} tokens revoked")


@described
def witness(
    server: Server, key: Annotated[Path, typer.Option()], token_file: MaybePath = None
) -> None:
    """Look at a server's log once, as somebody independent, and sign its head for everybody.

    Refuses a log that was shortened or rewritten since the last time, which the folder remembers.
    Run it every hour. Prints what was signed; with a token it is published beside the log.

    Options:
        key FILE: The witness's own key (`signing new`).
        token_file FILE: File with an auditor's token of the server.
    """
    import time

    from panda_mdp.protocol.client.trust import Trust
    from panda_mdp.protocol.messages.log import CoSigned, Log
    from panda_mdp.protocol.messages.service import ServiceInfo
    from panda_mdp.protocol.messages.signing import SigningKey

    own_key = SigningKey.load(key)
    token = None if token_file is None else read_token(token_file)
    with server.wire(token) as wire:
        trust = Trust(server.place, wire.origin)
        keys = trust.keyring(wire.get(ServiceInfo), None)
        log = wire.get(Log, "log")
        trust.check_log(log, keys)
        trust.pin_log(log.head)
        head = picked(log.head, "size", "root")
        now = time.time_ns() // 1_000_000
        seen = CoSigned.by(own_key, public=own_key.public.base64, at=now, **head)
        if token is not None:
            wire.post(CoSigned, seen, "log", "witnesses")
    typer.echo(seen.model_dump_json())


def _streets(city: City, names: Path, domain: Domain) -> Streets:
    """The streets around the records, and the names among them."""
    from panda_mdp.city.names import read_names
    from panda_mdp.protocol.messages.catalogue import PlaceName, Streets

    corners = np.stack([domain.lat, domain.lon])
    middle = (corners.max(axis=1) + corners.min(axis=1)) / 2
    reach = np.ptp(corners, axis=1) / 2 + MARGIN_DEGREES

    def inside(*degrees: Any) -> Any:
        return (np.abs(np.stack(degrees, axis=-1) - middle) <= reach).all(axis=-1)

    nodes = np.flatnonzero(inside(city.lat, city.lon))
    require(
        len(nodes),
        f"no junction within {MARGIN_DEGREES} degrees of the records; another map?",
        "--map",
    )
    part = city.take(nodes)
    listed = read_names(names) if names.exists() else []
    lat, lon = (np.rint(1e6 * degrees).astype(int).tolist() for degrees in (part.lat, part.lon))
    near = [
        PlaceName(name=entry.name[:120], lat=entry.lat, lon=entry.lon, kind=entry.kind)
        for entry in listed
        if inside(entry.lat, entry.lon)
    ]
    return Streets(lat=lat, lon=lon, u=part.u.tolist(), v=part.v.tolist(), names=near)
