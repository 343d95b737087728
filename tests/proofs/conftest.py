"""The compiled proofs and the extracted checker, where `make proofs` has built them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from outside import left_out

FOLDER = Path(__file__).parents[2] / "out" / "proofs"


@pytest.fixture(scope="session")
def built() -> Path:
    """The folder of `proofs/build`; without it tests are skipped, or fail under `make proofs`."""
    if os.environ.get("PANDA_PROOFS") == "elsewhere":
        pytest.skip("`make proofs` runs beside these tests")
    if not (FOLDER / "checker").exists():
        reason = "the proofs are not built here: make proofs (needs coq and ocaml)"
        if os.environ.get("PANDA_PROOFS") == "required":
            pytest.fail(reason)
        left_out("Coq", reason)
    return FOLDER
