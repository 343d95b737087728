"""A field, a token or a content type given twice: what one part reads and another does not.

python benchmarks/attacks/doubled_keys.py
"""

from __future__ import annotations

from stage import deployed, new_id

PATH = "/v1/deployments/main/reports"


def main() -> None:
    running = deployed(reports_per_period=100)
    try:
        first, second = running.reporters(2)
        one, two = first.headers["authorization"], second.headers["authorization"]
        body = b'{"id": "%s", "output": 5}'
        twice = b'{"id": "%s", "output": 5, "output": 10}'
        kind = ("content-type", "application/json")
        for words, content, headers in (
            ("an output twice", twice, [("authorization", one), kind]),
            ("two tokens", body, [("authorization", one), ("authorization", two), kind]),
            ("two content types", body, [("authorization", one), kind, kind]),
            ("the scheme in capitals", body, [("authorization", one.upper()[:6] + one[6:]), kind]),
        ):
            client = running.client()
            made = content % new_id().encode()
            print(f"{words}: {client.post(PATH, content=made, headers=headers).status_code}")
        counted = running.admin.get("/v1/deployments/main/counts").json()["reports"]
        print(f"reports counted: {counted} (the last one alone)")
    finally:
        running.stop()


if __name__ == "__main__":
    main()
