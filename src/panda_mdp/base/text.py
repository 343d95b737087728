"""Values as they are written: for JSON, in sentences with their units."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, Literal, TypeVar

import numpy as np

T = TypeVar("T")
Facts = dict[str, Any]
"""Numbers and words by name, as JSON has them."""
_WORDS = (
    *("second", "minute", "hour", "day", "week", "month", "year"),
    *("metre", "meter", "kilometre", "kilometer", "mile", "degree", "radian"),
    *("euro", "dollar", "pound", "point", "step", "word", "record", "unit"),
)
_ONE = {f"{word}s": word for word in _WORDS}
_MANY = {word: f"{word}s" for word in _WORDS}


CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f]")
"""What a terminal may obey, or what ends a line: no unit and no label has any of it."""


def one_line(text: str) -> str:
    """A text from a file, or a message that may quote one, as nothing that a terminal obeys.

    >>> one_line("a\\x1b[2Jb")
    'a\\\\x1b[2Jb'
    """
    return CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)


class FreeText(str):
    """A text that a file brought: equal to what the file says, and marked wherever it is printed,
    in one line.

    >>> told = FreeText("optimal")
    >>> f"{told}", str(told), told == "optimal", canonical(told)
    ('optimal (unverified)', 'optimal (unverified)', True, b'"optimal"')
    """

    def __str__(self) -> str:
        return f"{one_line(self[:])} (unverified)"

    def __format__(self, _: str) -> str:
        return str(self)


def canonical(value: Any) -> bytes:
    """JSON in one form alone: names sorted, no blanks, ASCII.

    >>> canonical({"b": 1.5, "a": ["x"]})
    b'{"a":["x"],"b":1.5}'
    """
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def plain(value: Any, infinities: Literal["keep", "null", "words"] = "keep") -> Any:
    """The value in numbers, texts, lists and dictionaries; what is none of these stays.

    JSON has neither infinities nor NaN. "null" puts None in their place, "words" the texts "inf",
    "-inf" and "nan", which `float` reads; "keep" leaves them, for `json.dumps` to refuse.

    >>> plain({"loss": np.float64(2.5), "bound": -np.inf, "sizes": np.arange(2)}, "words")
    {'loss': 2.5, 'bound': '-inf', 'sizes': [0, 1]}
    """
    if isinstance(value, Mapping):
        return {str(key): plain(entry, infinities) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry, infinities) for entry in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist(), infinities)
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value), infinities)
    if isinstance(value, float) and not math.isfinite(value) and infinities != "keep":
        return None if infinities == "null" else str(value)
    return value


def picked(thing: object, *names: str) -> Facts:
    """Some attributes of a thing, by name.

    >>> picked(3 + 4j, "real", "imag")
    {'real': 3.0, 'imag': 4.0}
    """
    return {name: getattr(thing, name) for name in names}


def present(facts: Mapping[str, T]) -> dict[str, T]:
    """Without what is None.

    >>> present({"loss": 2.5, "bound": None})
    {'loss': 2.5}
    """
    return {name: fact for name, fact in facts.items() if fact is not None}


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
