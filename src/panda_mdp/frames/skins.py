"""Frames that are not simply in memory: points of GeoPandas, Polars' lazy ones, DuckDB's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from panda_mdp.errors import InvalidInputError
from panda_mdp.frames.summary import FrameSummary

if TYPE_CHECKING:
    from panda_mdp.frames.perturb import Perturber

DEGREES = 4326


def perturb_frame(perturber: Perturber, frame: Any, summary: FrameSummary | None) -> Any:
    """Perturb a frame by what it is."""
    kind = f"{type(frame).__module__}.{type(frame).__name__}"
    if kind.startswith("geopandas") and kind.endswith("GeoDataFrame"):
        return _points(perturber, frame, summary)
    if kind.startswith("polars") and kind.endswith("LazyFrame"):
        return _lazy(perturber, frame, summary)
    if kind.endswith("DuckDBPyRelation"):
        return _relation(perturber, frame, summary)
    try:
        return perturber.eager(frame, perturber.drawer(summary))
    except TypeError as error:
        msg = (
            f"{kind} is no frame that is known; give one of pandas, GeoPandas, Polars, PyArrow or "
            "DuckDB, or columns by mechanism.sample(records)"
        )
        raise InvalidInputError(msg) from error


def _points(perturber: Perturber, frame: Any, summary: FrameSummary | None) -> Any:
    """A GeoDataFrame's points become reported points, in its own reference system."""
    import geopandas

    if set(perturber.columns.true) <= set(frame.columns):
        return perturber.eager(frame, perturber.drawer(summary))
    if frame.crs is None:
        msg = "the frame names no reference system; frame.set_crs('EPSG:4326') says degrees"
        raise InvalidInputError(msg)
    if not (frame.geom_type.dropna() == "Point").all():
        msg = "some rows are no points; frame.representative_point() makes points of areas"
        raise InvalidInputError(msg)
    degrees = frame.geometry.to_crs(DEGREES)
    rest = frame.drop(columns=frame.geometry.name)
    lat, lon = perturber.columns.true
    placed = rest.assign(**{lat: degrees.y.to_numpy(), lon: degrees.x.to_numpy()})
    result = perturber.eager(placed, perturber.drawer(summary))
    points = geopandas.points_from_xy(result["reported_lon"], result["reported_lat"], crs=DEGREES)
    points = np.where(result["reported_lat"].isna(), None, points)
    reported = geopandas.GeoSeries(points, index=result.index, crs=DEGREES).to_crs(frame.crs)
    dropped = ["reported_lat", "reported_lon", *([lat, lon] if perturber.keep else [])]
    result = result.drop(columns=dropped)
    if perturber.keep:
        result = result.assign(true_geometry=frame.geometry.loc[result.index])
    return geopandas.GeoDataFrame(
        result.assign(**{frame.geometry.name: reported}), geometry=frame.geometry.name
    )


def _lazy(perturber: Perturber, frame: Any, summary: FrameSummary | None) -> Any:
    """Drawn when the lazy frame is collected, anew each time unless there is a key."""
    schema = perturber.eager(frame.limit(0).collect(), perturber.drawer()).schema

    def draw(batch: Any) -> Any:
        return perturber.eager(batch, perturber.drawer(summary)).cast(schema)

    return frame.map_batches(
        draw,
        schema=schema,
        # A filter or a limit that is moved below the draws would see, or change, true columns.
        predicate_pushdown=False,
        projection_pushdown=False,
        slice_pushdown=False,
    )


def _relation(perturber: Perturber, relation: Any, summary: FrameSummary | None) -> Any:
    """A relation of the same connection, over a table in memory."""
    rows = getattr(relation, "to_arrow_table", relation.arrow)()
    # DuckDB finds the table by the name of the variable.
    perturbed = perturber.eager(rows, perturber.drawer(summary))  # noqa: F841
    return relation.query("source", "SELECT * FROM perturbed")
