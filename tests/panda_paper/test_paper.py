"""The paper's numbers as data, read again from its source where that is at hand."""

from __future__ import annotations

import os
from pathlib import Path

from outside import left_out
from paper_latex import read_tables

from panda_paper.items import ITEMS
from panda_paper.paper import PAPER, PaperValue, paper_value, readme_value

ROOT = Path(__file__).resolve().parents[2]
SAMPLE = r"""
\begin{table}[t]
\begin{tabular}{c|c|c}
\toprule
\multicolumn{3}{ c  }{Rome}\\
\cline{1-3}
\multicolumn{1}{ c|  }{Method}  & $K = 500$ & $K = 1,000$ \\
\hline
\multicolumn{1}{ c|  }{EM} & $\leq0.005$ &
$\leq0.005$ \\
% \multicolumn{1}{ c|  }{Laplace} & 1.0±2.0 & 1.0±2.0 \\
\multicolumn{1}{ c|  }{LP} & >1,800 & - \\
\multicolumn{1}{ c|  }{ \textbf{\textsc{PAnDA}-e}} & \textbf{1315.27±98.35} & 0.017±0.00 \\
\end{tabular}
\caption{Rome taxicab location dataset.}
\label{Tb:exp:ULscalability}
\end{table}
"""


def test_the_reader_takes_values_as_they_stand() -> None:
    assert read_tables(SAMPLE) == {
        "table4": {
            "Rome": {
                "EM": {"500": "<=0.005", "1000": "<=0.005"},
                "LP": {"500": ">1800", "1000": "-"},
                "PAnDA-e": {"500": [1315.27, 98.35], "1000": [0.017, 0.0]},
            }
        }
    }


def test_the_data_are_those_of_the_source() -> None:
    folder = Path(os.environ.get("PANDA_MDP_PAPER", ROOT.parent / "shared" / "seed"))
    sources = sorted(folder.glob("*.txt")) if folder.is_dir() else []
    if not sources:
        left_out("paper", f"its LaTeX source is not in {folder}: set PANDA_MDP_PAPER")
    assert read_tables(sources[0].read_text(encoding="utf-8")) == PAPER["tables"]


def test_every_table_has_values_at_all_its_sizes() -> None:
    for item in ITEMS.values():
        for cell in item.plan if item.name.startswith("table") else ():
            assert paper_value(item.name, "Rome", "EM+BR", cell.setting.records) is not None


def test_values_are_means_with_spreads_or_words() -> None:
    value = paper_value("table4", "rome", "LP+BD", 500)
    assert value == PaperValue("167.34±46.52", 167.34, 46.52)
    assert paper_value("table2", "london", "LP", 5000) == PaperValue(">1800")
    assert paper_value("table4", "atlantis", "EM", 500) is None
    assert paper_value("table4", "rome", "optimal", 500) is None


def test_the_readme_stands_for_rome_alone() -> None:
    assert readme_value("loss_m", "rome", "PAnDA-e", 5000) == 184
    assert readme_value("seconds", "rome", "PAnDA-e", 5000) == 1.57
    assert readme_value("loss_m", "london", "PAnDA-e", 5000) is None
    assert readme_value("loss_m", "rome", "EM", 3000) is None
