"""Table and chart of the whole-city benchmark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from solver_report import slope, write

from panda_mdp.base.atomic import atomic_file

BEGIN, END = "<!-- scale: begin -->", "<!-- scale: end -->"
STAGES = ("graph", "solve", "bound", "repair", "audit")
Row = dict[str, Any]


def over_the_limit(row: Row) -> float:
    """The time of an iteration over the least that its memory traffic takes: multipliers and their
    anchor read and multipliers written; table, anchor, costs and scales read, table and midpoint
    written. What is read more than once counts once."""
    moved = 4 * row["outputs"] * (3 * 2 * row["edges"] + 8 * row["records"])
    return float(row["ms_per_iteration"] * row["bandwidth_gb_s"] * 1e6 / moved)


def write_report(rows: list[Row], folder: Path, docs: Path | None) -> None:
    """table.md and the chart; the marked part of `docs` where it is given."""
    latest = last_runs(rows)
    if not latest:
        print(f"no results in {folder}")
        return
    write(folder / "results.json", json.dumps(latest, indent=1))
    table = "\n".join([*cells(latest), "", *same_certificates(latest), *growth(latest), ""])
    write(folder / "table.md", table)
    chart = draw(latest, folder / "scale.png")
    if docs is not None:
        with atomic_file(docs.parent / "images" / chart.name) as stream:
            stream.write(chart.read_bytes())
        head, _, rest = docs.read_text().partition(BEGIN)
        tail = rest.partition(END)[2]
        picture = f"![Time, memory and speed](images/{chart.name})"
        write(docs, f"{head}{BEGIN}\n{table}\n{picture}\n{END}{tail}")
    print(f"report in {folder}")


def last_runs(rows: list[Row]) -> list[Row]:
    """The last run of every case on every machine, in order of size."""
    found: dict[tuple[Any, ...], Row] = {}
    for row in rows:
        where = (row["machine"], row["city"], row["records"], row["outputs"], row["wanted_gap"])
        found[where] = row
    return sorted(
        found.values(),
        key=lambda r: (r["backend"], r["outputs"], r["records"], -r["wanted_gap"]),
    )


def cells(rows: list[Row]) -> list[str]:
    """One line a case."""
    lines = [
        "| machine | city | K | m | gap asked | certified gap | seconds | compiling | "
        + " | ".join(STAGES)
        + " | iterations | ms / iteration | over the bandwidth limit | peak MB | audited ε |",
        "|---|---|---:|---:|---:|---:|---:|---:|" + "---:|" * (len(STAGES) + 5),
    ]
    for row in rows:
        stages = " | ".join(f"{row['stages'].get(name, 0.0):.2f}" for name in STAGES)
        compiling = row["first_seconds"] - row["seconds"] if row["run"] > 1 else 0.0
        memory = f"{row['peak_rss_mb']:,.0f}"
        if row["device_mb"]:
            memory += f" + {row['device_mb']:,.0f} on the device"
        ratio = over_the_limit(row)
        lines.append(
            f"| {row['machine']} | {row['city']} | {row['records']:,} | {row['outputs']:,} | "
            f"{100 * row['wanted_gap']:g} % | {100 * row['gap']:.2f} % | {row['seconds']:.2f} | "
            f"{max(0.0, compiling):.1f} | {stages} | {row['iterations']:,} | "
            f"{row['ms_per_iteration']:.2f} | {ratio:.2f} | {memory} | "
            f"{row['audited_epsilon']:.6f}{'' if row['holds'] else ' FAILS'} |"
        )
    return lines


def same_certificates(rows: list[Row]) -> list[str]:
    """Loss and bound where two machines solved the same case."""
    cases: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        where = (row["city"], row["records"], row["outputs"], row["wanted_gap"])
        cases.setdefault(where, []).append(row)
    lines = [
        "| city | K | gap asked | machine | loss, km | lower bound, km | iterations |",
        "|---|---:|---:|---|---:|---:|---:|",
    ]
    for (city, records, _, wanted), both in cases.items():
        if len(both) > 1:
            lines += [
                f"| {city} | {records:,} | {100 * wanted:g} % | {row['machine']} | "
                f"{row['loss']:.7f} | {row['lower_bound']:.7f} | {row['iterations']:,} |"
                for row in both
            ]
    return ["The same case on different machines:", "", *lines, ""] if len(lines) > 2 else []


def series(rows: list[Row]) -> dict[str, list[Row]]:
    """Samples and whole of Rome at one gap by machine, over growing K."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row["outputs"] == 100 and row["wanted_gap"] == 0.01 and row["city"] == "rome":
            found.setdefault(row["machine"], []).append(row)
    return {name: sorted(chosen, key=lambda r: r["records"]) for name, chosen in found.items()}


