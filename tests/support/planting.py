"""Plant deliberate bugs, one at a time, and see whether the tests that ought to notice do.

    python tests/support/planting.py [--workers N] [--table FILE] [--lists NAMES] [--only WORDS ...]
    python tests/support/planting.py --merge FILE FILE ...

Each `.toml` file of tests/mutants is a list of bugs: a file, a piece of it that occurs once, what
stands there instead, and the tests that must then fail. The tests run in a copy of the tree, first
as it is, where they must pass, then with the bug. A bug is killed where a test fails, does not end
or ends the process; a run that fails in any other way is an error, for it says nothing. Where a
module or a program is missing, the bugs whose tests need it count as not run, by name. Tables of
several machines are merged where they are of the same sources. Exit code 1 where more bugs survived
than the share that is allowed, or where something did not run.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shutil
import signal
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
COPIED = ("src", "tests", "benchmarks", "examples", "verify", "docs", "web", "pyproject.toml")
LEFT_OUT = shutil.ignore_patterns("node_modules", "results", "pictures", "*.png", "*.svg", "*.log")
SECONDS = float(os.environ.get("PANDA_MUTANT_SECONDS", "600"))
"""After which a run of tests counts as one that does not end."""
SURVIVORS = 0.05
"""Share of the bugs that may survive."""
FAILED = 1
"""Exit code of pytest and vitest where tests ran and some failed."""
NOT_RUN = "not run"
MISSING = re.compile(
    r"No module named '?[\w.]+'?|could not determine executable|npx canceled|Cannot find module"
)


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
        missing = f"Cannot find module {command[0]}"
        self.last = subprocess.CompletedProcess(command, 127, missing, "")
        if shutil.which(command[0]) is None:
            return 127
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
            self.last.stdout = f"did not end within {SECONDS} s"
            return None
        return self.last.returncode

    def try_bug(self, bug: Bug) -> str:
        """`killed`, `survived` or what went wrong."""
        if bug.tests not in self.passing:
            code = self.run(bug.tests)
            said = self.last.stdout + self.last.stderr
            lacking = MISSING.search(said)
            if code != 0 and lacking:
                return f"{NOT_RUN}: {lacking[0]}"
            if code != 0:
                return "error without the bug"
            if not re.search(r"\d+ passed", said):
                return f"{NOT_RUN}: its tests are skipped here"
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
        if code in (-signal.SIGSEGV, -signal.SIGABRT):
            return "killed (ends the process)"
        return {0: "survived", FAILED: "killed"}.get(code, f"error {code}")


def sources() -> str:
    """A sum over everything that bugs and tests are made of."""
    state = hashlib.sha256()
    for folder in ("src", "tests", "verify", "web/src", "web/test"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".py", ".ts", ".toml"):
                state.update(f"{path.relative_to(ROOT)} {path.stat().st_size}\n".encode())
                state.update(path.read_bytes())
    return state.hexdigest()


def merged(tables: Sequence[Path]) -> list[tuple[Bug, str]]:
    """The verdicts of several runs, those that ran first; `ValueError` for other sources."""
    verdicts: dict[str, str] = {}
    for path in tables:
        table = json.loads(path.read_text())
        if table["sources"] != sources():
            msg = f"{path} is of other sources than these"
            raise ValueError(msg)
        for name, verdict in table["verdicts"].items():
            if verdicts.get(name, NOT_RUN).startswith(NOT_RUN):
                verdicts[name] = verdict
    return [(bug, verdicts.get(f"{bug.list}: {bug.name}", NOT_RUN)) for bug in bugs()]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Plant bugs and see which tests notice.")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--lists", nargs="*")
    parser.add_argument(
        "--only", nargs="*", default=[""], help="bugs whose name holds one of these"
    )
    parser.add_argument("--table", type=Path, help="where the verdicts go, as JSON")
    parser.add_argument("--merge", nargs="+", type=Path, help="tables of runs, instead of a run")
    options = parser.parse_args(arguments)
    if options.merge:
        return report(merged(options.merge))
    planted = [
        bug for bug in bugs(options.lists) if any(words in bug.name for words in options.only)
    ]
    with tempfile.TemporaryDirectory() as folder:
        free: SimpleQueue[Copy] = SimpleQueue()
        # What is edited meanwhile does not mix with what is tested.
        pristine = Copy(Path(folder) / "pristine", ROOT).root
        table = {"sources": sources(), "verdicts": {}}
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
            table["verdicts"][f"{bug.list}: {bug.name}"] = verdict
            if options.table:
                options.table.write_text(json.dumps(table, indent=1))
            return bug, verdict

        with ThreadPoolExecutor(options.workers) as pool:
            judged = list(pool.map(judge, planted))
    return report(judged)


def report(judged: Sequence[tuple[Bug, str]]) -> int:
    """Print the share that was killed, list by list; the exit code."""
    print()
    for name in [*dict.fromkeys(bug.list for bug, _ in judged), "all"]:
        verdicts = [verdict for bug, verdict in judged if name in (bug.list, "all")]
        idle = sum(verdict.startswith(NOT_RUN) for verdict in verdicts)
        killed = sum(verdict.startswith("killed") for verdict in verdicts)
        ran = len(verdicts) - idle
        share = f"{killed / ran:.1%}" if ran else "none"
        print(f"{name:9s} {killed:3d} of {ran:3d} killed ({share}), {idle:3d} NOT RUN")
    survived = [bug for bug, verdict in judged if verdict == "survived"]
    for bug in survived:
        print(f"survived: {bug.list}: {bug.name} ({bug.file})")
    for bug, verdict in judged:
        if verdict.startswith((NOT_RUN, "error")):
            print(f"{verdict.splitlines()[0].upper()}: {bug.list}: {bug.name}")
    broken = any(verdict.startswith((NOT_RUN, "error")) for _, verdict in judged)
    return int(broken or len(survived) > SURVIVORS * len(judged))


if __name__ == "__main__":
    sys.exit(main())
