"""Draw the pictures of docs/cities.md anew, small enough for a repository.

    python benchmarks/pictures.py

Runs the examples and reduces their pictures to 200 colours. The screenshot of the interactive map
is taken where chromium is installed.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import ModuleType

import numpy as np
from PIL import Image

import panda_mdp as pm
from panda_mdp import plot

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
BROWSER_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--window-size=1100,720", "--virtual-time-budget=3000"),
)


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / f"{name}.py")
    if spec is None or spec.loader is None:
        raise SystemExit(f"there is no example {name}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def keep(source: Path, name: str) -> None:
    """Store a picture of docs/cities.md."""
    reduced(source, f"cities-{name}")


def reduced(source: Path, name: str) -> None:
    """Store a picture with 200 colours, chosen so that small marks keep theirs."""
    IMAGES.mkdir(exist_ok=True)
    with Image.open(source) as picture:
        small = picture.convert("RGB").quantize(
            200, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE
        )
        small.save(IMAGES / f"{name}.png", optimize=True)
    print(f"{name}.png {(IMAGES / f'{name}.png').stat().st_size / 1000:.0f} KB")


def screenshot(page: Path, layer: str, folder: Path) -> None:
    browser = shutil.which("chromium")
    if browser is None:
        print("chromium is not installed; the screenshot stays as it is")
        return
    target = folder / "map.png"
    subprocess.run(
        [
            browser,
            *BROWSER_FLAGS,
            f"--user-data-dir={folder / 'profile'}",
            f"--screenshot={target}",
            f"{page.as_uri()}#{layer}",
        ],
        check=True,
        capture_output=True,
    )
    keep(target, "map")


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        keep(example("first_steps").main(folder), "record")
        screenshot(folder / "first_steps.html", "reports", folder)
        keep(example("compare_methods").main(folder), "trade-off")
        keep(example("choose_epsilon").main(folder), "epsilon")
        keep(example("words").main(folder), "words")
        keep(example("road_metric").main(folder), "road")
        city = pm.synthetic_city(5000)
        keep(plot.save_figure(plot.draw_city(city), folder / "city.png"), "city")
        domain = city.domain(1500)
        outputs = np.arange(80)
        loss = pm.travel_loss(city, domain, outputs, [100, 200, 300])
        table = pm.loss_exponential(pm.Problem(domain, outputs, loss, 5.0))
        for kind, draw in (("loss", plot.draw_expected_loss), ("local", plot.draw_local_epsilon)):
            keep(plot.save_figure(draw(table, city=city), folder / f"{kind}.png"), kind)


if __name__ == "__main__":
    main()
