"""The browser client in a real browser against a real server."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, expect
from protocol_browser import (
    SLOW_MS,
    VECTORS,
    Sent,
    Site,
    Visit,
    body_of,
    numbers_in,
    open_browser,
    open_site,
    until_drawn_anew,
    violations,
    visit,
)

from panda_mdp.protocol.messages.log import leaf_hash, root_of
from panda_mdp.protocol.messages.signing import (
    SigningKey,
    signed_bytes,
    statement_bytes,
)
from panda_mdp.space.area import Area
from panda_mdp.table.mechanism import NoGuarantee


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with open_site(tmp_path_factory.mktemp("site")) as opened:
        yield opened


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as opened:
        yield opened


def not_an_output(site: Site, start: int) -> int:
    """A record that is no output, so that its index has no business on the wire."""
    outputs = set(site.table.problem.outputs.tolist())
    return next(k for k in range(start, site.table.problem.domain.size) if k not in outputs)


def place(site: Site, record: int) -> tuple[float, float]:
    return float(site.table.problem.domain.lat[record]), float(
        site.table.problem.domain.lon[record]
    )


def reports(requests: list[Sent]) -> list[Sent]:
    return [request for request in requests if request.method == "POST"]


def test_from_a_click_to_an_accepted_report(browser: Browser, site: Site) -> None:
    before = site.counts()["reports"]
    with visit(browser, f"{site.url}/#token={site.token()}") as at:
        at.ready()
        page = at.page
        assert "token" not in page.url
        expect(page.locator("#check-audit")).to_contain_text(
            "all 39,060 pairs", use_inner_text=True
        )
        box = page.locator("#canvas").bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.55)
        page.wait_for_selector("#send:not([disabled])")
        for name in ("half", "most"):
            assert re.search(r"\d m|\d km", page.inner_text(f"#{name}"))
        assert re.search(r"\d %", page.inner_text("#itself"))
        assert page.locator("#chart rect").count() > 5
        rows = page.locator("#meaning-rows li").all_inner_texts()
        assert [row.split(" apart")[0] for row in rows] == ["100 m", "500 m", "2 km"]
        # exp(4 x 0.5) = 7.4, and exp(2) / (1 + exp(2)) = 0.88.
        assert "88 times in 100" in rows[1]
        assert "factor of 7.4" in rows[1]
        expect(page.locator("#meaning-said")).to_contain_text(
            "compared with all 279 others", use_inner_text=True
        )
        expect(page.locator("#legend-drawn")).to_be_hidden()
        at.send()
        sent = page.inner_text("#action-said")
        assert re.search(r"Sent: (a place [\d.]+ k?m from yours|the very place)", sent)
        expect(page.locator("#legend-drawn")).to_be_visible()
        assert at.complaints == []
    after = site.counts()
    assert after["reports"] == before + 1
    assert set(after["outputs"]) <= set(site.table.problem.outputs.tolist())


def test_nothing_on_the_wire_tells_the_place(browser: Browser, site: Site) -> None:
    record = not_an_output(site, 137)
    lat, lon = place(site, record)
    site.wire.clear()
    with visit(browser, f"{site.url}/#token={site.token()}") as at:
        at.ready()
        at.pick(lat, lon)
        at.send()
    sent = site.wire.requests()
    posted = reports(sent)
    assert [request.path for request in posted] == ["/v1/deployments/city/reports"]
    body = body_of(posted[0])
    assert set(body) == {"id", "output", "table"}
    assert body["output"] in site.table.problem.outputs.tolist()
    for request in sent:
        # The browser's own version and the length of the body are numbers too.
        own = ("user-agent", "sec-ch-ua", "content-length")
        headers = [value for name, value in request.headers.items() if name not in own]
        told = " ".join([request.path, request.body, *headers])
        rest = re.sub(r"127\.0\.0\.1:\d+|pmt_\S+|[0-9a-f-]{36}", " ", told)
        assert str(record) not in numbers_in(rest)
        for number in (lat, lon):
            # Down to 100 m: four digits after the point, with or without it.
            assert f"{number:.6f}"[:6] not in told
            assert f"{number:.6f}".replace(".", "")[:6] not in rest
    assert all("?" not in request.path for request in sent)
    assert all("range" not in request.headers for request in sent)
    tokens = [request for request in sent if "authorization" in request.headers]
    assert tokens == posted


def test_two_places_make_the_same_traffic(browser: Browser, site: Site) -> None:
    seen = []
    for record in (not_an_output(site, 20), not_an_output(site, 240)):
        site.wire.clear()
        with visit(browser, f"{site.url}/#token={site.token()}") as at:
            at.ready()
            at.pick(*place(site, record))
            at.send()
        shapes = []
        for request in site.wire.requests():
            text = re.sub(r'"output":\d+', '"output":N', request.body)
            text = re.sub(r"[0-9a-f-]{36}", "ID", text)
            headers = {k: v for k, v in request.headers.items() if k != "authorization"}
            headers.pop("content-length", None)
            shapes.append((request.method, request.path, tuple(sorted(headers.items())), text))
        seen.append(sorted(shapes))
    assert seen[0] == seen[1]


def test_the_same_place_keeps_its_answer_and_pays_once(browser: Browser, site: Site) -> None:
    token = site.token()
    lat, lon = place(site, not_an_output(site, 60))
    before = site.counts()["reports"]
    with visit(browser, site.url) as at:
        at.ready()
        at.pick(lat, lon)
        at.send(token)
        assert at.page.evaluate("sessionStorage.length") == 0
        at.page.reload()
        at.ready()
        at.pick(lat, lon)
        expect(at.page.locator("#action-said")).to_contain_text("reported in this period already")
        expect(at.page.locator("#budget-said")).to_contain_text(
            "Epsilon 4 of 12", use_inner_text=True
        )
        expect(at.page.locator("#send")).to_be_hidden()
        expect(at.page.locator("#token-form")).to_be_hidden()
        assert site.counts()["reports"] == before + 1
        assert not any("pmt_" in kept for kept in kept_by(at))


def test_nothing_is_seen_before_it_was_sent(browser: Browser, site: Site) -> None:
    before = site.counts()["reports"]
    with visit(browser, f"{site.url}/#token={site.token()}") as at:
        at.ready()
        at.pick(*place(site, not_an_output(site, 75)))
        at.page.wait_for_selector("#send:not([disabled])")
        at.page.route("**/reports", lambda route: route.abort())
        at.page.click("#send")
        expect(at.page.locator("#action-said")).to_contain_text("One report is drawn and waits")
        # Drawn, charged, and shown nowhere: no pin, no words, nothing in clear.
        expect(at.page.locator("#legend-drawn")).to_be_hidden()
        assert "from yours" not in at.page.inner_text("#action")
        expect(at.page.locator("#budget-said")).to_contain_text(
            "Epsilon 4 of 12", use_inner_text=True
        )
        waiting = "".join(kept_by(at))
        assert '"output"' not in waiting
        at.page.unroute("**/reports")
        at.page.click("#retry")
        at.page.wait_for_selector('#action-said[data-state="good"]')
        expect(at.page.locator("#legend-drawn")).to_be_visible()
        # The box is empty again.
        assert '"state":"waiting"' not in "".join(kept_by(at))
    assert site.counts()["reports"] == before + 1


def test_who_asks_is_said(browser: Browser, site: Site) -> None:
    with visit(browser, site.url) as at:
        at.ready()
        said = at.page.inner_text("#notice")
        assert "Ufficio mobilità" in said
        assert "Where bicycle racks are missing" in said
        assert "December 31, 2999" in said


def test_a_place_by_its_name(browser: Browser, site: Site) -> None:
    site.wire.clear()
    with visit(browser, site.url) as at:
        at.ready()
        asked = len(at.asked)
        at.page.fill("#search", "nicolo")
        expect(at.page.locator("#search-results button")).to_have_text(["Torre Nicolò"])
        at.page.press("#search", "Enter")
        at.page.wait_for_selector("#spread:visible")
        expect(at.page.locator("#place-said")).to_contain_text(
            "near Torre Nicolò", use_inner_text=True
        )
        at.page.fill("#search", "nowhere")
        expect(at.page.locator("#search-said")).to_contain_text("No street or landmark")
        # Neither the search nor the place asked anybody for anything.
        assert at.asked[asked:] == []


def test_the_own_position_is_used_when_asked_for(browser: Browser, site: Site) -> None:
    lat, lon = place(site, 33)
    here = {"latitude": lat, "longitude": lon, "accuracy": 25.0}
    with visit(browser, site.url, geolocation=here, permissions=["geolocation"]) as at:
        at.ready()
        asked = len(at.asked)
        expect(at.page.locator("#spread")).to_be_hidden()
        at.page.click("#here")
        at.page.wait_for_selector("#spread:visible")
        expect(at.page.locator("#place-said")).to_contain_text(
            f"{lat:.5f}, {lon:.5f}", use_inner_text=True
        )
        expect(at.page.locator("#here-said")).to_contain_text("25 m", use_inner_text=True)
        assert at.asked[asked:] == []
    with visit(browser, site.url) as at:
        at.ready()
        at.page.click("#here")
        expect(at.page.locator("#here-said")).to_contain_text("did not tell")


def test_in_italian(browser: Browser, site: Site) -> None:
    with visit(browser, f"{site.url}/#token={site.token()}", locale="it-IT") as at:
        at.ready()
        assert at.page.get_attribute("html", "lang") == "it"
        at.pick(*place(site, not_an_output(site, 120)))
        at.page.wait_for_selector("#send:not([disabled])")
        expect(at.page.locator("#meaning-said")).to_contain_text(
            "confrontato con tutti", use_inner_text=True
        )
        at.page.select_option("#language", "en")
        assert at.page.get_attribute("html", "lang") == "en"
        expect(at.page.locator("#meaning-said")).to_contain_text("compared with all 279 others")
        expect(at.page.locator("#send")).to_have_text(
            "Draw a place and send it", use_inner_text=True
        )
        at.page.select_option("#language", "it")
        at.send()
        assert at.page.inner_text("#action-said").startswith("Inviato")
        at.page.reload()
        at.ready()
        assert at.page.get_attribute("html", "lang") == "it"


def kept_by(at: Visit) -> list[str]:
    """Everything that the browser keeps for the page, as text."""
    found: list[str] = at.page.evaluate(
        """async () => {
          const out = [JSON.stringify({...localStorage})];
          for (const { name } of await indexedDB.databases()) {
            const database = await new Promise((resolve) => {
              const asked = indexedDB.open(name);
              asked.onsuccess = () => resolve(asked.result);
            });
            for (const store of database.objectStoreNames) {
              const all = await new Promise((resolve) => {
                const asked = database.transaction(store).objectStore(store).getAll();
                asked.onsuccess = () => resolve(asked.result);
              });
              out.push(JSON.stringify(all));
            }
            database.close();
          }
          return out;
        }"""
    )
    return found


def test_the_browser_keeps_no_place(browser: Browser, site: Site) -> None:
    record = not_an_output(site, 171)
    lat, lon = place(site, record)
    with visit(browser, f"{site.url}/#token={site.token()}") as at:
        at.ready()
        at.pick(lat, lon)
        at.send()
        for text in kept_by(at):
            # Bytes of an encrypted box are numbers of their own.
            plain = re.sub(r'"box":\{[^}]*\}', "", text)
            plain = re.sub(r'"[0-9a-f]{64}"|[0-9a-f-]{36}', "", plain)
            assert str(record) not in numbers_in(plain)
            assert f"{lat:.4f}" not in text
            assert f"{lon:.4f}" not in text


def test_a_limit_refuses_until_it_is_raised(browser: Browser, site: Site) -> None:
    with visit(browser, f"{site.url}/#token={site.token()}") as at:
        at.ready()
        at.page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")

        def limit(epsilon: str) -> None:
            at.page.fill("#limit", epsilon)
            at.page.press("#limit", "Enter")

        limit("8")
        for record in (10, 100):
            at.pick(*place(site, not_an_output(site, record)))
            at.send()
        at.pick(*place(site, not_an_output(site, 200)))
        at.page.wait_for_selector('#action-said[data-state="bad"]')
        expect(at.page.locator("#action-said")).to_contain_text(
            "epsilon 8 of 8 is spent", use_inner_text=True
        )
        assert at.page.is_disabled("#send")
        limit("16")
        at.send()
        # Beyond the signed quota nothing is drawn, whatever the limit is.
        at.pick(*place(site, not_an_output(site, 260)))
        at.page.wait_for_selector('#action-said[data-state="bad"]')
        expect(at.page.locator("#action-said")).to_contain_text(
            "takes 3 reports", use_inner_text=True
        )
        assert at.page.is_disabled("#send")


def test_a_place_given_while_another_is_sent_is_taken_afterwards(
    browser: Browser, site: Site
) -> None:
    first, second = (place(site, not_an_output(site, record)) for record in (10, 100))
    held: list[Route] = []

    def hold(route: Route) -> None:
        held.append(route)

    with visit(browser, f"{site.url}/#token={site.token()}") as at:
        at.ready()
        at.pick(*first)
        at.page.route("**/reports", hold)
        with at.page.expect_request("**/reports"):
            at.page.click("#send:not([disabled])")
        text = f"{second[0]:.5f}, {second[1]:.5f}"
        at.page.fill("#numbers", text)
        at.page.press("#numbers", "Enter")
        assert text not in at.page.inner_text("#place-said")
        held[0].continue_()
        expect(at.page.locator("#place-said")).to_contain_text(text)


def test_a_place_beyond_the_map_is_the_nearest_point_of_its_area(
    browser: Browser, site: Site
) -> None:
    with visit(browser, site.url) as at:
        at.ready()
        at.page.evaluate("document.getElementById('by-list').open = true")
        at.page.fill("#numbers", "95, 12")
        at.page.press("#numbers", "Enter")
        at.page.wait_for_selector('#action-said[data-state="bad"]')
        expect(at.page.locator("#action-said")).to_contain_text(
            "not a latitude", use_inner_text=True
        )
        at.page.fill("#numbers", "here")
        at.page.press("#numbers", "Enter")
        expect(at.page.locator("#numbers-said")).to_contain_text("Two numbers", use_inner_text=True)
        assert at.page.is_disabled("#send")
        places = site.table.problem.domain
        lat, lon = Area.around(places.lat, places.lon).clamp(48.85, 2.35)
        at.page.fill("#numbers", "48.85, 2.35")
        at.page.press("#numbers", "Enter")
        expect(at.page.locator("#place-said")).to_contain_text(f"{lat:.5f}, {lon:.5f}")
        at.page.wait_for_selector("#send:not([disabled])")


def test_offline_once_loaded(browser: Browser, site: Site) -> None:
    before = site.counts()["reports"]
    with visit(browser, f"{site.url}/#token={site.token()}") as at:
        at.ready()
        at.page.evaluate("document.getElementById('by-list').open = true")
        site.wire.cut = True
        at.context.set_offline(True)
        try:
            at.page.reload()
            at.ready()
            expect(at.page.locator("#net")).to_be_visible()
            at.pick(*place(site, not_an_output(site, 90)))
            at.page.fill("#token", site.token())
            at.page.click("#send:not([disabled])")
            expect(at.page.locator("#action-said")).to_contain_text("One report is drawn and waits")
            assert site.counts()["reports"] == before
        finally:
            site.wire.cut = False
            at.context.set_offline(False)
        at.page.wait_for_selector('#action-said[data-state="good"]')
        assert site.counts()["reports"] == before + 1


def test_keyboard_alone(browser: Browser, site: Site) -> None:
    before = site.counts()["reports"]
    with visit(browser, site.url, reduced_motion="reduce") as at:
        at.ready()
        keys = at.page.keyboard

        def tab_to(wanted: str) -> None:
            for _ in range(40):
                keys.press("Tab")
                if at.page.evaluate("document.activeElement?.id") == wanted:
                    return
            pytest.fail(f"the keyboard does not reach {wanted}")

        tab_to("canvas")
        for key in ("ArrowRight", "ArrowDown", "ArrowDown", "Shift+ArrowLeft", "+"):
            keys.press(key)
        expect(at.page.locator("#say")).to_contain_text("of the centre")
        keys.press("Enter")
        at.page.wait_for_selector("#send:not([disabled])")
        tab_to("token")
        keys.type(site.token())
        tab_to("send")
        keys.press("Enter")
        at.page.wait_for_selector('#action-said[data-state="good"]')
    assert site.counts()["reports"] == before + 1


def test_a_list_instead_of_the_map(browser: Browser, site: Site) -> None:
    with visit(browser, site.url) as at:
        at.ready()
        at.page.click("#by-list summary")
        listed = at.page.evaluate(
            """() => {
              const area = document.getElementById("list-area");
              const all = [];
              for (const option of area.options) {
                area.value = option.value;
                area.dispatchEvent(new Event("change"));
                all.push(...[...document.getElementById("list-place").options].map((o) => o.value));
              }
              return all.map(Number).sort((a, b) => a - b);
            }"""
        )
        assert listed == list(range(site.table.problem.domain.size))
        at.page.click("#list-pick")
        at.page.wait_for_selector("#send:not([disabled])")
        expect(at.page.locator("#place-said")).to_contain_text("0 m away", use_inner_text=True)


def test_on_a_phone(browser: Browser, site: Site) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    questions = ["#here", "#spread-numbers", "#send"]

    def asks(step: int) -> None:
        at.page.wait_for_selector(questions[step])
        assert [at.page.is_visible(q) for q in questions] == [k == step for k in range(3)]
        assert at.page.is_visible("#token") == (step == 2)
        assert at.page.evaluate("document.documentElement.scrollWidth") <= 360
        cut = """[...document.querySelectorAll("#spread-numbers strong")]
          .filter((e) => e.scrollWidth > e.clientWidth).length"""
        assert at.page.evaluate(cut) == 0
        assert violations(at.page) == []

    with visit(browser, site.url, **phone) as at:
        at.ready()
        position = at.page.locator("#here").bounding_box()
        bar = at.page.locator("#action").bounding_box()
        box = at.page.locator("#canvas").bounding_box()
        assert box is not None and position is not None and bar is not None
        assert position["y"] + position["height"] < bar["y"]
        assert at.page.is_disabled("#next")
        at.page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        at.page.wait_for_selector("#next:not([disabled])")
        asks(0)
        at.page.click("#next")
        asks(1)
        expect(at.page.locator("#step-title")).to_have_text(
            "What would it tell?", use_inner_text=True
        )
        at.page.click("#next")
        at.page.wait_for_selector("#send:not([disabled])")
        asks(2)
        at.send(site.token())
        expect(at.page.locator("#step-title")).to_have_text("It was reported", use_inner_text=True)
        assert at.page.text_content("#spread-title") == "What was reported"
        expect(at.page.locator("#canvas")).to_be_visible()
        expect(at.page.locator("#token")).to_be_hidden()
        small = at.page.evaluate(
            """[...document.querySelectorAll("button")]
              .filter((b) => b.offsetParent && Math.min(b.offsetWidth, b.offsetHeight) < 36)
              .map((b) => b.id)"""
        )
        assert small == []


def test_a_pinch_zooms_and_picks_nothing(browser: Browser, site: Site) -> None:
    phone = {"viewport": {"width": 360, "height": 740}, "has_touch": True, "is_mobile": True}
    with visit(browser, site.url, **phone) as at:
        at.ready()
        session = at.context.new_cdp_session(at.page)

        def touch(kind: str, *points: tuple[float, float]) -> None:
            listed = [{"x": x, "y": y, "id": k} for k, (x, y) in enumerate(points)]
            session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": listed})

        before = at.page.locator("#canvas").screenshot()
        touch("touchStart", (160, 200), (200, 200))
        for step in range(1, 9):
            touch("touchMove", (160 - 8 * step, 200), (200 + 8 * step, 200))
        touch("touchEnd")
        until_drawn_anew(at.page.locator("#canvas"), before)
        expect(at.page.locator("#spread")).to_be_hidden()


def test_another_key_is_refused_loudly(browser: Browser, site: Site) -> None:
    with visit(browser, site.url) as at:
        at.ready()
        at.page.evaluate(
            """localStorage.setItem("panda-mdp.key",
               JSON.stringify({id: "0123456789abcdef", public: btoa("x".repeat(32))}))"""
        )
        site.wire.clear()
        at.page.reload()
        at.page.wait_for_selector("#alarm:visible")
        text = at.page.inner_text("#alarm")
        assert "key has changed" in text
        assert "0123 4567 89ab cdef" in text
        assert at.page.is_disabled("#send")
        assert not [r for r in site.wire.requests() if r.path.endswith("/file")]
        at.page.fill("#alarm input", "0123456789abcdef")
        at.page.click("#alarm button")
        expect(at.page.locator("#alarm")).to_contain_text("not the name")
        shown = site.server.client().get("/v1").json()["key"]["id"]
        at.page.fill("#alarm input", shown)
        at.page.click("#alarm button")
        at.ready()


def test_a_replaced_table_is_used_only_after_a_yes(browser: Browser, site: Site) -> None:
    with visit(browser, site.url) as at:
        at.ready()
        at.page.evaluate(
            """localStorage.setItem("panda-mdp.tables", JSON.stringify({city: "0".repeat(64)}))"""
        )
        at.page.reload()
        at.ready()
        at.pick(*place(site, 33))
        expect(at.page.locator("#meaning-said")).to_contain_text("compared with all")
        expect(at.page.locator("#alarm")).to_contain_text(
            "replaced since your last visit", use_inner_text=True
        )
        assert at.page.is_disabled("#send")
        at.page.click("#alarm button")
        at.send(site.token())


def test_a_link_can_name_the_key(browser: Browser, site: Site) -> None:
    with visit(browser, f"{site.url}/#key=0123456789abcdef") as at:
        at.page.wait_for_selector("#alarm:visible")
        assert at.page.is_disabled("#send")


@pytest.mark.parametrize("what", ["epsilon", "file"])
def test_what_was_changed_on_the_way_is_refused(browser: Browser, site: Site, what: str) -> None:
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(SLOW_MS)

    def claim_less(route, _request):  # type: ignore[no-untyped-def]
        answer = route.fetch()
        route.fulfill(response=answer, body=answer.text().replace('"epsilon":4.0', '"epsilon":3.0'))

    def other_bytes(route, _request):  # type: ignore[no-untyped-def]
        answer = route.fetch()
        body = bytearray(answer.body())
        body[-100] ^= 1
        route.fulfill(response=answer, body=bytes(body))

    if what == "epsilon":
        page.route("**/v1/deployments", claim_less)
    else:
        page.route("**/file", other_bytes)
    page.goto(site.url)
    page.wait_for_selector("#alarm:visible")
    expected = {"epsilon": "signature does not match", "file": "not the one that was announced"}
    assert expected[what] in page.inner_text("#alarm")
    assert page.is_disabled("#send")
    context.close()


def forged(site: Site) -> tuple[bytes, dict[str, Any], dict[str, Any]]:
    """The same weights with a smaller epsilon on the label, named, signed and logged for it."""
    old = (VECTORS / "city.pmdp").read_bytes()[:-32]
    body = old.replace(b'"epsilon":4.0', b'"epsilon":3.0', 1)
    assert body != old
    data = body + hashlib.sha256(body).digest()
    [listed] = site.server.client().get("/v1/deployments").json()["deployments"]
    problem = site.table.problem.with_epsilon(3.0)
    identity = NoGuarantee(problem, site.table.weights, "forged").identity
    sha256 = hashlib.sha256(data).hexdigest()
    table = listed["table"] | {"epsilon": 3.0, "sha256": sha256, "identity": identity}
    names = ("name", "version", "sha256", "size_bytes", "domain", "epsilon", "identity")
    key = SigningKey.load(site.server.folder / "operator.key")
    table["signature"] = key.sign(signed_bytes("table", *(table[name] for name in names)))
    stated = json.loads(listed["statement"]) | {"epsilon": 3.0, "table_identity": table["identity"]}
    text = json.dumps(stated)
    listed |= {
        "table": table,
        "guarantee": listed["guarantee"] | {"epsilon": 3.0},
        "statement": text,
        "signature": key.sign(statement_bytes(listed["name"], text)),
    }
    entries = (
        signed_bytes("table", *(table[name] for name in names)),
        statement_bytes(listed["name"], text),
    )
    leaves = [leaf_hash(entry) for entry in entries]
    root = root_of(leaves).hex()
    head = {
        "size": 2,
        "root": root,
        "at": 1,
        "signature": key.sign(signed_bytes("log", 2, root, 1)),
    }
    log = {"head": head, "leaves": [leaf.hex() for leaf in leaves]}
    return data, {"deployments": [listed]}, log


def test_a_signed_table_that_is_not_private_is_refused(browser: Browser, site: Site) -> None:
    data, listed, log = forged(site)
    answers = {"deployments": {"json": listed}, "file": {"body": data}}
    # Signed for this visitor alone: the log that everybody sees does not have it.
    with replaced(browser, answers) as page:
        page.goto(site.url)
        page.wait_for_selector("#alarm:visible")
        expect(page.locator("#alarm")).to_contain_text("not in the public log", use_inner_text=True)
        # Who saw that log once takes no other.
        page.route("**/log", lambda route: route.fulfill(json=log))
        page.reload()
        expect(page.locator("#alarm")).to_contain_text("log was changed", use_inner_text=True)
    with replaced(browser, answers | {"log": {"json": log}}) as page:
        page.goto(site.url)
        refused_for_its_audit(page, place(site, 33))


def fulfilled(answer: dict[str, Any], route: Route) -> None:
    route.fulfill(**answer)


@contextmanager
def replaced(browser: Browser, answers: dict[str, dict[str, Any]]) -> Iterator[Page]:
    """A page whose server is answered for, by the last part of the address."""
    context = browser.new_context()
    page = context.new_page()
    page.set_default_timeout(SLOW_MS)
    for name, answer in answers.items():
        page.route(f"**/{name}", partial(fulfilled, answer))
    yield page
    context.close()


def refused_for_its_audit(page: Page, chosen: tuple[float, float]) -> None:
    page.wait_for_selector('#check-signature[data-state="good"]')
    page.wait_for_selector('#check-audit[data-state="bad"]')
    expect(page.locator("#check-audit")).to_contain_text(
        "not as private as it says", use_inner_text=True
    )
    expect(page.locator("#alarm")).to_contain_text("This table is refused", use_inner_text=True)
    page.evaluate("document.getElementById('by-list').open = true")
    page.fill("#numbers", "{}, {}".format(*chosen))
    page.press("#numbers", "Enter")
    expect(page.locator("#action-said")).to_contain_text("privacy check failed")
    assert page.is_disabled("#send")


def test_the_page_is_strict_and_the_server_says_so(browser: Browser, site: Site) -> None:
    answer = site.server.client().get("/")
    policy = answer.headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"\sstyle=|<style|<script(?![^>]*\ssrc=)|\son\w+=", answer.text)
    with visit(browser, site.url) as at:
        at.ready()
        at.pick(*place(site, 33))
        at.send(site.token())
        assert at.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_everyone_can_read_it(browser: Browser, site: Site, scheme: str) -> None:
    with visit(browser, site.url, color_scheme=scheme, reduced_motion="reduce") as at:
        at.ready()
        at.pick(*place(site, 33))
        at.page.wait_for_selector("#send:not([disabled])")
        at.page.evaluate("for (const d of document.querySelectorAll('details')) d.open = true")
        at.page.fill("#search", "via prova")
        assert violations(at.page) == []
        at.send(site.token())
        assert violations(at.page) == []
