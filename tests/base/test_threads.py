"""Array work in parts covers everything once, and errors come out."""

from __future__ import annotations

import numpy as np
import pytest

from panda_mdp.base.threads import by_slices, cores


@pytest.mark.parametrize(("size", "step"), [(0, 3), (1, 3), (3, 3), (10, 3), (1000, 1)])
def test_every_place_is_visited_once(size, step):
    visits = np.zeros(size, dtype=int)

    def work(part: slice) -> None:
        assert 0 < part.stop - part.start <= step
        visits[part] += 1

    by_slices(work, size, step)
    assert (visits == 1).all()
    assert cores() >= 1


def test_an_error_in_a_part_is_raised():
    def work(part: slice) -> None:
        if part.start == 4:
            raise ValueError("the third")

    with pytest.raises(ValueError, match="the third"):
        by_slices(work, 10, 2)
