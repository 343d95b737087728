"""Reads the paper's tables from its LaTeX source: where `paper.json` comes from."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

LABELS = {
    "Tb:exp:time_scalability": "table2",
    "Tb:exp:time_scalability_realdata": "table3",
    "Tb:exp:ULscalability": "table4",
    "Tb:exp:ULscalability_realdata": "table5",
    "Tb:exp:time_scalability15": "table7",
    "Tb:exp:time_scalability_backup": "table8",
    "Tb:exp:ULscalability15": "table9",
    "Tb:exp:ULscalability_backup": "table10",
    "Tb:exp:time_scalability_realdata15": "table11",
    "Tb:exp:ULscalability_realdata15": "table12",
    "Tb:exp:cluster": "clustering",
}
"""Items by the label of their table; numbers as LaTeX counts them."""
CITIES = ("Rome", "NYC", "London")
_TABLE = re.compile(r"\\begin\{table\}.*?\\end\{table\}", re.DOTALL)
_LABEL = re.compile(r"\\label\{(Tb:exp:[^}]*)\}")
_NUMBER = r"([0-9][0-9,]*\.?[0-9]*)"
_INTERVAL = re.compile(_NUMBER + r"\s*±\s*" + _NUMBER)
_BOUND = re.compile(r"(>|\\leq)\s*" + _NUMBER)


def read_tables(source: str) -> dict[str, Any]:
    """Item -> city -> method -> K (as text) -> value.

    A value is [mean, 1.96 std], or the text "<=0.005", ">1800" or "-" where the paper has that.
    """
    tables: dict[str, Any] = {}
    for match in _TABLE.finditer(_without_comments(source)):
        label = _LABEL.search(match.group())
        if label is not None and label.group(1) in LABELS:
            tables[LABELS[label.group(1)]] = _cities(match.group())
    return tables


def _without_comments(source: str) -> str:
    return "\n".join(re.sub(r"(?<!\\)%.*", "", line) for line in source.splitlines())


def _cities(table: str) -> dict[str, Any]:
    cities: dict[str, Any] = {}
    city, sizes = "", []
    body = table[table.index(r"\begin{tabular}") : table.index(r"\end{tabular}")]
    for row in _rows(body):
        heads = [name for name in CITIES if any(re.search(rf"\b{name}\b", cell) for cell in row)]
        if len(row) == 1 and heads:
            city = heads[0]
            cities[city] = {}
        elif "Method" in row[0]:
            sizes = [re.sub(r"[^0-9]", "", cell) for cell in row[1:]]
        elif city and sizes and len(row) == len(sizes) + 1:
            method = _method(row[0])
            cities[city][method] = dict(zip(sizes, (_value(cell) for cell in row[1:]), strict=True))
    return cities


def _rows(table: str) -> Iterator[list[str]]:
    for line in table.split(r"\\"):
        cells = [" ".join(cell.split()) for cell in line.split("&")]
        if any(cells):
            yield cells


def _method(cell: str) -> str:
    """The name inside `\\multicolumn{1}{c|}{...}`."""
    name = cell[cell.rindex("}{") + 2 :] if "}{" in cell else cell
    name = re.sub(r"\\text(bf|sc)", "", name)
    return re.sub(r"[{}\s]", "", name)


def _value(cell: str) -> Any:
    interval = _INTERVAL.search(cell)
    if interval:
        return [_number(part) for part in interval.groups()]
    bound = _BOUND.search(cell)
    if bound:
        sign = ">" if bound.group(1) == ">" else "<="
        return f"{sign}{_number(bound.group(2)):g}"
    return "-"


def _number(text: str) -> float:
    return float(text.replace(",", ""))
