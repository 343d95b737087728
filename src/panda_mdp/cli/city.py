"""Commands about road maps: import and describe."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from panda_mdp.city.maps import MapOptions, MapReport, read_map
from panda_mdp.city.statistics import city_statistics
from panda_mdp.cli.frame import check_target, output_console, working, write_json
from panda_mdp.cli.options import Json

city_app = typer.Typer(
    help="Road maps: import them, describe them, draw them.", rich_markup_mode=None
)


class Traveller(StrEnum):
    """Whose roads are taken from a map."""

    drive = "drive"
    walk = "walk"
    bike = "bike"


@city_app.command("import")
def import_city(
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FILE", help="Target, .npz or .graphml.")
    ],
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE",
            help="A map: .osm.pbf, .osm, .graphml, .gpkg, .shp, .geojson, .parquet, .npz.",
        ),
    ] = None,
    place: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Download a place by name instead (needs osmnx)."),
    ] = None,
    network: Annotated[
        Traveller, typer.Option(help="Whose roads to take from the map.")
    ] = Traveller.drive,
    bbox: Annotated[
        str | None,
        typer.Option(
            metavar="S,W,N,E", help="Keep this area only: south,west,north,east in degrees."
        ),
    ] = None,
    simplify: Annotated[
        bool | None,
        typer.Option(
            "--simplify/--no-simplify",
            help="Contract nodes that are no junctions (by default where the file has them).",
        ),
    ] = None,
    all_parts: Annotated[
        bool, typer.Option("--all-parts", help="Keep what is not connected to the largest part.")
    ] = False,
    crs: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Reference system, where the file names none or a wrong one: EPSG:32632.",
        ),
    ] = None,
    json: Json = None,
) -> None:
    """Import a road map and save it as a city, simplified to junctions.

    Keeps the largest connected part and says what was left out.
    """
    if (file is None) == (place is None):
        msg = "give either a FILE or --place NAME"
        raise typer.BadParameter(msg)
    if out.suffix not in (".npz", ".graphml"):
        msg = f"{out.name} ends in neither .npz nor .graphml"
        raise typer.BadParameter(msg, param_hint="--out")
    options = MapOptions(
        network=network.value,
        bbox=_box(bbox),
        simplify=simplify,
        largest=not all_parts,
        crs=crs,
    )
    with working("reading the map"):
        report = _read(file, place, options)
        report.city.save(out)
    console = output_console()
    for line in report.lines():
        console.print(line, markup=False, soft_wrap=True)
    console.print(f"saved to {out}", markup=False, soft_wrap=True)
    write_json(
        json,
        {
            "nodes": report.city.nodes,
            "streets": report.city.streets,
            "total_km": report.city.total_km,
            "segments": report.segments,
            "contracted": report.contracted,
            "dropped_nodes": report.dropped_nodes,
            "parts": report.parts,
            "source": report.source,
        },
    )


@city_app.command("info")
def city_info(
    city: Annotated[Path, typer.Argument(metavar="CITY", help="A road map in any known format.")],
    draw: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            callback=check_target,
            help="Draw it too: .png, .svg, .pdf, or .html to look around.",
        ),
    ] = None,
    json: Json = None,
) -> None:
    """Describe a city: size, degrees, lengths, detours; and draw it."""
    from panda_mdp.cli.printing import facts

    with working("measuring the city"):
        roads = read_map(city).city
        measured = city_statistics(roads)
    console = output_console()
    console.print(facts(str(city), list(measured.rows())))
    if draw is not None:
        from panda_mdp.plot import draw_city, save_figure, write_map

        with working("drawing"):
            if draw.suffix.lower() in (".html", ".htm"):
                write_map(draw, city=roads)
            else:
                save_figure(draw_city(roads), draw)
        console.print(f"drawn to {draw}", markup=False, soft_wrap=True)
    write_json(json, measured)


def _read(file: Path | None, place: str | None, options: MapOptions) -> MapReport:
    if file is not None:
        return read_map(file, options)
    from panda_mdp.city.maps import fetch_place

    return fetch_place(str(place), options)


def _box(text: str | None) -> tuple[float, float, float, float] | None:
    if text is None:
        return None
    try:
        south, west, north, east = (float(part) for part in text.split(","))
    except ValueError:
        msg = f"{text!r} is not south,west,north,east in degrees"
        raise typer.BadParameter(msg, param_hint="--bbox") from None
    return south, west, north, east
