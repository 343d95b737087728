"""PAnDA, balls and rounds of anchors in the page, and invitations: real browser, real server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from forging import honest
from helpers import save_compact
from playwright.sync_api import Browser, expect
from protocol_browser import (
    SLOW_MS,
    VECTORS,
    Sent,
    Visit,
    Wire,
    body_of,
    open_browser,
    violations,
    visit,
)
from protocol_servers import Running
from typer.testing import CliRunner

import panda_mdp as pm
from panda_mdp.cli import app
from panda_mdp.protocol import Allowance, Client
from panda_mdp.space.area import Area

PHASES = json.loads((VECTORS / "phases.json").read_text())["ball"]
OUTPUTS = [0, 7, 13, 22, 30, 39]
EPSILON_1, EPSILON_2 = 1.5, 2.0


class Site:
    """A server with a deployment of every kind over the vectors' places."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.domain = pm.Domain.from_points(PHASES["lat"], PHASES["lon"])
        self.server = Running(str(folder / "panda.db"), folder).start()
        try:
            self.deploy()
        except BaseException:
            self.server.stop()
            raise
        port = urlsplit(self.server.url).port
        assert port is not None
        self.wire = Wire(port).start()

    def deploy(self) -> None:
        for name in ("balls", "coins"):
            file = (VECTORS / f"panda-{name}.pmdp").read_bytes()
            self.publish(name, file)
            self.post("/deployments", {"kind": "panda", "name": name, "table": ref(name)})
        self.publish("area", (VECTORS / "area.pmdp").read_bytes())
        area = {"kind": "table", "name": "area", "table": ref("area"), "reports_per_period": 3}
        self.post("/deployments", area)
        one_use = {"one_use": True, "reports_per_period": 2}
        self.post(
            "/deployments", {"kind": "panda", "name": "once", "table": ref("coins")} | one_use
        )
        self.publish("sparse", honest("floor distance"))
        self.post("/deployments", {"kind": "table", "name": "sparse", "table": ref("sparse")})
        places = {"lat": self.domain.lat.tolist(), "lon": self.domain.lon.tolist()}
        known = self.post("/domains", {"name": "city", "kind": "haversine", **places})["id"]
        loss = pm.distance_loss(self.domain, OUTPUTS)
        table = pm.exponential(pm.Problem(self.domain, OUTPUTS, loss, EPSILON_2))
        save_compact(table, self.folder / "city.pmdp")
        self.publish("city", (self.folder / "city.pmdp").read_bytes())
        ball = {
            "epsilon_1": EPSILON_1,
            "edge": 0.5,
            "radius": 2.0,
            "snap": 1.0,
            "table": ref("city"),
        }
        self.post("/deployments", {"kind": "ball", "name": "ball", **ball})
        selection = {"decay": "exponential", "alpha": 1 - 1e-3 / 4, "rate": 0.0, "radius": 9.0}
        anchors = {"domain": known, "outputs": OUTPUTS, "epsilon": 3.0, "delta": 1e-3}
        anchors |= {"kind": "anchors", "name": "anchors", "selection": selection}
        self.post("/deployments", anchors)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.wire.port}"

    def post(self, path: str, body: Any) -> Any:
        made = self.server.admin.post(f"/v1{path}", json=body)
        assert made.is_success, made.text
        return made.json()

    def publish(self, name: str, file: bytes) -> None:
        made = self.server.admin.post(f"/v1/tables/{name}", content=file)
        assert made.status_code == 201, made.text

    def token(self) -> str:
        return str(self.post("/tokens", {"role": "reporter"})["tokens"][0]["token"])

    def reports(self, name: str) -> int:
        counts = self.server.admin.get(f"/v1/deployments/{name}/counts").json()
        return int(counts["reports"])

    def place(self, record: int) -> tuple[float, float]:
        return float(self.domain.lat[record]), float(self.domain.lon[record])


def ref(name: str) -> dict[str, Any]:
    return {"name": name, "version": 1}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("phases"))
    try:
        yield made
    finally:
        made.wire.stop()
        made.server.stop()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


