"""Arrays that objects own."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from panda_mdp.base import arrays
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


def test_large_arrays_lie_in_pages_that_nobody_writes_to(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "LARGE", 64)
    given = np.arange(1000).reshape(20, 50)
    own = frozen(given)
    given[0, 0] = 7
    assert np.array_equal(own, np.arange(1000).reshape(20, 50))
    assert np.shares_memory(frozen(own), own) and np.shares_memory(frozen(own[2:4]), own)
    with pytest.raises(ValueError, match="WRITEABLE"):
        own.flags.writeable = True
    pages = own.base
    while isinstance(pages, np.ndarray):
        pages = pages.base
    pages = pages.obj if isinstance(pages, memoryview) else pages
    with pytest.raises(TypeError):
        pages[0] = 1  # type: ignore[index]
    assert np.array_equal(pickle.loads(pickle.dumps(own)), own)
