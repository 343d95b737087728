"""Tables and figures as files, the paper's values beside ours, and one page on everything.

`ours` is mean ± 1.96 standard deviations over the repeats that ended; `paper` is
the paper's entry as it stands; `difference` is ours less the paper's mean, and `inside` says
whether ours lies within the paper's interval. `audited` is the largest epsilon that an audit over
all pairs of records found in any repeat, beside what is claimed.
"""

from __future__ import annotations

import datetime
import io
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.base.atomic import write_whole
from panda_mdp.base.packages import need
from panda_mdp.base.text import as_csv, plain
from panda_mdp.plot.style import save_figure
from panda_mdp.version import __version__
from panda_paper.claims import CLAIMS, checklist, tally
from panda_paper.figures import DRAWINGS, unfinished
from panda_paper.items import FIGURES, ITEMS, TABLES, Item, Setting, paper_row
from panda_paper.paper import PaperValue, paper_value, readme_value
from panda_paper.results import CityResults, Row, Rows, deviation, load_results
from panda_paper.study import Study

Entry = dict[str, Any]
"""One method at one setting, over all repeats: the columns of a table for machines.

`status` says how many repeats ended how, `mean_...` are means of the other values; None where there
is nothing to tell.
"""


def render(template: str, **facts: Any) -> str:
    """A page or a table for people: a template of this package with facts; in pages everything but
    our own pictures is escaped."""
    jinja2 = need("jinja2", "a table or a report", "paper")
    made = jinja2.Environment(
        loader=jinja2.PackageLoader("panda_paper", ""),
        autoescape=template.endswith(".html"),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
    )
    return str(made.get_template(template).render(facts))


def summarise(item: Item, rows: Iterable[Row], city: str) -> list[Entry]:
    """One entry per method and setting, in the item's order, whichever sizes were run."""
    groups: dict[tuple[str, Setting], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.cell.method, row.cell.setting), []).append(row)
    methods = list(dict.fromkeys((*item.methods, *(method for method, _ in groups))))
    order = sorted(groups, key=lambda one: (methods.index(one[0]), one[1].records))
    return [_entry(item, Rows(groups[place]), city) for place in order]


def _entry(item: Item, rows: Rows, city: str) -> Entry:
    method = rows[0].cell.method
    setting = rows[0].cell.setting
    measure = item.measure or ""
    values = rows.numbers(measure)
    mean = float(values.mean()) if len(values) else None
    spread = deviation(values) if len(values) > 1 else None
    place = (city, paper_row(method), setting.records)
    paper = paper_value(item.name, *place) or PaperValue(None)
    endings = Counter(row.status for row in rows)
    notes = Counter(row.outcome.note for row in rows if row.outcome.note)
    note = "".join(text for text, _ in notes.most_common(1))
    some = "" if notes.total() in (0, len(rows)) else f" ({notes.total()} of {len(rows)} repeats)"
    verdicts = [row.value("holds") for row in rows if row.value("holds") is not None]
    largest = ("gap", "claimed_epsilon", "audited_epsilon")
    gap, claimed, audited = (max(rows.numbers(name).tolist(), default=None) for name in largest)
    others = sorted({name for row in rows for name in row.outcome.values} - {measure, *largest})
    means = {f"mean_{name}": _mean(rows.numbers(name)) for name in others}
    return {
        "item": item.name,
        "method": method,
        **{name: getattr(setting, name) for name in ("records", "epsilon", "delta", "users")},
        "prior": setting.prior,
        "repeats": len(rows),
        "done": endings["done"],
        "status": "; ".join(f"{ending} {count}" for ending, count in endings.items()),
        "mean": mean,
        "spread_1.96_std": spread,
        "paper": paper.text,
        "paper_mean": paper.mean,
        "paper_spread": paper.spread,
        "difference": None if mean is None or paper.mean is None else mean - paper.mean,
        "inside_paper_interval": paper.meets(mean),
        "intervals_overlap": paper.meets(mean, spread or 0.0),
        "readme": readme_value(measure, *place) if item.name in ("table2", "table4") else None,
        "seconds": _mean(np.array([row.outcome.seconds for row in rows])),
        "certified_gap": gap,
        "claimed_epsilon": claimed,
        "audited_epsilon": audited,
        "audit_holds": all(verdicts) if verdicts else None,
        "note": note + some,
        **{name: value for name, value in means.items() if value is not None},
    }


def ending(entry: Entry) -> str:
    """How the first repeat ended, of those that ended alike.

    >>> ending({"status": "time limit 2; failed 1"})
    'time limit'
    """
    return str(entry["status"]).partition(";")[0].rstrip("0123456789 ")


def _mean(values: FloatArray) -> float | None:
    finite = values[np.isfinite(values)]
    return float(finite.mean()) if len(finite) else None


def comparison(entries: Sequence[Entry]) -> str:
    """How many of our means lie inside the paper's intervals, over all and by method."""
    judged = [entry for entry in entries if entry["inside_paper_interval"] is not None]
    if not judged:
        return "No entry has an interval of the paper to be compared with."
    inside = Counter(entry["method"] for entry in judged if entry["inside_paper_interval"])
    every = Counter(entry["method"] for entry in judged)
    parts = ", ".join(f"{method} {inside[method]}/{count}" for method, count in every.items())
    overlap = sum(entry["intervals_overlap"] for entry in judged)
    return (
        f"Our mean lies inside the paper's interval in {inside.total()} of {len(judged)} entries, "
        f"and the two intervals overlap in {overlap}. Inside, by method: {parts}."
    )


def markdown(item: Item, entries: Sequence[Entry], study: Study) -> str:
    """The table and a summary of how it compares."""
    priors = sorted({study.prior_source(setting.prior) for setting in item.settings})
    shown = {"item": item, "entries": entries, "study": study, "priors": priors}
    return render("table.md", ending=ending, comparison=comparison, **shown)


def write_item(item: Item, rows: Sequence[Row], study: Study) -> list[Path]:
    """Write an item's files into the study's folder; returns their paths.

    A table becomes CSV, JSON and markdown, a figure PNG, SVG and markdown.
    """
    place = study.folder / item.name
    pictures = []
    texts = {}
    if item.measure is None:
        sentences = told(item, rows, study.title) or ["There are no results yet."]
        lines = "".join(f"- {one}\n" for one in sentences)
        texts[".md"] = f"# {item.title}\n\n![{item.title}]({item.name}.png)\n\n{lines}"
        figure = DRAWINGS[item.name].draw(rows, study.title)
        pictures = [save_figure(figure, f"{place}{end}") for end in (".png", ".svg")]
    else:
        entries = summarise(item, rows, study.name)
        texts[".csv"] = as_csv(entries)
        texts[".json"] = json.dumps(plain(entries, "words"), indent=1) + "\n"
        texts[".md"] = markdown(item, entries, study)
    for end, text in texts.items():
        write_whole(Path(f"{place}{end}"), text)
    return [*pictures, *(Path(f"{place}{end}") for end in texts)]


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


def told(item: Item, rows: Sequence[Row], city: str) -> list[str]:
    """A figure in words."""
    return [*DRAWINGS[item.name].tell(rows, city), *unfinished(rows)]


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
