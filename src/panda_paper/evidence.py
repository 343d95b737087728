"""What the rows of one city say about each claim: quantities by name, for `claims.py` to judge.

A quantity that cannot be told is NaN or None. Each function returns None where there are no rows
for its claim at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from panda_paper.cell import COARSE, DECAYS, EXACT, NOISE, OURS, PUBLISHED, TEXT
from panda_paper.figures import covered_shares, holds, most_covered
from panda_paper.items import SIZES
from panda_paper.paper import paper_value
from panda_paper.results import CityResults, Row
from panda_paper.series import Series, collect, collect_all, mean_of, numbers, trend
from panda_paper.theory_figures import (
    ESTIMATES_ABOVE,
    REAL_SHARES,
    SHARES,
    alpha_trends,
    trends,
)

Quantities = Mapping[str, Any]
NAN = float("nan")
SOLVED = ("LP", COARSE, "LP+BD", "LP+EM")
LARGER_LOSS = (*NOISE, "LP+CA", COARSE)


def by_size(rows: Sequence[Row], method: str, value: str = "loss_m") -> Series:
    """A method's value against K."""
    return collect(rows, method, value, "records")


def nonempty(series: Series) -> Series | None:
    """A series that has points."""
    return series if len(series) else None


def over_sizes(rows: Sequence[Row], methods: Sequence[str], value: str) -> dict[str, float]:
    """For each method that has any the mean of its means at each K."""
    found = collect_all(rows, methods, value, "records")
    return {one.label: float(one.mean.mean()) for one in found}


def finished(rows: Sequence[Row], methods: Sequence[str] = PUBLISHED) -> list[str]:
    """Those methods that have a finished row."""
    done = {row.cell.method for row in rows if row.status == "done"}
    return [name for name in methods if name in done]


def variant(name: str) -> str:
    """The name of a variant without its accounting."""
    return name.removesuffix(" published").removesuffix(" text")


def listed(values: Mapping[str, object], form: str = "{}") -> str:
    """Variants with their values in words."""
    return ", ".join(f"{variant(name)} {form.format(value)}" for name, value in values.items())


def percents(values: Sequence[float]) -> str | None:
    """Shares in words: one number, or the range."""
    known = [value for value in values if not np.isnan(value)]
    if not known:
        return None
    low, high = min(known), max(known)
    return f"{low:.1%}" if high - low < 5e-4 else f"{low:.1%} to {high:.1%}"


def below(mine: Series, theirs: Series) -> list[float]:
    """How much lower one series is than another, at every point that both have."""
    return [1 - mine.at(x) / theirs.at(x) for x in np.intersect1d(mine.x, theirs.x)]


def reduction(rows: Sequence[Row], method: str, other: str, value: str = "loss_m") -> float:
    """How much lower a method's loss is than another's, averaged over the sizes that both have."""
    shares = below(by_size(rows, method, value), by_size(rows, other))
    return float(np.mean(shares)) if shares else NAN


def exact_runs(results: CityResults) -> Quantities:
    """Whether PAnDA fits (epsilon, delta) in any run at the paper's settings, fully accounted.

    From the text's conditions at all sizes of Figure 7, and the tables' own runs.
    """
    figure = results.of("figure7")
    rows = [row for row in figure if row.cell.method in TEXT and row.status == "done"]
    tables = (*results.of("table4"), *results.of("table5"))
    tried = [row for row in tables if row.cell.method in EXACT]
    total = len(rows) + len(tried)
    if not total:
        return {"fitting": NAN, "unfit": NAN, "runs": "no run in exact accounting yet"}
    fitting = sum(bool(row.value("fits")) for row in rows)
    fitting += sum(row.status == "done" for row in tried)
    found = {"fitting": fitting, "unfit": total - fitting, "runs": f"{fitting} of {total} runs fit"}
    if not fitting:
        found["runs"] = f"none of {total} runs fits"
    if rows and not fitting:
        costs = numbers(rows, TEXT, "cost_epsilon")
        found |= {"least": min(costs), "most": max(costs), "delta": rows[0].cell.setting.delta}
        found |= {"shortfall": max(numbers(rows, TEXT, "shortfall"))}
    return found


