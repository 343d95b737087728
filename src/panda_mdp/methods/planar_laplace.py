"""The planar Laplace mechanism, snapped to the outputs, as an exact table.

Its probabilities are integrals over the Voronoi cells of the outputs, whose edges are seen from
every record under some angle.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray, stopwatch
from panda_mdp.errors import MethodError
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain
from panda_mdp.table.mechanism import FLOOR_SHARE, MAX_SHARE, Mechanism, mix, release

ComplexArray = npt.NDArray[np.complex128]
PLANE = np.array([1, 1j])
"""Coordinates times this are places in the complex plane."""
COLLINEAR = 1e-9
"""Sites whose extent across is this small against that along count as lying on a line."""


@dataclass(frozen=True)
class Cells:
    """Edge e runs from place `begin[e]` to `end[e]`, in the complex plane, with site `left[e]` on
    its left."""

    sites: ComplexArray
    left: IntArray
    right: IntArray
    begin: ComplexArray
    end: ComplexArray

    def view(self, points: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """The edges as seen from each point, arrays of shape (points, edges): the distance to the
        edge's line, the angle of the edge's first end from the perpendicular onto its line, and the
        signed angle from there to the second end, positive where `left` is on this side.

        Edges that share a vertex use the same angle for it, so the angles around a point add up
        even where the point lies on an edge or a vertex and a single angle is arbitrary.
        """
        left = self.sites[self.left]
        right = self.sites[self.right]
        spots = points @ PLANE
        # The left normal of the edge points from the right site to the left one.
        normal = (left - right) / np.abs(left - right)
        offset = _along(spots[:, None] - (left + right) / 2, normal)
        first, second = (np.angle(places - spots[:, None]) for places in (self.begin, self.end))
        sweep = _wrapped(second - first)
        # Seen from the left, an edge runs anticlockwise and lies towards its right normal.
        foot = np.angle(-1j * normal) - np.copysign(np.pi / 2, sweep)
        return np.abs(offset), _wrapped(first - foot), sweep

    def total(self, values: FloatArray) -> FloatArray:
        """Sums over the edges of each cell, shape (points, sites): plus for the site on the left,
        minus for the one on the right."""
        return (self._incidence @ values.T).T

    @cached_property
    def _incidence(self) -> scipy.sparse.csr_array:
        edges = len(self.left)
        places = (np.concatenate([self.left, self.right]), np.tile(np.arange(edges), 2))
        signs = np.repeat([1.0, -1.0], edges)
        return scipy.sparse.csr_array((signs, places), shape=(len(self.sites), edges))

    def turns(self, points: FloatArray) -> FloatArray:
        """How often each cell's boundary turns around each point, shape (points, sites)."""
        return self.total(self.view(points)[2]) / (2 * np.pi)


def voronoi(sites: FloatArray, reach: float) -> Cells:
    """The Voronoi cells of at least two distinct sites, shape (m, 2).

    Edges that go to infinity end `reach` away. Where all sites lie on a line the cells are strips
    between parallel lines.
    """
    _, sizes, axes = np.linalg.svd(sites - sites.mean(axis=0), full_matrices=False)
    if len(sites) == 2 or sizes[1] <= COLLINEAR * sizes[0]:
        order = np.argsort(sites @ axes[0], kind="stable")
        left = order[1:]
        right = order[:-1]
        ends = np.full((len(left), 2), -1)
        places = np.zeros(1, np.complex128)
    else:
        diagram = scipy.spatial.Voronoi(sites)
        left, right = np.array(diagram.ridge_points, dtype=np.int64).T
        ends = np.sort(np.array(diagram.ridge_vertices, dtype=np.int64), axis=1)
        places = diagram.vertices @ PLANE
    spots = sites @ PLANE
    across = spots[left] - spots[right]
    middle = (spots[left] + spots[right]) / 2
    ahead = -1j * across / np.abs(across)
    # An end at infinity lies away from the middle of all sites, which is inside their hull.
    outward = np.where(_along(middle - spots.mean(), ahead) >= 0, ahead, -ahead)
    second = np.where(ends[:, 1] < 0, middle - reach * outward, places[ends[:, 1]])
    farther = reach + np.abs(second - middle)
    first = np.where(ends[:, 0] < 0, second + farther * outward, places[ends[:, 0]])
    forward = _along(first - second, ahead) >= 0
    begin = np.where(forward, second, first)
    end = np.where(forward, first, second)
    return Cells(spots, left, right, begin, end)


