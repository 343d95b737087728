"""A real server behind a wire that keeps everything that was sent, and a real browser."""

from __future__ import annotations

import json
import re
import shutil
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
from outside import left_out
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Locator,
    Page,
    expect,
    sync_playwright,
)
from protocol_servers import Running

import panda_mdp as pm

VECTORS = Path(__file__).parents[1] / "vectors"
AXE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
NAMES = ("chromium", "chromium-browser", "google-chrome")
SLOW_MS = 180_000
"""Machines that test may be busy; a page that never answers still fails."""
expect.set_options(timeout=SLOW_MS)


def until_drawn_anew(canvas: Locator, before: bytes) -> None:
    """Wait until a picture is another one than before."""
    for _ in range(SLOW_MS // 100):
        if canvas.screenshot() != before:
            return
        canvas.page.wait_for_timeout(100)
    raise AssertionError("the picture stays as it was")


@dataclass(frozen=True)
class Sent:
    """One request as it went over the wire."""

    method: str
    path: str
    headers: dict[str, str]
    body: str


@dataclass
class Wire:
    """Hands bytes on to the server and keeps what was sent to it. `cut` is an outage."""

    target: int
    port: int = 0
    cut: bool = False
    streams: list[bytearray] = field(default_factory=list)

    def start(self) -> Wire:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def stop(self) -> None:
        self._listener.close()

    def clear(self) -> None:
        self.streams.clear()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                if self.cut:
                    near.close()
                    continue
                threading.Thread(target=self._join, args=(near,), daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        kept = bytearray()
        self.streams.append(kept)
        with near, socket.create_connection(("127.0.0.1", self.target)) as far:
            back = threading.Thread(target=self._pass, args=(far, near, None), daemon=True)
            back.start()
            self._pass(near, far, kept)
            back.join(10)

    def _pass(self, source: socket.socket, to: socket.socket, kept: bytearray | None) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if self.cut:
                    break
                if kept is not None:
                    kept += data
                to.sendall(data)
        with suppress(OSError):
            to.shutdown(socket.SHUT_WR)

    def requests(self) -> list[Sent]:
        """Every request, in the order of the connections."""
        return [request for stream in self.streams for request in _parsed(bytes(stream))]


def _parsed(data: bytes) -> Iterator[Sent]:
    while data:
        head, _, rest = data.partition(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
        size = int(headers.get("content-length", "0"))
        method, path, _ = first.split(" ")
        yield Sent(method, path, headers, rest[:size].decode())
        data = rest[size:]


@dataclass
class Site:
    """A server with a deployment, reached through the wire."""

    server: Running
    wire: Wire
    table: pm.Mechanism
    name: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.wire.port}"

    def token(self) -> str:
        made = self.server.admin.post("/v1/tokens", json={"role": "reporter"})
        return str(made.json()["tokens"][0]["token"])

    def counts(self) -> dict[str, Any]:
        found: dict[str, Any] = self.server.admin.get(f"/v1/deployments/{self.name}/counts").json()
        return found


NOTICE = {
    "collector": "Ufficio mobilità",
    "purpose": "Where bicycle racks are missing",
    "until": "2999-12-31",
}


def names_of(table: pm.Mechanism) -> list[dict[str, Any]]:
    """A street at every tenth record, and a landmark."""
    lat, lon = table.problem.domain.lat, table.problem.domain.lon
    streets = [
        {"name": f"Via Prova {k}", "lat": float(lat[k]), "lon": float(lon[k]), "kind": "street"}
        for k in range(0, table.problem.domain.size, 10)
    ]
    tower = {"lat": float(lat[33]), "lon": float(lon[33]), "kind": "landmark"}
    return [*streets, {"name": "Torre Nicolò", **tower}]


@contextmanager
def open_site(folder: Path) -> Iterator[Site]:
    """The table of the shared vectors, with streets, in a deployment of three reports a day."""
    table = pm.load(VECTORS / "city.pmdp")
    city = pm.synthetic_city(nodes=1200, seed=3)
    server = Running(str(folder / "panda.db"), folder).start()
    try:
        admin = server.admin
        domain = {
            "name": "city",
            "kind": "haversine",
            "unit": "km",
            "lat": table.problem.domain.lat.tolist(),
            "lon": table.problem.domain.lon.tolist(),
            "streets": {
                "lat": np.rint(1e6 * city.lat).astype(int).tolist(),
                "lon": np.rint(1e6 * city.lon).astype(int).tolist(),
                "u": city.u.tolist(),
                "v": city.v.tolist(),
                "names": names_of(table),
            },
        }
        made = admin.post("/v1/domains", json=domain)
        assert made.status_code == 201, made.text
        published = admin.post(
            f"/v1/tables/city?domain={made.json()['id']}",
            content=(VECTORS / "city.pmdp").read_bytes(),
            headers={"content-type": "application/octet-stream"},
        )
        assert published.status_code == 201, published.text
        deployed = admin.post(
            "/v1/deployments",
            json={
                "kind": "table",
                "name": "city",
                "table": {"name": "city", "version": 1},
                "period_s": 86_400,
                "reports_per_period": 3,
                **NOTICE,
            },
        )
        assert deployed.status_code == 201, deployed.text
        port = urlsplit(server.url).port
        assert port is not None
        wire = Wire(port).start()
        try:
            yield Site(server, wire, table, "city")
        finally:
            wire.stop()
    finally:
        server.stop()


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Chromium, without a window and without any request of its own."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        left_out("Chromium", "install the Debian package chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Visit:
    """A page in a profile of its own. Whatever it complains about is kept."""

    context: BrowserContext
    page: Page
    asked: list[str]
    complaints: list[str]

    def ready(self) -> None:
        """Until the table is verified and audited, and the page works offline."""
        for check in ("signature", "audit", "offline"):
            self.page.wait_for_selector(f'#check-{check}[data-state="good"]', timeout=SLOW_MS)

    def pick(self, lat: float, lon: float) -> None:
        """Give a place in numbers."""
        self.page.evaluate("document.getElementById('by-list').open = true")
        text = f"{lat:.5f}, {lon:.5f}"
        self.page.fill("#numbers", text)
        self.page.press("#numbers", "Enter")
        expect(self.page.locator("#place-said")).to_contain_text(text)
        self.page.wait_for_selector("#spread:visible")

    def send(self, token: str = "") -> None:
        """Draw and send, in the one step that there is."""
        if token:
            self.page.fill("#token", token)
        self.page.click("#send:not([disabled])")
        self.page.wait_for_selector('#action-said[data-state="good"]')


@contextmanager
def visit(browser: Browser, url: str, **options: Any) -> Iterator[Visit]:
    """Open a page, and fail where it asked elsewhere or broke its own policy."""
    context = browser.new_context(**options)
    asked: list[str] = []
    complaints: list[str] = []
    context.on("request", lambda request: asked.append(request.url))
    page = context.new_page()
    page.set_default_timeout(SLOW_MS)
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on(
        "console",
        lambda message: complaints.append(message.text) if message.type == "error" else None,
    )
    try:
        page.goto(url)
        yield Visit(context, page, asked, complaints)
        home = "{0.scheme}://{0.netloc}/".format(urlsplit(url))
        assert [u for u in asked if not u.startswith(home)] == []
    finally:
        context.close()


def numbers_in(text: str) -> set[str]:
    """The whole numbers of a text, as words."""
    return set(re.findall(r"(?<![\w.])\d+(?![\w.])", text))


def body_of(request: Sent) -> dict[str, Any]:
    """A JSON body."""
    found: dict[str, Any] = json.loads(request.body)
    return found


def violations(page: Page) -> list[str]:
    """What axe-core finds wrong with a page for people who see, hear or point differently."""
    assert AXE.exists(), "axe-core is not installed; run `npm ci` in web/"
    found = page.evaluate(f"{AXE.read_text()}; axe.run(document, {{resultTypes: ['violations']}})")
    return [
        f"{broken['id']}: {node['target']} {node.get('failureSummary', '')}"
        for broken in found["violations"]
        for node in broken["nodes"]
    ]