def order_of_times(results: CityResults) -> Quantities | None:
    rows = results.of("table2")
    if not finished(rows) or not finished(rows, NOISE):
        return None
    right: dict[str, list[bool]] = {}
    for name in finished(rows):
        for size in by_size(rows, name, "seconds").x:
            mine = _seconds(rows, name, size)
            for other in (*NOISE, *SOLVED):
                theirs = _seconds(rows, other, size)
                if not np.isnan(theirs):
                    right.setdefault(other, []).append((mine < theirs) != (other in NOISE))
    slower = _paper_slower(results.name)
    return {
        "wrong": sum(not one for outcomes in right.values() for one in outcomes),
        "parts": ", ".join(f"{name} {sum(one)} of {len(one)}" for name, one in right.items()),
        "missing": ", ".join(name for name in SOLVED if name not in right) or None,
        "slower": sum(slower) if slower else None,
        "columns": len(slower),
        "optimal": nonempty(by_size(rows, "optimal", "seconds")),
    }


def _seconds(rows: Sequence[Row], method: str, size: float) -> float:
    """The mean time of a method at a size; its limit where it ran into it, NaN where unknown."""
    here = [r for r in rows if r.cell.method == method and r.cell.setting.records == size]
    times = [r.outcome.seconds for r in here if r.status == "done"]
    limits = [r.outcome.seconds for r in here if r.status == "time limit"]
    return float(np.mean(times)) if times else max(limits, default=NAN)


def _paper_slower(city: str) -> list[bool]:
    """Where a variant is slower than LP+CA in the paper's own table of times."""
    entries = [
        [paper_value("table2", city, name, size) for name in ("LP+CA", *EXACT)] for size in SIZES
    ]
    times = [[one.mean if one else None for one in row] for row in entries]
    return [
        mine > coarse
        for coarse, *variants in times
        for mine in variants
        if mine is not None and coarse is not None
    ]


def scale(results: CityResults) -> Quantities | None:
    rows = results.of("table4")
    if not finished(rows):
        return None
    size = max(row.cell.setting.records for row in rows)
    best = [row for row in rows if row.cell.method == "optimal" and row.status == "done"]
    top = max((row.cell.setting.records for row in best), default=0)
    best = [row for row in best if row.cell.setting.records == top]
    return {
        "variants": sum(one.x[-1] == size for one in _losses(rows, PUBLISHED)),
        "size": size,
        "top": top or None,
        "time": mean_of(best, ("optimal",), "seconds"),
        "gap": max(numbers(best, ("optimal",), "gap"), default=NAN),
        "audit": "holds" if holds(best, "optimal") else "FAILS",
    }


def _losses(rows: Sequence[Row], methods: Sequence[str]) -> list[Series]:
    return collect_all(rows, methods, "loss_m", "records")


def coverage(results: CityResults) -> Quantities | None:
    rows = results.of("figure7")
    shares, text = covered_shares(rows, PUBLISHED), covered_shares(rows, TEXT)
    if not shares:
        return None
    return {
        "mean": float(np.mean(shares)),
        "most": most_covered(rows, PUBLISHED),
        "text": float(np.mean(text)) if text else NAN,
        "ball": over_sizes(results.of("table4"), ("ball",), "download").get("ball"),
    }


def speed_of_variants(results: CityResults) -> Quantities | None:
    rows = results.of("table2")
    if len(finished(rows)) < len(PUBLISHED):
        return None
    times = over_sizes(rows, PUBLISHED, "seconds")
    anchors = over_sizes(rows, PUBLISHED, "anchors")
    figures = {name: f"{times[name]:.1f} s with {anchors[name]:,.0f} anchors" for name in PUBLISHED}
    return {"wrong": [*times.values()] != sorted(times.values()), "figures": listed(figures)}


