"""What phones and files have today instead of noise with a guarantee, as tables to compare with."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from functools import cache

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray
from panda_mdp.errors import MethodError, ScaleWarning
from panda_mdp.methods.adjust import remap
from panda_mdp.methods.planar_laplace import planar_laplace
from panda_mdp.problem import Outputs, Problem, check_number
from panda_mdp.space.metrics import EARTH_RADIUS_KM, Haversine
from panda_mdp.table.mechanism import NoGuarantee, Table

EPSILONS = (0.1, 40.0)
START = 1.9
SECANTS = 4
FLATTEST = -0.1
CLOSE = 1e-3
TINY = 1e-300
"""Per displacement: epsilons between which one is looked for, the first of some secants and the
flattest of them, how close the loss comes or the logarithm of epsilon, and the least loss whose
logarithm is taken."""


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


def decimals(problem: Problem, digits: int = 2) -> NoGuarantee:
    """Latitude and longitude rounded to so many decimals of a degree. It has no guarantee."""
    if not 0 <= digits <= 15:
        raise MethodError(f"digits is {digits!r}; degrees are rounded to 0 to 15 decimals")
    metric = _places(problem)
    rounded = np.round(np.stack([metric.lat, metric.lon]), digits)
    (lat, lon), cell = np.unique(rounded, axis=1, return_inverse=True)
    matrix = np.eye(len(lat))[cell.ravel()]
    return _reported(problem, lat, lon, matrix, f"rounding to {digits} decimals")


REFERENCES: dict[str, Callable[[Problem], Table]] = {
    "android": android_grid,
    "laplace": lambda problem: remap(planar_laplace(problem)),
    "plain-laplace": planar_laplace,
    "decimals": decimals,
}
"""By the names that commands take; Laplace, with and without a remap, at the problem's epsilon."""


def at_displacement(
    problem: Problem, make: Callable[[Problem], Table], displacement: float
) -> Table:
    """The table of a family whose mean loss is `displacement`, its epsilon to a thousandth.

    >>> from panda_mdp import Domain, exponential
    >>> line = Domain.from_vectors([[0.0], [1.0], [2.0]])
    >>> table = at_displacement(Problem(line, [0, 1, 2], line.distances(), 1.0), exponential, 0.5)
    >>> round(table.loss, 2)
    0.5
    """
    check_number(displacement, "displacement", "a positive length")

    @cache
    def tried(log_epsilon: float) -> Table:
        with warnings.catch_warnings():
            # Of what is tried on the way nothing is used.
            warnings.simplefilter("ignore", ScaleWarning)
            return make(problem.with_epsilon(math.exp(log_epsilon)))

    def missing(log_epsilon: float) -> float:
        return math.log(max(tried(log_epsilon).loss, TINY) / displacement)

    lower, upper = (math.log(epsilon / displacement) for epsilon in EPSILONS)
    # Losses fall about as one over epsilon: as a rule a few secants do.
    at, slope = math.log(START / displacement), -1.0
    for _ in range(SECANTS):
        off = missing(at)
        if abs(off) < CLOSE:
            return tried(at)
        last, at = at, min(max(at - off / slope, lower), upper)
        slope = min((missing(at) - off) / (at - last) if at != last else slope, FLATTEST)
    try:
        return tried(scipy.optimize.brentq(missing, lower, upper, xtol=CLOSE))
    except ValueError:
        most, least = (tried(end).loss for end in (lower, upper))
        raise MethodError(
            f"the displacement is {displacement:g}, and it lies between {least:.4g} and "
            f"{most:.4g} here; ask for one between these, or take more outputs"
        ) from None


def _places(problem: Problem) -> Haversine:
    places = problem.domain.metric.places
    if problem.domain.plane is None or places is None:
        raise MethodError("cells are for places within a few degrees; give a domain of such places")
    return places


def _cells(problem: Problem, side_km: float, spread_km: float, name: str) -> NoGuarantee:
    check_number(side_km, "side_km", "a positive length in km")
    metric = _places(problem)
    plane = np.asarray(problem.domain.plane)
    along = [_axis(plane[:, axis], side_km, spread_km) for axis in range(2)]
    # Chances of a cell are the product of its two axes', by east and then by north.
    matrix = (along[0][1][:, :, None] * along[1][1][:, None, :]).reshape(problem.size, -1)
    used = matrix.max(axis=0) > 0
    east, north = (
        grid.ravel()[used] for grid in np.meshgrid(*(a[0] for a in along), indexing="ij")
    )
    middle = metric.lat.mean()
    lat = middle + np.rad2deg(north / EARTH_RADIUS_KM)
    lon = metric.lon.mean() + np.rad2deg(east / EARTH_RADIUS_KM) / np.cos(np.deg2rad(middle))
    matrix = matrix[:, used] / matrix[:, used].sum(axis=1, keepdims=True)
    return _reported(problem, lat, lon, matrix, name)


def _reported(
    problem: Problem, lat: FloatArray, lon: FloatArray, matrix: FloatArray, name: str
) -> NoGuarantee:
    """The table of reports at places, with displacement as the loss."""
    outputs = Outputs.at(lat, lon)
    loss = outputs.distances(problem.domain)
    source = problem.prior_source
    over = Problem(problem.domain, outputs, loss, problem.epsilon, problem.prior, "km", source)
    return NoGuarantee.from_matrix(over, matrix, method=name)


def _axis(at_km: FloatArray, side_km: float, spread_km: float) -> tuple[FloatArray, FloatArray]:
    """The middles of the cells along one axis that are reached, and the chance of each, (K, n)."""
    reach = 9 * spread_km
    first = np.floor((at_km.min() - reach) / side_km)
    edges = side_km * np.arange(first, np.floor((at_km.max() + reach) / side_km) + 2)
    if spread_km > 0:
        below = scipy.special.ndtr((edges - at_km[:, None]) / spread_km)
    else:
        below = (edges > at_km[:, None]).astype(float)
    return (edges[:-1] + edges[1:]) / 2, np.diff(below, axis=1)
