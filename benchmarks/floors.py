"""The picture of docs/architecture.md: floors, what lies on them, and who imports whom.

python benchmarks/floors.py --docs      draws it
python benchmarks/floors.py --counts    prints modules, lines, cycles and the like
python benchmarks/floors.py --walks     counts the files that the README's example and a report run
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from inspect import CO_OPTIMIZED
from pathlib import Path
from statistics import median
from types import CodeType, FrameType
from typing import Any

from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from test_architecture import (  # noqa: E402
    FLOORS,
    cycles,
    floor,
    graph,
    modules,
    repeated_stems,
    single_importers,
    trees,
    upward,
)

WORDS = {
    0: "errors, version",
    1: "base: owned arrays, atomic files, processes",
    2: "space: metrics, tiles, domains",
    3: "compute: loops over pairs; numba, JAX, NumPy",
    4: "privacy: audit, repair, quantise, sample",
    5: "problem, outputs, loss, prior",
    6: "table: mechanisms, and their bytes",
    7: "city: road maps in and out, traces, travel",
    8: "methods: closed forms, LPs, optimal",
    9: "panda: the paper's two phases, accounted for",
    10: "meaning: what an attacker gains, in words",
    11: "survey: every method side by side",
    12: "plot: pictures",
    13: "frames: tables of data in and out",
    14: "protocol: messages, client, ledger, server",
    15: "panda_paper: the paper's tables and figures",
    16: "cli: the command panda-mdp",
    17: "panda_mdp: the public names",
}


def draw() -> Figure:
    """One box a floor; to its right how often each lower floor is imported."""
    count = Counter(floor(name) for name in modules())
    lines = Counter()
    for name, path in modules().items():
        lines[floor(name)] += len(path.read_text(encoding="utf-8").splitlines())
    arrows = Counter((floor(a), floor(b)) for a, others in graph().items() for b in others)
    figure = Figure(figsize=(10.5, 8.2), dpi=110, layout="constrained")
    axes = figure.add_subplot()
    top = len(FLOORS)
    for k in range(top):
        box = FancyBboxPatch(
            (0, k + 0.1), 6.6, 0.8, boxstyle="round,pad=0.02", fc="#eef3f7", ec="#5d6570"
        )
        axes.add_patch(box)
        axes.text(0.12, k + 0.5, WORDS[k], va="center", fontsize=9)
        size = f"{count[k]} modules, {lines[k]:,} lines"
        axes.text(6.5, k + 0.5, size, va="center", ha="right", fontsize=8, color="#5d6570")
        for j in range(k):
            if arrows[k, j]:
                shade = min(1.0, 0.25 + arrows[k, j] / 40)
                axes.add_patch(
                    FancyBboxPatch(
                        (6.9 + 0.42 * j, k + 0.2),
                        0.36,
                        0.6,
                        boxstyle="round,pad=0.01",
                        fc="#2a6f97",
                        ec="none",
                        alpha=shade,
                    )
                )
                axes.text(
                    7.08 + 0.42 * j,
                    k + 0.5,
                    str(arrows[k, j]),
                    va="center",
                    ha="center",
                    fontsize=7,
                    color="white" if shade > 0.4 else "black",
                )
    for j in range(top - 1):
        name = WORDS[j].split(":")[0].split(",")[0]
        axes.text(7.08 + 0.42 * j, -0.15, name, rotation=60, ha="right", va="top", fontsize=8)
    axes.text(6.9, top + 0.25, "imports of a lower floor (none of a higher one)", fontsize=9)
    axes.set(xlim=(-0.1, 7.1 + 0.42 * top), ylim=(-1.7, top + 0.7))
    axes.axis("off")
    return figure


def counts() -> str:
    """The house in numbers."""
    paths = modules().values()
    sizes = [len(path.read_text(encoding="utf-8").splitlines()) for path in paths]
    longest, middle = max(sizes), median(sizes)
    bodies = [size for size, path in zip(sizes, paths, strict=True) if path.stem != "__init__"]
    small = sum(size < 40 for size in bodies)
    wrong = f"{len(cycles(graph()))} cycles, {len(upward(graph()))} imports upwards"
    return "\n".join(
        (
            f"{len(sizes):,} modules, {sum(sizes):,} lines; longest {longest}, median {middle:g}",
            f"{wrong}, lazy ones counted",
            f"{sum(1 for tree in trees().values() for _ in ast.walk(tree)):,} syntax nodes, "
            f"{questions()} isinstance on our own classes, {wide()} functions above 8 parameters",
            f"{len(repeated_stems())} repeated stems",
            f"{len(single_importers())} modules with one importer, {small} of under 40 lines",
        )
    )


def questions() -> int:
    """Calls of isinstance that ask for a class of the project."""
    nodes = [node for tree in trees().values() for node in ast.walk(tree)]
    own = {node.name for node in nodes if isinstance(node, ast.ClassDef)}
    asked = [
        {part.id for part in ast.walk(node.args[1]) if isinstance(part, ast.Name)}
        for node in nodes
        if isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "isinstance"
        and len(node.args) == 2
    ]
    return sum(bool(names & own) for names in asked)


def wide() -> int:
    """Functions with more than 8 parameters, self and cls left aside."""
    count = 0
    for node in (node for tree in trees().values() for node in ast.walk(tree)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            taken = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            count += sum(argument.arg not in ("self", "cls") for argument in taken) > 8
    return count


@contextlib.contextmanager
def walked() -> Iterator[set[str]]:
    """The files of `src` of which a function runs within; what importing runs is no function."""
    root, files = str(ROOT / "src"), set[str]()

    def ours(code: CodeType) -> bool:
        return code.co_filename.startswith(root)

    def imported(frame: FrameType | None) -> bool:
        """Whether a module's own code calls, by whatever is between."""
        if frame is None:
            return False
        body = not frame.f_code.co_flags & CO_OPTIMIZED and ours(frame.f_code)
        return body or imported(frame.f_back)

    def seen(frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        name = code.co_filename.removeprefix(root)[1:]
        function = event == "call" and code.co_flags & CO_OPTIMIZED and ours(code)
        if function and name not in files and not imported(frame):
            files.add(name)

    threading.setprofile(seen)
    sys.setprofile(seen)
    try:
        yield files
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]


