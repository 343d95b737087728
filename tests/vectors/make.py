"""Write the test vectors that Python and TypeScript share. Run it from the repository's root:

    python tests/vectors/make.py

| file | what |
|---|---|
| city.pmdp | a compact table: 280 places, 12 outputs, two blocks of rows |
| table.json | the same, decoded: order, outputs, places, every row as decimal strings |
| identities.json | files of several kinds: identity, audit, distances from the first record |
| draws.json | random words and the output that they draw from a row |
| areas.json | places, the area that they span, and what stands in it for places outside |
| snapping.json | places, and the record that they snap to, or that they are refused |
| distances.json | pairs of places and their distance in km |
| signing.json | a key, signed tables and rows, and signatures that must be refused |
| statement.json | what the same key signed about a deployment |

Rules that both languages keep:

- A draw takes one word of 64 random bits; u = word mod 2^62; the output is the first column whose
  cumulative weight exceeds u.
- Of records at the same distance the one with the lowest index is the nearest. Distances agree to
  1e-12 (relative): sines may differ in the last bit between languages. So the places here are
  either exactly as far from two records, by symmetry, or clearly nearer to one.
- Longitudes from 180 to 360 degrees are turned into -180 to 0 first. A place is refused where the
  nearest record is farther than the limit; at the limit it is accepted.
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import panda_mdp as pm
from panda_mdp.base.text import canonical
from panda_mdp.errors import SnapError
from panda_mdp.privacy.quantise import TOTAL, choose
from panda_mdp.protocol.messages.catalogue import TableRef
from panda_mdp.protocol.messages.deployments import Statement
from panda_mdp.protocol.messages.signing import (
    SigningKey,
    rows_digest,
    signed_bytes,
    statement_bytes,
)
from panda_mdp.space.area import Area
from panda_mdp.table.decode import decode
from panda_mdp.table.encode import encode

HERE = Path(__file__).parent
RELATIVE_ERROR = 1e-12
STEPS = [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (3, 4), (-7, 2), (20, -30)]


def main() -> None:
    """Write all files."""
    table = make_table()
    weights, outputs = np.asarray(table.weights), table.problem.outputs
    domain = table.problem.domain
    data = (HERE / "city.pmdp").read_bytes()
    write(
        "table.json",
        {
            "file": "city.pmdp",
            "sha256": hashlib.sha256(data).hexdigest(),
            "size_bytes": len(data),
            "fingerprint": domain.fingerprint,
            "identity": table.identity,
            "epsilon": table.epsilon,
            "audited": table.audit.epsilon,
            "total": str(TOTAL),
            "outputs": outputs.tolist(),
            "lat": domain.lat.tolist(),
            "lon": domain.lon.tolist(),
            "rows": [[str(w) for w in row] for row in weights.tolist()],
        },
    )
    write("identities.json", identities())
    write("draws.json", {"rule": "u = word mod 2^62", "draws": draws(weights, outputs)})
    write("snapping.json", {"relative_error": RELATIVE_ERROR, "sets": snapping(domain)})
    write("areas.json", {"sets": areas(domain)})
    write("distances.json", {"relative_error": RELATIVE_ERROR, "pairs": distances()})
    sha256 = hashlib.sha256(data).hexdigest()
    write("signing.json", signing((sha256, len(data)), table.identity, domain, weights))
    write("statement.json", statement(table.identity, domain, table.epsilon))


def identities() -> list[dict[str, Any]]:
    """Files of every kind that the page can name: identity, audit, distances from the first."""
    rng = np.random.default_rng(4)
    lat, lon = np.round(41.9 + 0.1 * rng.random((2, 12)), 7)
    given, prior = rng.random((12, 3)), np.arange(1.0, 13.0) / 78.0
    plane = pm.Domain.from_vectors(rng.random((12, 2)), unit="years")
    places = pm.Domain.from_points(lat, lon)
    odd = ["caffè", 'a "b"', 1, 2.5, 1e300, "\\", "\U0001f600", -3, 0.1, "x", "y", 1e-9]
    far = pm.Domain.from_matrix(plane.distances())
    ring = np.stack([np.arange(12), (np.arange(12) + 1) % 12], axis=1)
    spokes = np.array([[0, 6], [3, 9]])
    streets = pm.Domain.from_graph(
        np.concatenate([ring, spokes]), 0.1 + rng.random(14), places=(lat, lon), unit="km"
    )
    zones = pm.Domain.from_tree({f"zone {k}": f"zone {k // 3}" for k in range(1, 12)}, 1.0)
    problems = {
        "places": pm.Problem(places, [0, 5, 7], pm.distance_loss(places, [0, 5, 7]), 0.5),
        "labels": pm.Problem(places.with_labels(odd), [0, 5, 7], given, 1, prior=prior),
        "nodes": pm.Problem(places.with_nodes(np.arange(12) * 10**9), [3, 1, 2], given, 1e-7),
        "vectors": pm.Problem(plane, [2, 1, 0], plane.distances(None, [2, 1, 0]) ** 2, 3.0),
        "matrix": pm.Problem(far, [2, 1, 0], far.distances(None, [2, 1, 0]), 3.0),
        "streets": pm.Problem(streets, [2, 1, 0], pm.distance_loss(streets, [2, 1, 0]), 2.0),
        "tree": pm.Problem(zones, [2, 1, 0], pm.distance_loss(zones, [2, 1, 0]), 1.0),
    }
    listed = []
    for name, problem in problems.items():
        table = pm.compact(pm.exponential(problem))
        for losses in (True, False):
            data = encode(table, losses=losses)
            file = base64.b64encode(data).decode()
            read = decode(data)
            told = {
                "audited": read.audit.epsilon,
                "away": problem.domain.distances([0])[0].tolist(),
            }
            listed.append({"name": name, "file": file, "identity": read.identity, **told})
    return listed


def make_table() -> pm.Mechanism:
    """A table with entries at the floor and above it, in two blocks."""
    city = pm.synthetic_city(nodes=1200, seed=3)
    domain = city.domain(records=280, seed=3)
    # Degrees as they are kept in files, so that what is read is what was made.
    domain = pm.Domain.from_points(np.round(domain.lat, 7), np.round(domain.lon, 7))
    outputs = np.arange(5, 280, 24)
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 4.0)
    table = pm.compact(pm.optimal(problem, gap=0.05))
    table.save(HERE / "city.pmdp", losses=False)
    return table


def draws(weights: np.ndarray, outputs: np.ndarray) -> list[dict[str, Any]]:
    """Words at random, at every edge of two rows, and at both ends of the range."""
    random = np.random.default_rng(11)
    cases = [
        (int(record), int(word))
        for record, word in zip(
            random.integers(0, len(weights), 400),
            random.integers(0, 2**64, 400, dtype=np.uint64),
            strict=True,
        )
    ]
    for record in (0, 279):
        edges = np.cumsum(weights[record]).tolist()
        # The two bits above 2^62 must not matter.
        cases += [(record, edge + k * TOTAL) for edge in edges[:-1] for k in (0, 3)]
        cases += [(record, edge - 1) for edge in edges]
        cases += [(record, 0), (record, TOTAL), (record, 2**64 - 1)]
    out = []
    for record, word in cases:
        u = word % TOTAL
        column = int(choose(weights[record], np.array([u], dtype=np.int64))[0])
        out.append(
            {
                "record": record,
                "word": str(word),
                "u": str(u),
                "column": column,
                "output": int(outputs[column]),
            }
        )
    return out


def snapping(domain: pm.Domain) -> list[dict[str, Any]]:
    """Places near a city, exact ties, the date line, the poles, and refusals."""
    random = np.random.default_rng(5)
    low, high = domain.lat.min(), domain.lat.max()
    west, east = domain.lon.min(), domain.lon.max()
    places = [
        (float(lat), float(lon), 0.4)
        for lat, lon in zip(
            random.uniform(low - 0.005, high + 0.005, 150),
            random.uniform(west - 0.005, east + 0.005, 150),
            strict=True,
        )
    ]
    places += [(float(domain.lat[k]), float(domain.lon[k]), 1e-9) for k in (0, 17, 279)]
    grid = pm.Domain.from_points(
        [45.0, 45.0, 45.0, 45.5, 45.5, 44.5], [9.5, 9.0, 9.25, 9.0, 9.5, 9.125]
    )
    line = pm.Domain.from_points([10.0, 10.0, -10.0, 10.0], [179.75, -179.75, 179.75, 0.0])
    poles = pm.Domain.from_points([89.5, 89.5, -90.0, 0.0], [0.0, 180.0, 0.0, 90.0])
    return [
        snaps("city", domain, places),
        snaps(
            "ties",
            grid,
            [
                (45.0, 9.375, 50.0),
                (45.0, 9.125, 50.0),
                (45.5, 9.25, 50.0),
                (45.0, 9.25, 50.0),
                (45.25, 9.5, 50.0),
                (45.25, 9.0, 50.0),
            ],
        ),
        snaps(
            "date line",
            line,
            [
                (10.0, 180.0, 100.0),
                (10.0, -180.0, 100.0),
                (10.0, 179.9, 100.0),
                (10.0, -179.9, 100.0),
                (10.0, 180.2, 100.0),
                (10.0, 359.5, 100.0),
                (0.0, 179.75, 2000.0),
                (10.0, 90.0, 100.0),
            ],
        ),
        snaps(
            "poles",
            poles,
            [
                (90.0, 0.0, 100.0),
                (90.0, 77.0, 100.0),
                (89.9, 10.0, 100.0),
                (-89.9, 123.0, 100.0),
                (-90.0, -45.0, 100.0),
                (0.25, 90.0, 27.7),
                (0.25, 90.0, 27.9),
            ],
        ),
        snaps("no places", grid, [(90.5, 9.0, 50.0), (45.0, -180.5, 50.0), (45.0, 360.5, 50.0)]),
    ]


def areas(domain: pm.Domain) -> list[dict[str, Any]]:
    """The area of places, its size and holes, and the points that stand for places outside."""
    box = pm.Domain.from_points([45.0, 45.0, 45.1, 45.1], [9.0, 9.1, 9.1, 9.0])
    made, names = [], ("lat", "lon", "to_lat", "to_lon")
    for places in (domain, box):
        area, lat, lon = Area.around(places.lat, places.lon), places.lat, places.lon
        asked = [
            *((float(lat.mean()) + 0.05 * dy, float(lon.mean()) + 0.05 * dx) for dx, dy in STEPS),
            *((90.0, 0.0), (0.0, 0.0), (-41.9, -167.4), (48.8, 2.3)),
        ]
        cases = [dict(zip(names, (*place, *area.clamp(*place)), strict=True)) for place in asked]
        found = {"size_km2": area.size_km2, "hole_km": area.hole_km(lat, lon), "cases": cases}
        made.append({"lat": lat.tolist(), "lon": lon.tolist(), **found})
    return made


def snaps(name: str, domain: pm.Domain, places: list[tuple[float, float, float]]) -> dict[str, Any]:
    """The answer for each place: a record and its distance, or null."""
    cases = []
    for lat, lon, limit in places:
        try:
            snap = domain.snap(lat, lon, limit)
        except SnapError:
            record, km = None, None
        else:
            record, km = snap.record, snap.distance
            check_clear(domain, lat, lon, record, km)
        cases.append({"lat": lat, "lon": lon, "limit_km": limit, "record": record, "km": km})
    return {"name": name, "lat": domain.lat.tolist(), "lon": domain.lon.tolist(), "cases": cases}


def check_clear(domain: pm.Domain, lat: float, lon: float, record: int, km: float) -> None:
    """That the next record is exactly as far, or farther by more than rounding."""
    from panda_mdp.space.metrics import haversine_km

    lon = lon - 360 if lon >= 180 else lon
    apart = haversine_km(lat, lon, domain.lat, domain.lon)
    near = np.flatnonzero(apart <= km * (1 + 1e-9) + 1e-12)
    same_lat = {abs(lat - float(domain.lat[k])) for k in near}
    gaps = {abs(lon - float(domain.lon[k])) % 360 for k in near}
    # Around the date line one gap is counted the long way.
    gaps = {min(gap, 360 - gap) for gap in gaps}
    at_pole = abs(lat) == 90
    if record != near[0] or (len(near) > 1 and not at_pole and max(len(same_lat), len(gaps)) > 1):
        msg = f"the place {lat}, {lon} is nearly as far from records {near}; choose another"
        raise SystemExit(msg)


def distances() -> list[dict[str, Any]]:
    """Near, far, across the date line, around a pole, antipodes."""
    from panda_mdp.space.metrics import haversine_km

    pairs = [
        (41.9, 12.5, 41.9, 12.5),
        (41.9, 12.5, 41.900001, 12.5),
        (41.9, 12.5, 41.91, 12.51),
        (51.5, -0.1, 41.9, 12.5),
        (0.0, 179.5, 0.0, -179.5),
        (89.9, 0.0, 89.9, 180.0),
        (-33.9, 151.2, 51.5, -0.1),
        (10.0, 20.0, -10.0, -160.0),
        (10.0, 20.0, -9.999, -160.0),
        (90.0, 0.0, -90.0, 0.0),
    ]
    random = np.random.default_rng(8)
    pairs += [
        tuple(float(v) for v in row)
        for row in random.uniform([-80, -179, -80, -179], [80, 179, 80, 179], (40, 4))
    ]
    return [
        {
            "from": [lat, lon],
            "to": [lat2, lon2],
            "km": float(haversine_km(lat, lon, np.array([lat2]), np.array([lon2]))[0]),
        }
        for lat, lon, lat2, lon2 in pairs
    ]


def signing(file: tuple[str, int], identity: str, domain: pm.Domain, weights: np.ndarray) -> Any:
    """Signed bytes and signatures by a key that is for tests alone."""
    key = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
    other = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33))))
    table = {
        "name": "city",
        "version": 2,
        "sha256": file[0],
        "size_bytes": file[1],
        "domain": domain.fingerprint,
        "epsilon": 4.0,
        "identity": identity,
    }
    signed = signed_bytes("table", *table.values())
    members, outputs = [3, 8], list(range(5, 280, 24))
    rows = [[str(w) for w in weights[k].tolist()] for k in members]
    content = {"anchors": members, "outputs": outputs, "weights": rows}
    over_rows = signed_bytes("rows", "panda", 7, rows_digest(members, outputs, rows))
    return {
        "key": {"id": key.id, "algorithm": "Ed25519", "public": key.public.base64},
        "table": {
            "fields": table,
            "bytes": signed.decode(),
            "signature": key.sign(signed),
            "refused": [other.sign(signed), key.sign(signed + b"\n")],
        },
        "epsilons": [
            {"value": value, "repr": repr(value)}
            for value in (5.0, 0.1, 1e-7, 123456.789, 0.30000000000000004, 1e16, 2.5e-5, 1e22)
        ],
        "rows": {
            "deployment": "panda",
            "version": 7,
            "content": content,
            "canonical": canonical(content).decode(),
            "bytes": over_rows.decode(),
            "signature": key.sign(over_rows),
        },
    }


def statement(identity: str, domain: pm.Domain, epsilon: float) -> dict[str, Any]:
    """A statement with letters beyond ASCII, its signed bytes, and others that must be refused."""
    key = SigningKey(Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
    stated = Statement(
        name="city",
        kind="table",
        version=2,
        issued=1_790_000_000,
        metric="haversine",
        unit="km",
        domain=domain.fingerprint,
        epsilon=epsilon,
        delta=0.0,
        period_s=86_400,
        reports_per_period=3,
        collector="Ufficio mobilità",
        purpose="Where bicycle racks are missing",
        until="2027-03-31",
        table=TableRef(name="city", version=2),
        table_identity=identity,
    )
    text = stated.model_dump_json()
    data = statement_bytes("city", text)
    return {
        "key": {"id": key.id, "algorithm": "Ed25519", "public": key.public.base64},
        "name": "city",
        "text": text,
        "bytes": data.decode(),
        "signature": key.sign(data),
        "refused": [
            key.sign(statement_bytes("other", text)),
            key.sign(statement_bytes("city", text + " ")),
            key.sign(text.encode()),
        ],
    }


def write(name: str, value: Any) -> None:
    """One file, with an entry of a list on each line."""
    text = json.dumps(value, separators=(", ", ": "), allow_nan=False)
    (HERE / name).write_text(text.replace("}, {", "},\n{").replace("], [", "],\n[") + "\n")


if __name__ == "__main__":
    main()
