"""From what is asked at the vertices of a mesh to what is asked at every point of its area.

A prior w over vertices means people who are spread with the density sum_v w_v hat_v / |hat_v|,
hat_v being 1 at v, 0 at all other vertices and linear between; a loss c over vertices is linear
between them. A point p draws at vertex v with weight hat_v(p), so the expected loss over points is

    sum_vy z_vy sum_u Q_vu c_uy,     Q_vu = integral of hat_v hat_u sum_x w_x hat_x / |hat_x|,

exactly, and linear in the table: it is the loss of a table over the prior p_v = sum_u Q_vu and the
loss (Q c)_vy / p_v. Over a triangle of area 1, products of three of its hats integrate to 1/10
where they are one hat, 1/30 where two are, 1/60 where none are; |hat| is 2.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import scipy

from panda_mdp.errors import MethodError
from panda_mdp.problem import Problem
from panda_mdp.space.mesh import Mesh

ONE, TWO, THREE = 1 / 10, 1 / 30, 1 / 60
HAT = 2.0


def mesh_of(problem: Problem) -> Mesh:
    """The mesh of a problem; `MethodError` where it has none, or people on its rim."""
    mesh = problem.domain.mesh
    if mesh is None:
        msg = (
            "every point of an area needs a mesh, and this domain has none; "
            "make the domain by Domain.from_area(...)"
        )
        raise MethodError(msg)
    rim = np.flatnonzero(~mesh.interior & (problem.prior > 0))
    if len(rim):
        msg = (
            f"the prior of vertex {rim[0]} is {problem.prior[rim[0]]:.3g} and it lies on the "
            "area's rim; people are where all six neighbours lie in the area: leave the prior "
            "out, or make it 0 there"
        )
        raise MethodError(msg)
    return mesh


def spread(problem: Problem) -> Problem:
    """The problem whose expected loss is the one over points that draw at random vertices."""
    mesh = mesh_of(problem)
    weight = mixing(mesh, problem)
    prior = np.asarray(weight.sum(axis=1))
    total = weight @ problem.loss
    loss = np.divide(total, prior[:, None], out=np.zeros_like(total), where=prior[:, None] > 0)
    return replace(problem, loss=loss, prior=prior / prior.sum())


def mixing(mesh: Mesh, problem: Problem) -> scipy.sparse.csr_array:
    """Q of the module's head, (K, K)."""
    size, corners = problem.size, mesh.triangles
    people = problem.prior[corners] / HAT
    rows, columns, values = [], [], []
    for v in range(3):
        for u in range(3):
            if u == v:
                share = ONE * people[:, v] + TWO * (people.sum(axis=1) - people[:, v])
            else:
                third = 3 - u - v
                share = TWO * (people[:, u] + people[:, v]) + THREE * people[:, third]
            rows.append(corners[:, v])
            columns.append(corners[:, u])
            values.append(share)
    parts = (np.concatenate(rows), np.concatenate(columns))
    return scipy.sparse.csr_array((np.concatenate(values), parts), shape=(size, size))
