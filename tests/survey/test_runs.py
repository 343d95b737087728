"""Methods in processes of their own: what is compiled before anything is measured."""

from __future__ import annotations

import panda_mdp as pm
from panda_mdp.survey.registry import choose_methods
from panda_mdp.survey.runs import _rehearse, compile_kernels


def small_problem() -> pm.Problem:
    domain = pm.synthetic_city(400, seed=0).domain(records=40, seed=0)
    return pm.Problem(domain, range(5), pm.distance_loss(domain, range(5)), epsilon=5.0)


def test_loops_are_compiled_for_every_method_once() -> None:
    methods = choose_methods(["exponential", "planar_laplace", "exponential_tight"])
    compiled = list(compile_kernels(methods, small_problem()))
    assert sorted(m.name for m in compiled) == sorted(m.name for m in methods)


def test_a_rehearsal_reaches_the_search_for_pairs_left_out() -> None:
    """A problem of the demo's size needs it, and would otherwise compile it within its limit."""
    from panda_mdp.compute.numba.bound import violated_pairs

    (optimal,) = choose_methods(["optimal"])
    city = pm.synthetic_city(1500, seed=0).domain(records=700, seed=0)
    _rehearse(optimal, pm.Problem(city, [0, 1], pm.distance_loss(city, [0, 1]), epsilon=5.0))
    assert violated_pairs.signatures
