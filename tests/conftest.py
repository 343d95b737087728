"""Fixtures that several parts of the suite use."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from panda_mdp.city import City, load_city

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="session")
def road_maps() -> Callable[[str], City]:
    """Real road maps by name ('rome', 'london'); skips where the files are absent."""
    folder = Path(os.environ.get("PANDA_MDP_DATA", ROOT.parent / "shared" / "data"))

    def read(name: str) -> City:
        path = folder / f"{name}.npz"
        if not path.exists():
            pytest.skip(f"{path.name} is not in {folder}; set PANDA_MDP_DATA to the maps' folder")
        return load_city(path)

    return read
