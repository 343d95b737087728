"""The compiled loops of PAnDA's accounts; imported where they are used, for numba loads slowly."""

from __future__ import annotations

from panda_mdp.base.packages import need

need("numba", "an account of PAnDA over all pairs of records")

from panda_mdp.compute.numba import anchors, distance, margins  # noqa: E402

__all__ = ["anchors", "distance", "margins"]
