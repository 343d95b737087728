"""A server describes a deployment otherwise than its operator signed it.

python benchmarks/attacks/unsigned_advice.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from stage import client, give, rogue

from panda_mdp.errors import PandaError

CHANGES: tuple[dict[str, Any], ...] = (
    {"period_s": 1},
    {"reports_per_period": 1_000_000},
    {"version": 77},
)


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    for number, changes in enumerate(CHANGES):
        server = rogue(folder)
        described = server.signed(server.deployment("table")).model_copy(update=changes)
        server.faults = [lambda _: None, lambda _, told=described: give(told)]
        with client(server, folder / str(number)) as user:
            try:
                user.plan("table")
                print(f"believed: {changes}")
            except PandaError as error:
                print(f"refused ({type(error).__name__}): {changes}")


if __name__ == "__main__":
    main()
