"""Nodes that are made on the device are those of the host, and so is what they iterate to."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from helpers import displacement_problem, random_domain

from panda_mdp.compute.jax.device import make_mesh
from panda_mdp.loss import DistanceLoss
from panda_mdp.methods.optimal.graph import Graph, constraint_graph
from panda_mdp.methods.optimal.jax_solver import JaxSolver
from panda_mdp.methods.optimal.lifted import Lifted, Nodes, reach
from panda_mdp.methods.optimal.lifted_solver import DeviceLifted


@pytest.mark.parametrize("stored", [True, False])
def test_the_device_iterates_as_on_nodes_of_the_host(stored):
    domain = random_domain("haversine", 300, seed=4)
    near = float(np.median(domain.neighbours(1)[1]))
    problem = displacement_problem(domain, np.arange(300), 1.5 / near)
    if not stored:
        problem = replace(problem, loss=DistanceLoss(domain, problem.outputs))
    graph = constraint_graph(domain, problem.epsilon)
    some, more = (Graph(graph.ends[k::2], graph.length[k::2]) for k in range(2))
    reached, mesh = reach(problem, graph, 8.0), make_mesh()

    def make(part, edges, start, owner):
        return JaxSolver(part, edges, start, mesh, owner)

    host = Lifted(problem, some, None, reached, make)
    device = DeviceLifted(problem, some, None, reached, mesh)
    for then in (lambda solver: solver.extend(more), lambda solver: solver._widen(), None):
        for solver in (host, device):
            solver.advance(80)
        assert device.bound() == pytest.approx(host.bound(), rel=1e-5)
        np.testing.assert_allclose(device.matrix(), host.matrix(), atol=1e-5)
        if then is not None:
            then(host)
            then(device)
    count = Nodes(problem, device.reached).lift(graph).count
    assert device._inner._lifted == count == host._inner.graph.count
    assert device.graph.count == graph.count
