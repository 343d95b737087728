"""Every example runs, at a small size, and draws its picture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from examples_loaded import FOLDER, load

SMALL: dict[str, dict[str, Any]] = {
    "first_steps": {"records": 120, "seconds": 5},
    "my_own_map": {"records": 150},
    "compare_methods": {"records": 80, "epsilons": (2, 8), "seconds": 5},
    "choose_epsilon": {"records": 80, "epsilons": (1, 10)},
    "words": {"words": 60},
    "everywhere": {"spacing": 0.32},
    "tables_for_estimating": {"side": 4},
    "panda": {"records": 90, "seconds": 5},
    "users_over_time": {"records": 40, "users": 4},
    "road_metric": {"records": 90, "seconds": 5},
    "density": {"records": 90, "people": 12},
    "frames_on_workers": {"rows": 400},
    "protocol": {"users": 4, "records": 30},
}


def test_every_example_is_listed() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(SMALL)


@pytest.mark.parametrize("name", sorted(SMALL))
def test_example_runs_and_draws(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "my_own_map":
        pytest.importorskip("geopandas")
    picture = load(name).main(tmp_path, **SMALL[name])
    assert picture == tmp_path / f"{name}.png"
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size > 10_000
    assert capsys.readouterr().out.strip()


def test_own_vectors_and_own_maps_are_taken(tmp_path: Path) -> None:
    words = tmp_path / "vectors.txt"
    rows = [f"word{k} " + " ".join(str((k * j) % 7 - 3.1) for j in range(1, 6)) for k in range(7)]
    words.write_text("\n".join(rows))
    assert load("words").main(tmp_path, str(words)).exists()
    from panda_mdp import synthetic_city

    city = synthetic_city(400).save(tmp_path / "town.npz")
    assert load("my_own_map").main(tmp_path, str(city), records=150).exists()
