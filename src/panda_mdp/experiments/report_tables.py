"""The tables of the report: ours, the paper's value below it, and what the audit found."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import numpy as np

from panda_mdp.experiments.cells import METHODS
from panda_mdp.experiments.figures_series import collect, records_of
from panda_mdp.experiments.paper import PaperValue, paper_value
from panda_mdp.experiments.specs import Item
from panda_mdp.experiments.store import Row

FORMATS = {"seconds": "{:,.2f}", "loss_m": "{:,.0f}", "coefficient": "{:.3f}"}
LETTERS = {"infeasible": "does not fit", "time limit": "over the limit", "failed": "failed"}


def table_html(item: Item, rows: Sequence[Row], city: str) -> str:
    """One table of the paper as HTML: methods down, K across."""
    sizes = sorted({row.cell.setting.records for row in rows})
    head = "".join(f"<th scope=col>K = {size:,}</th>" for size in sizes)
    body = []
    for method in dict.fromkeys(row.cell.method for row in rows):
        cells = "".join(_cell(item, rows, method, size, city) for size in sizes)
        body.append(f"<tr><th scope=row>{escape(method)}</th>{cells}</tr>")
    return (
        '<div class="scroll"><table class="numbers"><thead><tr><th scope=col>method</th>'
        f"{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _cell(item: Item, rows: Sequence[Row], method: str, size: int, city: str) -> str:
    here = [row for row in rows if row.cell.method == method and row.cell.setting.records == size]
    if not here:
        return "<td></td>"
    pattern = FORMATS.get(item.measure, "{:,.3g}")
    series = collect(here, method, item.measure, records_of)
    lines = []
    if len(series):
        own = pattern.format(series.mean[0])
        if series.count[0] > 1:
            own += f" <small>±{pattern.format(series.spread[0])}</small>"
        lines.append(own)
    else:
        status = here[-1].status
        lines.append(
            f'<span class="none" title="{escape(here[-1].outcome.note)}">{LETTERS[status]}</span>'
        )
    known = METHODS.get(method)
    paper = paper_value(item.name, city, (known.paper if known else None) or method, size)
    if paper is not None and paper.text != "-":
        lines.append(f"<small>paper {escape(paper.text)}{_mark(paper, series.mean)}</small>")
    audited = [float(v) for row in here if (v := row.value("audited_epsilon")) is not None]
    if audited and not all(row.value("holds") for row in here):
        worst = max(audited)
        shown = "infinite" if np.isinf(worst) else f"{worst:,.3g}"
        lines.append(f'<small class="bad">audited ε {shown}</small>')
    return f"<td>{'<br>'.join(lines)}</td>"


def _mark(
    paper: PaperValue, mean: Sequence[float] | np.ndarray[tuple[int], np.dtype[np.float64]]
) -> str:
    """Whether our mean lies in the paper's interval."""
    if not len(mean):
        return ""
    inside = paper.holds(float(mean[0]))
    if inside is None:
        return ""
    return ' <span class="in">inside</span>' if inside else ' <span class="out">outside</span>'


def inside_share(
    item: Item, rows: Sequence[Row], city: str, methods: Sequence[str]
) -> tuple[int, int]:
    """How many cells of some methods lie within the paper's interval, of how many compared."""
    inside = compared = 0
    for method in methods:
        series = collect(rows, method, item.measure, records_of)
        known = METHODS.get(method)
        for size, mean in zip(series.x, series.mean, strict=True):
            paper = paper_value(
                item.name, city, (known.paper if known else None) or method, int(size)
            )
            found = None if paper is None else paper.holds(float(mean))
            if found is not None:
                compared += 1
                inside += found
    return inside, compared
