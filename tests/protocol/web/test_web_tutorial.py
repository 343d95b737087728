"""The app's tutorial without a server: its Python saves a file, its JavaScript draws from it.

The page's own blocks are what runs: in Node with the package as it is installed, and in Chromium
from plain files.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from outside import left_out
from protocol_browser import open_browser

import panda_mdp as pm

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "tutorials" / "app.md").read_text()
DRAWS = 60


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


@pytest.fixture(scope="module")
def app(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder as the reader has it: the table, the package, device.js."""
    npm = shutil.which("npm")
    if npm is None:
        left_out("Node", "install Node 20.19 or newer: the tutorial is run with it")
    folder = tmp_path_factory.mktemp("app")

    def run(*command: str | Path, where: Path = folder) -> None:
        subprocess.run(command, cwd=where, check=True, capture_output=True, timeout=300)

    run(sys.executable, "-c", "".join(blocks("python")))
    web = ROOT / "web"
    if not (web / "node_modules" / ".package-lock.json").exists():
        run(npm, "ci", where=web)
    run("node", web / "package" / "build.mjs", folder, where=web)
    (commands,) = blocks("sh")
    for line in commands.splitlines():
        assert line.startswith("npm ")
        run(npm, *line.split()[1:], "--offline", "--no-audit", "--no-fund")
    device, main = blocks("js")
    (folder / "device.js").write_text(device)
    (folder / "main.js").write_text(main)
    (page,) = blocks("html")
    (folder / "index.html").write_text(page)
    return folder


@pytest.fixture(scope="module")
def table(app: Path) -> pm.Mechanism:
    return pm.load(app / "town.pmdp")


def check(drawn: list[dict[str, float]], table: pm.Mechanism) -> None:
    """Places of outputs alone, as often as the library's row says: chi-squared of 60 draws."""
    domain, outputs = table.problem.domain, table.problem.outputs
    place = {(domain.lat[k], domain.lon[k]): y for y, k in enumerate(outputs.tolist())}
    seen = np.bincount(
        [place[answer["latitude"], answer["longitude"]] for answer in drawn],
        minlength=len(outputs),
    )
    expected = len(drawn) * table.row(17)
    likely = expected > 3
    assert seen[table.row(17) == 0].sum() == 0
    assert (np.square(seen - expected)[likely] / expected[likely]).sum() < 5 * likely.sum() + 20


SCRIPT = """
const there = {lat: LAT + 0.0005, lon: LON};
const drawn = [];
for (let k = 0; k < DRAWS; k++) drawn.push(await report(table, there.lat, there.lon, 0.1));
const far = await report(table, there.lat + 3, there.lon, 0.1);
const wrong = bytes.slice(0);
new Uint8Array(wrong)[wrong.byteLength >> 1] ^= 1;
const refused = await openTable(wrong).then(() => false, () => true);
const answer = {drawn, far, refused};
"""


def script(table: pm.Mechanism) -> str:
    domain = table.problem.domain
    given = {"LAT": domain.lat[17], "LON": domain.lon[17], "DRAWS": DRAWS}
    text = SCRIPT
    for name, value in given.items():
        text = text.replace(name, repr(value if name == "DRAWS" else float(value)))
    return text


def test_what_the_reader_copies_runs_as_it_stands(app: Path, table: pm.Mechanism) -> None:
    """`npm init` alone makes a package whose `.js` files cannot be imported."""
    done = subprocess.run(
        ["node", "main.js"], cwd=app, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    domain = table.problem.domain
    lat, lon = map(float, re.findall(r"-?\d+\.\d+", done.stdout))
    places = zip(domain.lat.tolist(), domain.lon.tolist(), strict=True)
    assert list(places).index((lat, lon)) in table.problem.outputs


def test_the_readers_page_says_a_place(app: Path, table: pm.Mechanism, address: str) -> None:
    domain = table.problem.domain
    here = {"latitude": float(domain.lat[17]) + 0.0005, "longitude": float(domain.lon[17])}
    places = {f"{domain.lat[k]},{domain.lon[k]}" for k in table.problem.outputs.tolist()}
    with open_browser() as browser:
        context = browser.new_context(geolocation=here, permissions=["geolocation"])
        page = context.new_page()
        page.goto(address)
        page.click("button")
        page.wait_for_function("document.querySelector('output').textContent")
        said = page.inner_text("output")
        context.set_geolocation({"latitude": 0.0, "longitude": 0.0})
        page.click("button")
        page.wait_for_function("document.querySelector('output').textContent == 'not covered'")
    lat, lon = map(float, said.split(","))
    assert any(f"{lat},{lon}" == place for place in places)


def test_node_draws_from_the_file_that_python_saved(app: Path, table: pm.Mechanism) -> None:
    (app / "run.mjs").write_text(
        'import { readFile } from "node:fs/promises";\n'
        'import { openTable, report } from "./device.js";\n'
        'const file = await readFile("town.pmdp");\n'
        "const bytes = file.buffer.slice(file.byteOffset, file.byteOffset + file.byteLength);\n"
        f"const table = await openTable(file);\n{script(table)}"
        "console.log(JSON.stringify(answer));\n"
    )
    done = subprocess.run(
        ["node", "run.mjs"], cwd=app, capture_output=True, text=True, check=True, timeout=120
    )
    told = json.loads(done.stdout)
    assert told["far"] is None and told["refused"] is True
    check(told["drawn"], table)


class Quiet(SimpleHTTPRequestHandler):
    """Plain files, without a word on the terminal."""

    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture
def address(app: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(app)))
    Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_a_browser_does_so_from_plain_files(app: Path, table: pm.Mechanism, address: str) -> None:
    (shown,) = re.findall(r'<script type="importmap">.*?</script>', PAGE)
    (app / "draws.html").write_text(
        f'<!doctype html><title>app</title>{shown}\n<script type="module">\n'
        'import { openTable, report } from "./device.js";\n'
        'const bytes = await (await fetch("town.pmdp")).arrayBuffer();\n'
        f"const table = await openTable(bytes);\n{script(table)}window.answer = answer;\n</script>"
    )
    with open_browser() as browser:
        page = browser.new_page()
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.goto(f"{address}/draws.html")
        page.wait_for_function("window.answer")
        told = page.evaluate("window.answer")
    assert told["far"] is None and told["refused"] is True
    check(told["drawn"], table)
    # Nothing but files that are the same for everybody was asked for.
    names = {url.removeprefix(address) for url in asked}
    package = "/node_modules/panda-mdp-core/dist/index.js"
    assert names <= {"/draws.html", "/device.js", "/town.pmdp", package, "/favicon.ico"}
