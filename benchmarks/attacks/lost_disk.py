"""A disk dies after a backup: the database is moved aside, its log stays, the backup is restored.

python benchmarks/attacks/lost_disk.py
"""

from __future__ import annotations

import subprocess
import sys

from stage import deployed, judge, new_id

COMMAND = (sys.executable, "-c", "from panda_mdp.cli import main; main()")


def main() -> None:
    running = deployed(reports_per_period=1_000)
    database, folder = running.database, running.folder
    key = str(folder / "operator.key")

    def call(*words: str) -> int:
        said = subprocess.run([*COMMAND, *words], capture_output=True, text=True, check=False)
        print(f"  {words[0]}: code {said.returncode} {said.stderr.strip()[:150]}")
        return said.returncode

    (reporter,) = running.reporters(1)

    def send() -> int:
        body = {"id": new_id(), "output": 5}
        return reporter.post("/v1/deployments/main/reports", json=body).status_code

    send()
    where = ("--database", database, "--key", key)
    missing = call("backup", str(folder / "none"), "--database", f"{database}x", "--key", key)
    call("backup", str(folder / "copy"), *where)
    for _ in range(300):
        send()
    running.kill()
    (folder / "panda.db").rename(folder / "lost.db")
    beside = call("restore", str(folder / "copy"), *where)
    for end in ("-wal", "-shm"):
        (folder / f"panda.db{end}").unlink(missing_ok=True)
    call("restore", str(folder / "copy"), *where)
    well = call("doctor", *where)
    judge(
        {
            "a mistyped path is refused": missing != 0,
            "a restore beside the log of the lost one is refused": beside != 0,
            "what was restored is whole": well == 0,
        }
    )


if __name__ == "__main__":
    main()
