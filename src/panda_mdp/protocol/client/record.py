"""A user's record, sealed: it can be drawn from, and not be shown, stored, sent or logged.

`Record` has no attribute, conversion or representation that gives the record away: `repr`, `str`,
`format`, `vars`, pickling, JSON, logging and equality see nothing. Messages take plain integers of
their own types, so a record put into one is a type error before anything runs and a validation
error, without the value, when it does. One door is left, `Record.unseal`, which hands the index to
a function; the client's draws are the only code that uses it (a test reads the source).

What happens behind the door leaves no trace in tracebacks: an error inside is thrown away with its
frames, and a new one without them is raised. Whoever can run code in the process or read its memory
can read the record; no type prevents that.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar, final

from panda_mdp.base.sealing import Failed, attempt
from panda_mdp.errors import MethodError
from panda_mdp.space.domain import Domain, check_record
from panda_mdp.table.everywhere import EverywhereMechanism

T = TypeVar("T")


@final
class Record:
    """A record of one domain, known to this process alone. Made by `seal_place` or `seal_index`.

    >>> domain = Domain.from_points([41.90, 41.91], [12.49, 12.50])
    >>> home = seal_index(domain, 1)
    >>> print(home, repr(home), f"{home:>40}")
    Record(<sealed>) Record(<sealed>) Record(<sealed>)
    """

    __slots__ = ("__domain", "__open", "__weakref__")

    def __init__(self, domain: str, sealed: Callable[[], int]) -> None:
        self.__domain = domain
        self.__open = sealed

    @property
    def domain(self) -> str:
        """The fingerprint of the domain, which is public."""
        return self.__domain

    def unseal(self, domain: str, action: Callable[[int], T]) -> T:
        """Call `action(index)`, for draws alone; its errors come back without frames."""
        if domain != self.__domain:
            msg = "the record belongs to another domain; make it with this deployment's plan"
            raise MethodError(msg)
        result = attempt(_opened, self.__open, action)
        if isinstance(result, Failed):
            raise result.error()
        return result

    def __repr__(self) -> str:
        return "Record(<sealed>)"

    __str__ = __repr__

    def __format__(self, _: str) -> str:
        return repr(self)

    def __copy__(self) -> Record:
        return self

    def __deepcopy__(self, _: Any) -> Record:
        return self

    def __reduce_ex__(self, _: Any) -> NoReturn:
        msg = "a record is kept in memory only and is not pickled"
        raise TypeError(msg)

    def __init_subclass__(cls) -> NoReturn:
        msg = "Record is sealed and has no subclasses"
        raise TypeError(msg)


def _opened(sealed: Callable[[], int], action: Callable[[int], T]) -> T:
    return action(sealed())


def seal_index(domain: Domain, index: int) -> Record:
    """A record by its index. The error for a wrong one does not show it."""
    checked = attempt(check_record, index, domain.size, MethodError)
    # The frame of the error below must not hold it.
    del index
    if isinstance(checked, Failed):
        raise checked.error()
    return Record(domain.fingerprint, lambda: checked)


def seal_place(domain: Domain, lat: float, lon: float, limit_km: float) -> Record:
    """The record nearest to a place, within the limit; ties go to the lowest index.

    Raises `SnapError` for a place beyond the limit, and says neither the place nor its distance.
    """
    opener = attempt(_nearest, domain, lat, lon, limit_km)
    del lat, lon
    if isinstance(opener, Failed):
        raise opener.error()
    return Record(domain.fingerprint, opener)


def seal_point(table: EverywhereMechanism, lat: float, lon: float) -> Record:
    """A place in the area of a table for every point.

    Each time it is opened another vertex of its triangle is drawn, with the place's weight for it:
    one vertex for two draws would tell where in the triangle the place is. Raises `SnapError`
    outside the area, and does not say the place.
    """
    opener = attempt(_vertices, table, lat, lon)
    del lat, lon
    if isinstance(opener, Failed):
        raise opener.error()
    return Record(table.problem.domain.fingerprint, opener)


def _vertices(table: EverywhereMechanism, lat: float, lon: float) -> Callable[[], int]:
    table.draw_vertex(lat, lon)
    return lambda: table.draw_vertex(lat, lon)


def _nearest(domain: Domain, lat: float, lon: float, limit_km: float) -> Callable[[], int]:
    record = domain.snap(lat, lon, limit_km).record
    return lambda: record


@dataclass(frozen=True)
class Snapping:
    """What snapping costs: the table protects records, and a place is not a record.

    Two places p, p' that are snapped to records are epsilon (d(p, p') + s + s')-indistinguishable,
    s and s' their distances to the records, at most `limit_km` each.

    >>> Snapping(limit_km=0.5, epsilon=4.0)
    Snapping(up to 0.5 km each: epsilon (d + 1 km), 4 nats more than epsilon d at most)
    """

    limit_km: float
    epsilon: float

    @property
    def nats(self) -> float:
        """What snapping can add at most to the privacy loss between two places."""
        return 2 * self.limit_km * self.epsilon

    def __repr__(self) -> str:
        return (
            f"Snapping(up to {self.limit_km:g} km each: epsilon (d + {2 * self.limit_km:g} km), "
            f"{self.nats:g} nats more than epsilon d at most)"
        )
