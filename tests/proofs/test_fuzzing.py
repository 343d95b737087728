"""Files changed at random: three checkers, one verdict."""

from __future__ import annotations

import fuzzing
import pytest

FILES = 1500


@pytest.mark.parametrize("seed", [2, 3])
def test_three_checkers_say_the_same(built, seed):
    third = fuzzing.Third(built / "checker")
    try:
        counts, broken = fuzzing.run(FILES, seed, third)
    finally:
        third.close()
    assert not broken
    assert min(counts["accepted"], counts["refused"]) > FILES / 10