def growth(results: CityResults) -> Quantities | None:
    rows = results.of("figure8")
    series, text = (
        collect_all(rows, methods, "variables", "users", least=2) for methods in (PUBLISHED, TEXT)
    )
    if not series:
        return None
    figures = {one.label: f"{one.first[1]:,.0f} to {one.last[1]:,.0f}" for one in series}
    return {
        "wrong": sum(not _grows(one) for one in series),
        "published": series[0],
        "figures": listed(figures),
        "text_wrong": sum(not _grows(one) for one in text) if text else NAN,
        "text": text[0] if text else None,
    }


def _grows(series: Series) -> bool:
    """At every step, and by more than a hundredth in all."""
    return trend(series.mean) == "grows" and series.last[1] > 1.01 * series.first[1]


def clustering(results: CityResults) -> Quantities | None:
    rows = results.of("clustering")
    origin = by_size(rows, "Origin", "coefficient")
    gains = {}
    for one in collect_all(rows, EXACT, "coefficient", "records"):
        shares = below(one, origin)
        if shares:
            gains[one.label] = -float(np.mean(shares))
    if not gains:
        return None
    lower = sum(gain <= 0 for gain in gains.values())
    return {"lower": lower, "figures": listed(gains, "{:+.1%}")}


def lower_loss(results: CityResults) -> Quantities | None:
    rows = results.of("table4")
    others = finished(rows, (*NOISE, COARSE))
    if not finished(rows) or not others:
        return None
    right = [
        share > 0
        for mine in _losses(rows, PUBLISHED)
        for theirs in _losses(rows, others)
        for share in below(mine, theirs)
    ]
    optimal = nonempty(by_size(rows, "optimal"))
    audit = "audit holds in every cell" if holds(rows, "optimal") else "AUDIT FAILS somewhere"
    return {
        "others": ", ".join(others),
        "right": sum(right),
        "wrong": len(right) - sum(right),
        "total": len(right),
        "optimal": optimal,
        "gaps": nonempty(by_size(rows, "optimal", "gap")),
        "audit": None if optimal is None else audit,
    }


def how_much_lower(results: CityResults) -> Quantities | None:
    rows = results.of("table4")
    ours = finished(rows)
    if not ours or not finished(rows, NOISE):
        return None
    remapped = [reduction(rows, name, "EM+BR") for name in ours]
    return {
        "least": min(remapped),
        "em": percents([reduction(rows, name, "EM") for name in ours]) or "unknown",
        "br": percents(remapped) or "unknown",
        "true": percents([reduction(rows, name, "EM+BR", "true_loss_m") for name in ours]),
        "optimal": reduction(rows, "optimal", "EM+BR"),
        "closed": reduction(rows, "loss exponential", "EM+BR"),
    }


def ratio(results: CityResults) -> Quantities | None:
    rows = results.of("figure23")
    means = {name: mean_of(rows, (name,), "ratio") for name in PUBLISHED}
    means = {name: mean for name, mean in means.items() if not np.isnan(mean)}
    if not means:
        return None
    best, floor = by_size(rows, "optimal"), by_size(rows, "optimal", "lower_bound_m")
    both = len(best) and len(floor)
    return {
        "mean": float(np.mean(list(means.values()))),
        "figures": listed(means, "{:.3f}"),
        "optimal": float(np.mean(best.mean / floor.mean)) if both else NAN,
    }


def falls_with_epsilon(results: CityResults) -> Quantities | None:
    rows = results.of("figure11")
    methods = [name for name in dict.fromkeys(r.cell.method for r in rows) if name not in TEXT]
    curves = collect_all(rows, methods, "loss_m", "epsilon", least=2)
    if not curves:
        return None
    wrong = [one.label for one in curves if trend(one.mean) not in ("falls", "nothing to see")]
    shares = [
        share
        for one in curves
        for other in curves
        if one.label in PUBLISHED and other.label in LARGER_LOSS
        for share in below(one, other)
    ]
    text = collect_all(rows, TEXT, "loss_m", "epsilon")
    return {
        "wrong": len(wrong),
        "curves": f"not for {', '.join(wrong)}" if wrong else "for every method",
        "least": min(shares, default=NAN),
        "text_low": min((one.low for one in text), default=NAN),
        "text_high": max((one.high for one in text), default=NAN),
        "optimal": nonempty(collect(rows, "optimal", "loss_m", "epsilon")),
    }


