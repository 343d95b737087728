"""The files of an item: a table as CSV, JSON and markdown, a figure as PNG, SVG and markdown."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from panda_mdp.base.atomic import atomic_file
from panda_mdp.base.plain import plain
from panda_mdp.plot.style import save_figure
from panda_paper.cells.outcome import Row
from panda_paper.cells.workspace import Study
from panda_paper.draw.figures import DRAWINGS, unfinished
from panda_paper.report.entries import summarise
from panda_paper.report.markdown import markdown
from panda_paper.settings.item import Figure, Item


def write_item(item: Item, rows: Sequence[Row], study: Study) -> list[Path]:
    """Write an item's files into the study's folder; returns their paths."""
    if isinstance(item, Figure):
        return _write_figure(item, rows, study)
    entries = summarise(item, rows, study.name)
    fields = [entry.fields() for entry in entries]
    return [
        _write(study.folder / f"{item.name}.csv", _csv(fields)),
        _write(
            study.folder / f"{item.name}.json", json.dumps(plain(fields, "words"), indent=1) + "\n"
        ),
        _write(study.folder / f"{item.name}.md", markdown(item, entries, study)),
    ]


def _write_figure(item: Figure, rows: Sequence[Row], study: Study) -> list[Path]:
    drawing = DRAWINGS[item.name]
    figure = drawing.draw(rows, study.title)
    sentences = drawing.tell(rows, study.title) or ["There are no results yet."]
    lines = [
        f"# {item.title}",
        "",
        f"![{item.title}]({item.name}.png)",
        "",
        *(f"- {one}" for one in (*sentences, *unfinished(rows))),
        "",
    ]
    return [
        *(save_figure(figure, study.folder / f"{item.name}{end}") for end in (".png", ".svg")),
        _write(study.folder / f"{item.name}.md", "\n".join(lines)),
    ]


def _write(path: Path, text: str) -> Path:
    with atomic_file(path) as stream:
        stream.write(text.encode())
    return path


def _csv(rows: Sequence[dict[str, Any]]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row))
    out = io.StringIO()
    writer = csv.DictWriter(out, names, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue()
