"""A page of another origin that is refused: whether it can read why.

An answer without CORS headers is hidden from the page that asked, so a refusal looks like a server
that is gone, and the page tries again.

python benchmarks/attacks/other_origins.py
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from stage import Running

ORIGIN = "https://city.example"


def main() -> None:
    folder = Path(tempfile.mkdtemp(prefix="panda-mdp-attack-"))
    options = ("--cors", ORIGIN, "--token-rate", "1")
    running = Running(str(folder / "panda.db"), folder, *options).start()
    try:
        client = running.client()
        admin = running.admin
        for words, ask in (
            ("what is there", lambda o: client.get("/v1", headers=o)),
            ("what is not there", lambda o: client.get("/v1/nowhere", headers=o)),
            ("without a token", lambda o: client.get("/v1/tokens", headers=o)),
            ("a method that is none", lambda o: client.put("/v1", headers=o)),
            ("a long body", lambda o: admin.post("/v1/tokens", content=b"x" * 99_999, headers=o)),
            ("too often", lambda o: [admin.get("/v1/tokens", headers=o) for _ in range(9)][-1]),
        ):
            own, other = ask({"origin": ORIGIN}), ask({"origin": "https://other.example"})
            name = "access-control-allow-origin"
            seen = [answer.headers.get(name, "none") for answer in (own, other)]
            print(f"{words}: {own.status_code}, allowed {seen[0]}; another origin: {seen[1]}")
    finally:
        running.stop()


if __name__ == "__main__":
    main()
