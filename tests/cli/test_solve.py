"""`solve`, `prior`, `map`: from a map to a table on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

import panda_mdp as pm
from panda_mdp.city.traces import load_prior
from panda_mdp.cli import app
from panda_mdp.errors import FileFormatError
from panda_mdp.methods.references import android_grid


def call(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def town(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """46 junctions, fewer than any default."""
    return pm.synthetic_city(46, 3).save(tmp_path_factory.mktemp("town") / "town.npz")


@pytest.fixture(scope="module")
def fixes(town: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    city = pm.load_city(town)
    rows = [f"u{k % 7},{city.lat[k % 5]},{city.lon[k % 5]}" for k in range(400)]
    path = tmp_path_factory.mktemp("fixes") / "fixes.csv"
    path.write_text("\n".join(["driver,lat,lon", *rows]))
    return path


def test_a_small_map_is_taken_whole(town: Path, tmp_path: Path) -> None:
    target, facts = tmp_path / "t.pmdp", tmp_path / "facts.json"
    result = call("solve", town, "-o", target, "--epsilon", "2", "--json", facts)
    assert result.exit_code == 0, result.output
    table = pm.load(target)
    assert (table.problem.size, table.problem.outputs_count, table.epsilon) == (46, 46, 2.0)
    assert table.problem.loss_unit == "km" and table.gap is not None and table.gap <= 0.01
    assert "a factor of 1.22" in result.stdout and "the least possible" in result.stdout
    written = json.loads(facts.read_text())
    assert written["loss"] == pytest.approx(table.loss) and written["records"] == 46


def test_epsilon_along_streets_and_by_density(town: Path, tmp_path: Path) -> None:
    for metric, more, unit in (
        ("road", ("--epsilon", "2"), "km"),
        ("density", ("--people", "8", "--epsilon", "1"), "nat"),
    ):
        target = tmp_path / f"{metric}.pmdp"
        asked = ("--metric", metric, "--outputs", "6", "--method", "exponential", *more)
        result = call("solve", town, "-o", target, *asked)
        assert result.exit_code == 0, result.output
        domain = pm.load(target).problem.domain
        assert (domain.size, domain.metric.kind, domain.unit) == (46, "graph", unit)
        assert metric == "road" or ((domain.distances() <= 1).sum(axis=1) >= 8).all()
    for asked in (
        ("--metric", "air"),
        ("--metric", "density"),
        ("--people", "8"),
        ("--metric", "density", "--people", "8", "--epsilon", "5"),
    ):
        assert call("solve", town, "-o", tmp_path / "no.pmdp", *asked).exit_code == 2


def test_a_larger_map_is_drawn_from(tmp_path: Path) -> None:
    target = tmp_path / "t.pmdp"
    result = call("solve", "synthetic", "-o", target, "--method", "exponential")
    assert result.exit_code == 0, result.output
    table = pm.load(target)
    assert (table.problem.size, table.problem.outputs_count) == (5000, 100)


def test_a_second_objective(town: Path, tmp_path: Path) -> None:
    plain, then = (tmp_path / f"{name}.pmdp" for name in ("plain", "then"))
    options = ("--records", "20", "--outputs", "6", "--epsilon", "2")
    result = call("solve", town, "-o", plain, *options)
    assert "the loss alone" in " ".join(result.stdout.split())
    before = pm.attack(pm.load(plain)).vulnerability
    facts = tmp_path / "facts.json"
    asked = ("--method", "optimal_then", "--json", facts)
    result = call("solve", town, "-o", then, *options, *asked)
    assert result.exit_code == 0, result.output
    written = json.loads(facts.read_text())["second"]
    assert written["value"] == pytest.approx(pm.attack(pm.load(then)).vulnerability)
    assert written["bound"] <= written["value"] < before
    said = " ".join(result.stdout.split())
    assert "then vulnerability within 1 %" in said and "(proved)" in said


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--radius", "-1"), "'--radius'"),
        (("--radius", "1", "--method", "exponential"), "are for the method 'optimal'"),
    ],
)
def test_objectives_that_make_no_sense_are_one_line(
    town: Path, tmp_path: Path, options: tuple[str, ...], words: str
) -> None:
    target = tmp_path / "t.pmdp"
    result = call("solve", town, "-o", target, "--records", "20", "--outputs", "6", *options)
    assert result.exit_code == 2
    assert words in " ".join(result.stderr.split())
    assert not target.exists()


def test_any_record_may_be_reported(town: Path, tmp_path: Path) -> None:
    target = tmp_path / "t.pmdp"
    options = ["--records", "40", "--method", "exponential"]
    assert call("solve", town, "-o", target, *options, "--outputs", "all").exit_code == 0
    assert sorted(pm.load(target).problem.outputs.tolist()) == list(range(40))
    for wrong in ("0", "41", "every", "²"):
        assert call("solve", town, "-o", target, *options, "--outputs", wrong).exit_code == 2


def test_places_without_streets_are_taken_too(tmp_path: Path) -> None:
    points = tmp_path / "points.csv"
    points.write_text("lat,lon\n" + "".join(f"41.9{k},12.5{k % 3}\n" for k in range(9)))
    assert call("solve", points, "-o", tmp_path / "points.pmdp").exit_code == 0
    assert pm.load(tmp_path / "points.pmdp").problem.size == 9
    square = "[[[{0},41],[{1},41],[{1},41.01],[{0},41.01],[{0},41]]]"
    zones = [
        f'{{"type":"Feature","properties":{{"name":"zone {k}"}},"geometry":{{"type":"Polygon",'
        f'"coordinates":{square.format(12 + k / 100, 12 + (k + 1) / 100)}}}}}'
        for k in range(7)
    ]
    path = tmp_path / "zones.geojson"
    path.write_text(f'{{"type":"FeatureCollection","features":[{",".join(zones)}]}}')
    target = tmp_path / "zones.pmdp"
    drawn = ("--records", "5", "--outputs", "all")
    assert call("solve", path, "-o", target, *drawn).exit_code == 0
    assert pm.load(target).problem.domain.labels[0].startswith("zone ")
    assert pm.load(target).problem.outputs_count == 5
    refused = call("solve", path, "-o", tmp_path / "no.pmdp", "--tasks", "1")
    assert refused.exit_code == 2 and "travel needs streets" in refused.output
    assert not (tmp_path / "no.pmdp").exists()


def test_zones_without_a_reference_system_need_one(tmp_path: Path) -> None:
    """The remedy that the error names is an option of the command."""
    import geopandas
    from shapely.geometry import box

    squares = [box(290_000 + 500 * k, 4_640_000, 290_500 + 500 * k, 4_640_500) for k in range(4)]
    path, target = tmp_path / "zones.shp", tmp_path / "zones.pmdp"
    with pytest.warns(UserWarning, match="crs"):
        geopandas.GeoDataFrame(geometry=squares).to_file(path)
    refused = call("solve", path, "-o", target)
    assert refused.exit_code == 2 and "(--crs)" in refused.output and not target.exists()
    assert call("solve", path, "-o", target, "--crs", "EPSG:32633").exit_code == 0
    domain = pm.load(target).problem.domain
    assert (domain.lat > 41).all() and (domain.lon > 12).all() and domain.diameter < 2


def test_travel_to_tasks(town: Path, tmp_path: Path) -> None:
    near, far = tmp_path / "near.pmdp", tmp_path / "far.pmdp"
    options = ["--records", "20", "--outputs", "5", "--method", "exponential"]
    assert call("solve", town, "-o", near, *options).exit_code == 0
    assert call("solve", town, "-o", far, *options, "--tasks", "2").exit_code == 0
    one, other = pm.load(near).problem, pm.load(far).problem
    assert np.array_equal(one.outputs, other.outputs) and not np.array_equal(one.loss, other.loss)


def test_priors_are_private_or_public_and_certified(
    town: Path, fixes: Path, tmp_path: Path
) -> None:
    made, table = tmp_path / "prior.npz", tmp_path / "t.pmdp"
    result = call("prior", town, fixes, "-o", made, "--epsilon", "1")
    assert result.exit_code == 0, result.output
    assert "epsilon=1 per person" in result.stdout and "400" not in result.stdout
    options = ["--prior", made, "--method", "exponential", "--records", "30"]
    assert call("solve", town, "-o", table, *options).exit_code == 0
    assert "epsilon=1 per person" in pm.inspect(table).header["notes"]["prior_source"]
    assert call("prior", town, fixes, "-o", made, "--public", "open data").exit_code == 0
    domain = pm.load_city(town).domain(None)
    weights = load_prior(made, domain).weights
    assert weights[:5].tolist() == pytest.approx([0.2] * 5) and weights.sum() == pytest.approx(1)
    # On fewer records each place counts for its nearest.
    few = load_prior(made, domain.take([0, 1]))
    assert few.weights.sum() == pytest.approx(1) and few.source == "public: open data"
    (tmp_path / "bad.npz").write_bytes(b"no")
    with pytest.raises(FileFormatError, match=r"bad\.npz"):
        load_prior(tmp_path / "bad.npz", domain)


def test_the_person_s_column_can_be_named(town: Path, fixes: Path, tmp_path: Path) -> None:
    doubtful = tmp_path / "fixes.csv"
    doubtful.write_text(fixes.read_text().replace("driver", "id", 1))
    arguments = ["prior", town, doubtful, "-o", tmp_path / "p.npz", "--epsilon", "1"]
    refused = call(*arguments)
    assert refused.exit_code == 2 and "may number the rows" in refused.stderr
    assert call(*arguments, "--person", "id").exit_code == 0


def test_tables_are_drawn(town: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.pmdp"
    call("solve", town, "-o", table, "--method", "exponential")
    for name, more in (("a.png", []), ("c.html", ["--city", town])):
        result = call("map", table, "-o", tmp_path / name, *more)
        assert result.exit_code == 0, result.output
        assert (tmp_path / name).stat().st_size > 5000


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["solve", "missing.gpkg", "-o", "t.pmdp"], "no such file"),
        (["solve", "synthetic", "-o", "t.npz"], "does not end in .pmdp"),
        (["solve", "synthetic", "-o", "t.pmdp", "--records", "some"], "neither a whole number"),
        (["solve", "synthetic", "-o", "t.pmdp", "--records", "1"], "is not in 2.."),
        (["solve", "synthetic", "-o", "t.pmdp", "--method", "magic"], "choose from"),
        (["solve", "synthetic", "-o", "t.pmdp", "--epsilon", "-1"], "epsilon"),
        (["solve", "synthetic", "-o", "t.pmdp", "--seed", "-1"], "--seed"),
        (["solve", "synthetic", "-o", "t.pmdp", "--prior", "no.npz"], "no.npz"),
        (["prior", "synthetic", "x.csv", "-o", "p.npz"], "no third way"),
        (["map", "missing.pmdp", "-o", "x.png", "--against", "android"], "a card is a page"),
        (["map", "missing.pmdp", "-o", "x.png"], "missing.pmdp"),
    ],
)
def test_bad_input_is_one_line_and_code_2(
    arguments: list[str], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = call(*arguments)
    assert result.exit_code == 2 and words in result.stderr
    assert result.stderr.count("\n") == 1 and list(tmp_path.iterdir()) == []


def test_better_than_what_phones_have(town: Path, tmp_path: Path) -> None:
    target, facts = tmp_path / "t.pmdp", tmp_path / "facts.json"
    options = ("--records", "16", "--outputs", "all", "--epsilon", "3", "--json", facts)
    result = call("solve", town, "-o", target, *options, "--against", "android")
    assert result.exit_code == 0, result.output
    said = " ".join(result.stdout.split())
    told = json.loads(facts.read_text())["dominates"]
    assert told["holds"] and told["bound"] <= told["factor"] <= 1
    assert f"{told['factor']:.3f}" in said
    assert pm.load(target).audit.holds


def test_asked_for_a_displacement_the_table_is_better_than_noise(
    town: Path, tmp_path: Path
) -> None:
    target, facts = tmp_path / "t.pmdp", tmp_path / "facts.json"
    options = ("--records", "12", "--outputs", "all", "--json", facts)
    result = call("solve", town, "-o", target, *options, "--displacement", "0.3")
    assert result.exit_code == 0, result.output
    told = json.loads(facts.read_text())["dominates"]
    assert told["holds"] and told["loss"][1] == pytest.approx(0.3, rel=0.006)
    assert pm.load(target).loss <= told["loss"][1]
    near = call("solve", town, "-o", target, *options, "--epsilon", "4", "--radius", "0.3")
    assert near.exit_code == 0, near.output
    assert set(json.loads(facts.read_text())["dominates"]["measures"]) == {
        "right place",
        "within 0.3",
    }
    card = call("explain", target, "--against", "android")
    ours, theirs = pm.attack(pm.load(target)), pm.attack(android_grid(pm.load(target).problem))
    pair = f"the right place: {100 * ours.vulnerability:.1f}, {100 * theirs.vulnerability:.1f}."
    assert card.exit_code == 0 and pair in card.output
    fixed = call("solve", town, "-o", target, "--against", "android", "--displacement", "0.3")
    assert fixed.exit_code == 2 and "displacement of its own" in " ".join(fixed.output.split())


def test_a_file_is_perturbed_from_a_map(tmp_path: Path) -> None:
    """The table that beats noise is made once, saved beside the target and taken again."""
    places = tmp_path / "places.csv"
    lat, lon = 41.9 + 0.002 * np.arange(12), 12.5 + 0.001 * np.arange(12) ** 1.5
    lines = [f"{a:.6f},{b:.6f}" for a, b in zip(lat, lon, strict=True)]
    places.write_text("\n".join(["lat,lon", *lines]) + "\n")
    rows, out, table = (tmp_path / name for name in ("rows.csv", "out.csv", "out.pmdp"))
    rows.write_text(f"lat,lon\n{lines[3]}\n{lines[7]}\n")
    made = call("perturb", places, rows, "-o", out, "--displacement", "0.4")
    assert made.exit_code == 0, made.output
    assert "each is at most" in " ".join(made.output.split())
    assert pm.load(table).details is not None and len(out.read_text().splitlines()) == 3
    before = table.read_bytes()
    out.unlink()
    again = call("perturb", places, rows, "-o", out, "--displacement", "0.4")
    assert again.exit_code == 0 and "is there, and is taken" in again.output
    assert table.read_bytes() == before
    for wrong, option in (
        ((table, rows, "-o", tmp_path / "b.csv"), "--disp"),
        ((places,), "--out"),
    ):
        refused = call("perturb", *wrong, "--displacement", "0.4")
        assert refused.exit_code == 2 and option in refused.output