def _along(vectors: ComplexArray, ahead: ComplexArray) -> FloatArray:
    return (vectors * ahead.conj()).real


def _wrapped(angle: FloatArray) -> FloatArray:
    return np.remainder(angle + np.pi, 2 * np.pi) - np.pi


GAUSS_LEGENDRE = (20, 2.0)
"""Points per panel, and the widest panel in w: its Bernstein ellipse stays within |Im w| <= 1.2 <
pi / 2."""
PANEL_ERROR = 5e-17
"""Bounds the quadrature error of one panel, see `sector_integrals`."""
HORIZON = 50.0
"""Edges are followed up to epsilon r = 50, where the mass beyond is below 1e-20."""
ROUNDING = 2.0**-53
_BLOCK = 1 << 18


def planar_laplace(problem: Problem) -> Mechanism:
    """Planar Laplace noise, reported as the nearest output (geo-indistinguishability).

    A place p is drawn around the record x with density epsilon'^2 / (2 pi) exp(-epsilon' |p - x|),
    whose radius has the distribution F(r) = 1 - (1 + epsilon' r) exp(-epsilon' r), and the output
    nearest to p is reported. The table holds the exact probabilities

        z(y|x) = (1 / 2 pi) * integral over the angle of  F(r_out) - F(r_in)

    along the ray's passage through the Voronoi cell of y: exact along each ray, Gauss-Legendre
    quadrature over the angle, edge by edge. Nothing is sampled.

    Guarantee: epsilon-mDP. (1) The density changes by at most exp(epsilon' |x - x'|) and snapping
    is post-processing. (2) For places, |x - x'| in the plane of projection exceeds the great-circle
    distance by at most a factor `stretch`, so epsilon' = epsilon / stretch. (3) Entries are off by
    at most `error` (absolute); a share s of the uniform row, s = m error (1 + e^b) / (e^b - 1)
    with b = epsilon d_min, pays for that between all records. The audit confirms the result.

    Needs a planar domain: places within 10 degrees, or vectors of two dimensions.

    >>> from panda_mdp import Domain
    >>> domain = Domain.from_vectors([[-1.0, 0.0], [0.0, 0.0], [1.0, 0.0]])
    >>> problem = Problem(domain, [0, 2], [[0, 2], [1, 1], [2, 0]], epsilon=1.0)
    >>> planar_laplace(problem).matrix[:, 0].round(4).tolist()
    [0.7615, 0.5, 0.2385]
    """
    spent = stopwatch()
    points = problem.domain.plane
    if points is None:
        raise MethodError(
            f"planar Laplace needs records in a plane, and this domain is {problem.domain!r}; use "
            "places within 10 degrees of each other and below 80 degrees of latitude, or vectors "
            "of two dimensions, or another method (exponential takes any metric)"
        )
    # The audit also allows for rounding of distances, which is far below this.
    stretch = projection_stretch(problem.domain) * (1 + 1e-9)
    scale = problem.epsilon / stretch
    targets = problem.reports.plane(problem.domain)
    if targets is None:
        raise MethodError(
            "planar Laplace needs outputs that are records or places; these are only labels"
        )
    middle = points.mean(axis=0)
    matrix, error = laplace_matrix(points - middle, targets - middle, scale)
    share = _share(problem, error)
    return release(
        problem,
        mix(np.maximum(matrix, 0.0), share),
        method="planar Laplace",
        stages=spent("integrate over cells"),
        details={"stretch": stretch, "error": error, "floor_share": share},
    )


def projection_stretch(domain: Domain) -> float:
    """How much longer than the metric a distance in `domain.plane` can be, from above.

    The projection is equirectangular around latitude lat0: at latitude phi it stretches east-west
    lengths by cos(lat0) / cos(phi) and keeps north-south ones. The image of a great circle between
    two records is at least as long as the straight line, so the largest stretch along it bounds
    the ratio; great circles reach at most phi* with tan(phi*) = tan(max |lat|) / cos(width / 2).
    """
    if not domain.geographic:
        return 1.0
    highest = np.deg2rad(np.abs(domain.lat).max())
    width = np.deg2rad(np.ptp(domain.lon))
    reached = np.arctan(np.tan(highest) / np.cos(width / 2))
    return max(1.0, float(np.cos(np.deg2rad(domain.lat.mean())) / np.cos(reached)))