def growth(rows: list[Row]) -> list[str]:
    """Exponents of K at a fixed gap."""
    lines = ["| machine | of | exponent of K | from | to |", "|---|---|---:|---:|---:|"]
    for name, chosen in series(rows).items():
        sizes = np.array([row["records"] for row in chosen], dtype=float)
        curves = {
            "seconds": [row["seconds"] for row in chosen],
            "seconds per iteration": [row["ms_per_iteration"] for row in chosen],
            "iterations": [row["iterations"] for row in chosen],
            "solve": [row["stages"].get("solve", 0) for row in chosen],
            "closure": [row["stages"].get("repair", 0) for row in chosen],
            "audit": [row["stages"].get("audit", 0) for row in chosen],
            "memory": [row["peak_rss_mb"] for row in chosen],
        }
        for what, values in curves.items():
            fit = slope(sizes, np.array(values, dtype=float))
            if fit is not None:
                lines.append(
                    f"| {name} | {what} | {fit:.2f} | {sizes[0]:,.0f} | {sizes[-1]:,.0f} |"
                )
    return ["Growth at a certified 1 %, m = 100:", "", *lines] if len(lines) > 2 else []


def where(row: Row) -> str:
    """What iterates, in a word."""
    return "CPU" if row["backend"] == "cpu" else str(row["machine"]).rsplit(" ", 1)[-1]


def case_name(row: Row) -> str:
    """A case with its result, for a label."""
    return (
        f"{row['city'].title()}, {where(row)}, K={row['records']:,}, m={row['outputs']:,}\n"
        f"{100 * row['gap']:.2f} % in {row['seconds']:.3g} s"
    )


def draw(rows: list[Row], path: Path) -> Path:
    """Shares of the stages, time against K, and speed against the bandwidth limit."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, middle, right) = plt.subplots(1, 3, figsize=(16, 5))
    large = [row for row in rows if row["records"] > 40_000 or row["outputs"] > 100]
    places = np.arange(len(large))
    passed = np.zeros(len(large))
    for stage in STAGES:
        share = np.array([row["stages"].get(stage, 0.0) / row["seconds"] for row in large])
        left.barh(places, 100 * share, left=100 * passed, label=stage)
        passed += share
    left.set_yticks(places, [case_name(row) for row in large], fontsize=8)
    left.invert_yaxis()
    left.set(xlabel="% of the time", xlim=(0, 100), title="Whole cities: where the time goes")
    left.legend(fontsize=8, ncols=len(STAGES), loc="upper center", bbox_to_anchor=(0.4, -0.12))
    for name, chosen in series(rows).items():
        sizes = [row["records"] for row in chosen]
        fit = slope(np.array(sizes, dtype=float), np.array([r["seconds"] for r in chosen]))
        label = name if fit is None else f"{name}: K^{fit:.2f}"
        middle.plot(sizes, [row["seconds"] for row in chosen], marker="o", ms=4, label=label)
    middle.set(
        xscale="log", yscale="log", xlabel="K", ylabel="seconds", title="To a certified 1 %, Rome"
    )
    names = [f"{where(r)}  K={r['records']:,}  m={r['outputs']:,}" for r in rows]
    kept = dict(zip(names, rows, strict=True))
    ratios = [over_the_limit(row) for row in kept.values()]
    right.barh(list(kept), ratios, color="#2a78b5")
    right.axvline(1.0, color="black", lw=1)
    right.invert_yaxis()
    right.set(xlabel="time of an iteration over its memory traffic's", title="1 is the limit")
    middle.grid(visible=True, which="both", alpha=0.25)
    if middle.lines:
        middle.legend(fontsize=8)
    figure.tight_layout()
    with atomic_file(path) as stream:
        figure.savefig(stream, dpi=110, format="png")
    plt.close(figure)
    return path