def guideline(results: CityResults) -> Quantities | None:
    rows = results.of("table4")
    if len(finished(rows)) < len(PUBLISHED):
        return None
    series = _losses(rows, PUBLISHED)
    losses, anchors = (over_sizes(rows, PUBLISHED, value) for value in ("loss_m", "anchors"))
    spreads = {one.label: float(np.mean(one.spread / one.mean)) for one in series}
    best, fewest, steady = (_least(values) for values in (losses, anchors, spreads))
    repeated = min(one.count.min() for one in series) > 1
    exponential, power, logistic = map(variant, PUBLISHED)
    found = {
        "misnamed": (best != power) + (fewest != exponential),
        "unsteady": steady != logistic if repeated else NAN,
        "best": best,
        "losses": listed(losses, "{:,.0f} m"),
        "fewest": fewest,
        "steady": f"steadiest: {steady}" if repeated else "steadiness needs repeats",
        "harsh": NAN,
    }
    accounts = results.of("figure7")
    costs = {
        name: max(values) for name in TEXT if (values := numbers(accounts, (name,), "cost_epsilon"))
    }
    if costs:
        gentle = _least(costs)
        costs_listed = listed(costs, "{:,.0f} /km")
        found |= {"harsh": gentle != power, "costs": costs_listed, "gentle": gentle}
    return found


def _least(values: Mapping[str, float]) -> str:
    """The variant with the least value."""
    return variant(min(values, key=lambda name: values[name]))


def holding(rows: Sequence[Row]) -> str | None:
    """Which of our methods have a holding audit in every cell."""
    good = [name for name in OURS if holds(rows, name)]
    cells = sum(row.cell.method in good for row in rows)
    return f"{', '.join(good)}: no violated pair in {cells} cells" if good else None


def guarantee(results: CityResults) -> Quantities | None:
    rows = results.of("figure12")
    audited = numbers(rows, PUBLISHED, "audited_epsilon")
    if not audited:
        return None
    epsilon = rows[0].cell.setting.epsilon
    finite = [value for value in audited if np.isfinite(value)]
    parts = []
    if finite:
        parts.append(f"{min(finite):,.0f} to {max(finite):,.0f} /km in {len(finite)} cells")
    if len(finite) < len(audited):
        parts.append(f"infinite in {len(audited) - len(finite)} of {len(audited)} cells")
    return {
        "above": sum(value > epsilon for value in audited),
        "epsilon": epsilon,
        "audited": " and ".join(parts),
        "holding": holding(rows),
        **exact_runs(results),
    }


def violations(results: CityResults) -> Quantities | None:
    rows = results.of("figure12")
    rates = [mean_of(rows, (name,), "violated_pairs") for name in finished(rows)]
    rates = [rate for rate in rates if not np.isnan(rate)]
    if not rates:
        return None
    return {
        "low": min(rates),
        "high": max(rates),
        "alone": mean_of(results.of("figure23"), PUBLISHED, "report_violated"),
        "text": mean_of(rows, TEXT, "violated_pairs"),
        "holding": holding(rows),
    }


def coarse_violations(results: CityResults) -> Quantities | None:
    audited = mean_of(results.of("figure12"), (COARSE,), "violated_pairs")
    counted = mean_of(results.of("table4"), ("LP+CA published",), "violation_as_published")
    if np.isnan(audited) and np.isnan(counted):
        return None
    return {
        "counted": counted,
        "audited": audited,
        "counted_share": "not run" if np.isnan(counted) else f"{counted:.2%}",
        "audited_share": "not run" if np.isnan(audited) else f"{audited:.2%}",
    }


