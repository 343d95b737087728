"""Says what `make test` needs beside Python, installs what it may, names what is left out.

    python .ci/provide.py             # say, install
    python .ci/provide.py --has node  # exit code 0 where it is here

Nothing is installed outside the checkout but by root through apt-get, and that is said first. What
stays missing fails nothing: its tests are skipped and named at the end, unless
PANDA_MDP_REQUIRE=all (as in CI).
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NODE = (20, 19)


@dataclass(frozen=True)
class Need:
    """A program that some tests call."""

    name: str
    package: str | None
    """Debian's name, where apt-get can bring it."""
    tests: str
    """What is not run without it."""


NEEDS = (
    Need("node", None, f"tests of the pages' sources (Node {NODE[0]}.{NODE[1]} or newer)"),
    Need("postgresql", "postgresql", "tests of the service on PostgreSQL (SQLite is tested)"),
    Need("chromium", "chromium", "tests of the pages in a browser"),
)


@dataclass(frozen=True)
class Plan:
    """What to do about what is missing."""

    installs: tuple[Need, ...]
    left_out: tuple[Need, ...]

    def says(self) -> list[str]:
        """The lines that are printed before anything is done."""
        lines = [
            "make test: Python packages go into the virtual environment, Node's into "
            "web/node_modules; neither needs rights."
        ]
        if self.installs:
            names = " ".join(str(need.package) for need in self.installs)
            lines.append(f"make test: as root, system-wide: apt-get install {names}")
        return lines + [f"NOT RUN without {need.name}: {need.tests}" for need in self.left_out]


def plan(present: Collection[str], *, root: bool, apt: bool) -> Plan:
    """Installs for root where apt-get has a package; whatever else is missing is left out."""
    missing = [need for need in NEEDS if need.name not in present]
    can = [need for need in missing if root and apt and need.package]
    return Plan(tuple(can), tuple(need for need in missing if need not in can))


def new_enough(said: str) -> bool:
    """Whether `node --version` says a version that builds the pages."""
    found = re.match(r"v(\d+)\.(\d+)", said)
    return found is not None and (int(found[1]), int(found[2])) >= NODE


def present() -> set[str]:
    """The needs that are here."""
    here = set()
    node = shutil.which("node")
    if node and shutil.which("npm"):
        said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False)
        here |= {"node"} if new_enough(said.stdout) else set()
    if shutil.which("initdb") or list(Path("/usr/lib/postgresql").glob("*/bin/initdb")):
        here.add("postgresql")
    if any(map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))):
        here.add("chromium")
    return here


def install(needs: tuple[Need, ...]) -> None:
    """Debian's packages, one by one: what fails is left out like anything else that is missing."""
    # The packaged cluster is not wanted: tests make their own.
    settings = Path("/etc/postgresql-common/createcluster.conf")
    if not settings.exists():
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text("create_main_cluster = false\n", encoding="utf-8")
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    subprocess.run(["apt-get", "update", "-qq"], check=False, env=quiet)
    for need in needs:
        command = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", str(need.package)]
        subprocess.run(command, check=False, env=quiet, stdout=subprocess.DEVNULL)


def main() -> int:
    """Say, install, say what is still missing."""
    if sys.argv[1:2] == ["--has"]:
        return 0 if sys.argv[2] in present() else 1
    rights = {"root": os.geteuid() == 0, "apt": shutil.which("apt-get") is not None}
    here = present()
    decided = plan(here, **rights)
    print("\n".join(decided.says()), flush=True)
    if decided.installs:
        install(decided.installs)
        for need in plan(present(), root=False, apt=False).left_out:
            if need in decided.installs:
                print(f"NOT RUN: {need.package} could not be installed: {need.tests}", flush=True)
    lock = ROOT / "web" / "package-lock.json"
    done = ROOT / "web" / "node_modules" / ".package-lock.json"
    if "node" in here and (not done.exists() or done.stat().st_mtime < lock.stat().st_mtime):
        command = ["npm", "--prefix", "web", "ci", "--no-audit", "--no-fund"]
        subprocess.run(command, check=True, cwd=ROOT)
    return 0


if __name__ == "__main__":
    sys.exit(main())
