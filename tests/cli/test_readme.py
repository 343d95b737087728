"""What the README shows works as it is shown."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def test_the_two_commands_are_at_the_top() -> None:
    top = README.splitlines()[:5]
    targets = re.findall(r"^    make (\w+)", "\n".join(top), re.M)
    assert targets == ["demo", "test"]
    makefile = (ROOT / "Makefile").read_text()
    assert all(re.search(rf"^{target}:", makefile, re.M) for target in targets)


def test_the_example_runs(tmp_path: Path) -> None:
    (example,) = re.findall(r"^```python\n(.*?)^```", README, re.M | re.S)
    assert len(example.splitlines()) <= 25
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", example],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "no mechanism is below" in done.stdout
    assert "Audit(holds" in done.stdout


def test_files_that_it_names_exist() -> None:
    for name in re.findall(r"\]\(([\w./-]+)\)", README):
        assert (ROOT / name).exists(), name
    for name in re.findall(r"python (benchmarks/\w+\.py)", README):
        assert (ROOT / name).exists(), name