def violations_by_delta(results: CityResults) -> Quantities | None:
    rows = results.of("figure17")
    curves = collect_all(rows, PUBLISHED, "violated_pairs", "delta")
    if not curves:
        return None
    return {
        "high": max(one.high for one in curves),
        "low": min(one.low for one in curves),
        "holding": holding(rows),
    }


def budget(item: str, results: CityResults) -> Quantities | None:
    rows = results.of(item)
    found: dict[str, Any] = {}
    for prefix, methods, names in (
        ("", PUBLISHED, SHARES),
        ("real_", PUBLISHED, REAL_SHARES),
        ("text_", TEXT, SHARES),
    ):
        first, second, rest = (mean_of(rows, methods, name) for name in names)
        found |= {f"{prefix}first": first, f"{prefix}second": second, f"{prefix}rest": rest}
        if not np.isnan(first + second + rest):
            found[f"{prefix}shares"] = f"Phase I {first:.1%}, margin {second:.1%}, table {rest:.1%}"
    found["near"] = mean_of(rows, PUBLISHED, "near_cost")
    found["text_near"] = mean_of(rows, TEXT, "near_cost")
    return found if "shares" in found else None


def estimates(results: CityResults) -> Quantities | None:
    rows = results.of("figure18")
    above: dict[str, float] = {}
    for decay in DECAYS:
        own, guess = (mean_of(rows, (decay,), value) for value in ("real", "estimated"))
        if own > 0:
            above[decay] = guess / own - 1
    if not above:
        return None
    return {
        "farthest": max(abs(above[decay] - ESTIMATES_ABOVE[decay]) for decay in above),
        "above": listed(above, "{:+.0%}"),
        "none": mean_of(rows, DECAYS, "none"),
        "missed": mean_of(rows, DECAYS, "uncovered"),
    }


def margin_by_delta(results: CityResults) -> Quantities | None:
    rows = results.of("figure18")
    curves = collect_all(rows, DECAYS, "real", "delta", least=2)
    if not curves:
        return None
    words = {one.label: trend(one.mean) for one in curves}
    none = collect_all(rows, DECAYS, "none", "delta")
    return {
        "wrong": sum(word not in ("falls", "nothing to see") for word in words.values()),
        "words": ", ".join(f"{decay} {word}" for decay, word in words.items()),
        "none": max(one.high for one in none),
    }


def _margin_rows(results: CityResults) -> tuple[list[Row], list[Row]]:
    """With a wide gamma, and with the paper's."""
    wide, own = (
        [row for row in results.of(name) if row.status == "done"]
        for name in ("figure6-wide", "figure6")
    )
    return wide, own


def margin_by_lambda(results: CityResults) -> Quantities | None:
    wide, own = _margin_rows(results)
    if not wide and not own:
        return None
    curves = [
        (decay, word)
        for rows in (wide, own)
        for (decay, _), word in trends(rows).items()
        if word != "nothing to see"
    ]
    parts = []
    for decay in DECAYS:
        counts = Counter(word for name, word in curves if name == decay)
        figures = ", ".join(f"{word} {count}" for word, count in counts.items())
        parts.append(f"{decay} {figures or 'nothing'}")
    words = [word for _, word in curves]
    return {
        "curves": len(curves),
        "parts": "; ".join(parts),
        "growing": words.count("grows") / len(words) if words else NAN,
        "falling": words.count("falls") / len(words) if words else NAN,
        "none": float(np.mean([np.mean(row.value("none")) for row in own])) if own else NAN,
    }


def margin_by_alpha(results: CityResults) -> Quantities | None:
    words = [word for rows in _margin_rows(results) for word in alpha_trends(rows)]
    seen = [word for word in words if word != "nothing to see"]
    if not seen:
        return None
    falls = seen.count("falls")
    return {"share": falls / len(seen), "falls": falls, "columns": len(seen)}
