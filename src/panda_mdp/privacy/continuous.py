"""How private a table over a mesh is for every point of its area, exactly.

A point draws at a vertex of its triangle with its barycentric weight, so that z(y|p) is linear in
each triangle. Where z is linear with gradient g, |grad log z| = |g| / z is largest at the least
corner: the local rate in a triangle is |g| / min over its corners of z, attained there. Along the
shortest way between two points, which lies in the area, the rates add up:

    |log z(y|p) - log z(y|q)| <= epsilon_c d(p, q),
    epsilon_c = max over triangles and outputs of  stretch |g| / min z,

and no smaller number would do in the plane. With whole weights a, b, c at corners of side s,
|g| = sqrt(2/3 ((a - b)^2 + (b - c)^2 + (c - a)^2)) / s; differences are exact, and
what float64 rounds afterwards is added. Proof and rounding: docs/everywhere.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.space.mesh import Mesh

ROUNDING = 32 * 2.0**-53
"""Three differences, squares, two sums, a root and four factors: below 16 roundings, and as many
again."""
CHUNK_ENTRIES = 1 << 21


@dataclass(frozen=True)
class ContinuousAudit:
    """How private a table is over all pairs of points of an area.

    `epsilon` is the smallest for which it is private (inf where an output is possible at one corner
    of a triangle and impossible at another), up to the projection's stretch; `worst` are the
    corners of the triangle that attains it, the least likely first, and the output.
    """

    holds: bool
    epsilon: float
    worst: tuple[int, int, int, int]
    claimed: float
    triangles: int
    stretch: float
    """The largest by which the plane is longer than the sphere, less 1."""
    resolution_km: float
    """A point stands for all that are as near as this: d(p, q) counts as d + 2 resolution."""

    @property
    def shortfall(self) -> str:
        """In words, what is wrong with a table whose audit does not hold."""
        return (
            f"not {self.claimed!r}-mDP at every point: the rate is {self.epsilon!r} per km in the "
            f"triangle of vertices {self.worst[:3]}, output {self.worst[3]}"
        )

    def __repr__(self) -> str:
        verdict = "holds" if self.holds else "DOES NOT HOLD"
        return (
            f"ContinuousAudit({verdict}: epsilon {self.epsilon:.9g} of {self.claimed:.9g} per km "
            f"at every point; worst: triangle {self.worst[:3]}, output {self.worst[3]}; all "
            f"{self.triangles:,} triangles)"
        )


def audit_mesh(mesh: Mesh, outputs: IntArray, weights: IntArray, epsilon: float) -> ContinuousAudit:
    """Audit integer weights (K, m) over every point of the mesh's triangles."""
    triangles = mesh.triangles
    best, worst = -1.0, (0, 0, 0, 0)
    step = max(1, CHUNK_ENTRIES // weights.shape[1])
    for start in range(0, len(triangles), step):
        corners = triangles[start : start + step]
        rates = triangle_rates(weights[corners], mesh.spacing)
        rates *= mesh.stretch[start : start + step, None] * (1 + ROUNDING)
        t, y = np.unravel_index(int(rates.argmax()), rates.shape)
        if rates[t, y] > best:
            best = float(rates[t, y])
            order = corners[t][np.argsort(weights[corners[t], y], kind="stable")]
            worst = (int(order[0]), int(order[1]), int(order[2]), int(outputs[y]))
    return ContinuousAudit(
        holds=best <= epsilon,
        epsilon=best,
        worst=worst,
        claimed=float(epsilon),
        triangles=len(triangles),
        stretch=float(mesh.stretch.max() - 1),
        resolution_km=mesh.resolution_km,
    )


def triangle_rates(values: IntArray | FloatArray, spacing: float) -> FloatArray:
    """|g| / min z of triangles, (T, m), from their corners' values (T, 3, m), in the plane."""
    a = values[:, 0]
    b = values[:, 1]
    c = values[:, 2]
    squares = sum(np.square((p - q).astype(float)) for p, q in ((a, b), (b, c), (c, a)))
    gradient = np.sqrt(2 / 3 * np.asarray(squares)) / spacing
    least = np.minimum(np.minimum(a, b), c).astype(float)
    # What is impossible at all three corners tells nothing.
    with np.errstate(divide="ignore"):
        return np.divide(gradient, least, out=np.zeros_like(gradient), where=gradient > 0)
