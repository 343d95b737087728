"""One token sends 2,500 reports of one output, to move everybody's estimate.

python benchmarks/attacks/many_reports.py
"""

from __future__ import annotations

from collections import Counter

import numpy as np
from stage import deployed, new_id

USERS, ATTEMPTS, OUTPUT = 40, 2_500, 35


def main() -> None:
    running = deployed(reports_per_period=2)
    try:
        rng = np.random.default_rng(0)
        url = "/v1/deployments/main/reports"
        for user in running.reporters(USERS):
            user.post(url, json={"id": new_id(), "output": int(rng.choice([0, 5, 10]))})
        (attacker,) = running.reporters(1)
        statuses = Counter(
            attacker.post(url, json={"id": new_id(), "output": OUTPUT}).status_code
            for _ in range(ATTEMPTS)
        )
        counts = running.admin.get("/v1/deployments/main/counts").json()
        seen = dict(zip(counts["outputs"], counts["counts"], strict=True))
        share = seen[OUTPUT] / counts["reports"]
        print(f"answers to the attacker: {dict(statuses)}")
        print(f"the attacker's share of all reports: {share:.2f} ({USERS} honest users)")
    finally:
        running.stop()


if __name__ == "__main__":
    main()