def posted(site: Site) -> list[Sent]:
    return [request for request in site.wire.requests() if request.method == "POST"]


def opened(at: Visit) -> str:
    at.ready()
    return at.page.inner_text("#check-audit")


@pytest.mark.parametrize("kind", ["balls", "coins"])
def test_both_phases_in_the_page_and_one_report_on_the_wire(
    browser: Browser, site: Site, kind: str
) -> None:
    table = pm.load(VECTORS / f"panda-{kind}.pmdp")
    domain = table.problem.domain
    before = site.reports(kind)
    site.wire.clear()
    with visit(browser, f"{site.url}/#deployment={kind}&token={site.token()}") as at:
        said = opened(at)
        # What the page computed is what the library computes, rounded up.
        violation = float(re.search(r"probability of more ([\d.]+)", said)[1])  # type: ignore[index]
        assert table.account.violation <= violation <= table.account.violation * 1.01
        assert "all 780 pairs" in said and f"{table.delta:g} is promised" in said
        at.pick(float(domain.lat[3]), float(domain.lon[3]))
        expect(at.page.locator("#meaning-said")).to_contain_text("with probability")
        expect(at.page.locator("#how-said")).to_contain_text(
            "Only the report is sent", use_inner_text=True
        )
        itself = at.page.inner_text("#half")
        assert re.search(r"\d k?m", itself)
        at.send()
        assert violations(at.page) == []
        if table.delta:
            expect(at.page.locator("#budget-said")).to_contain_text(
                "Delta 0.01 of 0.01", use_inner_text=True
            )
        assert at.complaints == []
    (sent,) = posted(site)
    body = body_of(sent)
    assert set(body) == {"id", "output", "table"}
    listed = site.server.admin.get(f"/v1/tables/{kind}/1").json()
    assert body["table"] == listed["identity"]
    assert body["output"] in table.problem.outputs.tolist()
    assert site.reports(kind) == before + 1


def test_a_ball_is_drawn_fetched_checked_and_reported_from(browser: Browser, site: Site) -> None:
    site.wire.clear()
    with visit(browser, f"{site.url}/#deployment=ball&token={site.token()}") as at:
        assert "first draw holds by proof at every place" in opened(at)
        at.pick(*site.place(11))
        expect(at.page.locator("#chart")).to_be_hidden()
        expect(at.page.locator("#spread-said")).to_contain_text(
            "after the first of two draws", use_inner_text=True
        )
        at.send()
        assert violations(at.page) == []
        assert at.complaints == []
    # Nobody asked for the map.
    assert not any("/domains" in sent.path for sent in site.wire.requests())
    first, second = posted(site)
    assert first.path == "/v1/deployments/ball/balls"
    assert set(body_of(first)) == {"centre"}
    assert second.path == "/v1/deployments/ball/reports"
    assert body_of(second)["output"] in OUTPUTS
    assert site.reports("ball") == 1


def exchanged(ball: dict[str, Any]) -> None:
    """Two records change their rows: still rows of this ball, and not what was published. Where the
    ball that was drawn has not two, something else is proved."""
    if len(places := ball["lat"]) > 1:
        places[0], places[1] = places[1], places[0]
    else:
        ball["proof"] = "AAAA"


def another(ball: dict[str, Any]) -> None:
    """A tile of another ball, whose rows cannot even be unpacked, and are not."""
    ball |= {"tiles": [0], "sizes": [1], "lat": [-40.0], "lon": [1.0], "blocks": ["AAAA"]}


