"""The operator's page in a real browser against a real server."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, Route, expect
from protocol_browser import (
    VECTORS,
    Site,
    open_browser,
    open_site,
    until_drawn_anew,
    violations,
    visit,
)

REPORTS = 60


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_site(tmp_path_factory.mktemp("operator")) as opened:
        outputs = opened.table.problem.outputs.tolist()
        asked = {"role": "reporter", "count": REPORTS}
        made = opened.server.admin.post("/v1/tokens", json=asked).json()["tokens"]
        client = opened.server.client()
        for k, token in enumerate(made):
            # Most of them at one output.
            output = outputs[3] if k % 3 else outputs[k % len(outputs)]
            answer = client.post(
                "/v1/deployments/city/reports",
                json={"id": str(uuid.uuid4()), "output": output},
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
    expect(page.locator("#maps-said")).to_contain_text("penalised likelihood")


def test_what_the_operator_sees(browser: Browser, site: Site) -> None:
    with visit(browser, f"{site.url}/operator") as at:
        enter(at.page, site)
        expect(at.page.locator("#name")).to_have_text("city", use_inner_text=True)
        expect(at.page.locator("#figures li:first-child strong")).to_have_text(
            str(REPORTS), use_inner_text=True
        )
        expect(at.page.locator("#figures li:nth-child(3) strong")).to_have_text(
            "4", use_inner_text=True
        )
        heights = at.page.eval_on_selector_all(
            "#hours rect", "bars => bars.map((bar) => Number(bar.getAttribute('height')))"
        )
        assert len(heights) == 24
        assert max(heights) > 100
        certificate = at.page.inner_text("#certificate")
        assert "good, checked in this page" in certificate
        assert f"{site.table.audit.epsilon:.6f}" in certificate
        expect(at.page.locator("#maps-said")).to_contain_text(
            f"{REPORTS} reports", use_inner_text=True
        )
        pictures = [
            at.page.locator(f"#map-{m} canvas").screenshot()
            for m in ("reported", "estimated", "unsure")
        ]
        assert len(set(pictures)) == 3
        at.page.click("#numbers summary")
        expect(at.page.locator("#numbers-table tbody tr")).to_have_count(32)
        assert at.complaints == []
        assert "pmt_" not in at.page.evaluate(
            "JSON.stringify([{...localStorage}, {...sessionStorage}])"
        )
        assert violations(at.page) == []


def confirm(page: Page, words: str) -> None:
    """Say yes to what the page asks back, which must name the act."""
    expect(page.locator("#confirm")).to_be_visible()
    assert words in page.inner_text("#confirm")
    assert violations(page) == []
    page.click("#confirm-yes")
    expect(page.locator("#confirm")).to_be_hidden()


FOUND_OR_NEXT = """id => {
  const rows = [...document.querySelectorAll("#tokens-table tr")];
  const found = rows.some(row => row.textContent.includes(id));
  const next = document.getElementById("tokens-next");
  if (!found && !next.hidden) next.click();
  return found;
}"""


def test_every_act_is_confirmed_done_and_recorded(browser: Browser, site: Site) -> None:
    admin = site.server.admin
    with visit(browser, f"{site.url}/operator") as at:
        page = at.page
        enter(page, site)
        page.set_input_files("#publish-file", str(VECTORS / "city.pmdp"))
        page.fill("#publish-name", "acted")
        page.click("#publish-form button")
        confirm(page, "Publish city.pmdp as acted, version 1?")
        expect(page.locator("#actions-table")).to_contain_text("acted/1")
        # The records have streets on this server, so the map is not blank.
        assert admin.get("/v1/tables/acted/1").json()["streets"] is not None

        page.click("text=Open a deployment")
        page.fill("#deploy-name", "acted")
        page.select_option("#deploy-table", "acted/1")
        page.fill("#deploy-collector", "The city")
        page.fill("#deploy-purpose", "Racks")
        page.fill("#deploy-until", "2999-01-31")
        page.click("#deploy-form button")
        confirm(page, 'collected by "The city"')
        page.click("#deployments button:has-text('acted')")
        expect(page.locator("#name")).to_have_text("acted")
        expect(page.locator("#toggle")).to_contain_text("Close")
        # What is in force, and not the first of the list.
        expect(page.locator("#force-table")).to_have_value("acted/1")
        stated = json.loads(admin.get("/v1/deployments/acted").json()["statement"])
        assert (stated["collector"], stated["until"]) == ("The city", "2999-01-31")

        page.fill("#limit-reports", "7")
        page.click("#limits-form button")
        confirm(page, "Allow 7 reports per token")
        expect(page.locator("#figures")).to_contain_text("7")
        assert admin.get("/v1/deployments/acted").json()["version"] == 2

        page.select_option("#force-table", "city/1")
        page.click("#force-form button")
        confirm(page, "Put table city/1 into force")
        expect(page.locator("#deployments")).to_contain_text("version 3")

        page.click("#toggle")
        page.click("#confirm >> text=Cancel")
        expect(page.locator("#confirm")).to_be_hidden()
        assert admin.get("/v1/deployments/acted").json()["open"] is True
        page.click("#toggle")
        confirm(page, "Close acted?")
        expect(page.locator("#state")).to_have_text("closed")
        assert admin.get("/v1/deployments/acted").json()["open"] is False

        page.fill("#tokens-label", "bus 7")
        page.click("#tokens-form button")
        confirm(page, "Make 1 reporter token?")
        expect(page.locator("#made")).to_be_visible()
        token = page.input_value("#made-tokens")
        assert site.server.client(token).get("/v1/tokens").status_code == 403
        page.click("#made-close")
        assert token not in page.content()
        row = page.locator("#tokens-table tr", has_text=token.split("_")[1])
        # In one step, for the clock asks for the list as well.
        page.wait_for_function(FOUND_OR_NEXT, arg=token.split("_")[1], polling=300)
        row.locator("button").click()
        confirm(page, "bus 7")
        expect(page.locator("#actions-table")).to_contain_text("revoke token")
        assert site.server.client(token).get("/v1/tokens").status_code == 401

        acts = [action["action"] for action in admin.get("/v1/actions").json()["actions"]]
        assert acts[:7] == [
            "revoke token",
            "make reporter token",
            "change deployment",
            "change deployment",
            "change deployment",
            "open deployment",
            "publish table",
        ]
        assert at.complaints == []


def test_acts_are_about_what_is_shown_and_old_answers_do_not_return(
    browser: Browser, site: Site
) -> None:
    admin = site.server.admin
    table = {"name": "city", "version": 1}
    made = admin.post("/v1/deployments", json={"kind": "table", "name": "other", "table": table})
    assert made.status_code == 201, made.text
    with visit(browser, f"{site.url}/operator") as at:
        page = at.page
        enter(page, site)
        held: list[Route] = []

        def hold(route: Route) -> None:
            held.append(route)

        # Everything that comes after the name is slow.
        page.route("**/counts", hold)
        page.click("#deployments button:has-text('other')")
        expect(page.locator("#name")).to_have_text("other")
        page.fill("#limit-reports", "8")
        page.click("#limits-form button")
        expect(page.locator("#confirm")).to_contain_text(
            "Allow 8 reports per token and period in other"
        )
        page.click("#confirm-yes")
        expect(page.locator("#deployments")).to_contain_text("version 2")
        assert len(held) == 2
        # The answer of the refresh before the act comes last.
        held[1].continue_()
        expect(page.locator("#figures")).to_contain_text("8")
        held[0].continue_()
        page.unroute("**/counts")
        page.wait_for_timeout(300)
        expect(page.locator("#figures li:nth-child(5)")).to_contain_text("8", use_inner_text=True)
        assert admin.get("/v1/deployments/city").json()["reports_per_period"] == 3
        assert admin.get("/v1/deployments/other").json()["reports_per_period"] == 8


def test_an_answer_that_was_overtaken_is_not_shown(browser: Browser, site: Site) -> None:
    made = site.server.admin.post("/v1/tokens", json={"role": "reporter", "count": 100})
    assert made.status_code == 201, made.text
    with visit(browser, f"{site.url}/operator") as at:
        page = at.page
        enter(page, site)
        more, back = page.locator("#tokens-next"), page.locator("#tokens-back")
        expect(more).to_be_visible()
        first = page.inner_text("#tokens-table tbody tr:first-child")
        held: list[Route] = []

        def hold(route: Route) -> None:
            held.append(route)

        page.route("**/v1/tokens?*", hold)
        for click in ("#refresh", "#tokens-next"):
            with page.expect_request("**/v1/tokens?*"):
                page.click(click)
        held[1].continue_()
        expect(back).to_be_visible()
        with page.expect_response("**/v1/tokens?*"):
            held[0].continue_()
        page.wait_for_timeout(300)
        assert page.inner_text("#tokens-table tbody tr:first-child") != first


def test_maps_move_together(browser: Browser, site: Site) -> None:
    with visit(browser, f"{site.url}/operator") as at:
        enter(at.page, site)
        estimated = at.page.locator("#map-estimated canvas")
        before = estimated.screenshot()
        at.page.locator("#map-reported canvas").focus()
        at.page.keyboard.press("+")
        at.page.keyboard.press("ArrowLeft")
        until_drawn_anew(estimated, before)


@pytest.mark.parametrize("role", ["nobody", "reporter"])
def test_only_admins_enter(browser: Browser, site: Site, role: str) -> None:
    token = site.token() if role == "reporter" else "pmt_" + "0" * 12 + "_" + "A" * 43
    with visit(browser, f"{site.url}/operator") as at:
        at.page.fill("#token", token)
        at.page.press("#token", "Enter")
        expect(at.page.locator("#enter-said")).to_contain_text("Not accepted")
        expect(at.page.locator("#desk")).to_be_hidden()


def test_on_a_phone(browser: Browser, site: Site) -> None:
    with visit(browser, f"{site.url}/operator", viewport={"width": 360, "height": 740}) as at:
        enter(at.page, site)
        assert at.page.evaluate("document.documentElement.scrollWidth") <= 360
        tables = at.page.locator(".scroll:visible")
        expect(tables.nth(1)).to_be_visible()  # the parts of the desk come one after the other
        for table in tables.all():
            assert table.evaluate("e => getComputedStyle(e).overflowX") == "auto"
            last = table.locator("th").last
            last.scroll_into_view_if_needed()
            expect(last).to_be_in_viewport()


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
        expect(at.page.locator("#rounds tbody")).to_contain_text("open", use_inner_text=True)
        expect(at.page.locator("#certificate-card")).to_be_hidden()
        expect(at.page.locator("#maps-said")).to_contain_text("no estimate yet")
        assert at.complaints == []
