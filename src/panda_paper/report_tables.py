"""The tables of the report: ours, the paper's value below it, and what the audit found."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from html import escape

from panda_paper.specs import Item
from panda_paper.store import Row
from panda_paper.summary import Entry, summarise

FORMATS = {"seconds": "{:,.2f}", "loss_m": "{:,.0f}", "coefficient": "{:.3f}"}
WORDS = {
    "infeasible": "does not fit",
    "time limit": "over the limit",
    "failed": "failed",
}


def entries_of(item: Item, rows: Sequence[Row], city: str) -> list[Entry]:
    """One entry per method and setting of the rows, whichever sizes were run."""
    settings = tuple(dict.fromkeys(row.cell.setting for row in rows))
    methods = tuple(dict.fromkeys((*item.methods, *(row.cell.method for row in rows))))
    return summarise(replace(item, settings=settings, methods=methods), rows, city)


def table_html(item: Item, entries: Sequence[Entry]) -> str:
    """One table of the paper as HTML: methods down, K across."""
    sizes = sorted({entry.setting.records for entry in entries})
    head = "".join(f"<th scope=col>K = {size:,}</th>" for size in sizes)
    body = []
    for method in dict.fromkeys(entry.method for entry in entries):
        mine = {e.setting.records: e for e in entries if e.method == method}
        cells = "".join(_cell(item, mine[size]) if size in mine else "<td></td>" for size in sizes)
        body.append(f"<tr><th scope=row>{escape(method)}</th>{cells}</tr>")
    return (
        '<div class="scroll"><table class="numbers"><thead><tr><th scope=col>method</th>'
        f"{head}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _cell(item: Item, entry: Entry) -> str:
    pattern = FORMATS.get(item.measure, "{:,.3g}")
    if entry.mean is None:
        status = next(iter(entry.statuses))
        lines = [
            f'<span class="none" title="{escape(entry.note)}">{WORDS.get(status, status)}</span>'
        ]
    else:
        spread = "" if entry.spread is None else f" <small>±{pattern.format(entry.spread)}</small>"
        lines = [f"{pattern.format(entry.mean)}{spread}"]
    if entry.paper is not None and entry.paper.text != "-":
        mark = {None: "", True: ' <b class="in">in</b>', False: ' <b class="out">out</b>'}
        lines.append(f"<small>paper {escape(entry.paper.text)}{mark[entry.inside]}</small>")
    if entry.audited is not None and not entry.holds:
        shown = "∞" if math.isinf(entry.audited) else f"{entry.audited:,.3g}"
        lines.append(f'<small class="bad">ε claimed {entry.claimed:g}, audited {shown}</small>')
    elif entry.gap is not None:
        lines.append(f'<small class="in">audit holds, gap {entry.gap:.1%}</small>')
    return f"<td>{'<br>'.join(lines)}</td>"
