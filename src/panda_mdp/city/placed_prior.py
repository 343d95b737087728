"""Priors in files: places and their weights, for whatever records are drawn later."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from panda_mdp.base.atomic import atomic_file
from panda_mdp.errors import FileFormatError
from panda_mdp.prior import Prior
from panda_mdp.space.domain import Domain

ARRAYS = ("lat", "lon", "weights", "source", "epsilon")
FARTHEST_KM = 20_100.0


def save_prior(path: Path, prior: Prior, domain: Domain) -> Path:
    """Write a prior over places as `.npz`, with its provenance."""
    epsilon = np.nan if prior.epsilon is None else prior.epsilon
    with atomic_file(path) as stream:
        np.savez_compressed(
            stream,
            lat=domain.lat,
            lon=domain.lon,
            weights=prior.weights,
            source=np.array(prior.source),
            epsilon=np.array(epsilon),
        )
    return path


def load_prior(path: Path, domain: Domain) -> Prior:
    """A saved prior on the records of a domain: each place counts for its nearest record.

    Nothing but the saved weights is used, so what was private for the people behind stays so.
    """
    try:
        with np.load(path, allow_pickle=False) as stored:
            lat, lon, weights, source, epsilon = (stored[name] for name in ARRAYS)
    except FileNotFoundError:
        raise
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        msg = f"{path.name} is damaged or no prior; panda-mdp prior makes one"
        raise FileFormatError(msg) from error
    checked = Prior(weights, str(source), None if np.isnan(epsilon) else float(epsilon))
    nearest = domain.snap(lat, lon, FARTHEST_KM)
    if len(nearest) != len(checked.weights) or not nearest.inside.all():
        msg = f"{path.name} is damaged: its weights are not one for each place"
        raise FileFormatError(msg)
    sums = np.bincount(nearest.record, weights=checked.weights, minlength=domain.size)
    return Prior(sums / sums.sum(), checked.source, checked.epsilon)