@pytest.mark.parametrize(
    ("change", "why"),
    [(exchanged, "signature does not match"), (another, "sent places that do not reach into")],
)
def test_rows_that_are_not_right_are_not_drawn_from(
    browser: Browser, site: Site, change: Callable[[dict[str, Any]], None], why: str
) -> None:
    before = site.reports("ball")
    site.wire.clear()
    with visit(browser, f"{site.url}/#deployment=ball&token={site.token()}") as at:
        at.ready()
        at.pick(*site.place(12))
        at.page.wait_for_selector("#send:not([disabled])")

        def swap(route: Any) -> None:
            answer = route.fetch()
            ball = answer.json()
            change(ball)
            route.fulfill(response=answer, json=ball)

        at.page.route("**/balls", swap)
        at.page.click("#send")
        expect(at.page.locator("#action-said")).to_contain_text(why)
        # Paid, and to be gone on with: the same centre, nothing drawn again.
        at.page.unroute("**/balls")
        expect(at.page.locator("#send")).to_have_text("Go on with this report")
        at.send()
        asked = [body_of(sent) for sent in posted(site) if sent.path.endswith("/balls")]
    assert len(asked) == 2
    assert asked[0] == asked[1]
    assert site.reports("ball") == before + 1


def test_a_round_of_anchors(browser: Browser, site: Site) -> None:
    opened_round = {"closes_at_users": 2}
    number = site.post("/deployments/anchors/rounds", opened_round)["round"]
    other = site.server.client(site.token())
    site.wire.clear()
    with visit(browser, f"{site.url}/#deployment=anchors&token={site.token()}") as at:
        assert "both phases, all 1,770 pairs" in opened(at)
        at.pick(*site.place(20))
        at.page.click("#send:not([disabled])")
        page = at.page
        page.wait_for_function("() => document.getElementById('send').disabled")
        # Reported by another person too, so that the round closes.
        for _ in range(SLOW_MS // 100):
            uploads = [sent for sent in posted(site) if sent.path.endswith("/anchors")]
            if uploads:
                break
            page.wait_for_timeout(100)
        anchors = body_of(uploads[0])["anchors"]
        made = other.post(
            f"/v1/deployments/anchors/rounds/{number}/anchors",
            json={"anchors": anchors},
        )
        assert made.status_code == 201, made.text
        page.wait_for_selector('#action-said[data-state="good"]')
        assert at.complaints == []
    assert [sent.path.rsplit("/", 1)[1] for sent in posted(site)] == ["anchors", "reports"]
    assert "table" not in body_of(posted(site)[1])
    assert site.reports("anchors") == 1


def test_a_round_that_is_not_the_logs_latest_is_refused(browser: Browser, site: Site) -> None:
    """Its number is in the address of what is sent: one for a single person would mark them."""

    def mark(route: Any) -> None:
        answer = route.fetch()
        said = answer.json()
        for each in said["deployments"]:
            if each["kind"] == "anchors":
                each["round"] = 77
        route.fulfill(response=answer, json=said)

    with visit(browser, f"{site.url}/#deployment=anchors&token={site.token()}") as at:
        at.ready()
        at.page.route("**/v1/deployments", mark)
        at.page.reload()
        expect(at.page.locator("#alarm")).to_contain_text("not in the public log")


def test_one_use_tokens_are_collected_and_reports_name_nobody(browser: Browser, site: Site) -> None:
    token = site.token()
    domain = pm.load(VECTORS / "panda-coins.pmdp").problem.domain
    site.wire.clear()
    with visit(browser, f"{site.url}/#deployment=once&token={token}") as at:
        at.ready()
        # Before any place is picked, so that some time can pass in between.
        expect(at.page.locator("#send")).to_have_text("Collect one-use tokens")
        assert "name nobody" in at.page.inner_text("#action-said")
        at.page.click("#send:not([disabled])")
        expect(at.page.locator("#action-said")).to_contain_text("2 one-use tokens are here")
        assert violations(at.page) == []
        for record in (3, 20):
            at.pick(float(domain.lat[record]), float(domain.lon[record]))
            at.send()
        at.pick(float(domain.lat[30]), float(domain.lon[30]))
        expect(at.page.locator("#action-said")).to_contain_text("as many are drawn here")
        assert at.complaints == []
    issue, *reports = posted(site)
    assert issue.path == "/v1/deployments/once/issue" and set(body_of(issue)) == {
        "period",
        "blinded",
    }
    assert issue.headers["authorization"] == f"Bearer {token}"
    assert [sent.path for sent in reports] == 2 * ["/v1/deployments/once/reports"]
    for sent in reports:
        assert "authorization" not in sent.headers
        assert set(body_of(sent)) == {"id", "output", "table", "proof"}
    # Nothing of what was signed is in what is shown.
    shown = {body_of(sent)["proof"]["signature"] for sent in reports}
    assert len(shown) == 2 and not shown & set(body_of(issue)["blinded"])
    assert site.reports("once") == 2


def test_any_point_is_drawn_at_and_every_report_pays(browser: Browser, site: Site) -> None:
    with visit(browser, f"{site.url}/#deployment=area&token={site.token()}") as at:
        assert re.search(r"every point of all \d+ triangles", opened(at))
        for spent in (2, 4):
            at.pick(41.90031, 12.49213)
            expect(at.page.locator("#place-said")).to_contain_text(
                "not moved to a known place", use_inner_text=True
            )
            expect(at.page.locator("#snap-said")).to_be_hidden()
            at.send()
            expect(at.page.locator("#budget-said")).to_contain_text(
                f"Epsilon {spent} of 6", use_inner_text=True
            )
        at.page.fill("#numbers", "41.95, 12.6")
        at.page.press("#numbers", "Enter")
        # Outside, the nearest point of the area stands for the place.
        mesh = pm.load(VECTORS / "area.pmdp").mesh
        lat, lon = Area.of_mesh(mesh).clamp(41.95, 12.6)
        expect(at.page.locator("#place-said")).to_contain_text(f"{lat:.5f}, {lon:.5f}")
        at.page.select_option("#language", "it")
        expect(at.page.locator("#place-said")).to_contain_text("senza spostarlo")
        assert violations(at.page) == []
        assert at.complaints == []
    assert site.reports("area") == 2


def test_a_sparse_table_is_one_like_others_for_both_clients(
    browser: Browser, site: Site, tmp_path: Path
) -> None:
    limits = Allowance(epsilon=2.0, period_epsilon=2.0)
    with Client(site.server.url, site.token(), tmp_path, limits) as user:
        plan = user.plan("sparse")
        assert user.report(plan, plan.record(3)).output in range(plan.domain.size)
    lat, lon = float(plan.domain.lat[4]), float(plan.domain.lon[4])
    pairs = plan.domain.size * (plan.domain.size - 1) // 2
    with visit(browser, f"{site.url}/#deployment=sparse&token={site.token()}") as at:
        assert f"all {pairs:,} pairs" in opened(at)
        at.pick(lat, lon)
        at.send()
        assert at.complaints == []
    assert site.reports("sparse") == 2


def test_an_invitation_becomes_a_token_and_is_in_no_address(browser: Browser, site: Site) -> None:
    given = CliRunner().invoke(app, ["invite", "--database", site.server.database, "--places", "1"])
    code = re.search(r"pmi_[\w-]+", given.output)[0]  # type: ignore[index]
    domain = pm.load(VECTORS / "panda-balls.pmdp").problem.domain
    site.wire.clear()
    with visit(browser, f"{site.url}/#deployment=balls&invite={code}") as at:
        at.ready()
        assert "pmi_" not in at.page.url
        at.pick(float(domain.lat[5]), float(domain.lon[5]))
        at.send()
        at.page.reload()
        at.ready()
        kept = at.page.evaluate("localStorage.getItem('panda-mdp.enrolled')")
        assert kept.startswith("pmt_")
    enrol, report = posted(site)
    assert enrol.path == "/v1/enrol" and body_of(enrol) == {"code": code}
    assert report.headers["authorization"] == f"Bearer {kept}"
    assert not any("pmi_" in request.path for request in site.wire.requests())
    with visit(browser, f"{site.url}/#deployment=balls&invite={code}") as at:
        expect(at.page.locator("#action-said")).to_contain_text(
            "places of this invitation are taken"
        )
