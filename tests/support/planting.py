"""Plant deliberate bugs, one at a time, and see whether the tests that ought to notice do.

    python tests/support/planting.py [--workers N] [--lists privacy web] [--only WORDS]

Each `.toml` file of tests/mutants is a list of bugs: a file, a piece of it that occurs once, what
stands there instead, and the tests that must then fail. The tests run in a copy of the tree, first
as it is, where they must pass, then with the bug. A bug is killed where a test fails or does not
end; a run that fails in any other way is an error, for it says nothing. Exit code 1 where more bugs
survived than the share that is allowed, or where something did not run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue

ROOT = Path(__file__).resolve().parent.parent.parent
LISTS = ROOT / "tests" / "mutants"
COPIED = ("src", "tests", "verify", "docs", "web", "pyproject.toml")
LEFT_OUT = shutil.ignore_patterns("node_modules", "results", "pictures", "*.png", "*.svg", "*.log")
SECONDS = float(os.environ.get("PANDA_MUTANT_SECONDS", "600"))
"""After which a run of tests counts as one that does not end."""
SURVIVORS = 0.05
"""Share of the bugs that may survive."""
FAILED = 1
"""Exit code of pytest and vitest where tests ran and some failed."""


@dataclass(frozen=True)
class Bug:
    """One deliberate bug."""

    list: str
    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    within: str = ""
    """Text before which `old` is not looked for, where it occurs more than once."""

    def planted(self, text: str) -> str:
        """The file's text with the bug; `ValueError` unless its place is there exactly once."""
        if text.count(self.within) != 1 and self.within:
            msg = f"{self.list}: {self.name}: `within` is not once in {self.file}"
            raise ValueError(msg)
        at = text.index(self.within) if self.within else 0
        count = text.count(self.old, at)
        if (count != 1 and not self.within) or count < 1 or self.old == self.new:
            msg = f"{self.list}: {self.name}: {count} places in {self.file}"
            raise ValueError(msg)
        place = text.index(self.old, at)
        return text[:place] + self.new + text[place + len(self.old) :]


def bugs(lists: Iterable[str] | None = None) -> list[Bug]:
    """All bugs of the lists (all by default)."""
    chosen = sorted(LISTS.glob("*.toml"))
    if lists is not None:
        chosen = [LISTS / f"{name}.toml" for name in lists]
    return [
        Bug(path.stem, **{**entry, "tests": tuple(entry["tests"])})
        for path in chosen
        for entry in tomllib.loads(path.read_text())["bug"]
    ]


class Copy:
    """A copy of the tree in which tests run."""

    def __init__(self, folder: Path, source: Path) -> None:
        self.root, self.source = folder, source
        self.passing: set[tuple[str, ...]] = set()
        folder.mkdir()
        for name in COPIED:
            if (source / name).is_dir():
                shutil.copytree(source / name, folder / name, ignore=LEFT_OUT)
            else:
                shutil.copy2(source / name, folder / name)
        modules = ROOT / "web" / "node_modules"
        if modules.exists():
            (folder / "web" / "node_modules").symlink_to(modules)

    def run(self, tests: Sequence[str]) -> int | None:
        """The exit code of these tests, of one kind; None where they do not end."""
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(
                [str(self.root / "src"), os.environ.get("PYTHONPATH", "")]
            ),
            "PYTHONDONTWRITEBYTECODE": "1",
            "OMP_NUM_THREADS": "1",
            "NUMBA_NUM_THREADS": os.environ.get("NUMBA_NUM_THREADS", "1"),
            "PANDA_MDP_DATA": os.environ.get(
                "PANDA_MDP_DATA", str(ROOT.parent / "shared" / "data")
            ),
        }
        if tests[0].startswith("web/"):
            names = [name.removeprefix("web/") for name in tests]
            command = ["npx", "--no-install", "vitest", "run", "--bail=1", *names]
            folder = self.root / "web"
        else:
            options = ["-q", "-x", "-p", "no:cacheprovider", "-n", "0"]
            command = [sys.executable, "-m", "pytest", *options, *tests]
            folder = self.root
        try:
            self.last = subprocess.run(
                command,
                cwd=folder,
                env=environment,
                timeout=SECONDS,
                check=False,
                capture_output=True,
                text=True,
            )
        except subprocess.TimeoutExpired:
            return None
        return self.last.returncode

    def try_bug(self, bug: Bug) -> str:
        """`killed`, `survived` or what went wrong."""
        if bug.tests not in self.passing:
            if self.run(bug.tests) != 0:
                return "error without the bug"
            self.passing.add(bug.tests)
        target = self.root / bug.file
        source = self.source / bug.file
        target.write_text(bug.planted(source.read_text()))
        try:
            code = self.run(bug.tests)
        finally:
            # The whole folder: compiled code lies beside its source.
            shutil.rmtree(target.parent)
            shutil.copytree(source.parent, target.parent, ignore=LEFT_OUT)
        if code is None:
            return "killed (does not end)"
        return {0: "survived", FAILED: "killed"}.get(code, f"error {code}")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Plant bugs and see which tests notice.")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--lists", nargs="*")
    parser.add_argument("--only", help="bugs whose name holds these words")
    options = parser.parse_args(arguments)
    planted = [bug for bug in bugs(options.lists) if (options.only or "") in bug.name]
    with tempfile.TemporaryDirectory() as folder:
        free: SimpleQueue[Copy] = SimpleQueue()
        # What is edited meanwhile does not mix with what is tested.
        pristine = Copy(Path(folder) / "pristine", ROOT).root
        copies = [Copy(Path(folder) / str(k), pristine) for k in range(options.workers)]
        for copy in copies:
            free.put(copy)

        def judge(bug: Bug) -> tuple[Bug, str]:
            copy, start = free.get(), time.perf_counter()
            try:
                verdict = copy.try_bug(bug)
                if verdict.startswith("error"):
                    verdict += f"\n{copy.last.stdout[-1500:]}{copy.last.stderr[-500:]}"
            finally:
                free.put(copy)
            spent = time.perf_counter() - start
            print(f"{bug.list:9s} {bug.name:68s} {spent:5.1f} s  {verdict}", flush=True)
            return bug, verdict

        with ThreadPoolExecutor(options.workers) as pool:
            judged = list(pool.map(judge, planted))
    return report(judged)


def report(judged: Sequence[tuple[Bug, str]]) -> int:
    """Print the share that was killed, list by list; the exit code."""
    print()
    for name in [*dict.fromkeys(bug.list for bug, _ in judged), "all"]:
        verdicts = [verdict for bug, verdict in judged if name in (bug.list, "all")]
        killed = sum(verdict.startswith("killed") for verdict in verdicts)
        print(f"{name:9s} {killed:3d} of {len(verdicts):3d} killed ({killed / len(verdicts):.1%})")
    survived = [bug for bug, verdict in judged if verdict == "survived"]
    for bug in survived:
        print(f"survived: {bug.list}: {bug.name} ({bug.file})")
    broken = any(verdict.startswith("error") for _, verdict in judged)
    return int(broken or len(survived) > SURVIVORS * len(judged))


if __name__ == "__main__":
    sys.exit(main())
