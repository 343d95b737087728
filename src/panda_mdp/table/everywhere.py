"""Tables that are private for every point of an area, and draw at the point."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray, frozen, place_columns
from panda_mdp.errors import PrivacyError, SnapError, sealed
from panda_mdp.privacy.continuous import ContinuousAudit, audit_mesh
from panda_mdp.privacy.quantise import BITS, TOTAL, BitSource, SystemBits, choose_rows
from panda_mdp.space.mesh import UNITS, WEIGHT_BITS, Located, Mesh, check_covered
from panda_mdp.table.mechanism import Mechanism


class EverywhereMechanism(Mechanism):
    """A table over a mesh that is epsilon-mDP for every two points p, q of the mesh's area:

        z(y|p) <= exp(epsilon (d(p, q) + 2 r)) z(y|q),

    d the great-circle distance in km and r = `everywhere.resolution_km`, under a micrometre at
    usual spacings: what whole weights and float64 may move a point by. The constructor computes
    both audits, over all pairs of vertices and over every point, and refuses anything else.
    The problem's prior and loss are those of points that draw at random vertices, so `loss` is the
    expected loss over points.
    """

    def _check(self) -> None:
        super()._check()
        if not self.everywhere.holds:
            raise PrivacyError(
                f"{self.everywhere.shortfall}; optimal_everywhere(problem) makes one"
            )

    @classmethod
    def of(cls, mechanism: Mechanism) -> Self:
        """The same table, where it is private at every point; its audit is not made twice."""
        new = mechanism._as(cls)
        new._check()
        return new

    @property
    def mesh(self) -> Mesh:
        """The triangles over the area."""
        mesh = self.problem.domain.mesh
        if mesh is None:
            raise PrivacyError("the table's domain has no mesh; Domain.from_area makes one")
        return mesh

    @cached_property
    def everywhere(self) -> ContinuousAudit:
        """How private the weights are over all pairs of points of the area."""
        weights = np.asarray(self.weights)
        return audit_mesh(self.mesh, self.problem.outputs, weights, self.problem.epsilon)

    def _summary(self) -> str:
        return f"{super()._summary()}, at every point {self.everywhere.epsilon:.6g}"

    @sealed
    def sample_at(self, lat: npt.ArrayLike, lon: npt.ArrayLike) -> Any:
        """Draw an output at a place, or one at each of many places, in degrees.

        A vertex of the place's triangle is drawn with its barycentric weight, a whole number of
        2^-30, and then an output of its row, both with the operating system's generator. Places
        outside the area are refused. Each further draw at the same place spends epsilon again.
        """
        return draw_at(self, SystemBits(), lat, lon)

    @sealed
    def draw_vertex(self, lat: float, lon: float) -> int:
        """A vertex of a place's triangle, drawn with its weight: the record that reports for it,
        once. It is as secret as the place, and each report draws another."""
        return int(draw_vertices(_located(self, lat, lon), SystemBits())[0])

    @sealed
    def row_at(self, lat: float, lon: float) -> FloatArray:
        """The probabilities of the outputs at a place, m of them."""
        located = _located(self, lat, lon)
        rows = self.weights[located.vertices[0]] / float(TOTAL)
        return frozen(located.weights[0] / float(UNITS) @ rows)


def draw_vertices(located: Located, bits: BitSource) -> npt.NDArray[np.int64]:
    """A vertex for each point, with its whole weight out of 2^30."""
    uniform = bits.integers(len(located.vertices)) >> (BITS - WEIGHT_BITS)
    first = located.weights[:, 0]
    second = located.weights[:, :2].sum(axis=1)
    corner = (uniform >= first).astype(np.int64) + (uniform >= second)
    return np.take_along_axis(located.vertices, corner[:, None], axis=1)[:, 0]


def draw_at(
    table: EverywhereMechanism, bits: BitSource, lat: npt.ArrayLike, lon: npt.ArrayLike
) -> Any:
    """Outputs drawn at places: a random vertex, then its row."""
    columns = choose_rows(table.weights, draw_vertices(_located(table, lat, lon), bits), bits)
    return table.problem.reports.report(columns, single=np.ndim(lat) == 0)


def _located(table: EverywhereMechanism, lat: npt.ArrayLike, lon: npt.ArrayLike) -> Located:
    located = table.mesh.locate(*place_columns(np.atleast_1d(lat), np.atleast_1d(lon), SnapError))
    check_covered(located)
    return located
