"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import panda_mdp as pm
from panda_mdp.cli import app

gpd = pytest.importorskip("geopandas")
shapely = pytest.importorskip("shapely")
WORDS = "names no reference system; say which its coordinates are in: crs='EPSG:...' (--crs)"
COMMANDS = {
    "solve": "solve roads.shp -o new.pmdp --method exponential",
    "solve, of zones": "solve zones.shp -o new.pmdp --method exponential",
    "compare": "compare roads.shp --methods exponential --records 9 --outputs 3",
    "panda": "panda roads.shp --records 9 --outputs 3",
    "epsilon": "epsilon roads.shp --records 9 --outputs 3 --within 0.2 --odds 4",
    "prior": "prior zones.shp fixes.csv -o prior.npz --public me",
    "map": "map table.pmdp -o map.png --city roads.shp",
    "estimate": "estimate table.pmdp fixes.csv --columns lat,lon --zones zones.shp",
    "quality": "quality table.pmdp fixes.csv fixes.csv --reported lat,lon --zones zones.shp",
    "perturb, of points": "perturb table.pmdp points.parquet -o safe.parquet --snap-limit 9",
    "perturb, of a map": "perturb zones.shp fixes.csv -o safe.csv --displacement 0.2",
    "city import": "city import roads.shp -o new.npz",
    "city info": "city info roads.shp",
    "reproduce": "reproduce figure1 --city roads.shp --toy",
    "publish": "publish http://localhost:9 table.pmdp --name x --token-file token --map roads.shp",
}


@pytest.fixture(scope="module")
def nameless(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files in metres of a projection that do not say so, and a table of the same places."""
    folder = tmp_path_factory.mktemp("nameless")
    city = pm.synthetic_city(60, 0)
    domain = city.domain(None)
    outputs = [0, 10, 20]
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 3.0)
    pm.exponential(problem).save(folder / "table.pmdp")
    at = [(domain.lon[k], domain.lat[k]) for k in range(domain.size)]
    points = gpd.GeoSeries([shapely.Point(place) for place in at], crs=4326).to_crs(32633)
    ends = zip(city.u.tolist(), city.v.tolist(), strict=True)
    streets = [shapely.LineString([points[u], points[v]]) for u, v in ends]
    gpd.GeoDataFrame(geometry=streets, crs=32633).to_file(folder / "roads.shp")
    gpd.GeoDataFrame(geometry=points.buffer(60), crs=32633).to_file(folder / "zones.shp")
    (folder / "roads.prj").unlink()
    (folder / "zones.prj").unlink()
    frame = gpd.GeoDataFrame(geometry=points)
    frame.set_crs(None, allow_override=True).to_parquet(folder / "points.parquet")
    rows = [f"{lat},{lon}" for lon, lat in (at[k] for k in outputs)]
    (folder / "fixes.csv").write_text("\n".join(["lat,lon", *rows, ""]))
    (folder / "token").write_text("t" * 43)
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_that_reads_places_takes_a_reference_system(
    name: str, nameless: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metres of a local grid can look like degrees: none is guessed, and all say it alike."""
    monkeypatch.chdir(nameless)
    refused = CliRunner().invoke(app, COMMANDS[name].split())
    assert refused.exit_code == 2 and WORDS in " ".join(refused.output.split()), refused.output
    if name in ("publish", "reproduce"):
        told = CliRunner().invoke(app, [name, "--help"])
        assert "--crs" in told.output
        return
    taken = CliRunner().invoke(app, [*COMMANDS[name].split(), "--crs", "EPSG:32633"])
    assert taken.exit_code == 0, taken.output
