"""What is neither in the repository nor Python's: skipped loudly where missing, required in CI."""

from __future__ import annotations

import os
from typing import NoReturn

import pytest

LOUD = "NOT RUN HERE"
NAMES = ("chromium", "coq", "java", "maps", "node", "paper", "postgresql")
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
