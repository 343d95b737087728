"""`panda-mdp city import` and `panda-mdp city info`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from maps import write_graphml
from typer.testing import CliRunner, Result

from panda_mdp import load_city, synthetic_city
from panda_mdp.cli import app


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, ["city", *map(str, arguments)])


@pytest.fixture
def graphml(tmp_path: Path) -> Path:
    return write_graphml(synthetic_city(200), tmp_path / "town.graphml")


def test_import_saves_a_city_and_tells_what_happened(graphml: Path, tmp_path: Path) -> None:
    out, told = tmp_path / "town.npz", tmp_path / "told.json"
    result = run("import", graphml, "-o", out, "--json", told)
    assert result.exit_code == 0
    assert "graphml: " in result.output and "200 nodes" in result.output
    found, town = load_city(out), synthetic_city(200)
    assert (found.nodes, found.streets) == (town.nodes, town.streets)
    assert found.total_km == pytest.approx(town.total_km, rel=1e-12)
    assert json.loads(told.read_text())["nodes"] == 200


def test_import_of_an_area(graphml: Path, tmp_path: Path) -> None:
    city = load_city(graphml)
    middle = float(city.lat.mean())
    box = (middle, city.lon.min() - 1, middle + 1, city.lon.max() + 1)
    out = tmp_path / "north.npz"
    assert run("import", graphml, "-o", out, "--bbox", *box).exit_code == 0
    part = load_city(out)
    assert part.nodes < 200 and part.lat.min() >= middle and part.components().max() == 0
    assert run("import", graphml, "-o", out, "--bbox", *box, "--no-largest").exit_code == 0
    assert load_city(out).nodes >= part.nodes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["import", "-o", "x.npz"], "Missing argument"),
        (["import", "TOWN", "-o", "x.txt"], "does not end in .npz"),
        (["import", "TOWN", "-o", "x.npz", "--bbox", "1", "2"], "4 arguments"),
        (["import", "TOWN", "-o", "x.npz", "--bbox", *"5214"], "south below north"),
        (["import", "nowhere.osm.pbf", "-o", "x.npz"], "no such file"),
        (["info", "nowhere.npz"], "no such file"),
        (["info", "TOWN", "--draw", "x.bmp"], "none of .png"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    graphml: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*[str(graphml) if part == "TOWN" else part for part in arguments])
    assert result.exit_code == 2
    assert message in " ".join(result.output.split())
    assert not (tmp_path / "x.npz").exists()


@pytest.mark.parametrize("suffix", ["png", "html"])
def test_info_describes_and_draws(graphml: Path, tmp_path: Path, suffix: str) -> None:
    picture, told = tmp_path / f"town.{suffix}", tmp_path / "told.json"
    result = run("info", graphml, "--draw", picture, "--json", told)
    assert result.exit_code == 0
    assert "mean detour" in result.output and "degree 1/2/3/4" in result.output
    assert picture.stat().st_size > 10_000
    assert json.loads(told.read_text())["components"] == 1
