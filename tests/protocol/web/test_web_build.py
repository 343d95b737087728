"""The pages that are shipped are the ones that the sources in web/ build to."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest
from outside import left_out

ROOT = Path(__file__).parents[3]
WEB = ROOT / "web"
STATIC = ROOT / "src" / "panda_mdp" / "protocol" / "static"


@pytest.fixture(scope="module")
def npm() -> str:
    found = shutil.which("npm")
    if found is None:
        left_out("Node", "install Node 20.19 or newer: the pages are built and tested with it")
    if not (WEB / "node_modules" / ".package-lock.json").exists():
        subprocess.run([found, "ci"], cwd=WEB, check=True, capture_output=True, timeout=300)
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_rebuilding_gives_the_same_files(npm: str, tmp_path: Path) -> None:
    out = tmp_path / "static"
    command = [npm, "run", "--silent", "build", "--", "--outDir", str(out), "--emptyOutDir"]
    subprocess.run(command, cwd=WEB, check=True, capture_output=True, timeout=300)
    built, shipped = contents(out), contents(STATIC)
    assert sorted(built) == sorted(shipped), "run `npm run build` in web/ and commit the result"
    changed = [name for name in built if built[name] != shipped[name]]
    assert changed == [], "run `npm run build` in web/ and commit the result"


def test_the_sources_have_their_types(npm: str) -> None:
    done = subprocess.run(
        [npm, "run", "--silent", "check"],
        cwd=WEB,
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout


def test_the_service_worker_keeps_exactly_the_client_page() -> None:
    text = (STATIC / "sw.js").read_text()
    start = text.index("[`") if "[`" in text else text.index('["')
    kept = set(json.loads(text[start : text.index("]", start) + 1].replace("`", '"')))
    wanted = {name for name in contents(STATIC) if name != "sw.js" and "operator" not in name}
    assert kept == (wanted - {"index.html"}) | {"./"}


def test_the_lock_file_names_no_registry() -> None:
    assert '"resolved"' not in (WEB / "package-lock.json").read_text()


@pytest.mark.parametrize("page", ["index.html", "operator.html"])
def test_pages_ask_for_nothing_elsewhere(page: str) -> None:
    text = (STATIC / page).read_text()
    assert "http:" not in text.replace("http://www.w3.org/", "")
    assert "https:" not in text
    assert "//" not in text.replace("http://www.w3.org/", "")
