"""What a client without a map tells of two places: every centre and every report, exactly."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from helpers import save_compact
from protocol_servers import small_domain
from protocol_standin import TOKEN, URL, Standin, ball_rows, without_fsync

import panda_mdp as pm
from panda_mdp.panda.lattice import GRID, BallLaw, to_grid
from panda_mdp.privacy.quantise import TOTAL
from panda_mdp.protocol import Allowance, Client
from panda_mdp.protocol.client.rounds import BallPlan
from panda_mdp.space.metrics import haversine_km

ALLOWED = Allowance(epsilon=20.0, period_epsilon=100.0, snap_km=5.0)


def logs_of_law(law: BallLaw, at: np.ndarray) -> np.ndarray:
    """log P(c|place) over all centres of the box, from whole numbers."""
    near, extra, least = law.weights(at)
    low, high = law.box
    weights = np.full(high - low + 1, least, dtype=object)
    for (i, j), more in zip((near - low).tolist(), extra, strict=True):
        weights[i, j] += more
    return np.log(weights.astype(float)) - np.log(float(weights.sum()))


def borders(domain: pm.Domain) -> np.ndarray:
    """Places side by side that take rows of two records, far from both."""
    places = np.array([domain.lat, domain.lon]).T
    found = []
    for x, y in np.argwhere(np.triu(domain.distances() > 1.0)).tolist():
        middle, step = (places[x] + places[y]) / 2, 3e-4 * np.sign(places[y] - places[x])
        sides = np.array([middle - step, middle + step])
        if domain.snap(*sides.T, np.inf).record.tolist() == [x, y]:
            found += sides.tolist()
    assert len(found) >= 8
    return np.array(found[:16])


@pytest.mark.parametrize(("radius", "snap"), [(0.7, 0.15), (0.7, 5.0), (2.0, 0.4)])
def test_centre_and_report_of_two_places_tell_what_is_promised(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, radius: float, snap: float
) -> None:
    """Between places (epsilon_1 + epsilon_2) d and what both are from the records whose rows they
    take, at the table's epsilon; so 2 `snap` of it at most, and nothing more between records."""
    without_fsync(monkeypatch)
    domain = small_domain(24)
    losses = pm.distance_loss(domain, np.arange(4))
    table = pm.optimal(pm.Problem(domain, np.arange(4), losses, epsilon=2.1), 0.02)
    table = save_compact(table, tmp_path / "t.pmdp")
    server = Standin(tmp_path / "t.pmdp", table, radius=radius, snap=snap)
    server.epsilon_1, server.edge = 2.5, 0.4
    with Client(URL, TOKEN, tmp_path, ALLOWED, network=server.network) as client:
        plan = client.plan("ball")
    assert isinstance(plan, BallPlan) and plan.cost.epsilon == pytest.approx(5.0)
    law, rng = plan.law, np.random.default_rng(0)
    some = rng.uniform(
        [domain.lat.min(), domain.lon.min()], [domain.lat.max(), domain.lon.max()], (14, 2)
    )
    some = np.concatenate([some[:6], borders(domain)])
    outside = np.array([[domain.lat.max() + 0.01, domain.lon.mean()], [60.0, -100.0], [89.0, 3.0]])
    records = np.array([domain.lat, domain.lon]).T[:5]
    given = np.concatenate([some, outside, np.round(records, 4)])
    places = np.array([to_grid(*place) for place in given.tolist()]) / GRID
    apart = haversine_km(*places[:, None].T.swapaxes(1, 2), *places.T)
    assert (apart[~np.eye(len(places), dtype=bool)] > law.least).all()
    first = np.array([logs_of_law(law, law.among(*place)) for place in places.tolist()])
    gaps = np.abs(first[:, None] - first).max(axis=(2, 3))
    assert (gaps <= law.epsilon * apart + 1e-9).all()
    low, high = law.box
    told, cut = 0.0, 0
    for centre in np.ndindex(*(high - low + 1)):
        at = (int(centre[0] + low[0]), int(centre[1] + low[1]))
        near, weights = plan.check(at, ball_rows(server, list(at)))
        if not len(near):
            continue
        cut += 1
        logs = []
        away = haversine_km(places[:, :1], places[:, 1:], *near.T).min(axis=1)
        for place, log in zip(places, first[:, centre[0], centre[1]], strict=True):
            share, common, own = plan.fade(at, near, weights, place)
            exact = [
                share * u + (TOTAL - share) * z
                for u, z in zip(common.tolist(), own.tolist(), strict=True)
            ]
            assert sum(exact) == TOTAL**2
            logs.append(np.log(np.array(exact, dtype=float)) + log)
        spent = np.abs(np.array(logs)[:, None] - np.array(logs)).max(axis=2)
        snapped = np.minimum(away, snap)
        most = plan.cost.epsilon * apart + plan.info.table.epsilon * (snapped[:, None] + snapped)
        assert (spent <= most + 1e-9).all()
        told = max(told, float((spent / np.maximum(most, 1e-9)).max()))
    # A bound that nothing comes near to would prove little.
    assert cut > 20 and told > 0.4
