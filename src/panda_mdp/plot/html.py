"""Pages as one HTML file, without outside tiles, scripts or fonts: an interactive map, and text,
tables and pictures."""

from __future__ import annotations

import base64
import html
import io
import json
from collections.abc import Iterable
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.atomic import FilePath, write_whole
from panda_mdp.base.text import Facts, plain
from panda_mdp.city.city import City
from panda_mdp.errors import InvalidInputError
from panda_mdp.meaning.attack import attack
from panda_mdp.plot.maps import Ground, report_places
from panda_mdp.plot.measures import expected_losses, local_epsilons
from panda_mdp.table.mechanism import Table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TABLE_ENTRIES = 4_000_000
"""The largest table that is put into a page, 8 MB of numbers."""
METRES = 1000.0
NEAR_KM = 0.2
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><meta http-equiv=
"Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<style>body{{font:15px/1.5 sans-serif;max-width:75rem;margin:2rem auto;padding:0 1rem}}
img{{max-width:100%}}div{{overflow-x:auto}}table{{border-collapse:collapse;font-size:.85em}}
td,th{{padding:.15rem .6rem;text-align:left;vertical-align:top;white-space:nowrap;
border-bottom:1px solid #ddd}}</style>
<h1>{title}</h1>
{body}</html>
"""


def write_map(
    path: FilePath,
    *,
    city: City | None = None,
    table: Table | None = None,
    against: Table | None = None,
    title: str = "",
) -> Path:
    """Write a map to look around in: the city, where each record goes, losses, local epsilons.

    Give the city, a table, or both. With `against`, another table over the same records, the page
    is a card for whoever lives there: what each of the two reports of the place that is clicked,
    and how near the best guess is after it. The page holds the whole tables (which are public), and
    nothing that is clicked leaves it: its content policy forbids any connection.
    """
    target = Path(path)
    if target.suffix.lower() not in (".html", ".htm"):
        raise InvalidInputError(f"{target.name} does not end in .html")
    data = map_data(city, table, against)
    heading = title or (city and city.name) or "Map"
    template = resources.files("panda_mdp.plot").joinpath("map.html").read_text(encoding="utf-8")
    # A tag inside a string could end the script.
    payload = json.dumps(plain(data, "null"), allow_nan=False).replace("<", "\\u003c")
    head, tail = template.replace("__TITLE__", html.escape(heading)).split("__DATA__", 1)
    return write_whole(target, head + payload + tail)


def write_page(
    path: FilePath, title: str, parts: Iterable[str | list[dict[str, Any]] | Figure]
) -> Path:
    """Write a page of sentences, tables (rows with the same names) and pictures that needs nothing
    else; everything is escaped, floats have four digits."""

    def text(value: object) -> str:
        return f"{value:.4g}" if isinstance(value, float) else html.escape(str(value))

    body = []
    for part in parts:
        if isinstance(part, str):
            body.append(f"<p>{text(part)}")
        elif isinstance(part, list):
            heads = [f"<th>{text(name)}" for row in part[:1] for name in row]
            lines = ["<tr>" + "".join(f"<td>{text(one)}" for one in row.values()) for row in part]
            body.append(f"<div><table><tr>{''.join(heads)}{''.join(lines)}</table></div>")
        else:
            raw = io.BytesIO()
            part.savefig(raw, format="png")
            coded = base64.b64encode(raw.getvalue()).decode()
            alt = text(part.axes[0].get_title(loc="left"))
            body.append(f'<p><img alt="{alt}" src="data:image/png;base64,{coded}">')
    return write_whole(Path(path), PAGE.format(title=text(title), body="\n".join(body)))


def map_data(
    city: City | None,
    table: Table | None,
    against: Table | None = None,
    entries: int = TABLE_ENTRIES,
) -> Facts:
    """What the page shows, as plain values; arrays are little-endian numbers in base 64.

    A table of more than `entries` entries is refused.
    """
    if city is None and table is None:
        raise InvalidInputError("there is nothing to show; give a city, a table or both")
    ground = Ground(None if table is None else table.problem.domain, city)
    streets = records = None
    if city is not None:
        streets = {
            "nodes": city.nodes,
            "streets": city.streets,
            "km": round(city.total_km, 1),
            "places": _packed(METRES * ground.km(city.lat, city.lon), "<f4"),
            "ends": _packed(np.stack(city.pairs[:2], axis=1), "<u4"),
        }
    if table is not None:
        tables = (table,) if against is None else (table, against)
        for each in tables:
            _check_table(each, table, entries)
        reported = [_reports(each, ground, against is not None) for each in tables]
        records = {**_records(table, METRES * ground.points), "tables": reported}
    return {"city": streets, "records": records}


def _reports(table: Table, ground: Ground, attacked: bool) -> Facts:
    """Where a table reports, and what the best guess makes of it."""
    told = {
        "method": str(table.method),
        "guarantee": table.audit.holds,
        "epsilon": table.problem.epsilon,
        "places": _packed(METRES * report_places(table.problem, ground), "<f4"),
        "losses": _packed(expected_losses(table), "<f4"),
        # Probabilities in steps of 1/65535: enough for the eye.
        "shares": _packed(np.rint(table.matrix * 65535), "<u2"),
    }
    if attacked:
        seen = attack(table, radii=(NEAR_KM,))
        told["off"] = _packed(seen.error_by_record, "<f4")
        told["near"] = _packed(seen.located_by_record[NEAR_KM], "<f4")
    return told


def _records(table: Table, places: FloatArray) -> Facts:
    problem = table.problem
    epsilons = local_epsilons(table)
    return {
        "count": problem.size,
        "unit": problem.domain.unit,
        "loss": table.loss,
        "loss_unit": problem.loss_unit,
        "places": _packed(places, "<f4"),
        "epsilons": _packed(np.where(np.isfinite(epsilons), epsilons, -1.0), "<f4"),
    }


def _packed(values: Any, kind: str) -> str:
    return base64.b64encode(np.ascontiguousarray(values).astype(kind).tobytes()).decode("ascii")


def _check_table(table: Table, first: Table, entries: int) -> None:
    problem = table.problem
    if problem.size * problem.outputs_count > entries:
        raise InvalidInputError(
            f"the table has {problem.size:,} x {problem.outputs_count:,} entries; a page holds at "
            f"most {entries:,}: draw a sample of the records, or use draw_record"
        )
    if problem.reports.kind == "labels":
        raise InvalidInputError(
            "these outputs are labels and have no places to show; use Outputs.at(lat, lon)"
        )
    if problem.domain.fingerprint != first.problem.domain.fingerprint:
        raise InvalidInputError(
            "the other table has other records; make it over the domain of the first"
        )
