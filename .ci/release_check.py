"""Builds sdist and wheel, looks into them, and tries the wheel in clean environments.

    python .ci/release_check.py [--dist DIR] [--example]

Each of python3.11, python3.12 and python3.13 that runs here (or each of $PYTHONS) gets a fresh
virtual environment with the wheel alone: the README's example and a few commands must work in an
empty folder. Interpreters that are not here are named at the end. Standard library only, but for
`build`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WANTED = ("python3.11", "python3.12", "python3.13")
IN_WHEEL = (
    "panda_mdp/py.typed",
    "panda_mdp/_verify/panda_verify.py",
    "panda_mdp/_verify/panda_verify_mesh.py",
    "panda_mdp/_verify/panda_verify_paths.py",
    "panda_mdp/_verify/panda_verify_terms.py",
    "panda_mdp/_verify/panda_verify_words.py",
    "panda_mdp/_verify/panda_verify_phases.py",
    "panda_mdp/protocol/static/index.html",
    "panda_mdp/protocol/static/operator.html",
    "panda_paper/__init__.py",
    "panda_paper/claims.toml",
    "panda_paper/figures.toml",
    "panda_paper/items.toml",
    "panda_paper/paper.json",
)
IN_SDIST = ("README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "Makefile", "pyproject.toml")
NOT_IN_SDIST = ("docs/results/", "web/node_modules/", ".venv", "out/", "dist/")
NOT_IN_WHEEL = ("tests/", "docs/", "web/", "benchmarks/")


def complaints(names: list[str], needed: tuple[str, ...], unwanted: tuple[str, ...]) -> list[str]:
    """What a list of files lacks, and what should not be there."""
    present = set(names)
    lacking = [f"{name} is missing" for name in needed if name not in present]
    return lacking + [f"{n} should not be there" for n in names if n.startswith(unwanted)]


def packaged(wheel: Path, sdist: Path) -> list[str]:
    """Complaints about both files."""
    with zipfile.ZipFile(wheel) as archive:
        found = complaints(archive.namelist(), IN_WHEEL, NOT_IN_WHEEL)
    with tarfile.open(sdist) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    return [f"{wheel.name}: {c}" for c in found] + [
        f"{sdist.name}: {c}" for c in complaints(names, IN_SDIST, NOT_IN_SDIST)
    ]


def version() -> str:
    """The version that the source says."""
    text = (ROOT / "src/panda_mdp/version.py").read_text(encoding="utf-8")
    (found,) = re.findall(r'^__version__ = "([^"]+)"', text, re.M)
    return found


def example() -> str:
    """The README's only Python block."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (found,) = re.findall(r"^```python\n(.*?)^```", text, re.M | re.S)
    return found


def runs(python: str) -> bool:
    """Whether an interpreter is here and starts (a shim may be there and not start)."""
    if shutil.which(python) is None:
        return False
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def try_wheel(python: str, wheel: Path) -> None:
    """Install the wheel alone in a fresh environment and use it in an empty folder."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        call([python, "-m", "venv", "venv"], place)
        script = place / "venv" / "bin"
        call([script / "python", "-m", "pip", "install", "--quiet", f"{wheel}[plot]"], place)
        call([script / "python", "-W", "error", "-c", example()], place)
        command = script / "panda-mdp"
        said = call([command, "--version"], place)
        if said.strip() != f"panda-mdp {version()}":
            sys.exit(f"{python}: --version says {said.strip()!r}, the source {version()!r}")
        town = "import panda_mdp as pm; pm.synthetic_city(400, seed=1).save('town.npz')"
        call([script / "python", "-c", town], place)
        call([command, "solve", "town.npz", "-o", "town.pmdp", "--records", "60"], place)
        for checked in ("audit", "verify", "explain"):
            call([command, checked, "town.pmdp"], place)
        call([command, "map", "town.pmdp", "-o", "town.png"], place)


def call(command: list[object], folder: Path) -> str:
    """Run a command; a failure ends the check with what it said."""
    # Nothing of this checkout may be seen: neither its source nor its compiled kernels.
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "NUMBA"))}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder, env=clean, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))[:200]} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def main() -> None:
    """Build, look inside, try."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("--dist", type=Path, default=ROOT / "dist")
    options.add_argument("--example", action="store_true", help="print the README's example")
    asked = options.parse_args()
    if asked.example:
        print(example())
        return
    dist = asked.dist.resolve()
    shutil.rmtree(dist, ignore_errors=True)
    call([sys.executable, "-m", "build", "--outdir", dist, ROOT], ROOT)
    (wheel,), (sdist,) = dist.glob("*.whl"), dist.glob("*.tar.gz")
    wrong = packaged(wheel, sdist)
    if wrong:
        sys.exit("\n".join(wrong))
    for path in (sdist, wheel):
        print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB, holds what it should")
    pythons = tuple(os.environ.get("PYTHONS", "").split()) or WANTED
    here = [python for python in pythons if runs(python)]
    for python in here:
        try_wheel(python, wheel)
        print(f"{python}: the README's example and the commands work from the wheel", flush=True)
    missing = sorted(set(pythons) - set(here))
    if missing:
        print(f"NOT tried, not installed here: {', '.join(missing)}")
    if not here:
        sys.exit("no interpreter was tried")


if __name__ == "__main__":
    main()
