"""One address takes all places of an invitation, and its tokens outvote everybody; then they go.

python benchmarks/attacks/poisoned_batch.py
"""

from __future__ import annotations

import time

from stage import deployed, judge, new_id

from panda_mdp.protocol.server.auth import invite
from panda_mdp.protocol.server.store.database import Store

REPORTS = "/v1/deployments/main/reports"
PLACES = 300


def main() -> None:
    running = deployed()
    try:
        for reporter in running.reporters(20):
            reporter.post(REPORTS, json={"id": new_id(), "output": 5}).raise_for_status()
        with Store.open(running.database) as store, store.write() as session:
            code = invite(session, PLACES)
        began, taken = time.perf_counter(), []
        somebody = running.client()
        for _ in range(PLACES):
            answer = somebody.post("/v1/enrol", json={"code": code})
            if answer.status_code == 201:
                taken.append(answer.json()["token"])
        took = time.perf_counter() - began
        print(f"one address enrolled {len(taken)} of {PLACES} places in {took:.0f} s")
        accepted = 0
        for token in taken:
            attacker = running.client(token)
            for _ in range(2):
                sent = attacker.post(REPORTS, json={"id": new_id(), "output": 10})
                accepted += sent.status_code == 201
        print(f"reports of each fresh token, with a quota of 1: {accepted / len(taken):g}")

        def share() -> float:
            found = running.admin.get("/v1/deployments/main/counts").json()
            return found["counts"][found["outputs"].index(5)] / found["reports"]

        polluted = share()
        body = {"action": "exclude", "batch": code.split("_")[1]}
        done = running.admin.post("/v1/removals", json=body)
        removed = done.status_code == 200
        print(f"share of the honest: {polluted:.2f}; without the batch:", end=" ")
        print(f"{share():.2f}" if removed else "it cannot be removed")
        promises = {
            "one address does not take all places in a moment": len(taken) < PLACES // 10,
            "a fresh token has no quota from before it": accepted == len(taken),
            "a batch can be removed": removed and share() == 1,
        }
    finally:
        running.stop()
    judge(promises)


if __name__ == "__main__":
    main()
