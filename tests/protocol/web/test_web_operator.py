"""The operator's page in a real browser against a real server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect
from protocol_browser import Site, open_browser, open_site, violations, visit

REPORTS = 60


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_site(tmp_path_factory.mktemp("operator")) as opened:
        outputs = opened.table.outputs.tolist()
        asked = {"role": "reporter", "count": REPORTS}
        made = opened.server.admin.post("/v1/tokens", json=asked).json()["tokens"]
        client = opened.server.client()
        for k, token in enumerate(made):
            # Most of them at one output.
            output = outputs[3] if k % 3 else outputs[k % len(outputs)]
            answer = client.post(
                "/v1/deployments/city/reports",
                json={"id": str(uuid.uuid4()), "version": 1, "output": output},
                headers={"authorization": f"Bearer {token['token']}"},
            )
            assert answer.status_code == 201, answer.text
        yield opened


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


def enter(page: Page, site: Site) -> None:
    page.fill("#token", site.server.admin_token)
    page.press("#token", "Enter")
    expect(page.locator("#maps-said")).to_contain_text("iterations")


def test_what_the_operator_sees(browser: Browser, site: Site) -> None:
    with visit(browser, f"{site.url}/operator") as at:
        enter(at.page, site)
        assert at.page.inner_text("#name") == "city"
        assert at.page.inner_text("#figures li:first-child strong") == str(REPORTS)
        assert at.page.inner_text("#figures li:nth-child(3) strong") == "4"
        heights = at.page.eval_on_selector_all(
            "#hours rect", "bars => bars.map((bar) => Number(bar.getAttribute('height')))"
        )
        assert len(heights) == 24
        assert max(heights) > 100
        certificate = at.page.inner_text("#certificate")
        assert "good, checked in this page" in certificate
        assert site.table.certificate["subject"] != ""
        assert f"{site.table.audit.epsilon:.6f}" in certificate
        assert f"{REPORTS} reports" in at.page.inner_text("#maps-said")
        pictures = [
            at.page.locator(f"#map-{m} canvas").screenshot()
            for m in ("reported", "estimated", "unsure")
        ]
        assert len(set(pictures)) == 3
        at.page.click("#numbers summary")
        assert at.page.locator("#numbers-table tbody tr").count() == 50
        assert at.complaints == []
        assert "pmt_" not in at.page.evaluate(
            "JSON.stringify([{...localStorage}, {...sessionStorage}])"
        )
        assert violations(at.page) == []


def test_maps_move_together(browser: Browser, site: Site) -> None:
    with visit(browser, f"{site.url}/operator") as at:
        enter(at.page, site)
        estimated = at.page.locator("#map-estimated canvas")
        before = estimated.screenshot()
        at.page.locator("#map-reported canvas").focus()
        at.page.keyboard.press("+")
        at.page.keyboard.press("ArrowLeft")
        at.page.wait_for_timeout(300)
        assert estimated.screenshot() != before


def test_a_job_and_its_progress_are_shown(browser: Browser, site: Site) -> None:
    domain = site.server.admin.get("/v1/domains").json()["domains"][0]["id"]
    job = {"id": str(uuid.uuid4()), "table": "next", "domain": domain, "epsilon": 4.0, "gap": 0.2}
    made = site.server.admin.post("/v1/jobs", json={**job, "outputs": [5, 29, 53, 77]})
    assert made.status_code == 202, made.text
    with visit(browser, f"{site.url}/operator") as at:
        enter(at.page, site)
        jobs = at.page.locator("#jobs")
        expect(jobs).to_contain_text("next")
        for _ in range(60):
            if "done" in jobs.inner_text():
                break
            at.page.click("#refresh")
            at.page.wait_for_timeout(500)
        expect(jobs).to_contain_text("done")


@pytest.mark.parametrize("role", ["nobody", "reporter"])
def test_only_admins_enter(browser: Browser, site: Site, role: str) -> None:
    token = site.token() if role == "reporter" else "pmt_" + "0" * 12 + "_" + "A" * 43
    with visit(browser, f"{site.url}/operator") as at:
        at.page.fill("#token", token)
        at.page.press("#token", "Enter")
        expect(at.page.locator("#enter-said")).to_contain_text("Not accepted")
        assert not at.page.is_visible("#desk")


def test_on_a_phone(browser: Browser, site: Site) -> None:
    with visit(browser, f"{site.url}/operator", viewport={"width": 360, "height": 740}) as at:
        enter(at.page, site)
        assert at.page.evaluate("document.documentElement.scrollWidth") <= 360


def test_rounds_are_listed(browser: Browser, site: Site) -> None:
    admin = site.server.admin
    line = {"name": "line", "kind": "haversine", "unit": "km"}
    places = {"lat": [45 + 0.01 * k for k in range(12)], "lon": [9.0] * 12}
    domain = admin.post("/v1/domains", json=line | places).json()["id"]
    selection = {"decay": "logistic", "alpha": 0.98, "rate": 0.01, "radius": 12.0, "neighbours": 12}
    made = admin.post(
        "/v1/deployments",
        json={
            "kind": "anchors",
            "name": "rounds",
            "domain": domain,
            "outputs": [0, 4, 8, 11],
            "epsilon": 2.0,
            "delta": 0.05,
            "selection": selection,
            "accept_no_guarantee": True,
        },
    )
    assert made.status_code == 201, made.text
    opened = admin.post("/v1/deployments/rounds/rounds", json={"closes_at_users": 50})
    assert opened.status_code == 201, opened.text
    with visit(browser, f"{site.url}/operator") as at:
        enter(at.page, site)
        at.page.click("#deployments button:has-text('rounds')")
        expect(at.page.locator("#rounds tbody tr")).to_have_count(1)
        assert "open" in at.page.inner_text("#rounds tbody")
        assert not at.page.is_visible("#certificate-card")
        expect(at.page.locator("#maps-said")).to_contain_text("no estimate yet")
        assert at.complaints == []
