"""An operator shows two users two logs; a restored backup; a table for one user alone.

python benchmarks/attacks/two_logs.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from rollback import attempt
from stage import Standin, client, give, rogue


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    first = rogue(folder)
    second = Standin(first.path, first.table, first.key)
    second.publish(b"for the second user alone")
    with client(first, folder / "one") as one, client(second, folder / "two") as two:
        one.plan("table")
        two.plan("table")
        first.publish(b"later")
        line = second.log().head.model_dump_json()
        attempt("two users are shown two logs, and compare heads", lambda: one.compare_heads(line))
        kept = list(first.entries)
        first.version = 2
        one.plan("table", accept_update=True)
        first.version, first.entries = 1, kept
        attempt("an old backup was restored", lambda: one.plan("table", accept_update=True))
    with client(second, folder / "three") as three:
        hidden = second.signed(second.deployment("table"))
        second.entries.clear()
        second.publish(b"what everybody else sees")
        second.faults = [lambda _: None, lambda _: give(hidden)]
        attempt("a table that only this user is shown", lambda: three.plan("table"))


if __name__ == "__main__":
    main()
