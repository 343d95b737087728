"""Places by name, for those who are online: OSMnx fetches, our own importer reads."""

from __future__ import annotations

import tempfile
from pathlib import Path

from panda_mdp.city.read.assembly import MapReport, assemble
from panda_mdp.city.read.graphml import read_graphml
from panda_mdp.city.read.options import MapOptions
from panda_mdp.errors import CityError, MissingDependencyError


def fetch_place(place: str, options: MapOptions | None = None) -> MapReport:
    """Download the street network of a place by name, for example 'Modena, Italy'.

    Asks OpenStreetMap's servers through OSMnx: the name of the place leaves this machine.
    """
    try:
        import osmnx
    except ImportError as error:
        msg = (
            "fetching a place by name needs osmnx, which is not installed: pip install osmnx; "
            "or import an extract that you have (.osm.pbf, .graphml, ...)"
        )
        raise MissingDependencyError(msg) from error
    chosen = options or MapOptions()
    try:
        graph = osmnx.graph_from_place(place, network_type=chosen.network)
    except (OSError, ValueError, TypeError) as error:
        msg = f"OSMnx could not fetch {place!r} ({error}); check the name and the connection"
        raise CityError(msg) from error
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "place.graphml"
        osmnx.save_graphml(graph, path)
        return assemble(read_graphml(path), chosen, "OSMnx", place.split(",", maxsplit=1)[0])
