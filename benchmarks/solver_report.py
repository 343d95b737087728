"""Tables and charts of the solver benchmark."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from panda_mdp.base.atomic import atomic_file

STAGES = {"solve": ("solve", "bound"), "closure": ("repair",), "audit": ("audit",)}
TITLES = {"seconds": "seconds to the certified gap", "solver_mb": "MB above the instance"}


def write_report(
    rows: list[dict], folder: Path, machine: dict, docs: Path | None, kind: str = "solvers"
) -> None:
    """results.json, table.md and charts; the part of `docs` that `kind` marks, where it is given.

    Of the solvers on an accelerator there are too few sizes for charts.
    """
    gaps(rows)
    write(folder / "results.json", json.dumps({"machine": machine, "rows": rows}, indent=1))
    on_gpu = kind == "solvers-gpu"
    table = gpu_markdown(rows, machine) if on_gpu else markdown(rows, machine)
    write(folder / "table.md", table)
    charts = [] if on_gpu else draw_all(rows, folder)
    if docs is not None:
        images = docs.parent / "images"
        for chart in charts:
            with atomic_file(images / f"solvers-{chart.name}") as stream:
                stream.write(chart.read_bytes())
        shown = "\n\n".join(f"![{c.stem}](images/solvers-{c.name})" for c in charts)
        text = docs.read_text()
        begin, end = f"<!-- {kind}: begin -->", f"<!-- {kind}: end -->"
        head, _, rest = text.partition(begin)
        tail = rest.partition(end)[2]
        write(docs, f"{head}{begin}\n{table}\n{shown}\n{end}{tail}".replace("\n\n\n", "\n\n"))


def write(path: Path, text: str) -> None:
    with atomic_file(path) as stream:
        stream.write(text.encode())


def gaps(rows: list[dict]) -> None:
    """Add the gap to the best bound that any solver proved on the same instance."""
    best: dict[str, float] = {}
    for row in rows:
        if row.get("lower_bound") is not None:
            best[row["case"]] = max(best.get(row["case"], 0.0), row["lower_bound"])
    for row in rows:
        bound = best.get(row["case"], 0.0)
        if "loss" in row and bound > 0:
            row["gap_to_best_bound"] = row["loss"] / bound - 1


def markdown(rows: list[dict], machine: dict) -> str:
    """All cells, and the exponents of growth."""
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    lines = [
        f"{machine['cores']} cores of {machine['processor']}, Python {machine['python']}; "
        f"{packages}. City: {machine['city']}. Certified gap asked for: "
        f"{100 * machine['gap']:g} %, at most {machine['limit']:g} s a cell.",
    ]
    families = list(dict.fromkeys((row["family"], row["series"]) for row in rows))
    for family, series in families:
        chosen = [r for r in rows if (r["family"], r["series"]) == (family, series)]
        lines += ["", f"### {family}, growing {series}", "", *cells(chosen)]
    lines += ["", "### Growth: exponents of K and m", "", *exponents(rows), ""]
    return "\n".join(lines)


def cells(rows: list[dict]) -> list[str]:
    """The table of one series."""
    lines = [
        "| K | m | solver | seconds | loss | own gap | gap to best bound | audited ε / ε "
        "| ε / ε as it came | peak MB | ended |",
        "|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    for row in sorted(rows, key=lambda r: (r["records"], r["outputs"])):
        draw = f", draw {row['seed'] + 1}" if row["seed"] else ""
        head = f"| {row['records']:,} | {row['outputs']:,} | {row['solver']}{draw} | "
        if "error" in row:
            lines.append(f"{head}> {row['limit']:g} | | | | | | | {row['error']} |")
            continue
        share = row["audited_epsilon"] / row["epsilon"]
        lines.append(
            f"{head}{row['seconds']:.2f} | {row['loss']:.5g} | {percent(row.get('gap'))} | "
            f"{percent(row.get('gap_to_best_bound'))} | {share:.5f} | {as_it_came(row)} | "
            f"{row['peak_mb']:.0f} | {row['stopped']}{asked(row)} |"
        )
    return lines


def gpu_markdown(rows: list[dict], machine: dict) -> str:
    """The solvers on an accelerator, with how many times as long as ours each took."""
    packages = ", ".join(f"{name} {number}" for name, number in machine["packages"].items())
    lines = [
        f"{machine['accelerator']}; Python {machine['python']}, {packages}. "
        f"City: {machine['city']}. Certified gap asked of ours: {100 * machine['gap']:g} %, "
        f"at most {machine['limit']:g} s a solve.",
        "",
        "| K | m | solver | seconds | of it the solver | times ours | iterations | loss | own gap "
        "| gap to best bound | audited ε / ε | ε / ε as it came | ended |",
        "|---:|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|",
    ]
    ours = {row["case"]: row["seconds"] for row in rows if row["solver"] == "panda-mdp, GPU"}
    names = {name: place for place, name in enumerate(dict.fromkeys(r["solver"] for r in rows))}
    for row in sorted(rows, key=lambda r: (r["records"], r["outputs"], names[r["solver"]])):
        head = f"| {row['records']:,} | {row['outputs']:,} | {row['solver']} | "
        if "error" in row:
            lines.append(f"{head}> {row['limit']:g} | | | | | | | | | {row['error']} |")
            continue
        times = row["seconds"] / ours[row["case"]] if row["case"] in ours else None
        alone = sum(row["stages"].get(name, 0.0) for name in ("solve", "bound"))
        lines.append(
            f"{head}{row['seconds']:.2f} | {alone:.2f} | "
            f"{'' if times is None else f'{times:.3g}'} | {row['iterations']:,} | "
            f"{row['loss']:.5g} | {percent(row.get('gap'))} | "
            f"{percent(row.get('gap_to_best_bound'))} | "
            f"{row['audited_epsilon'] / row['epsilon']:.5f} | {as_it_came(row)} | "
            f"{row['stopped'].lower().replace('_', ' ')} |"
        )
    return "\n".join([*lines, ""])


def as_it_came(row: dict) -> str:
    """The audit of the solver's own table, over epsilon."""
    if "raw_epsilon" not in row:
        return ""
    raw = row["raw_epsilon"]
    # A row of zeros, or of no numbers, is no distribution.
    return "no table" if raw is None else f"{raw / row['epsilon']:.3g}"