def walks() -> str:
    """How many files of `src` the README's example and a report of a client go through."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    example = re.findall("```python\n(.*?)```", readme, re.S)[0]
    lines = []
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        with walked() as files:
            exec(compile(example, "README.md", "exec"), {})  # noqa: S102
        lines.append(f"README's example: {told(files)}")
        for name, files in report(Path(folder)).items():
            lines.append(f"{name}: {told(files)}")
    return "\n".join(lines)


def report(folder: Path) -> dict[str, set[str]]:
    """The files of a client that fetches, audits and reports to a server on this machine."""
    from panda_mdp.cli.client import Account
    from panda_mdp.cli.publish import Survey, publish
    from panda_mdp.cli.serve import Service
    from panda_mdp.protocol import Allowance, Client
    from panda_mdp.protocol.messages.signing import SigningKey
    from panda_mdp.protocol.server.auth import TokenBook
    from panda_mdp.protocol.server.store.database import Store

    database = str(folder / "panda.db")
    with Store.create(database) as store:
        SigningKey.create(Service(database).key_path(store))
        admin, person = (TokenBook(store).make(role)[0].token for role in ("admin", "reporter"))
    (folder / "token").write_text(admin)
    command = [sys.executable, "-c", "from panda_mdp.cli import main; main()", "serve"]
    server = subprocess.Popen(
        [*command, "--port", "0", "--log-level", "warning"],
        env={**os.environ, "PANDA_MDP_DATABASE": database},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        url = server.stdout.readline().split()[-1] if server.stdout else ""
        publish.__wrapped__(
            Account(url, token_file=folder / "token"), folder / "city.pmdp", Survey("city")
        )
        limits = Allowance(epsilon=5.0, period_epsilon=10.0)
        with Client(url, person, folder / "person", limits) as client:
            with walked() as fetched:
                plan = client.plan("city")
            with walked() as reported:
                client.report(plan, plan.record(17))
    finally:
        server.terminate()
        server.wait()
    return {"fetching and auditing a deployment": fetched, "one report, of the client": reported}


def told(files: set[str]) -> str:
    """A count of files, and how many of each room."""
    rooms = Counter("/".join(Path(name).parts[1:-1]) or "top" for name in files)
    parts = ", ".join(f"{room} {count}" for room, count in rooms.most_common())
    return f"{len(files)} files ({parts})"


def main() -> None:
    """Write the picture where the documentation shows it, or beside this script's results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--docs", action="store_true", help="write docs/images/architecture.png")
    parser.add_argument("--counts", action="store_true", help="print the counts, draw nothing")
    parser.add_argument("--walks", action="store_true", help="run two walks, draw nothing")
    asked = parser.parse_args()
    if asked.counts or asked.walks:
        print(walks() if asked.walks else counts())
        return
    folder = ROOT / "docs/images" if asked.docs else ROOT / "benchmarks/results"
    folder.mkdir(parents=True, exist_ok=True)
    draw().savefig(folder / "architecture.png")
    print(f"wrote {folder / 'architecture.png'}")


if __name__ == "__main__":
    main()
