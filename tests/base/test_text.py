"""What JSON can hold."""

from __future__ import annotations

import json
from dataclasses import dataclass

import numpy as np
import pytest

from panda_mdp.base.text import plain


@dataclass(frozen=True)
class Measured:
    km: float
    parts: tuple[np.float64, ...]


def test_everything_inside_everything_becomes_plain():
    value = {1: np.int64(3), "a": [np.array([[1.5, np.inf]]), (True, None)], "m": Measured(2.0, ())}
    assert plain(value, "words") == {
        "1": 3,
        "a": [[[1.5, "inf"]], [True, None]],
        "m": {"km": 2.0, "parts": []},
    }
    assert isinstance(plain(np.bool_(True)), bool)


@pytest.mark.parametrize(("value", "word"), [(np.inf, "inf"), (-np.inf, "-inf"), (np.nan, "nan")])
def test_what_json_lacks_becomes_null_or_a_word_that_float_reads(value, word):
    assert plain([value], "null") == [None]
    assert plain([np.float64(value)], "words") == [word]
    assert np.array_equal(float(word), value, equal_nan=True)
    with pytest.raises(ValueError, match="not JSON compliant"):
        json.dumps(plain([value]), allow_nan=False)


def test_what_is_nothing_of_the_kind_stays_for_json_to_refuse():
    thing = object()
    assert plain({"x": thing})["x"] is thing
