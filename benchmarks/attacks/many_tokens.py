"""Lists that grow with the crowd: what one answer about 20,000 tokens costs.

python benchmarks/attacks/many_tokens.py
"""

from __future__ import annotations

import time

from stage import deployed


def main() -> None:
    running = deployed()
    try:
        admin = running.admin
        for _ in range(20):
            admin.post("/v1/tokens", json={"role": "reporter", "count": 1_000}).raise_for_status()
        began = time.perf_counter()
        answer = admin.get("/v1/tokens")
        took = time.perf_counter() - began
        page = answer.json()["tokens"]
        print(f"one answer: {len(page):,} tokens, {len(answer.content):,} bytes, {took:.2f} s")
        pages, after = 0, ""
        while page := admin.get("/v1/tokens", params={"after": after}).json()["tokens"]:
            pages, after = pages + 1, page[-1]["id"]
        print(f"all of them: {pages} answers")
        status = admin.get("/v1/tokens", params={"limit": 10**6}).status_code
        print(f"a page of a million is refused: {status}")
    finally:
        running.stop()


if __name__ == "__main__":
    main()