def laplace_matrix(
    points: FloatArray,
    outputs: FloatArray,
    scale: float,
    quadrature: tuple[int, float] = GAUSS_LEGENDRE,
) -> tuple[FloatArray, float]:
    """Probabilities of the Voronoi cells of `outputs` (m, 2) around `points` (K, 2), and a bound
    on their absolute error.

    With G = 1 - F, a cell's mass is [x inside] minus the sum over its edges of the signed integral
    of G over the edge's angle as seen from x. Each edge enters its two cells with opposite signs,
    so rows sum to 1 whatever the error of an integral.
    """
    count = len(outputs)
    if count == 1:
        return np.ones((len(points), 1)), 0.0
    size = max(np.abs(points).max(), np.abs(outputs).max())
    cells = voronoi(outputs, 1e3 * size + 2 * HORIZON / scale)
    inside = np.diag(cells.turns(outputs))
    matrix = np.empty((len(points), count))
    panels = 0
    step = max(1, _BLOCK // len(cells.left))
    for start in range(0, len(points), step):
        rows = slice(start, start + step)
        seen = cells.view(points[rows])
        integrals, used = sector_integrals(*seen, scale, quadrature)
        panels = max(panels, used)
        # A cell's turn is 1 inside and 0 outside, less the part that is open to infinity.
        within = 1 + np.rint(cells.total(seen[2]) / (2 * np.pi) - inside)
        matrix[rows] = within - cells.total(integrals) / (2 * np.pi)
    # Quadrature, truncation, rounding: the integral moves by at most 1 per unit of an angle and by
    # 2 scale per unit of the height; angles carry a few units of rounding, heights a few units
    # relative to the coordinates' size.
    size = np.abs(points).max()
    per_edge = panels * PANEL_ERROR + 1e-20 + ROUNDING * (64 + 32 * scale * size)
    return matrix, int(np.bincount(np.concatenate([cells.left, cells.right])).max()) * per_edge


def sector_integrals(
    height: FloatArray,
    start: FloatArray,
    sweep: FloatArray,
    scale: float,
    quadrature: tuple[int, float] = GAUSS_LEGENDRE,
) -> tuple[FloatArray, int]:
    """Integrals of G(h / cos t) over t from `start` to `start + sweep`, and the most panels used.

    G(r) = (1 + scale r) exp(-scale r) and h is the distance to the edge's line. With
    tan t = sinh w the integrand becomes G(h cosh w) / cosh w, which is analytic in |Im w| < pi / 2
    however near the edge is. On panels of half width 1 the Bernstein ellipse of parameter
    rho = 1.2 + sqrt(1 + 1.2^2) = 2.76 keeps |Im w| <= 1.2, where |G| <= 1.46 and 1 / |cosh w| <=
    2.76; n points leave an error of at most (64 / 15) 4.04 rho^(-2 n) / (1 - rho^-2), which is
    below 5e-17 for n = 20 (Trefethen, Approximation Theory and Approximation Practice, thm 19.3).
    """
    count, widest = quadrature
    bend = scale * np.maximum(height, 1e-290 / scale)
    end = np.arccosh(np.maximum(HORIZON / bend, 1.0))
    low, high = (
        np.clip(_to_w(angle), -end, end).ravel()
        for angle in (start + np.minimum(sweep, 0.0), start + np.maximum(sweep, 0.0))
    )
    panels = np.ceil((high - low) / widest).astype(np.int64)
    edge = np.repeat(np.arange(panels.size), panels)
    order = np.arange(len(edge)) - np.repeat(np.cumsum(panels) - panels, panels)
    half = ((high - low) / np.maximum(2 * panels, 1))[edge]
    middle = low[edge] + (2 * order + 1) * half
    total = np.zeros(len(edge))
    near = bend.ravel()[edge]
    for node, weight in zip(*np.polynomial.legendre.leggauss(count), strict=True):
        cosh = np.cosh(middle + half * node)
        total += weight * ((1 + near * cosh) * np.exp(-near * cosh) / cosh)
    out = np.bincount(edge, weights=total * half, minlength=panels.size)
    return np.copysign(out.reshape(sweep.shape), sweep), int(panels.max(initial=0))


def _to_w(angle: FloatArray) -> FloatArray:
    limit = np.pi / 2
    return np.arcsinh(np.tan(np.clip(angle, -limit, limit)))


def _share(problem: Problem, error: float) -> float:
    budget = problem.epsilon * problem.domain.neighbours(1)[1].min()
    ratio = (1 + np.exp(-budget)) / -np.expm1(-budget)
    return float(np.clip(problem.outputs_count * error * ratio, FLOOR_SHARE, MAX_SHARE))
