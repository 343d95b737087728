"""From positions to records: how often each record was visited, and priors made of it."""

from __future__ import annotations

import secrets
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import IntArray
from panda_mdp.base.atomic import atomic_file
from panda_mdp.city.city import group_ranks
from panda_mdp.city.traces import TraceReport, Traces
from panda_mdp.errors import FileFormatError, InvalidInputError, PrivacyError
from panda_mdp.prior import Prior
from panda_mdp.space.domain import Domain

PRIOR_ARRAYS = ("lat", "lon", "weights", "source", "epsilon")
FARTHEST_KM = 20_100.0
CONTRIBUTION = 16


@dataclass(frozen=True, eq=False)
class Visits:
    """Visits per record. They are people's own until they are made private or are public anyway.

    `bounded` holds at most `contribution` visits of each person, drawn at random from theirs:
    what a private prior is made of.
    """

    domain: Domain
    counts: IntArray
    bounded: IntArray
    contribution: int
    people: int
    outside: int
    """Fixes that lay beyond the limit from every record."""
    limit_km: float
    report: TraceReport
    source: str

    def __repr__(self) -> str:
        # Exact counts beside a private prior would undo its noise, and reprs end up in logs.
        return (
            f"Visits({self.domain.size:,} records, within {self.limit_km:g} km, at most "
            f"{self.contribution} of each person; counts <hidden>)"
        )

    def public_prior(self, *, source: str = "") -> Prior:
        """The shares of visits, where the traces are public already. See `Prior.public`."""
        described = source or f"{self.source}, {int(self.counts.sum()):,} fixes"
        return Prior.public(self.counts, source=described)

    def private_prior(self, epsilon: float, *, cell_km: float | None = 1.0) -> Prior:
        """A differentially private prior, safe to optimise for. See `Prior.private`.

        Refused where it is not certain which rows are one person's: nothing else bounds what a
        person contributes.
        """
        if self.report.anonymous:
            raise PrivacyError(
                f"{self.report.anonymous:,} fixes name no person, so nothing bounds what one "
                "person contributes; name the column: load_traces(..., columns={'user': ...})"
            )
        if self.report.doubtful is not None:
            name = self.report.doubtful
            raise PrivacyError(
                f"the column {name!r} may number the rows and not name people, and then one person "
                f"counts without bound; if it names people, say so: "
                f"load_traces(..., columns={{'user': {name!r}}})"
            )
        return Prior.private(
            self.domain,
            self.bounded,
            epsilon=epsilon,
            contribution=self.contribution,
            cell_km=cell_km,
            source=self.source,
        )


def count_visits(
    traces: Traces,
    domain: Domain,
    *,
    limit_km: float = 0.5,
    contribution: int = CONTRIBUTION,
    source: str = "",
) -> Visits:
    """Snap every fix to its nearest record and count; one pass, memory as domain and people.

    Fixes beyond `limit_km` from every record are counted as outside; where more of them would be
    inside with latitude and longitude exchanged than are inside, the file is refused. `source`
    describes the data in certificates; it is the file's name where empty.
    """
    if contribution < 1:
        raise InvalidInputError(
            f"contribution is {contribution}; a person contributes at least 1 visit"
        )
    report = TraceReport()
    counts = np.zeros(domain.size, dtype=np.int64)
    nobody = np.empty(0, dtype=np.int64)
    sample = (nobody, nobody, np.empty(0, dtype=np.uint64))
    outside = people = swapped = 0
    for fixes in traces.chunks(report):
        snaps = domain.snap(fixes.lat, fixes.lon, limit_km)
        nearest, inside = snaps.record, snaps.inside
        counts += np.bincount(nearest[inside], minlength=domain.size)
        outside += int((~inside).sum())
        turned = ~inside & (np.abs(fixes.lon) <= 90)
        exchanged = domain.snap(fixes.lon[turned], fixes.lat[turned], limit_km)
        swapped += int(exchanged.inside.sum())
        people = max(people, int(fixes.user.max()) + 1)
        sample = _sample(sample, fixes.user[inside], nearest[inside], contribution)
    if swapped > counts.sum():
        raise InvalidInputError(
            "most fixes lie on the map only with latitude and longitude exchanged; "
            "name the columns: load_traces(..., columns={'lat': ..., 'lon': ...})"
        )
    return Visits(
        domain=domain,
        counts=counts,
        bounded=np.bincount(sample[1], minlength=domain.size).astype(np.int64),
        contribution=contribution,
        people=people,
        outside=outside,
        limit_km=limit_km,
        report=report,
        source=source or f"traces {traces.name}",
    )


def _sample(
    kept: tuple[IntArray, IntArray, npt.NDArray[np.uint64]],
    user: IntArray,
    record: IntArray,
    size: int,
) -> tuple[IntArray, IntArray, npt.NDArray[np.uint64]]:
    """A uniform sample of at most `size` visits of each person, from a stream: people, records
    and keys of what was kept, and people and records of more visits.

    Every visit gets a random key from the operating system and each person's smallest keys stay.
    Which visits of a person stay depends on that person alone, as the bound on a person's
    influence needs.
    """
    fresh = np.frombuffer(secrets.token_bytes(8 * len(user)), dtype=np.uint64)
    people, records = np.append(kept[0], user), np.append(kept[1], record)
    keys = np.append(kept[2], fresh)
    by_key = np.argsort(keys, kind="stable")
    sampled = by_key[group_ranks(people[by_key])[0] < size]
    return people[sampled], records[sampled], keys[sampled]


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
            lat, lon, weights, source, epsilon = (stored[name] for name in PRIOR_ARRAYS)
    except FileNotFoundError:
        raise
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise FileFormatError(
            f"{path.name} is damaged or no prior; panda-mdp prior makes one"
        ) from error
    checked = Prior(weights, str(source), None if np.isnan(epsilon) else float(epsilon))
    nearest = domain.snap(lat, lon, FARTHEST_KM)
    if len(nearest) != len(checked.weights) or not nearest.inside.all():
        raise FileFormatError(f"{path.name} is damaged: its weights are not one for each place")
    sums = np.bincount(nearest.record, weights=checked.weights, minlength=domain.size)
    return Prior(sums / sums.sum(), checked.source, checked.epsilon)
