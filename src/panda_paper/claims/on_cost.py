"""Claims about size and time."""

from __future__ import annotations

import numpy as np

from panda_paper.cells.city_results import CityResults
from panda_paper.cells.outcome import Row
from panda_paper.claims.claim import Claim, Finding, verdict
from panda_paper.claims.evidence import TOLERANCE, by_size, exact_state, known, mean_over_sizes
from panda_paper.draw.loss_figures import covered_shares
from panda_paper.draw.series import Series, collect, trend, users_of
from panda_paper.settings.method_names import COARSE, NOISE, PUBLISHED, TEXT
from panda_paper.settings.paper_tables import SIZES
from panda_paper.settings.paper_values import paper_value

SOLVED = ("LP", COARSE, "LP+BD", "LP+EM")
LARGEST, MOST, SHARE = 5000, 450, 0.1481


def _seconds(rows: list[Row], method: str, size: float) -> float:
    """The mean time of a method at a size; its limit where it ran into it, NaN where unknown."""
    here = [r for r in rows if r.cell.method == method and r.cell.setting.records == size]
    times = [r.outcome.seconds for r in here if r.status == "done"]
    if times:
        return float(np.mean(times))
    limits = [r.outcome.seconds for r in here if r.status == "time limit"]
    return max(limits) if limits else float("nan")


def _order_of_times(results: CityResults) -> Finding | None:
    rows = results.of("table2")
    ours = known(rows)
    if not ours or not known(rows, NOISE):
        return None
    right: dict[str, list[bool]] = {}
    for name in ours:
        for size in by_size(rows, name, "seconds").x:
            mine = _seconds(rows, name, size)
            for other in (*NOISE, *SOLVED):
                theirs = _seconds(rows, other, size)
                if not np.isnan(theirs):
                    faster = mine < theirs
                    right.setdefault(other, []).append(not faster if other in NOISE else faster)
    parts = ", ".join(
        f"{name} {sum(outcomes)} of {len(outcomes)}" for name, outcomes in right.items()
    )
    missing = [name for name in SOLVED if name not in right]
    figures = f"comparisons that come out as claimed: {parts}"
    if missing:
        figures += f"; not run: {', '.join(missing)}"
    figures += _papers_own(results.name)
    state = exact_state(results)
    best = by_size(rows, "optimal", "seconds")
    our_figures = ""
    if len(best):
        our_figures = (
            f"optimal, all records, whole pipeline: {best.mean[-1]:,.1f} s at K = {best.x[-1]:,.0f}"
        )
    return Finding(
        verdict(all(all(outcomes) for outcomes in right.values())),
        figures,
        state.blocked,
        f"{state.brief} (see guarantee)",
        our_figures,
    )


def _papers_own(city: str) -> str:
    """In how many columns of the paper's own table LP+CA is faster than a variant."""
    pairs = [
        (paper_value("table2", city, name.removesuffix(" published"), size), coarse)
        for size in SIZES
        if (coarse := paper_value("table2", city, "LP+CA", size)) is not None
        for name in PUBLISHED
    ]
    known_pairs = [
        (mine.mean, coarse.mean)
        for mine, coarse in pairs
        if mine is not None and mine.mean is not None and coarse.mean is not None
    ]
    if not known_pairs:
        return ""
    slower = sum(mine > coarse for mine, coarse in known_pairs)
    return f"; in the paper's own Table 2 LP+CA is faster in {slower} of {len(known_pairs)}"


def _scale(results: CityResults) -> Finding | None:
    rows = results.of("table4")
    sizes = sorted({r.cell.setting.records for r in rows})
    if not sizes or not known(rows):
        return None
    solved = [
        name
        for name in PUBLISHED
        if len(s := by_size(rows, name, "loss_m")) and s.x[-1] == sizes[-1]
    ]
    state = exact_state(results)
    best = [r for r in rows if r.cell.method == "optimal" and r.status == "done"]
    top = max((r.cell.setting.records for r in best), default=0)
    ours = ""
    if top:
        at_top = [r for r in best if r.cell.setting.records == top]
        gap = max(float(r.value("gap")) for r in at_top)
        time = float(np.mean([r.outcome.seconds for r in at_top]))
        held = all(r.value("holds") for r in at_top)
        ours = (
            f"optimal solves the full-domain LP at K = {top:,} in {time:,.0f} s, gap {gap:.2%}, "
            f"audit {'holds' if held else 'FAILS'}: no reduction is needed at this size"
        )
    return Finding(
        verdict(len(solved) == len(PUBLISHED) and sizes[-1] >= LARGEST),
        f"{len(solved)} of {len(PUBLISHED)} variants run at K = {sizes[-1]:,}",
        state.blocked,
        f"{state.brief} (see guarantee)",
        ours,
    )


