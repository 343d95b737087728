"""Tables and charts of the protocol's load benchmark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from panda_mdp.base.atomic import atomic_file

TARGET_MS = 100.0
NAMES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
Result = dict[str, Any]


def write_report(folder: Path, docs: Path | None) -> None:
    """load.md and the charts from what was measured; the marked part of `docs` where given."""
    found: list[Result] = []
    for kind in NAMES:
        path = folder / f"load-{kind}.json"
        if path.exists():
            found.append(json.loads(path.read_text()))
    if not found:
        print(f"no results in {folder}")
        return
    text = "\n".join(
        [*machine_line(found[0]), "", *steady_table(found), "", *download_table(found)]
    )
    write(folder / "load.md", text + "\n")
    charts = [
        draw(found, "steady", folder / "protocol-load.png"),
        draw(found, "beside", folder / "protocol-downloads.png"),
    ]
    if docs is not None:
        for chart in charts:
            with atomic_file(docs.parent / "images" / chart.name) as stream:
                stream.write(chart.read_bytes())
        put(docs, "load", text)
    print(f"report in {folder}")


def put(docs: Path, part: str, text: str) -> None:
    """Replace a marked part of a page."""
    begin, end = f"<!-- {part}: begin -->", f"<!-- {part}: end -->"
    head, mark, rest = docs.read_text().partition(begin)
    if not mark:
        raise SystemExit(f"{docs} has no part {part}")
    write(docs, f"{head}{begin}\n{text}\n{end}{rest.partition(end)[2]}")


def write(path: Path, text: str) -> None:
    with atomic_file(path) as stream:
        stream.write(text.encode())


def machine_line(result: Result) -> list[str]:
    machine, disk = result["machine"], result["disk_fdatasync_ms"]
    return [
        f"{machine['processor']}, {machine['cores']} cores, {machine['memory_gib']} GiB, Python "
        f"{machine['python']}, SQLite {machine['sqlite']}. The disk makes 4 kB durable in "
        f"{disk['median']:.2f} ms (median), {disk['p99']:.1f} ms (p99)."
    ]


def label(result: Result) -> str:
    """What was measured, in words."""
    servers = f", {result['servers']} servers" if result["servers"] > 1 else ""
    return NAMES[result["kind"]] + servers + (", abused" if result["abused"] else "")


def steady_table(found: list[Result]) -> list[str]:
    lines = [
        "| | accepted per second | p50 ms | p90 | p99 | p99.9 | max | refused or lost "
        "| reports per commit | first server, share of a core | generator "
        "| most memory of a server |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for result in found:
        steady, check = result["steady"], result["check"]
        marks = " | ".join(f"{value:.1f}" for value in steady["latency_ms"].values())
        share = result["processor_share"]
        lines.append(
            f"| {label(result)}, {result['seconds']:g} s | {steady['accepted_per_s']:,.0f} "
            f"| {marks} | {steady['sent'] - steady['accepted']} "
            f"| {check['exported'] / check['commits']:.1f} | {share['server']:.0%} "
            f"| {share['generator']:.0%} | {max(result['memory_mb']):.0f} MB |"
        )
    for result in found:
        check = result["check"]
        lines += [
            "",
            f"{NAMES[result['kind']]}: {check['accepted']:,} reports acknowledged in both runs, "
            f"{check['exported']:,} exported, {check['counted']:,} counted; missing "
            f"{check['missing']}, twice {check['repeated']}, never sent {check['not_sent']}"
            + (f"; integrity check: {result['integrity']}." if result["integrity"] else "."),
        ]
    return lines


def download_table(found: list[Result]) -> list[str]:
    lines = [
        "| | clients | bytes each | verified | all have it after | throughput "
        "| reports meanwhile | p50 ms | p99 | max |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for result in found:
        got, beside = result["downloads"], result["beside"]
        marks = beside["latency_ms"]
        lines.append(
            f"| {NAMES[result['kind']]}, {result['rate']:,.0f} per second | {got['clients']} "
            f"| {got['bytes_each']:,} "
            f"| {got['verified']} | {got['seconds']:.2f} s | {got['megabytes_per_s']:.0f} MB/s "
            f"| {beside['accepted']:,} of {beside['sent']:,} | {marks['p50']:.1f} "
            f"| {marks['p99']:.1f} | {marks['max']:.1f} |"
        )
    return lines


def draw(found: list[Result], part: str, path: Path) -> Path:
    """Percentiles of each second over time."""
    from panda_mdp.plot.style import BLUE, INK, ORANGE, PALE, VERMILION, new_figure, save_figure

    figure = new_figure(9.0, 3.1 * len(found) + 0.5)
    words = {"steady": "Latency of reports", "beside": "Latency of reports beside 50 downloads"}
    figure.suptitle(
        f"{words[part]}, open loop",
        x=0.015,
        ha="left",
        color=INK,
        fontsize=11.5,
    )
    panels = figure.subplots(len(found), 1, squeeze=False)[:, 0]
    for axes, result in zip(panels, found, strict=True):
        rows = result[part]["per_second"]
        x = [row["second"] + 0.5 for row in rows]
        for name, colour, marker in (
            ("max", ORANGE, "^"),
            ("p99", VERMILION, "s"),
            ("p50", BLUE, "o"),
        ):
            y = [row[name] for row in rows]
            axes.plot(x, y, color=colour, marker=marker, ms=3.5, lw=1.2, label=name)
        axes.axhline(TARGET_MS, color=PALE, lw=1, ls="--")
        axes.text(0.1, TARGET_MS * 1.08, "target for p99: 100 ms", color=PALE, fontsize=8)
        if part == "beside":
            got = result["downloads"]
            start = got["started_at_s"]
            axes.axvspan(start, start + got["seconds"], color=PALE, alpha=0.15, lw=0)
            axes.text(
                start + got["seconds"] + 0.05, 1.15, "grey: downloads", color=PALE, fontsize=8
            )
        axes.set_yscale("log")
        axes.set_ylim(1, 1000)
        axes.set_yticks([1, 10, 100, 1000], ["1", "10", "100", "1,000"])
        axes.set_xlim(0, len(rows))
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_ylabel(f"{NAMES[result['kind']]}, {result['rate']:,.0f}/s\nms, log scale")
        axes.grid(True, alpha=0.3, which="major")
        axes.legend(loc="upper right", ncols=3, fontsize=8, frameon=False)
    panels[-1].set_xlabel("second of the run")
    return save_figure(figure, path)
