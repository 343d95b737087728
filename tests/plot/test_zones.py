"""Zones on a map: filled by their values, with holes and parts."""

from __future__ import annotations

import geopandas as gpd
import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from shapely import MultiPolygon, Polygon, box

import panda_mdp as pm
from panda_mdp.city.places import Places
from panda_mdp.errors import DomainError
from panda_mdp.plot import draw_expected_loss, draw_record
from panda_mdp.plot.maps import Ground, outlines_of

RING = Polygon(box(11.0, 48.0, 11.1, 48.1).exterior, [box(11.04, 48.04, 11.06, 48.06).exterior])
PAIR = MultiPolygon([box(11.2, 48.0, 11.25, 48.02), box(11.2, 48.05, 11.25, 48.07)])


def places() -> Places:
    return pm.load_places(gpd.GeoDataFrame(geometry=[RING, PAIR], crs=4326))


def table(zones: Places) -> pm.Mechanism:
    problem = pm.Problem(zones.domain, [0, 1], pm.distance_loss(zones.domain, [0, 1]), 0.1)
    return pm.exponential(problem)


def test_holes_wind_back_and_parts_belong_to_their_record() -> None:
    zones = places()
    outlines = outlines_of(zones, 2, zones.domain.metric.project)
    assert outlines[0].exterior.is_ccw != outlines[0].interiors[0].is_ccw
    assert len({part.exterior.is_ccw for part in outlines[1].geoms}) == 1
    assert outlines[1].bounds[0] > outlines[0].bounds[2] - 0.01


def test_a_filled_zone_leaves_its_hole_open() -> None:
    zones = places()
    km = zones.domain.metric.project
    figure = draw_expected_loss(table(zones), zones=zones)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    pixels = np.asarray(canvas.buffer_rgba())

    def colour(lat: float, lon: float) -> list[int]:
        spot = km(np.array(lat), np.array(lon))
        x, y = figure.axes[0].transData.transform(spot)
        return pixels[len(pixels) - 1 - int(y), int(x), :3].tolist()

    white = [255, 255, 255]
    assert colour(48.05, 11.05) == white == colour(48.035, 11.22)
    assert white not in (colour(48.01, 11.01), colour(48.01, 11.22), colour(48.06, 11.22))


def test_pictures_hold_the_zones_and_their_values() -> None:
    zones = places()
    made = table(zones)
    figure = draw_expected_loss(made, zones=zones)
    filled = figure.axes[0].collections[1]
    losses = (made.matrix * made.problem.loss).sum(axis=1)
    assert np.sort(losses).tolist() == pytest.approx(filled.get_array().tolist())
    corners = Ground(zones.domain, None, zones).extent
    for picture in (figure, draw_record(made, 0, zones=zones)):
        axes = picture.axes[0]
        assert (
            axes.get_xlim()[0] <= corners[:, 0].min() <= corners[:, 0].max() <= axes.get_xlim()[1]
        )


def test_zones_of_another_table_are_refused() -> None:
    zones = places()
    other = pm.load_places(
        gpd.GeoDataFrame(geometry=[RING, PAIR, box(12, 48, 12.1, 48.1)], crs=4326)
    )
    with pytest.raises(DomainError, match="2 records and there are 3 zones"):
        draw_expected_loss(table(zones), zones=other)


def test_a_map_across_the_date_line_is_as_wide_as_it_is():
    domain = pm.Domain.from_points([0.0, 0.0, 0.1], [179.99, -179.99, 180.0])
    assert np.ptp(Ground(domain, None).points[:, 0]) == pytest.approx(0.02 * 111.2, rel=0.01)
