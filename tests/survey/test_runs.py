"""Methods in processes of their own: what is compiled before anything is measured."""

from __future__ import annotations

import panda_mdp as pm
from panda_mdp.survey.registry import choose_methods
from panda_mdp.survey.runs import _rehearse, _small, _solver_loops, compile_kernels


def small_problem() -> pm.Problem:
    domain = pm.synthetic_city(400, seed=0).domain(records=40, seed=0)
    return pm.Problem(domain, range(5), pm.distance_loss(domain, range(5)), epsilon=5.0)


def test_loops_are_compiled_for_every_method_once() -> None:
    methods = choose_methods(["exponential", "planar_laplace", "exponential_tight"])
    compiled = list(compile_kernels(methods, small_problem()))
    assert sorted(m.name for m in compiled) == sorted(m.name for m in methods)


def test_a_rehearsal_reaches_the_search_for_pairs_left_out() -> None:
    """A problem of the demo's size needs it, and would otherwise compile it within its limit."""
    from panda_mdp.compute.numba.bound import _violated_pairs

    (optimal,) = choose_methods(["optimal"])
    city = pm.synthetic_city(1500, seed=0).domain(records=700, seed=0)
    problem = pm.Problem(city, [0, 1], pm.distance_loss(city, [0, 1]), epsilon=5.0)
    _rehearse(optimal, _small(problem))
    assert _violated_pairs.signatures


def test_the_solver_s_loops_are_compiled_on_their_own() -> None:
    """The types must be those of a solve: other ones would be compiled for nothing."""
    from panda_mdp.compute.numba.pdhg import run

    _solver_loops(_small(small_problem()))
    alone = set(run.signatures)
    (optimal,) = choose_methods(["optimal"])
    _rehearse(optimal, _small(small_problem()))
    assert set(run.signatures) == alone
