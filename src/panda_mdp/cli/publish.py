"""From a table and a map to a survey that people can take part in: one command of an operator."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from panda_mdp.cli.client import Plain, TokenFile, Url
from panda_mdp.cli.client import _token as read_token
from panda_mdp.cli.frame import working
from panda_mdp.errors import InvalidInputError

if TYPE_CHECKING:
    from panda_mdp.protocol.messages.catalogue import StreetsUpload
    from panda_mdp.space.domain import Domain

MARGIN_DEGREES = 0.02
"""Around the records, so that the map does not end where they do."""


def publish(
    url: Url,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A table (.pmdp or .pmdc).")],
    name: Annotated[str, typer.Option(metavar="NAME", help="Of table, records and survey.")],
    city: Annotated[
        str,
        typer.Option("--map", metavar="MAP", help="Road map to draw below, or 'synthetic'."),
    ] = "",
    seed: Annotated[int, typer.Option(metavar="NUMBER", help="Seed of the synthetic map.")] = 0,
    names: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Names of streets and landmarks (.csv, .graphml, .osm.pbf)."
        ),
    ] = None,
    collector: Annotated[str, typer.Option(metavar="TEXT", help="Who collects; signed.")] = "",
    purpose: Annotated[str, typer.Option(metavar="TEXT", help="What for; signed.")] = "",
    until: Annotated[
        str, typer.Option(metavar="DAY", help="Last day, as 2027-03-31 (UTC); signed.")
    ] = "",
    reports: Annotated[
        int, typer.Option(metavar="COUNT", help="Reports of a token in a period.")
    ] = 1,
    period: Annotated[float, typer.Option(metavar="HOURS", help="Length of a period.")] = 24.0,
    token_file: TokenFile = None,
    plain_http: Plain = False,
) -> None:
    """Publish a table with its streets and their names, and open a deployment of it.

    The token is an admin's. The server audits and signs the table; streets and names are for
    drawing and searching alone, on people's own devices.
    """
    from pydantic import ValidationError

    from panda_mdp.protocol.client.wire import Wire
    from panda_mdp.protocol.messages.catalogue import DomainInfo, DomainRequest, TableInfo, TableRef
    from panda_mdp.protocol.messages.deployments import deployment_info, deployment_request
    from panda_mdp.table.pmdp.decode import is_phased

    with working("reading the table and the map"):
        data, domain = file.read_bytes(), _records(file)
        streets = _streets(city, seed, names, domain) if city else None
    try:
        ref = TableRef(name=name, version=1)
        phased = is_phased(file)
        wanted = deployment_request.validate_python(
            {
                "kind": "panda" if phased else "table",
                "name": name,
                "table": ref,
                "collector": collector,
                "purpose": purpose,
                "until": until or None,
                "reports_per_period": reports,
                "period_s": round(3600 * period),
            }
        )
    except ValidationError as error:
        field = error.errors(include_input=False)[0]
        msg = f"{'.'.join(map(str, field['loc']))}: {field['msg']}; see --help"
        raise InvalidInputError(msg) from None
    wire = Wire(url, read_token(token_file), timeout_s=900, allow_plain_http=plain_http)
    try:
        with working("publishing"):
            if domain is not None:
                places = DomainRequest(
                    name=name,
                    kind="haversine",
                    unit="km",
                    lat=domain.lat.tolist(),
                    lon=domain.lon.tolist(),
                    streets=streets,
                )
                wire.post(DomainInfo, places, "domains")
            info = wire.upload(TableInfo, data, "tables", name)
            ref = TableRef(name=name, version=info.version)
            wire.post(deployment_info, wanted.model_copy(update={"table": ref}), "deployments")
    finally:
        wire.close()
    drawn = "no streets" if streets is None else f"{len(streets.u):,} streets"
    labels = 0 if streets is None else len(streets.names)
    typer.echo(
        f"{name}, version {info.version}: {info.records:,} records, {info.outputs} outputs, "
        f"epsilon {info.epsilon:g} per {info.unit}; {drawn}, {labels:,} names; open at {url}"
    )


def _records(file: Path) -> Domain | None:
    """The records of a table, where they are places."""
    from panda_mdp.panda.file.decode import load_panda
    from panda_mdp.table.pmdc.archive import load_compact
    from panda_mdp.table.pmdp.decode import at_path, examine, is_phased

    if file.suffix == ".pmdc":
        domain = load_compact(file).domain
    elif is_phased(file):
        domain = load_panda(file).problem.domain
    else:
        domain = at_path(file, examine).problem.domain
    return domain if domain.metric.kind == "haversine" else None


def _streets(city: str, seed: int, names: Path | None, domain: Domain | None) -> StreetsUpload:
    """The streets around the records, and the names among them."""
    import numpy as np
    import numpy.typing as npt

    from panda_mdp.city.draw import find_city
    from panda_mdp.city.read.names import read_names
    from panda_mdp.protocol.messages.catalogue import PlaceName, StreetsUpload

    if domain is None:
        msg = "the table's records are not places on a map; publish it without --map"
        raise InvalidInputError(msg)
    network = find_city(city, domain.size, seed)
    low = np.array([domain.lat.min(), domain.lon.min()]) - MARGIN_DEGREES
    high = np.array([domain.lat.max(), domain.lon.max()]) + MARGIN_DEGREES

    def inside(lat: npt.ArrayLike, lon: npt.ArrayLike) -> npt.NDArray[np.bool_]:
        at = np.stack([np.asarray(lat), np.asarray(lon)], axis=-1)
        return np.asarray(((at >= low) & (at <= high)).all(axis=-1))

    chosen = np.flatnonzero(inside(network.lat, network.lon))
    if not len(chosen):
        msg = f"{city} has no junction within {MARGIN_DEGREES} degrees of the records; another map?"
        raise InvalidInputError(msg)
    place = np.full(network.nodes, -1)
    place[chosen] = np.arange(len(chosen))
    u, v = place[network.u], place[network.v]
    both = (u >= 0) & (v >= 0)
    source = names if names is not None else Path(city)
    listed = read_names(source) if source.exists() else []
    return StreetsUpload(
        lat=network.lat[chosen].tolist(),
        lon=network.lon[chosen].tolist(),
        u=u[both].tolist(),
        v=v[both].tolist(),
        names=[
            PlaceName(name=n.name[:120], lat=n.lat, lon=n.lon, kind=n.kind)
            for n in listed
            if inside(n.lat, n.lon)
        ],
    )
