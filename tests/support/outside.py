"""Programs that are not Python: skipped loudly where they are missing, required in CI."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

LOUD = "NOT RUN HERE"


def left_out(what: str, remedy: str) -> NoReturn:
    """End a test that needs what is not here: skipped, or failed under PANDA_MDP_REQUIRE=all."""
    reason = f"{LOUD}: {what} is missing; {remedy}"
    if os.environ.get("PANDA_MDP_REQUIRE") == "all":
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)