def _covered(results: CityResults) -> Finding | None:
    rows = results.of("figure7")
    shares = covered_shares(rows, PUBLISHED)
    if not shares:
        return None
    counts = [by_size(rows, name, "anchors") for name in PUBLISHED]
    most = max(float(series.mean.max()) for series in counts if len(series))
    mean = float(np.mean(shares))
    held = _near_share(mean) and most <= MOST * (1 + TOLERANCE)
    text = covered_shares(rows, TEXT)
    exact = "cannot be checked" if not text else verdict(_near_share(float(np.mean(text))))
    ball = by_size(results.of("table4"), "ball", "download")
    ours = ""
    if len(ball):
        share = float(ball.mean.mean())
        ours = f"ball downloads {share:.0%} of the records, and keeps its promise"
    return Finding(
        verdict(held),
        f"{mean:.1%} of the records on average, at most {most:,.0f}",
        exact,
        f"with the text's selection {np.mean(text):.1%} of the records" if text else "",
        ours,
    )


def _near_share(share: float) -> bool:
    """Whether a share of anchors is the paper's: fewer is another number too, not a better one."""
    return abs(share - SHARE) <= TOLERANCE * SHARE


def _speed_of_variants(results: CityResults) -> Finding | None:
    rows = results.of("table2")
    if len(known(rows)) < len(PUBLISHED):
        return None
    times = [mean_over_sizes(rows, name, "seconds") for name in PUBLISHED]
    anchors = [mean_over_sizes(rows, name, "anchors") for name in PUBLISHED]
    held = times[0] <= times[1] <= times[2]
    figures = ", ".join(
        f"{name.removesuffix(' published')} {second:.1f} s with {count:,.0f} anchors"
        for name, second, count in zip(PUBLISHED, times, anchors, strict=True)
    )
    return Finding(verdict(held), f"mean over K: {figures}")


def _growth(results: CityResults) -> Finding | None:
    rows = results.of("figure8")
    series = [collect(rows, name, "variables", users_of) for name in PUBLISHED]
    series = [one for one in series if len(one) > 1]
    if not series:
        return None
    held = all(_grows(one) for one in series)
    figures = ", ".join(
        f"{one.label.removesuffix(' published')} {one.mean[0]:,.0f} to {one.mean[-1]:,.0f}"
        for one in series
    )
    text = [collect(rows, name, "variables", users_of) for name in TEXT]
    text = [one for one in text if len(one) > 1]
    exact = ""
    if text:
        exact = (
            f"with the text's selection {text[0].mean[0]:,.0f} at {text[0].x[0]:.0f} users already "
            f"and {text[0].mean[-1]:,.0f} at {text[0].x[-1]:.0f}: all of them from the start"
        )
    users = f"{series[0].x[0]:.0f} to {series[0].x[-1]:.0f}"
    return Finding(
        verdict(held),
        f"variables from {users} users: {figures}",
        "cannot be checked" if not text else verdict(all(_grows(one) for one in text)),
        exact,
        "optimal depends on no users",
    )


def _grows(series: Series) -> bool:
    """At every step, and by more than a hundredth in all."""
    return trend(series.mean) == "grows" and series.mean[-1] > 1.01 * series.mean[0]


def _clustering(results: CityResults) -> Finding | None:
    rows = results.of("clustering")
    origin = by_size(rows, "Origin", "coefficient")
    if not len(origin):
        return None
    gains = {}
    for name in dict.fromkeys(r.cell.method for r in rows):
        series = by_size(rows, name, "coefficient")
        both = np.intersect1d(origin.x, series.x)
        if name != "Origin" and len(both):
            gains[name] = float(np.mean([series.at(x) / origin.at(x) - 1 for x in both]))
    if not gains:
        return None
    figures = ", ".join(f"{name} {gain:+.1%}" for name, gain in gains.items())
    return Finding(
        verdict(all(gain > 0 for gain in gains.values())), f"against all records: {figures}"
    )


CLAIMS = (
    Claim(
        "C1",
        "PAnDA takes longer than EM and EM+BR and less time than LP, LP+CA, LP+BD and LP+EM",
        "artifact C1, section 4.3.1",
        ("table2",),
        "at every K that both were run at, whole pipelines compared",
        _order_of_times,
    ),
    Claim(
        "5,000 records",
        "PAnDA optimises domains of 5,000 records, two to three times what LP methods reach",
        "abstract, introduction",
        ("table4", "figure7"),
        "all three variants return a table at K = 5,000",
        _scale,
    ),
    Claim(
        "14.81 % anchors",
        "the LP covers 14.81 % of the records on average, at most 450",
        "introduction, section 4.3.1, Figure 7",
        ("figure7",),
        "mean within 10 % of the paper's, above or below; largest at most 10 % above",
        _covered,
    ),
    Claim(
        "speed of the variants",
        "PAnDA-e is fastest, then PAnDA-p, then PAnDA-l",
        "section 4.3.1",
        ("table2",),
        "mean time over K in that order",
        _speed_of_variants,
    ),
    Claim(
        "growth with users",
        "more users mean a larger LP, from 20 to 200 users",
        "section 4.3.1, Figures 8 and 9",
        ("figure8",),
        "decision variables grow at every step",
        _growth,
    ),
    Claim(
        "clustering",
        "anchors cluster more than the records do: 33.0, 26.9 and 32.6 % higher coefficients",
        "appendix, clustering table",
        ("clustering",),
        "higher on average over K for every variant",
        _clustering,
    ),
)
