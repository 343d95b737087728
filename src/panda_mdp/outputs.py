"""What may be reported: records, places that need not be records, or plain labels."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from panda_mdp.base.arrays import FloatArray, IntArray, RebuiltOnCopy, frozen, real_numbers
from panda_mdp.errors import DomainError, ProblemError
from panda_mdp.space.domain import Domain, Label, check_indices, check_labels
from panda_mdp.space.metrics import Haversine, check_places, haversine_km


@dataclass(frozen=True, eq=False)
class Outputs(RebuiltOnCopy):
    """The m outputs of a problem: labels, optionally placed.

    Made by `of` (indices into the domain), `at` (places) or `labels` (anything with a name). What
    a mechanism reports is the index, the place's label or number, or the label.

    >>> Outputs.labels(["north", "south"]).report(np.array([1]))
    ['south']
    >>> Outputs.at([41.9], [12.5])
    Outputs(1 place)
    """

    records: IntArray | None = None
    """Indices into the domain, where outputs are records."""
    lat: FloatArray | None = None
    lon: FloatArray | None = None
    """Degrees, where outputs are places that need not be records."""
    names: tuple[Label, ...] | None = None

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        if self.records is not None:
            set_(self, "records", frozen(np.asarray(self.records, dtype=np.int64)))
        if self.lat is not None and self.lon is not None:
            degrees = (("lat", self.lat), ("lon", self.lon))
            lat, lon = (real_numbers(c, name, ProblemError).reshape(-1) for name, c in degrees)
            if len(lat) != len(lon):
                raise ProblemError(
                    f"lat has {len(lat)} entries and lon {len(lon)}; give one of each per output"
                )
            try:
                check_places(lat, lon)
            except DomainError as error:
                raise ProblemError(f"outputs: {error}") from error
            set_(self, "lat", frozen(lat))
            set_(self, "lon", frozen(np.where(lon >= 180, lon - 360, lon)))
        if self.names is not None:
            set_(self, "names", check_labels(self.names, "outputs", ProblemError))
        counts = {len(k) for k in (self.records, self.lat, self.names) if k is not None}
        if len(counts) != 1 or counts == {0}:
            raise ProblemError(
                f"outputs have {sorted(counts)} records, places and labels; give one each, not 0"
            )

    @classmethod
    def of(cls, records: npt.ArrayLike, domain: Domain) -> Outputs:
        """Outputs that are records of a domain, each once; they are called as the records are."""
        output_records = check_indices(records, domain.size, "outputs", ProblemError)
        if len(output_records) == 0:
            raise ProblemError("outputs is empty; name at least one record to report")
        values, counts = np.unique(output_records, return_counts=True)
        if counts.max() > 1:
            raise ProblemError(
                f"output {values[counts.argmax()]} is named {counts.max()} times; name each once"
            )
        return cls(records=output_records)

    @classmethod
    def at(
        cls, lat: npt.ArrayLike, lon: npt.ArrayLike, labels: Iterable[Label] | None = None
    ) -> Outputs:
        """Places by latitude and longitude in degrees, with a label each or their number."""
        names = None if labels is None else tuple(labels)
        return cls(lat=lat, lon=lon, names=names)  # type: ignore[arg-type]

    @classmethod
    def labels(cls, names: Iterable[Label]) -> Outputs:
        """Outputs that are only called something: zones, cells, words."""
        return cls(names=tuple(names))

    def __len__(self) -> int:
        return len(self.codes)

    def __repr__(self) -> str:
        return f"Outputs({len(self)} {self.kind[: -1 if len(self) == 1 else None]})"

    @property
    def kind(self) -> str:
        """`records`, `places` or `labels`."""
        if self.records is not None:
            return "records"
        return "labels" if self.lat is None else "places"

    @property
    def codes(self) -> IntArray:
        """The number by which each output goes: the record's index, or its column."""
        if self.records is not None:
            return self.records
        return np.arange(len(self.names or ()) if self.lat is None else len(self.lat))

    def report(self, columns: IntArray, *, single: bool = False) -> Any:
        """What is reported for some columns: indices or labels, or the one of a `single` column."""
        if self.names is not None and self.records is None:
            named = [self.names[k] for k in columns.tolist()]
            return named[0] if single else named
        numbers = columns if self.records is None else self.records[columns]
        return int(numbers[0]) if single else numbers

    def take(self, columns: IntArray) -> Outputs:
        """Some of the outputs, in the given order."""
        names = None if self.names is None else tuple(self.names[k] for k in columns.tolist())
        return Outputs(
            records=None if self.records is None else self.records[columns],
            lat=None if self.lat is None else self.lat[columns],
            lon=None if self.lon is None else self.lon[columns],
            names=names,
        )

    def distances(self, domain: Domain, rows: npt.ArrayLike | None = None) -> FloatArray:
        """Distance of some records, or all, to every output; `ProblemError` where there is none."""
        if self.records is not None:
            return domain.distances(rows, self.records)
        metric = domain.metric
        if self.lat is None or self.lon is None or not isinstance(metric, Haversine):
            raise ProblemError(
                "these outputs have no distance to the records: they are "
                f"{self.kind} and the domain is {metric.kind}; use outputs that are records"
            )
        every = np.arange(domain.size)
        some = every if rows is None else check_indices(rows, domain.size, "rows", ProblemError)
        return haversine_km(metric.lat[some, None], metric.lon[some, None], self.lat, self.lon)

    def plane(self, domain: Domain) -> FloatArray | None:
        """The outputs in the domain's planar coordinates, (m, 2), where they have any."""
        if domain.plane is None:
            return None
        if self.records is not None:
            return domain.plane[self.records]
        if self.lat is None or self.lon is None or not isinstance(domain.metric, Haversine):
            return None
        return domain.metric.project(self.lat, self.lon)
