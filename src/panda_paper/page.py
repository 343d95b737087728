"""One self-contained HTML page: checklist, tables, figures, environment, commands."""

from __future__ import annotations

import datetime
import io
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from panda_mdp.base.atomic import write_whole
from panda_mdp.version import __version__
from panda_paper.claims import CLAIMS, checklist, tally
from panda_paper.figures import DRAWINGS, unfinished
from panda_paper.items import FIGURES, ITEMS, TABLES, Item
from panda_paper.results import CityResults, load_results
from panda_paper.tables import comparison, ending, render, summarise

NAME = "report.html"


def write_report(folder: Path) -> Path:
    """Write the report on all results in a folder (and right below it) as one HTML file in it.

    Nothing is run and no city is read: every number comes from the result rows. The file asks for
    nothing from outside, works in light and dark, on phones and on paper.
    """
    return write_whole(folder / NAME, report_html(load_results(folder)))


def report_html(cities: Sequence[CityResults]) -> str:
    """The whole page, as `page.html` has it."""
    made: Any = (comparison, draws, ending, picture, summarise, tally, told)
    return render(
        "page.html",
        now=datetime.datetime.now(datetime.UTC).strftime("%d %B %Y, %H:%M UTC"),
        version=__version__,
        claims=CLAIMS,
        items=ITEMS,
        tables=[item for item in TABLES if item.group == "paper"],
        figures=FIGURES,
        cities=[(city, checklist(city)) for city in cities],
        **{function.__name__: function for function in made},
    )


def draws(item: Item, city: CityResults) -> str:
    """How many draws the numbers of a table rest on: of most methods, and of those that differ."""
    repeats = Counter((row.cell.method, row.cell.setting.records) for row in city.of(item.name))
    spans = {}
    for name in item.methods:
        counts = sorted({count for (method, _), count in repeats.items() if method == name})
        if counts:
            spans[name] = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    usual = "".join(span for span, _ in Counter(spans.values()).most_common(1))
    others = ", ".join(f"{name} {span}" for name, span in spans.items() if span != usual)
    return "; ".join(filter(None, (usual, others)))


def told(item: Item, city: CityResults) -> list[str]:
    """A figure in words."""
    rows = city.of(item.name)
    return [*DRAWINGS[item.name].tell(rows, city.title), *unfinished(rows)]


def picture(item: Item, city: CityResults) -> Any:
    """A figure as SVG."""
    import matplotlib as mpl
    from markupsafe import Markup

    stream = io.StringIO()
    # The ids of a picture are its own by the salt.
    look: Any = {"svg.fonttype": "none", "svg.hashsalt": f"{city.name}-{item.name}"}
    with mpl.rc_context(look):
        figure = DRAWINGS[item.name].draw(city.of(item.name), city.title)
        figure.savefig(stream, format="svg", transparent=False, metadata={"Date": None})
    # matplotlib escapes the text that it draws.
    return Markup("".join(stream.getvalue().partition("<svg")[1:]))  # noqa: S704
