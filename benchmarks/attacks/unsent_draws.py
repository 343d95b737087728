"""A server that drops reports and asks again: does it get a second draw, and what lies on the disk?

Somebody who sees a draw and may then not send it, or gets another one, releases more than epsilon
accounts for. One call draws, charges and sends; what got lost is sent again as it was.

python benchmarks/attacks/unsent_draws.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from stage import client, rogue

from panda_mdp.errors import ConnectionLostError

LOST = 30


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    server = rogue(folder)
    with client(server, folder / "user") as user:
        plan = user.plan("table")
        record = plan.record(3)
        dropped = 0
        for _ in range(3):
            server.faults = [_drop] * LOST
            try:
                user.report(plan, record)
            except ConnectionLostError:
                dropped += 1
        server.faults = []
        answer = user.report(plan, record)
        sent = {s.body for s in server.sent if s.url.endswith("/reports")}
        outputs = {json.loads(body)["output"] for body in sent}
        print(f"calls whose reports were dropped: {dropped}; different reports sent: {len(sent)}")
        print(f"different outputs: {len(outputs)}; charged {user.ledger.balances()[0].spent}")
        drawn = json.dumps({"output": answer.output})[1:-1].encode()
        held = b"".join(p.read_bytes() for p in (folder / "user").rglob("*") if p.is_file())
        print(f"the output in clear in the ledger's files: {drawn in held}")


def _drop(request: object) -> None:
    import httpx

    raise httpx.ConnectError("dropped")


if __name__ == "__main__":
    main()
