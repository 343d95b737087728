"""Write the vectors of PAnDA that Python and TypeScript share. Run it from the repository's root:

    python tests/vectors/make_panda.py

| file | what |
|---|---|
| panda-{balls,coins}.pmdp | tables of PAnDA over 40 places and 6 outputs |
| panda.json | of each: account, Pr[report | record], and draws from words of random bits |
| area.pmdp, area.json | a table for every point: vertices and weights of places, law, draws |
| phases.json | the law of centres of a ball deployment and its balls; coins, budgets and sets |

Rules that both languages keep, besides those of `make.py`:

- Balls: three words draw the centre, the fourth the report: from the ball's common row where the
  fifth mod 2^62 is below the record's share of it over 2^62, else from the own row.
- Coins: candidates from the nearest on, of several the lowest first; a word w selects a candidate
  where w mod 2^62 is below the numerator of its probability over 2^62; the first that is selected
  ends Phase I, and the next word draws the report from its row.
- Every point: 30 bits, the first word mod 2^62 over 2^32, select the vertex: the first of three
  whose cumulative weight (of 2^30) exceeds them; the second word draws the report from its row.
- A ball holds the records within the radius of its centre. Sines and exponentials may differ in the
  last bit between languages: probabilities agree to 1e-9 (relative), budgets and accounts to 1e-6.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import panda_mdp as pm
from panda_mdp.base.arrays import IntArray
from panda_mdp.panda.lattice import GRID, BallLaw, to_grid
from panda_mdp.panda.leakage import leakage
from panda_mdp.panda.panda_table import PandaTable
from panda_mdp.panda.selection import PandaOptions
from panda_mdp.privacy.quantise import TOTAL, choose
from panda_mdp.protocol.messages.deployments import BallTerms
from panda_mdp.protocol.messages.signing import digest_of
from panda_mdp.protocol.server.solving import Tiles, ball_facts
from panda_mdp.table.everywhere import EverywhereMechanism, draw_vertices

sys.path.insert(0, str(Path(__file__).parent))
from make import HERE, write

OUTPUTS = [0, 7, 13, 22, 30, 39]
EPSILON, DELTA = 3.0, 1e-2
COINS = {"decay": "exponential", "alpha": 0.98, "rate": 0.001, "radius": 12.0, "neighbours": 12}


class Words:
    """Words that are given, in order, in place of the operating system's."""

    def __init__(self, words: list[int]) -> None:
        self._left = iter(words)
        self.used = 0

    def integers(self, count: int) -> IntArray:
        """The next words mod 2^62."""
        self.used += count
        return np.array([next(self._left) % TOTAL for _ in range(count)], dtype=np.int64)


def main() -> None:
    """Write all files."""
    made: dict[str, Any] = {}
    for name in ("balls", "coins"):
        # As readers have it: what the rows of a file differ by is at most what was allowed.
        made[name] = pm.load(table_of(name).save(HERE / f"panda-{name}.pmdp"))
    write("panda.json", {name: described(name, table) for name, table in made.items()})
    write("area.json", area())
    write("phases.json", {"ball": ball_law(), "anchors": anchors()})


def domain_of(size: int) -> pm.Domain:
    """Places in a square of 5 km, as degrees of seven digits."""
    rng = np.random.default_rng(3)
    lat, lon = 41.9 + 0.05 * rng.random(size), 12.5 + 0.05 * rng.random(size)
    return pm.Domain.from_points(np.round(lat, 7), np.round(lon, 7))


def table_of(name: str) -> PandaTable:
    """A table of one kind."""
    domain = domain_of(40)
    problem = pm.Problem(domain, OUTPUTS, pm.distance_loss(domain, OUTPUTS), EPSILON)
    selection: Any = {
        "balls": pm.BallAnchors(1.0),
        "coins": pm.BernoulliAnchors.alike(domain, 10, DELTA),
    }[name]
    return PandaTable(selection.scheme(problem, DELTA, PandaOptions()))


def described(name: str, table: PandaTable) -> dict[str, Any]:
    """What a reader must find in a file, and what words draw from it."""
    problem, rng = table.problem, np.random.default_rng(9)
    draws = []
    for record in rng.integers(0, problem.size, 60).tolist():
        words = [int(word) for word in rng.integers(0, 2**64, 12, dtype=np.uint64)]
        bits = Words(words)
        mine = np.array([record])
        selected = table.scheme.draw_selections(mine, bits)
        column = int(table.scheme.draw_reports(mine, selected, bits)[0])
        draws.append(
            {
                "record": record,
                "words": [str(word) for word in words[: bits.used]],
                "output": int(problem.outputs[column]),
            }
        )
    return {
        "file": f"panda-{name}.pmdp",
        "identity": table.identity,
        "epsilon": table.epsilon,
        "delta": table.delta,
        "selection_epsilon": table.selection_epsilon,
        "violation": table.account.violation,
        "outputs": problem.outputs.tolist(),
        "shares": table.matrix.tolist(),
        "draws": draws,
    }


