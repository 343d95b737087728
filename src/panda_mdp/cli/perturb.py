"""One report for one user, from a line that holds the user's secret.

Neither the line nor anything derived from it appears in an error, a log or a traceback.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any, TextIO

from panda_mdp.errors import MethodError
from panda_mdp.space.domain import Domain
from panda_mdp.table.mechanism import Mechanism

LINE_BYTES = 256
"""No place and no index is longer; what is, is refused before anything parses it."""


@dataclass(frozen=True)
class Report:
    """What is released."""

    text: str
    fields: dict[str, Any]


def read_record(domain: Domain, snap_limit: float, stream: TextIO) -> int:
    """The record of a line `lat,lon` or of a record's index; prompts where a person types."""
    if stream.isatty():
        what = "place as lat,lon or record's index" if domain.geographic else "record's index"
        sys.stderr.write(f"{what}: ")
        sys.stderr.flush()
    line = _line(stream)
    rule = f"a record's index, a whole number in 0..{domain.size - 1}"
    if domain.geographic:
        rule = f"a place as lat,lon in degrees, or {rule}"
    parts = line.split(",")
    if domain.geographic and len(parts) == 2:
        place = _degrees(parts)
        if place is not None:
            return domain.snap(place[0], place[1], snap_limit).record
    elif len(parts) == 1 and line.isascii() and line.isdigit() and int(line) < domain.size:
        return int(line)
    msg = f"the line on standard input is {'empty' if not line else 'not valid'}; give {rule}"
    raise MethodError(msg)


def report(mechanism: Mechanism, record: int) -> Report:
    """Draw with the operating system's generator."""
    domain = mechanism.problem.domain
    output = mechanism.sample(record)
    if not domain.geographic:
        return Report(str(output), {"output": output})
    lat, lon = float(domain.lat[output]), float(domain.lon[output])
    return Report(f"{lat!r},{lon!r}", {"output": output, "lat": lat, "lon": lon})


def _line(stream: TextIO) -> str:
    """One line, stripped; bytes that are no text and lines without end become an invalid one."""
    # Bytes: decoding by the stream would put the secret into an exception.
    raw = stream.buffer.readline(LINE_BYTES + 1)
    return "?" if len(raw) > LINE_BYTES else raw.decode("utf-8", errors="replace").strip()


def _degrees(parts: list[str]) -> tuple[float, float] | None:
    try:
        return float(parts[0]), float(parts[1])
    except ValueError:
        return None
