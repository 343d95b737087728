"""Arrays that objects own."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from panda_mdp.base.arrays import frozen


def test_an_array_from_a_pickle_is_copied() -> None:
    # Its memory is a `bytes` object as well, and still it can be written to.
    given = pickle.loads(pickle.dumps(np.arange(1_000.0)))
    own = frozen(given)
    given[0] = 5.0
    assert own[0] == 0.0
    assert not own.flags.writeable
    assert np.shares_memory(frozen(own), own)


@pytest.mark.parametrize(
    "array", [np.arange(6.0).reshape(2, 3).T, np.zeros((0, 3)), np.array(5), np.array(["ab", "c"])]
)
def test_frozen_arrays_have_the_same_shape(array: npt.NDArray[Any]) -> None:
    assert np.array_equal(frozen(array), array)
    assert frozen(array).dtype == array.dtype


def test_a_view_that_was_there_before_does_not_reach_the_copy() -> None:
    given = np.arange(6)
    view = given[:]
    given.setflags(write=False)
    own = frozen(given)
    view[0] = 7
    assert own[0] == 0 and not np.shares_memory(own, given)
    for part in (own, own[1:3]):
        with pytest.raises(ValueError, match="WRITEABLE"):
            part.flags.writeable = True
        assert np.shares_memory(frozen(part), own)
