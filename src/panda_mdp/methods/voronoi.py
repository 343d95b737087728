"""Voronoi cells of points in the plane, as the angles under which their edges are seen."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy

from panda_mdp.base.arrays import FloatArray, IntArray

COLLINEAR = 1e-9
"""Sites whose extent across is this small against that along count as lying on a line."""


@dataclass(frozen=True)
class View:
    """Edges as seen from points: arrays of shape (points, edges)."""

    height: FloatArray
    """Distance to the edge's line."""
    start: FloatArray
    """Angle of the edge's first end, from the perpendicular onto its line."""
    sweep: FloatArray
    """Signed angle from the first end to the second, positive where `left` is on this side."""


@dataclass(frozen=True)
class Cells:
    """Edge e runs from `first[e]` to `second[e]` with site `left[e]` on its left."""

    sites: FloatArray
    left: IntArray
    right: IntArray
    heading: FloatArray
    """Angle of the direction from the first end to the second."""
    vertices: FloatArray
    first: IntArray
    """Vertex at the edge's start, -1 where it comes from infinity."""
    second: IntArray
    """Vertex at the edge's end, -1 where it goes to infinity."""

    @property
    def edges(self) -> int:
        return len(self.left)

    @property
    def most_edges(self) -> int:
        """The largest number of edges of a cell."""
        return int(np.bincount(np.concatenate([self.left, self.right])).max())

    def view(self, points: FloatArray) -> View:
        """The edges as seen from each point.

        Edges that share a vertex use the same angle for it, so the angles around a point add up
        even where the point lies on an edge or a vertex and a single angle is arbitrary.
        """
        middle = (self.sites[self.left] + self.sites[self.right]) / 2
        # The left normal of the edge points from the right site to the left one.
        normal = np.stack([-np.sin(self.heading), np.cos(self.heading)], axis=1)
        offset = points @ normal.T - np.einsum("ep,ep->e", middle, normal)
        angle = np.arctan2(
            self.vertices[:, 1] - points[:, 1, None], self.vertices[:, 0] - points[:, 0, None]
        )
        begin = np.where(self.first < 0, self.heading + np.pi, angle[:, self.first])
        end = np.where(self.second < 0, self.heading, angle[:, self.second])
        sweep = _wrapped(end - begin)
        # A line without ends takes half a turn, on whichever side the point is.
        line = (self.first < 0) & (self.second < 0)
        sweep = np.where(line, np.copysign(np.pi, offset), sweep)
        # Seen from the left, an edge runs anticlockwise and lies towards its right normal.
        foot = self.heading - np.copysign(np.pi / 2, sweep)
        return View(np.abs(offset), _wrapped(begin - foot), sweep)

    def total(self, values: FloatArray) -> FloatArray:
        """Sums over the edges of each cell, shape (points, sites): plus for the site on the left,
        minus for the one on the right."""
        return np.asarray((self._incidence @ values.T).T)

    @cached_property
    def _incidence(self) -> scipy.sparse.csr_array:
        sites = np.concatenate([self.left, self.right])
        edges = np.tile(np.arange(self.edges), 2)
        signs = np.repeat([1.0, -1.0], self.edges)
        return scipy.sparse.csr_array((signs, (sites, edges)), shape=(len(self.sites), self.edges))

    def turns(self, points: FloatArray) -> FloatArray:
        """How often each cell's boundary turns around each point, shape (points, sites)."""
        return self.total(self.view(points).sweep) / (2 * np.pi)


def voronoi(sites: FloatArray) -> Cells:
    """The Voronoi cells of at least two distinct sites, shape (m, 2)."""
    spread = sites - sites.mean(axis=0)
    _, sizes, axes = np.linalg.svd(spread, full_matrices=False)
    if len(sites) == 2 or sizes[1] <= COLLINEAR * sizes[0]:
        return _strips(sites, axes[0])
    diagram = scipy.spatial.Voronoi(sites)
    left, right = np.array(diagram.ridge_points, dtype=np.int64).T
    ends = np.array(diagram.ridge_vertices, dtype=np.int64)
    across = sites[left] - sites[right]
    heading = np.arctan2(-across[:, 0], across[:, 1])
    ahead = np.stack([np.cos(heading), np.sin(heading)], axis=1)
    places = np.asarray(diagram.vertices)
    # An end at infinity lies away from the middle of all sites, which is inside their hull.
    outward = (sites[left] + sites[right]) / 2 - sites.mean(axis=0)
    along = np.where(
        (ends < 0).any(axis=1, keepdims=True), outward, places[ends[:, 1]] - places[ends[:, 0]]
    )
    forward = np.einsum("ep,ep->e", along, ahead) >= 0
    # Qhull puts -1 first, so forward means that it belongs last.
    swap = np.where((ends < 0).any(axis=1), forward == (ends[:, 0] < 0), ~forward)
    ends[swap] = ends[swap][:, ::-1]
    return Cells(sites, left, right, heading, places, ends[:, 0], ends[:, 1])


def _strips(sites: FloatArray, axis: FloatArray) -> Cells:
    """Cells of sites on a line: strips between parallel lines."""
    order = np.argsort(sites @ axis, kind="stable")
    none = np.full(len(sites) - 1, -1)
    # The later site is on the left of a line that runs clockwise from the axis.
    heading = np.full(len(none), np.arctan2(-axis[0], axis[1]))
    return Cells(sites, order[1:], order[:-1], heading, np.zeros((1, 2)), none, none)


def _wrapped(angle: FloatArray) -> FloatArray:
    return np.asarray(np.remainder(angle + np.pi, 2 * np.pi) - np.pi)
