"""Every public object can be sent to another process and copied, and is the same there."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import panda_mdp as pm
from panda_mdp.city.places import Places
from panda_mdp.methods.coarse import coarse_unsound

SECRET = {"DrawKey"}
"""What must not travel: its own tests say how it refuses."""


@pytest.fixture(scope="module")
def objects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("copies")
    city = pm.synthetic_city(nodes=300, seed=0)
    domain = city.domain(records=30, seed=0)
    outputs = [0, 5, 9, 17]
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 1.0)
    mechanism = pm.exponential(problem)
    mechanism.save(folder / "a.pmdp")
    ball = pm.BallAnchors(0.5)
    run = pm.panda(problem, [3, 4], ball, delta=0.1, seed=1)
    coins = pm.BernoulliAnchors("exponential", rate=0.5)
    mesh = pm.Domain.from_area((41.88, 12.46, 41.90, 12.49), spacing=0.8)
    places = list(range(0, mesh.size, 3))
    area = pm.Problem(mesh, places, pm.distance_loss(mesh, places), 1.0)
    anywhere = pm.optimal_everywhere(area, gap=0.1)
    made = [
        anywhere,
        anywhere.everywhere,
        city,
        domain,
        problem,
        mechanism,
        mechanism.audit,
        run.guarantee,
        domain.snap(float(domain.lat[0]), float(domain.lon[0]), 1.0),
        pm.Outputs.labels(["a", "b"]),
        pm.explain(mechanism),
        pm.attack(mechanism),
        pm.Expected(epsilon=2.0),
        pm.inspect(folder / "a.pmdp"),
        pm.load(folder / "a.pmdp"),
        pm.choose_epsilon(problem, within=0.2, odds=4),
        coarse_unsound(problem),
        ball,
        coins,
        run,
        pm.audit_panda(run),
        pm.PandaOptions(gap=0.05),
        pm.SearchSpace(("ball",)),
        pm.load(run.save(folder / "b.pmdp")),
        pm.study_panda(problem, [3, 4], ball, delta=0.1, seed=1),
        pm.calibrate(problem, 0.1, pm.SearchSpace(("ball",), centre_shares=(0.3,))),
        pm.Prior.public(problem.prior, source="census"),
        pm.FrameSummary(),
        pm.Columns(person="who"),
        pm.Fences(domain, [0] * 10 + [-1] * 20),
        mechanism.simulate(7),
        Places(domain, tuple(map(str, range(30)))),
    ]
    return {type(one).__name__: one for one in made}


def test_nothing_public_is_left_out(objects: dict[str, Any]) -> None:
    kinds = {name: getattr(pm, name) for name in pm.__all__}
    public = {name for name, kind in kinds.items() if inspect.isclass(kind)} - {"Release"}
    assert public - SECRET == set(objects) & public


def _sent(one: Any) -> Any:
    return pickle.loads(pickle.dumps(one))


@pytest.mark.parametrize("way", [_sent, copy.deepcopy])
def test_a_copy_is_the_same(objects: dict[str, Any], way: Callable[[Any], Any]) -> None:
    copies = {name: way(one) for name, one in objects.items()}
    assert [name for name, again in copies.items() if type(again) is not type(objects[name])] == []
    assert [name for name, again in copies.items() if repr(again) != repr(objects[name])] == []
    assert {name: _writable(again) for name, again in copies.items() if _writable(again)} == {}


def _writable(one: Any) -> list[str]:
    """Arrays that somebody could change after they were checked."""
    parts = dataclasses.fields(one) if dataclasses.is_dataclass(one) else ()
    values = {part.name: getattr(one, part.name) for part in parts}
    return [k for k, v in values.items() if isinstance(v, np.ndarray) and v.flags.writeable]
