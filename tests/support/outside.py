"""What is neither in the repository nor Python's: skipped loudly where missing, required in CI."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

LOUD = "NOT RUN HERE"
NAMES = ("chromium", "coq", "java", "maps", "node", "paper", "postgresql", "trips")
"""What PANDA_MDP_WITHOUT may name."""


def left_out(what: str, remedy: str) -> NoReturn:
    """End a test that needs what is not here.

    Skipped; under PANDA_MDP_REQUIRE=all, as in CI, failed unless PANDA_MDP_WITHOUT names it.
    """
    if what.lower() not in NAMES:
        msg = f"{what!r} is none of {', '.join(NAMES)}"
        raise ValueError(msg)
    reason = f"{LOUD}: {what} is missing; {remedy}"
    without = os.environ.get("PANDA_MDP_WITHOUT", "").lower().split()
    if os.environ.get("PANDA_MDP_REQUIRE") == "all" and what.lower() not in without:
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def real_trips() -> Path | None:
    """19,979 trips of Manhattan on one day, which the package nrel.hive brings (BSD)."""
    found = find_spec("nrel.hive") if find_spec("nrel") else None
    if found is None or not found.submodule_search_locations:
        return None
    scenarios = Path(next(iter(found.submodule_search_locations))) / "resources" / "scenarios"
    return scenarios / "manhattan" / "requests" / "nyc_20k.csv"
