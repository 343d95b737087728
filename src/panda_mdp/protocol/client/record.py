"""A user's record, sealed: it can be drawn from, and not be shown, stored, sent or logged.

`Record` has no attribute, conversion or representation that gives the record away: `repr`, `str`,
`format`, `vars`, pickling, JSON, logging and equality see nothing. Messages take plain integers of
their own types, so a record put into one is a type error before anything runs and a validation
error, without the value, when it does. One door is left, `Record.unseal`, which hands the index to
a function: the draws of plans, and the client's memo, a keyed hash that stays on the device (a test
reads the source). What comes out may be released; draws are exact, on integers, from the operating
system's generator.

What happens behind the door leaves no trace in tracebacks: an error inside is thrown away with its
frames, and a new one without them is raised. Whoever can run code in the process or read its memory
can read the record; no type prevents that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn, TypeVar, final

import numpy as np

from panda_mdp.base.arrays import IntArray
from panda_mdp.errors import MethodError, sealed
from panda_mdp.privacy.quantise import SystemBits, choose
from panda_mdp.space.area import Area
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

    def __init__(self, domain: str, open_seal: Callable[[], int]) -> None:
        self.__domain = domain
        self.__open = open_seal

    @property
    def domain(self) -> str:
        """The fingerprint of the domain, which is public."""
        return self.__domain

    def unseal(self, domain: Domain, action: Callable[[int], T]) -> T:
        """Call `action(index)`, for draws alone; its errors come back without frames."""
        if domain.fingerprint != self.__domain:
            raise MethodError(
                "the record belongs to another domain; make it with this deployment's plan"
            )
        return _opened(self.__open, action)

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
        raise TypeError("a record is kept in memory only and is not pickled")

    def __init_subclass__(cls) -> NoReturn:
        raise TypeError("Record is sealed and has no subclasses")


@sealed
def _opened(open_seal: Callable[[], int], action: Callable[[int], T]) -> T:
    return action(open_seal())


@sealed
def seal_index(domain: Domain, index: int) -> Record:
    """A record by its index. The error for a wrong one does not show it."""
    checked = check_record(index, domain.size, MethodError)
    return Record(domain.fingerprint, lambda: checked)


@sealed
def seal_place(domain: Domain, area: Area, lat: float, lon: float) -> Record:
    """The record nearest to a place; ties go to the lowest index.

    A place outside the area is the nearest point of it, so that there is always an answer: silence
    would tell a server who is outside.
    """
    nearest = domain.snap(*area.clamp(lat, lon), np.inf).record
    return Record(domain.fingerprint, lambda: nearest)


@sealed
def seal_point(table: EverywhereMechanism, area: Area, lat: float, lon: float) -> Record:
    """A place in the area of a table for every point; outside, the nearest point of it.

    Each time it is opened another vertex of its triangle is drawn, with the place's weight for it:
    one vertex for two draws would tell where in the triangle the place is.
    """
    place = area.clamp(lat, lon)
    table.draw_vertex(*place)
    return Record(table.problem.domain.fingerprint, lambda: table.draw_vertex(*place))


def draw_column(row: IntArray) -> int:
    """A column of a row of weights."""
    return int(choose(row, SystemBits().integers(1))[0])
