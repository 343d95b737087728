"""Values as JSON can hold them: NumPy's numbers and arrays, records and infinities."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from typing import Any, Literal

import numpy as np


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
