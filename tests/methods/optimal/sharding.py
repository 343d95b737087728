"""What test_backends.py runs in a process of its own, with all devices that XLA_FLAGS makes: how
many there are is settled when JAX starts. Prints one line of JSON."""

from __future__ import annotations

import json

import numpy as np
from helpers import displacement_problem, random_domain

from panda_mdp import Mechanism, Problem, optimal
from panda_mdp.compute.closure import Closure
from panda_mdp.methods.optimal.optimal import JaxEngine
from panda_mdp.methods.optimal.program import constraint_graph, warm_start
from panda_mdp.privacy.quantise import quantise

SIZE, OUTPUTS, GAP = 60, 12, 0.05


def town() -> Problem:
    """Twelve outputs: 8 devices hold two each, four of which do not exist. The shapes are those of
    the other whole solves in test_backends.py, so that they are compiled once."""
    domain = random_domain("haversine", SIZE, seed=2)
    near = float(np.median(domain.neighbours(1)[1]))
    return displacement_problem(domain, np.arange(0, SIZE, SIZE // OUTPUTS), 1.0 / near)


def summary(mechanism: Mechanism) -> dict[str, object]:
    return {
        "loss": mechanism.loss,
        "bound": mechanism.details["trace"][-1][3],
        "proved": mechanism.bound.words,
        "holds": mechanism.audit.holds,
        "gap": mechanism.gap,
        "stopped": mechanism.details["stopped"],
        "backend": mechanism.details["backend"],
    }


def over_devices() -> dict[str, object]:
    """The same problem on one device and on all, and the parts of a solve compared."""
    import jax

    from panda_mdp.compute.jax.closure import JaxClosure
    from panda_mdp.compute.jax.device import make_mesh, precise
    from panda_mdp.methods.optimal.graph_solver import CpuSolver
    from panda_mdp.methods.optimal.jax_solver import JaxSolver

    problem, mesh = town(), make_mesh()
    graph = constraint_graph(problem.domain, problem.epsilon)
    start = warm_start(problem, graph)
    here, there = CpuSolver(problem, graph, start), JaxSolver(problem, graph, start, mesh)
    garbage = np.random.default_rng(0).uniform(-1, 1, here._u.shape).astype(np.float32)
    here._u = garbage
    full = np.zeros((there.room, 2, OUTPUTS), np.float32)
    full[: graph.count] = garbage
    with precise():
        u = tuple(there._on.sharded(full[:, side], 0.0) for side in range(2))
        there._point = (*there._point[:2], u)
    bounds = [here.bound(), there.bound()]
    there.advance(40)
    x, _, u = there._point
    padded = [np.asarray(a)[..., OUTPUTS:] for a in (x, *u)]
    cost = np.asarray(there._costs[1])

    here, there_ = Closure(problem.domain), JaxClosure(problem.domain, mesh, OUTPUTS)
    matrix = np.random.default_rng(1).dirichlet(np.full(OUTPUTS, 0.3), SIZE)
    closed, also = (
        c.host(next(c.rounds(c.start(matrix), problem.epsilon))[0]) for c in (here, there_)
    )
    weights = quantise(closed)
    logs = np.log(np.maximum(weights, 1).astype(np.float64))
    worst = there_.largest(weights, logs)
    from panda_mdp.privacy.audit import largest_rate

    expected = largest_rate(problem.domain, logs, weights)
    found = [
        {
            tuple(pair)
            for pair in c.broken(c.start(matrix), problem.epsilon, 8.0, (1e-3, 1e-3), 2)[0]
        }
        for c in (here, there_)
    ]
    return {
        "devices": len(jax.devices()),
        "shards": sorted({shard.data.shape[-1] for shard in u[0].addressable_shards}),
        "one": summary(optimal(problem, GAP, backend=JaxEngine(jax.devices()[:1]))),
        "all": summary(optimal(problem, GAP, backend="jax")),
        "garbage": bounds,
        "padded_entries": [float(np.abs(a).max()) for a in padded],
        "padded_cost": float(cost[:, OUTPUTS:].min()),
        "largest_cost": float(cost[:, :OUTPUTS].max()),
        "closure_error": float(np.abs(also / closed - 1).max()),
        "audit": [worst[0], sorted(worst[1:])],
        "audit_here": [expected[0], sorted(expected[1:])],
        "violated_alike": len(found[0] & found[1]) / len(found[0] | found[1]),
        "x64": bool(jax.config.jax_enable_x64),
    }


if __name__ == "__main__":
    print(json.dumps(over_devices()))
