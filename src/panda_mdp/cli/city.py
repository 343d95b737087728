"""Commands about road maps: import and describe."""

from __future__ import annotations

from pathlib import Path

import typer

from panda_mdp.base.text import picked
from panda_mdp.city.maps import read_map
from panda_mdp.city.network import MapOptions
from panda_mdp.city.statistics import WORDS, city_statistics
from panda_mdp.cli.frame import working, write_json
from panda_mdp.cli.options import Crs, Json, Picture, Target, described, is_page, require
from panda_mdp.cli.printing import show

city_app = typer.Typer(
    help="Road maps: import them, describe them, draw them.", rich_markup_mode=None
)


@city_app.command("import")
@described
def import_city(
    file: Path,
    out: Target,
    options: MapOptions,
    json: Json = None,
) -> None:
    """Import a road map and save it as a city, simplified to junctions.

    Keeps the largest connected part and says what was left out.

    Options:
        file FILE: A map: .osm.pbf, .osm, .graphml, .gpkg, .shp, .geojson, .parquet, .npz.
        out FILE: Target, .npz.
    """
    require(out.suffix == ".npz", f"{out.name} does not end in .npz", "--out")
    with working("reading the map"):
        report = read_map(file, options)
        report.city.save(out)
    typer.echo("\n".join([*report.lines(), f"saved to {out}"]))
    facts = picked(report, "segments", "contracted", "dropped_nodes", "parts", "source")
    write_json(json, facts | picked(report.city, "nodes", "streets", "total_km"))


@city_app.command("info")
@described
def city_info(city: Path, draw: Picture = None, crs: Crs = None, json: Json = None) -> None:
    """Describe a city: size, degrees, lengths, detours; and draw it.

    Options:
        city CITY: A road map in any known format.
        draw FILE: Draw it too: .png, .svg, .pdf, or .html to look around.
    """
    with working("measuring the city"):
        roads = read_map(city, MapOptions(crs=crs)).city
        measured = city_statistics(roads)
    show(str(city), WORDS, json, measured)
    if draw is not None:
        from panda_mdp.plot import draw_city, save_figure, write_map

        with working("drawing"):
            if is_page(draw):
                write_map(draw, city=roads)
            else:
                save_figure(draw_city(roads), draw)
        typer.echo(f"drawn to {draw}")
