"""A server sets the snap limit to 10 m and learns by silence who is near a record.

python benchmarks/attacks/snap_oracle.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from stage import KM, client, rogue

from panda_mdp.errors import PandaError


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    server = rogue(folder)
    honest = server.deployment
    server.deployment = lambda name: honest(name).model_copy(update={"snap_km": 0.01})  # type: ignore[method-assign]
    domain = server.table.domain
    heard = []
    for number, metres in enumerate((0, 5, 20, 100, 300)):
        before = len(server.reports)
        with client(server, folder / str(number)) as user:
            try:
                plan = user.plan("table")
                place = plan.place(float(domain.lat[0]) + metres / 1000 * KM, float(domain.lon[0]))
                user.report(plan, place)
            except PandaError as error:
                print(f"  {metres} m: {type(error).__name__}")
        heard.append((metres, len(server.reports) > before))
    print("reports by metres from the record:", heard)
    told = len({spoke for _, spoke in heard}) > 1
    print("silence tells who is within 10 m:", told)


if __name__ == "__main__":
    main()
