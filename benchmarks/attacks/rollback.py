"""A server shows a state of the past, and a user's ledger is put back to one.

python benchmarks/attacks/rollback.py
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from stage import client, rogue

from panda_mdp.errors import PandaError


def attempt(what: str, action: Callable[[], object]) -> None:
    try:
        action()
        print(f"{what}: not noticed")
    except PandaError as error:
        print(f"{what}: noticed ({type(error).__name__})")


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    server = rogue(folder)
    with client(server, folder / "user") as user:
        plan = user.plan("table")
        user.report(plan, plan.record(1))
        book = folder / "user" / "ledger.sealed"
        copy = book.read_bytes()
        user.report(plan, plan.record(2))
        server.version = 2
        user.plan("table", accept_update=True)
        server.version = 1
        attempt("an older version", lambda: user.plan("table", accept_update=True))
        server.version = 2
        book.write_bytes(copy)
        attempt("an older ledger", lambda: user.report(plan, plan.record(3)))


if __name__ == "__main__":
    main()
