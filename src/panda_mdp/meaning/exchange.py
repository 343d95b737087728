"""To and from the libraries that researchers measure with: libqif's channels, privkit's frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray, IntArray
from panda_mdp.city.traces.visits import snap_all
from panda_mdp.errors import InvalidInputError, MissingDependencyError
from panda_mdp.problem import Problem
from panda_mdp.space.domain import Domain, check_indices
from panda_mdp.table.mechanism import Mechanism, NoGuarantee, Table

LAT, LON, REPORTED_LAT, REPORTED_LON = "lat", "lon", "obf_lat", "obf_lon"
"""privkit's names of columns (privkit.utils.constants, 0.5)."""


def to_qif(table: Table) -> tuple[FloatArray, FloatArray]:
    """Prior (K,) and channel (K, m) as libqif takes them: `qif.measure.bayes_vuln.posterior(*...)`.

    libqif numbers rows and columns; row x is record x and column y is `problem.outputs[y]`.
    """
    return np.array(table.problem.prior), np.array(table.matrix)


def from_qif(problem: Problem, channel: npt.ArrayLike, *, method: str = "libqif") -> Mechanism:
    """A channel of libqif as a mechanism of `problem`: quantised and audited over all pairs.

    Raises `PrivacyError` where it is not epsilon-mDP on its integers. Channels whose zeros make
    them not private can be studied as `NoGuarantee.from_matrix(problem, channel)`.
    """
    return Mechanism.from_matrix(problem, channel, method=method)


def study_qif(problem: Problem, channel: npt.ArrayLike, *, method: str = "libqif") -> NoGuarantee:
    """A channel of libqif for study, whatever it leaks."""
    return NoGuarantee.from_matrix(problem, channel, method=method)


def to_privkit(domain: Domain, records: npt.ArrayLike, reports: npt.ArrayLike) -> Any:
    """Records and what was reported for them as the frame that privkit's `LocationData` loads.

    Columns lat, lon (the record) and obf_lat, obf_lon (the report), in degrees; needs pandas.
    The frame holds people's true places: it is for experiments on data that may be studied.
    """
    try:
        import pandas as pd  # type: ignore[import-untyped, unused-ignore]
    except ImportError as error:
        msg = "privkit's data are pandas frames: pip install pandas"
        raise MissingDependencyError(msg) from error
    true = check_indices(records, domain.size, "records")
    seen = check_indices(reports, domain.size, "reports")
    if len(true) != len(seen):
        msg = f"there are {len(true)} records and {len(seen)} reports; give one report for each"
        raise InvalidInputError(msg)
    return pd.DataFrame(
        {
            LAT: domain.lat[true],
            LON: domain.lon[true],
            REPORTED_LAT: domain.lat[seen],
            REPORTED_LON: domain.lon[seen],
        }
    )


def from_privkit(domain: Domain, frame: Any, *, limit_km: float = 0.5) -> IntArray:
    """The records nearest to the places of a privkit frame (its lat and lon), one per row.

    Rows farther than `limit_km` from every record are refused, by their number.
    """
    lat, lon = (np.asarray(frame[name], dtype=np.float64) for name in (LAT, LON))
    nearest, inside = snap_all(domain, lat, lon, limit_km)
    if not inside.all():
        msg = (
            f"{int((~inside).sum())} of {len(lat)} rows lie more than {limit_km:g} km from every "
            "record of the domain; leave them out, or use a domain that covers them"
        )
        raise InvalidInputError(msg)
    return nearest
