"""What phones and files have today instead of noise with a guarantee, as tables to compare with."""

from __future__ import annotations

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray
from panda_mdp.errors import MethodError
from panda_mdp.outputs import Outputs
from panda_mdp.problem import Problem, check_number
from panda_mdp.space.metrics import EARTH_RADIUS_KM, Haversine
from panda_mdp.table.mechanism import NoGuarantee


def android_grid(problem: Problem, side_km: float = 2.0) -> NoGuarantee:
    """Android's approximate location: the centre of a square cell, after a Gaussian offset.

    AOSP's `LocationFudger` adds to each axis an offset with a standard deviation of a quarter of
    the accuracy and reports the centre of the cell of `side_km`. The chance of each cell is the
    exact integral over the offset, which is one draw for a long time. It has no guarantee.
    """
    return _cells(problem, side_km, side_km / 4, "Android's grid")


def rounding(problem: Problem, side_km: float) -> NoGuarantee:
    """The centre of the square cell of `side_km` that holds the record. It has no guarantee."""
    return _cells(problem, side_km, 0.0, f"rounding to {side_km:g} km")


def _cells(problem: Problem, side_km: float, spread_km: float, name: str) -> NoGuarantee:
    check_number(side_km, "side_km", "a positive length in km")
    metric, plane = problem.domain.metric, problem.domain.plane
    if plane is None or not isinstance(metric, Haversine):
        raise MethodError("cells are for places within a few degrees; give a domain of such places")
    along = [_axis(plane[:, axis], side_km, spread_km) for axis in range(2)]
    # Chances of a cell are the product of its two axes', by east and then by north.
    matrix = (along[0][1][:, :, None] * along[1][1][:, None, :]).reshape(problem.size, -1)
    used = matrix.max(axis=0) > 0
    east, north = (
        grid.ravel()[used] for grid in np.meshgrid(*(a[0] for a in along), indexing="ij")
    )
    middle = float(metric.lat.mean())
    lat = middle + np.rad2deg(north / EARTH_RADIUS_KM)
    lon = float(metric.lon.mean()) + np.rad2deg(east / EARTH_RADIUS_KM) / np.cos(np.deg2rad(middle))
    outputs = Outputs.at(lat, lon)
    matrix = matrix[:, used] / matrix[:, used].sum(axis=1, keepdims=True)
    loss = outputs.distances(problem.domain)
    over = Problem(
        problem.domain, outputs, loss, problem.epsilon, problem.prior, "km", problem.prior_source
    )
    return NoGuarantee.from_matrix(over, matrix, method=name)


def _axis(at_km: FloatArray, side_km: float, spread_km: float) -> tuple[FloatArray, FloatArray]:
    """The middles of the cells along one axis that are reached, and the chance of each, (K, n)."""
    reach = 9 * spread_km
    first, last = (
        np.floor((at_km.min() - reach) / side_km),
        np.floor((at_km.max() + reach) / side_km),
    )
    edges = side_km * np.arange(first, last + 2)
    if spread_km > 0:
        below = scipy.special.ndtr((edges - at_km[:, None]) / spread_km)
    else:
        below = (edges > at_km[:, None]).astype(np.float64)
    return (edges[:-1] + edges[1:]) / 2, np.diff(below, axis=1)
