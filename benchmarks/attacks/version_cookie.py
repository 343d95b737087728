"""A server shows every user another version, and looks for it in the reports.

python benchmarks/attacks/version_cookie.py
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from stage import client, rogue


def main() -> None:
    folder = Path(tempfile.mkdtemp())
    fields = set()
    for version in (1, 77, 1_234_567):
        server = rogue(folder)
        server.version = version
        with client(server, folder / str(version)) as user:
            plan = user.plan("table")
            user.report(plan, plan.record(3))
        (sent,) = (request for request in server.sent if request.url.endswith("/reports"))
        body = json.loads(sent.body)
        fields |= set(body)
        marked = body.get("version") == version or f"/{version}/" in sent.url
        print(f"version {version}: the report {'carries it back' if marked else 'does not say it'}")
    print("fields of a report:", sorted(fields))


if __name__ == "__main__":
    main()