def asked(row: dict) -> str:
    tolerance = row.get("tolerance")
    return "" if tolerance is None else f" (at {tolerance:g})"


def percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.2f} %"


def exponents(rows: list[dict]) -> list[str]:
    """Slopes of log seconds and log memory over log K or log m, by solver; ours by stage."""
    lines = [
        "| series | solver | of | exponent | points |",
        "|---|---|---|---:|---:|",
    ]
    for (family, series), solver, chosen in groups(rows):
        for what, values in curves(chosen, solver == "panda-mdp").items():
            fit = slope(size_of(chosen, series), values)
            if fit is not None:
                lines.append(
                    f"| {family}, {series} | {solver} | {what} | {fit:.2f} | {len(values)} |"
                )
    return lines


def groups(rows: list[dict]) -> list[tuple[tuple[str, str], str, list[dict]]]:
    """Cells that reached their gap, by series and solver, in order of size."""
    found: dict[tuple[tuple[str, str], str], list[dict]] = {}
    for row in rows:
        if row["reached"]:
            found.setdefault(((row["family"], row["series"]), row["solver"]), []).append(row)
    return [
        (series, solver, sorted(chosen, key=lambda r: (r["records"], r["outputs"])))
        for (series, solver), chosen in found.items()
    ]


def size_of(rows: list[dict], series: str) -> np.ndarray:
    return np.array([row["records" if series == "K" else "outputs"] for row in rows], dtype=float)


def curves(rows: list[dict], staged: bool) -> dict[str, np.ndarray]:
    """Seconds, memory and, for ours, seconds by stage."""
    found = {
        "seconds": np.array([row["seconds"] for row in rows]),
        "memory": np.array([row["solver_mb"] for row in rows]),
    }
    if staged:
        for name, parts in STAGES.items():
            found[f"seconds: {name}"] = np.array(
                [sum(row["stages"].get(part, 0.0) for part in parts) for row in rows]
            )
    return found


def slope(sizes: np.ndarray, values: np.ndarray) -> float | None:
    """The exponent of a power law through the points; None where there are fewer than two."""
    kept = values > 0
    if kept.sum() < 2 or len(np.unique(sizes[kept])) < 2:
        return None
    return float(np.polyfit(np.log(sizes[kept]), np.log(values[kept]), 1)[0])


def draw_all(rows: list[dict], folder: Path) -> list[Path]:
    """Log-log charts: time and memory by series, and ours by stage."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    made = []
    for family, series in dict.fromkeys((row["family"], row["series"]) for row in rows):
        figure, axes = plt.subplots(1, 3, figsize=(15, 4.6))
        for where, solver, chosen in groups(rows):
            if where != (family, series):
                continue
            sizes = size_of(chosen, series)
            line(axes[0], sizes, np.array([r["seconds"] for r in chosen]), solver)
            line(axes[1], sizes, np.array([r["solver_mb"] for r in chosen]), solver)
            if solver == "panda-mdp":
                for name, values in curves(chosen, staged=True).items():
                    if name.startswith("seconds: "):
                        line(axes[2], sizes, values, name.removeprefix("seconds: "))
        names = (TITLES["seconds"], TITLES["solver_mb"], "seconds of panda-mdp by stage")
        for axis, name in zip(axes, names, strict=True):
            axis.set(xscale="log", yscale="log", xlabel=series, ylabel=name)
            sizes = sorted({int(n) for drawn in axis.lines for n in drawn.get_xdata()})
            axis.set_xticks(sizes, [f"{size:,}" for size in sizes], rotation=30)
            axis.set_xticks([], minor=True)
            axis.grid(visible=True, which="both", alpha=0.25)
            if axis.lines:
                axis.legend(fontsize=8)
        figure.suptitle(f"{family}: growing {series}")
        figure.tight_layout()
        path = folder / f"{family.replace(', ', '-')}-{series}.png"
        with atomic_file(path) as stream:
            figure.savefig(stream, dpi=120, format="png")
        plt.close(figure)
        made.append(path)
    return made


def line(axis: object, sizes: np.ndarray, values: np.ndarray, label: str) -> None:
    kept = values > 0
    if not kept.any():
        return
    fit = slope(sizes, values)
    name = label if fit is None else f"{label} ~ {fit:.2f}"
    # Several draws of one size: all of them as points, the line through their means.
    distinct = np.unique(sizes[kept])
    means = [np.exp(np.log(values[kept & (sizes == size)]).mean()) for size in distinct]
    drawn = axis.plot(distinct, means, marker="o", markersize=4, label=name)  # type: ignore[attr-defined]
    axis.scatter(sizes[kept], values[kept], s=6, color=drawn[0].get_color())  # type: ignore[attr-defined]
