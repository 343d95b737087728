"""The interactive map is one file that asks for nothing, and holds the right numbers."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from outside import left_out

from panda_mdp import City, Mechanism, Problem, attack, exponential, synthetic_city, travel_loss
from panda_mdp.errors import InvalidInputError
from panda_mdp.methods.references import android_grid
from panda_mdp.plot import write_map
from panda_mdp.plot.html import map_data
from panda_mdp.plot.measures import expected_losses, local_epsilons


@pytest.fixture(scope="module")
def city() -> City:
    return synthetic_city(300, seed=2)


@pytest.fixture(scope="module")
def mechanism(city: City) -> Mechanism:
    domain = city.domain(120)
    outputs = np.arange(0, 120, 10)
    return exponential(Problem(domain, outputs, travel_loss(city, domain, outputs, [7]), 3.0))


def unpack(text: str, kind: str) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), dtype=kind)


def test_data_are_those_of_the_table(city: City, mechanism: Mechanism) -> None:
    data = map_data(city, mechanism)
    records = data["records"]
    (first,) = records["tables"]
    shares = unpack(first["shares"], "<u2").reshape(120, 12) / 65535
    np.testing.assert_allclose(shares, mechanism.matrix, atol=1e-5)
    np.testing.assert_allclose(
        unpack(first["losses"], "<f4"), expected_losses(mechanism), rtol=1e-6
    )
    np.testing.assert_allclose(
        unpack(records["epsilons"], "<f4"), local_epsilons(mechanism), rtol=1e-6
    )
    ends = unpack(data["city"]["ends"], "<u4").reshape(-1, 2)
    assert len(ends) == city.streets and ends.max() < city.nodes
    places = unpack(records["places"], "<f4").reshape(-1, 2)
    apart = np.linalg.norm(places[3] - places[50]) / 1000
    assert apart == pytest.approx(mechanism.problem.domain.distance(3, 50), rel=1e-3)


def test_page_needs_nothing_else(city: City, mechanism: Mechanism, tmp_path: Path) -> None:
    page = write_map(tmp_path / "map.html", city=city, table=mechanism, title="A & <b>").read_text()
    assert "default-src 'none'" in page
    assert re.findall(r"(?:src|href)\s*=\s*[\"']?(?!data:)[^\"'>\s]+", page) == []
    assert "http://" not in page.replace("http-equiv", "") and "https://" not in page
    assert "A &amp; &lt;b&gt;" in page and "__DATA__" not in page
    payload = re.search(r"const data = (\{.*\});\n", page)
    assert payload is not None and json.loads(payload[1])["records"]["count"] == 120


def test_a_card_says_what_two_tables_tell(city: City, tmp_path: Path) -> None:
    """A phone's grid, whose cells are no records, beside a table over the same places."""
    domain = city.domain(120)
    problem = Problem(domain, np.arange(120), domain.distances(), 2.0)
    ours, theirs = exponential(problem), android_grid(problem)
    tables = map_data(None, ours, theirs)["records"]["tables"]
    for told, table in zip(tables, (ours, theirs), strict=True):
        count = table.problem.outputs_count
        assert len(unpack(told["places"], "<f4")) == 2 * count
        shares = unpack(told["shares"], "<u2").reshape(120, count) / 65535
        np.testing.assert_allclose(shares, table.matrix, atol=1e-5)
        seen = attack(table, radii=(0.2,))
        np.testing.assert_allclose(unpack(told["off"], "<f4"), seen.error_by_record, rtol=1e-6)
        near = unpack(told["near"], "<f4")
        assert float(near.mean()) == pytest.approx(seen.located[0.2], rel=1e-5)
    assert [told["guarantee"] for told in tables] == [True, False]
    page = write_map(tmp_path / "card.html", city=city, table=ours, against=theirs).read_text()
    assert "default-src 'none'" in page and "Android's grid" in page
    fewer = exponential(Problem(city.domain(60), [0, 1], city.domain(60).distances()[:, :2], 2.0))
    with pytest.raises(InvalidInputError, match="the other table has other records"):
        map_data(None, ours, fewer)


def test_names_cannot_break_out(tmp_path: Path) -> None:
    base = synthetic_city(30)
    name = "</script><script>alert(1)</script>"
    city = City(base.lat, base.lon, base.u, base.v, base.length_m, name=name)
    page = write_map(tmp_path / "map.html", city=city).read_text()
    assert "<script>alert" not in page and page.count("</script>") == 1


def test_wrong_calls(city: City, mechanism: Mechanism) -> None:
    with pytest.raises(InvalidInputError, match="does not end in"):
        write_map("map.png", city=city)
    with pytest.raises(InvalidInputError, match="nothing to show"):
        write_map("map.html")
    with pytest.raises(InvalidInputError, match="120 x 12 entries"):
        map_data(None, mechanism, entries=100)


DRIVE = """
const at = records.xy, far = at.length / 2 - 1;
const spot = {clientX: px(at[2 * far]), clientY: py(at[2 * far + 1]), pointerId: 1, bubbles: true};
canvas.setPointerCapture = () => {};
canvas.dispatchEvent(new PointerEvent("pointerdown", spot));
canvas.dispatchEvent(new PointerEvent("pointerup", spot));
const before = view.scale;
document.getElementById("in").click();
canvas.dispatchEvent(new WheelEvent("wheel", {deltaY: -200, clientX: 300, clientY: 300}));
canvas.dispatchEvent(new KeyboardEvent("keydown", {key: "ArrowLeft"}));
document.querySelector('input[value="epsilons"]').click();
const result = [chosen === far || chosen, view.scale > 1.9 * before, layer];
document.body.dataset.result = JSON.stringify(result);
"""


def test_page_runs_in_a_browser(city: City, mechanism: Mechanism, tmp_path: Path) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        left_out("Chromium", "install the Debian package chromium")
    path = write_map(tmp_path / "map.html", city=city, table=mechanism)

    def content(page: Path, layer: str) -> str:
        flags = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run")
        quiet = ("--disable-background-networking", "--disable-component-update", "--disable-sync")
        profile = f"--user-data-dir={tmp_path / 'profile'}"
        target = f"{page.as_uri()}#{layer}"
        done = subprocess.run(
            [browser, *flags, *quiet, profile, "--virtual-time-budget=2000", "--dump-dom", target],
            capture_output=True,
            text=True,
            timeout=300,
            check=True,
        )
        return done.stdout

    # The script runs to its end: panels are filled from the data.
    shown = content(path, "losses")
    assert "Expected loss [km]" in shown
    assert "exponential, epsilon 3 per km, 120 records, 12 outputs" in shown
    # A click chooses a record, buttons and wheel zoom, the layer changes.
    driven = tmp_path / "driven.html"
    driven.write_text(path.read_text().replace("</script>", DRIVE + "</script>"))
    shown = content(driven, "reports")
    assert 'data-result="[true,true,&quot;epsilons&quot;]"' in shown
    assert "Local epsilon [1/km], promised 3" in shown