def area() -> dict[str, Any]:
    """A table for every point of an area, and what places in and around it draw."""
    domain = pm.Domain.from_area((41.896, 12.486, 41.904, 12.496), spacing=0.2)
    if domain.mesh is None:
        raise SystemExit("an area has a mesh")
    outputs = np.flatnonzero(domain.mesh.inside)[::2]
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 2.0)
    table = pm.optimal_everywhere(problem, gap=0.2)
    if not isinstance(table, EverywhereMechanism):
        raise SystemExit("optimal_everywhere makes a table for every point")
    table.save(HERE / "area.pmdp")
    rng, cases = np.random.default_rng(2), []
    for lat, lon in rng.uniform((41.8955, 12.4855), (41.9045, 12.4965), (60, 2)).tolist():
        located = domain.mesh.locate(np.array([lat]), np.array([lon]))
        case: dict[str, Any] = {"lat": lat, "lon": lon, "vertices": None}
        if located.inside[0]:
            words = [int(word) for word in rng.integers(0, 2**64, 2, dtype=np.uint64)]
            bits = Words(words)
            vertex = int(draw_vertices(located, bits)[0])
            column = int(choose(table.weights[vertex], bits.integers(1))[0])
            case |= {
                "vertices": located.vertices[0].tolist(),
                "weights": located.weights[0].tolist(),
                "shares": table.row_at(lat, lon).tolist(),
                "words": [str(word) for word in words],
                "output": int(outputs[column]),
            }
        cases.append(case)
    return {
        "file": "area.pmdp",
        "identity": table.identity,
        "epsilon": 2.0,
        "everywhere": table.everywhere.epsilon,
        "audited": table.audit.epsilon,
        "triangles": table.everywhere.triangles,
        "cases": cases,
    }


def ball_law() -> dict[str, Any]:
    """The law of a ball's centre on the lattice, and rows of some balls as they fade."""
    domain, rng = domain_of(60), np.random.default_rng(5)
    law = BallLaw(domain, 1.5, 1.8, 2.5, 0.5)
    problem = pm.Problem(domain, OUTPUTS, pm.distance_loss(domain, OUTPUTS), 2.0)
    table = np.asarray(pm.exponential(problem).weights)
    draws, balls = [], []
    for record in range(0, 60, 3):
        words = [int(word) for word in rng.integers(0, 2**64, 3, dtype=np.uint64)]
        centre = law.draw(record, Words(words))
        draws.append({"record": record, "words": list(map(str, words)), "centre": centre})
        ball = law.ball(centre)
        shares, common = law.fade(law.depths(centre), table[ball])
        balls.append(
            {
                "centre": centre,
                "records": ball.tolist(),
                "weights": [[str(weight) for weight in row] for row in table[ball].tolist()],
                "shares": [str(share) for share in shares.tolist()],
                "common": [str(weight) for weight in common.tolist()],
            }
        )
    low, high = (f(domain.lat) for f in (np.min, np.max))
    places = []
    for lat in (low, (low + high) / 2, high + 0.02, -40.0, 89.0):
        at = np.divide(to_grid(lat, 12.5), GRID)
        words = [int(word) for word in rng.integers(0, 2**64, 3, dtype=np.uint64)]
        (centre,) = law.draws(law.among(*at), Words(words), 1)
        depth = float(law.depths(centre, law.among(*at)))
        drawn = {"words": list(map(str, words)), "centre": centre, "depth": depth}
        places.append({"lat": lat, "lon": 12.5, "grid": to_grid(lat, 12.5), **drawn})
    return {
        "places": places,
        "tiles": tiles(),
        "lat": domain.lat.tolist(),
        "lon": domain.lon.tolist(),
        "epsilon_1": 1.5,
        "exponent": law.exponent,
        "box": [side.tolist() for side in law.box],
        "radius": law.radius,
        "second": law.second,
        "edge": law.edge,
        "draws": draws,
        "balls": balls[:8],
    }


def tiles() -> dict[str, Any]:
    """A ball of a table of several tiles, as it travels, and the root that it leads to."""
    domain = domain_of(300)
    problem = pm.Problem(domain, OUTPUTS, pm.distance_loss(domain, OUTPUTS), 2.0)
    terms = BallTerms(epsilon_1=9.0, edge=0.5, radius=1.2, snap=0.3)
    with tempfile.TemporaryDirectory() as folder:
        table = pm.compact(pm.exponential(problem)).save(Path(folder) / "t.pmdp")
        facts, packed = ball_facts(table.read_bytes(), terms)
    law = terms.law(domain, 2.0)
    (i, j) = np.rint(law.places[17] * law.exponent).astype(int).tolist()
    rows = Tiles(packed, law).ball(1, (i, j))
    said = {name: facts[name] for name in ("rows", "tiles", "places")}
    digest = digest_of([*facts["places"].values()])
    return {**said, **terms.model_dump(), "digest": digest, "sent": rows.model_dump(mode="json")}


def anchors() -> dict[str, Any]:
    """Coins of a round: probabilities, budgets, account, and sets that words select."""
    domain, outputs = domain_of(24), [0, 6, 12, 20]
    selection = pm.BernoulliAnchors(**COINS)  # type: ignore[arg-type]
    problem = pm.Problem(domain, outputs, pm.distance_loss(domain, outputs), 2.0)
    scheme = selection.scheme(problem, 0.05, PandaOptions())
    law = selection.on(domain)
    probability = law.dense(np.arange(domain.size))
    rng = np.random.default_rng(4)
    sets = []
    for record in range(0, 24, 3):
        words = [int(word) for word in rng.integers(0, 2**64, 24, dtype=np.uint64)]
        numerator = [int(p * TOTAL) for p in probability[record].tolist()]
        chosen = [a for a in range(24) if words[a] % TOTAL < numerator[a]]
        sets.append({"record": record, "words": [str(word) for word in words], "anchors": chosen})
    return {
        "lat": domain.lat.tolist(),
        "lon": domain.lon.tolist(),
        "selection": {**COINS, "tail": "clip", "candidates": None},
        "epsilon": 2.0,
        "delta": 0.05,
        "probability": probability.tolist(),
        "leakage": [leakage(law, 0, x) for x in range(1, 24)],
        "budgets": scheme.budgets.tolist(),
        "violation": scheme.account.violation,
        "holds": scheme.failure is None,
        "sets": sets,
    }


if __name__ == "__main__":
    main()
