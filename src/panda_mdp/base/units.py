"""Units in sentences: an epsilon is per year, a distance is 3 years, whichever was given."""

from __future__ import annotations

_WORDS = (
    *("second", "minute", "hour", "day", "week", "month", "year"),
    *("metre", "meter", "kilometre", "kilometer", "mile", "degree", "radian"),
    *("euro", "dollar", "pound", "point", "step", "word", "record", "unit"),
)
_ONE = {f"{word}s": word for word in _WORDS}
_MANY = {word: f"{word}s" for word in _WORDS}


def per(unit: str) -> str:
    """What a rate is per.

    >>> per("years"), per("year"), per("km")
    ('per year', 'per year', 'per km')
    """
    return f"per {_ONE.get(unit, unit)}"


def inverse(unit: str) -> str:
    """A rate's unit on an axis.

    >>> inverse("years"), inverse("km")
    ('1/year', '1/km')
    """
    return f"1/{_ONE.get(unit, unit)}"


def plural(unit: str | None) -> str:
    """The unit of many numbers, on an axis.

    >>> plural("year"), plural("years"), plural("km")
    ('years', 'years', 'km')
    """
    return _MANY.get(unit or "", unit or "")


def amount(number: str, unit: str | None) -> str:
    """A number, as it is written, of a unit.

    >>> amount("3.6", "year"), amount("1", "years"), amount("2", "km")
    ('3.6 years', '1 year', '2 km')
    """
    names = _ONE if number == "1" else _MANY
    return f"{number} {names.get(unit or '', unit or '')}".rstrip()
