"""What the rows of one city say about each claim: quantities by name, for `claims.py` to judge.

Means and series are asked for by their path (`panels.Evidence`), the others have a function. What
cannot be told is NaN or None. `some` ends a function where a claim has no rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from typing import Any, TypeVar

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_paper.cell import COARSE, DECAYS, EXACT, NOISE, OURS, PUBLISHED, TEXT
from panda_paper.items import SIZES
from panda_paper.paper import paper_value
from panda_paper.results import CityResults, Rows
from panda_paper.series import Series, trend

Quantities = dict[str, Any]
NAN = float("nan")
SOLVED = ("LP", COARSE, "LP+BD", "LP+EM")
LARGER_LOSS = (*NOISE, "LP+CA", COARSE)
FALLING = ("falls", "nothing to see")
ALPHAS = (0.25, 0.5, 0.9, 0.95)
ESTIMATES_ABOVE = {"exponential": 0.133, "power": 0.138, "logistic": 0.132}
"""How far the paper says estimated margins lie above real ones."""
Found = TypeVar("Found", bound=Sized)


class NoRowsError(Exception):
    """A claim has no rows to be judged by."""


def some(found: Found) -> Found:
    """What was found, where it is anything."""
    if not len(found):
        raise NoRowsError
    return found


def finished(rows: Rows, methods: Sequence[str] = PUBLISHED) -> list[str]:
    """Those methods that have a finished row."""
    done = rows.of(*methods).methods
    return [name for name in methods if name in done]


def listed(values: Mapping[str, object], form: str = "{}") -> str:
    """Variants, without their accounting, with their values in words."""
    return ", ".join(f"{variant(name)} {form.format(value)}" for name, value in values.items())


def variant(name: str) -> str:
    """The name of a variant without its accounting."""
    return name.removesuffix(" published").removesuffix(" text")


def percents(values: Iterable[float]) -> str | None:
    """Shares in words: one number, or the range."""
    known = [value for value in values if not np.isnan(value)]
    if not known:
        return None
    low, high = min(known), max(known)
    return f"{low:.1%}" if high - low < 5e-4 else f"{low:.1%} to {high:.1%}"


def below(mine: Series, theirs: Series) -> FloatArray:
    """How much lower one series is than another, at every point that both have."""
    both = np.intersect1d(mine.x, theirs.x)
    return np.array([1 - mine.at(x) / theirs.at(x) for x in both])


def reduction(rows: Rows, method: str, other: str, value: str = "loss_m") -> float:
    """How much lower a method's value is than another's, averaged over the sizes that both have.

    Losses over the users' records are compared with the other's loss.
    """
    shares = below(
        rows.of(method).series(value), rows.of(other).series(value.removeprefix("true_"))
    )
    return float(shares.mean()) if len(shares) else NAN


def averages(curves: Iterable[Series]) -> dict[str, float]:
    """The mean of each series' means."""
    return {one.label: float(one.mean.mean()) for one in curves}


def holding(rows: Rows) -> str | None:
    """Which of our methods have a holding audit in every cell."""
    good = [*filter(rows.holds, OURS)]
    cells = sum(row.cell.method in good for row in rows)
    return f"{', '.join(good)}: no violated pair in {cells} cells" if good else None


def covered_share(rows: Rows, methods: Sequence[str]) -> tuple[float, float]:
    """Anchors over K on average over sizes and methods, and the most at any size."""
    found = rows.curves(methods, "anchors")
    shares = [share for series in found for share in series.mean / series.x]
    most = max((series.high for series in found), default=NAN)
    return float(np.mean(shares)) if shares else NAN, most


def exact_runs(results: CityResults) -> Quantities:
    """Whether PAnDA fits (epsilon, delta) in any run at the paper's settings, fully accounted.

    From the text's conditions at all sizes of Figure 7, and the tables' own runs.
    """
    rows = results.of("figure7").of(*TEXT)
    tables = (*results.of("table4"), *results.of("table5"))
    fits = [bool(row.value("fits")) for row in rows]
    fits += [row.status == "done" for row in tables if row.cell.method in EXACT]
    if not fits:
        return {"fitting": NAN, "unfit": NAN, "runs": "no run in exact accounting yet"}
    fitting, total = sum(fits), len(fits)
    words = f"{fitting} of {total} runs fit" if fitting else f"none of {total} runs fits"
    found: Quantities = {"fitting": fitting, "unfit": total - fitting, "runs": words}
    if rows and not fitting:
        costs = rows.numbers("cost_epsilon")
        found |= {
            "least": costs.min(),
            "most": costs.max(),
            "delta": rows[0].cell.setting.delta,
            "shortfall": rows.numbers("shortfall").max(),
        }
    return found


def order_of_times(results: CityResults) -> Quantities:
    rows = results.of("table2")
    some(finished(rows, NOISE))
    right: dict[str, list[bool]] = {}
    for mine in some(rows.curves(PUBLISHED, "seconds")):
        for size, seconds in zip(mine.x, mine.mean, strict=True):
            for other in (*NOISE, *SOLVED):
                theirs = _seconds(rows.at("records", size), other)
                if not np.isnan(theirs):
                    right.setdefault(other, []).append((seconds < theirs) != (other in NOISE))
    slower = _paper_slower(results.name)
    return {
        "wrong": sum(not one for outcomes in right.values() for one in outcomes),
        "parts": ", ".join(f"{name} {sum(one)} of {len(one)}" for name, one in right.items()),
        "missing": ", ".join(name for name in SOLVED if name not in right) or None,
        "slower": sum(slower) if slower else None,
        "columns": len(slower),
    }


def _seconds(rows: Rows, method: str) -> float:
    """The mean time of a method; its limit where it ran into it, NaN where unknown."""
    limits = [
        row.outcome.seconds
        for row in rows
        if row.cell.method == method and row.status == "time limit"
    ]
    mean = rows.of(method).mean("seconds")
    return max(limits, default=NAN) if np.isnan(mean) else mean


def _paper_slower(city: str) -> list[bool]:
    """Where a variant is slower than LP+CA in the paper's own table of times."""
    pairs = (
        (paper_value("table2", city, name, size), paper_value("table2", city, "LP+CA", size))
        for size in SIZES
        for name in EXACT
    )
    return [
        mine.mean > coarse.mean
        for mine, coarse in pairs
        if mine and coarse and mine.mean is not None and coarse.mean is not None
    ]


def scale(results: CityResults) -> Quantities:
    rows = results.of("table4")
    losses, size = some(rows.curves(PUBLISHED, "loss_m")), max(rows.places("records"))
    best = rows.of("optimal")
    top = max(best.places("records"), default=0)
    largest = best.at("records", top)
    return {
        "variants": sum(one.x[-1] == size for one in losses),
        "size": size,
        "top": top or None,
        "time": largest.mean("seconds"),
        "gap": max(largest.numbers("gap"), default=NAN),
        "audit": "holds" if largest.holds("optimal") else "FAILS",
    }


def covered(results: CityResults) -> Quantities:
    rows = results.of("figure7")
    some(finished(rows))
    mean, most = covered_share(rows, PUBLISHED)
    downloads = results.of("table4").of("ball").series("download").mean
    return {
        "mean": mean,
        "most": most,
        "text": covered_share(rows, TEXT)[0],
        "ball": downloads.mean() if len(downloads) else None,
    }


def speed_of_variants(results: CityResults) -> Quantities:
    rows = results.of("table2")
    times, anchors = (averages(rows.curves(PUBLISHED, name)) for name in ("seconds", "anchors"))
    some(times if len(times) == len(PUBLISHED) else ())
    figures = {name: f"{times[name]:.1f} s with {anchors[name]:,.0f} anchors" for name in times}
    return {"wrong": [*times.values()] != sorted(times.values()), "figures": listed(figures)}


def growth(results: CityResults) -> Quantities:
    series, text = (
        results.of("figure8").curves(methods, "variables", "users", least=2)
        for methods in (PUBLISHED, TEXT)
    )
    ends = {one.label: f"{one.ends[0][1]:,.0f} to {one.ends[1][1]:,.0f}" for one in some(series)}
    return {
        "wrong": sum(map(_still, series)),
        "figures": listed(ends),
        "text_wrong": sum(map(_still, text)) if text else NAN,
        "published": series[0],
        "text": text[0] if text else None,
    }


def _still(series: Series) -> bool:
    """Whether it does not grow at every step, and by more than a hundredth in all."""
    return trend(series.mean) != "grows" or series.mean[-1] <= 1.01 * series.mean[0]


def clustering(results: CityResults) -> Quantities:
    rows = results.of("clustering")
    found = {name: -reduction(rows, name, "Origin", "coefficient") for name in EXACT}
    gains = some({name: gain for name, gain in found.items() if not np.isnan(gain)})
    lower = sum(gain <= 0 for gain in gains.values())
    return {"lower": lower, "figures": listed(gains, "{:+.1%}")}


def lower_loss(results: CityResults) -> Quantities:
    rows = results.of("table4")
    others = some(finished(rows, (*NOISE, COARSE)))
    right = [
        bool(share > 0)
        for mine in some(rows.curves(PUBLISHED, "loss_m"))
        for theirs in rows.curves(others, "loss_m")
        for share in below(mine, theirs)
    ]
    return {
        "others": ", ".join(others),
        "right": sum(right),
        "wrong": right.count(False),
        "total": len(right),
        "audit": "holds in every cell" if rows.holds("optimal") else "FAILS somewhere",
    }


def how_much_lower(results: CityResults) -> Quantities:
    rows = results.of("table4")
    names = some(finished(rows))
    some(finished(rows, NOISE))
    em, remapped, true = (
        [reduction(rows, name, other, value) for name in names]
        for other, value in (("EM", "loss_m"), ("EM+BR", "loss_m"), ("EM+BR", "true_loss_m"))
    )
    return {
        "least": min(remapped),
        "em": percents(em) or "unknown",
        "br": percents(remapped) or "unknown",
        "true": percents(true),
        "optimal": reduction(rows, "optimal", "EM+BR"),
        "closed": reduction(rows, "loss exponential", "EM+BR"),
    }


def ratio(results: CityResults) -> Quantities:
    rows = results.of("figure23")
    means = {name: rows.of(name).mean("ratio") for name in finished(rows)}
    known = some({name: mean for name, mean in means.items() if not np.isnan(mean)})
    best, floor = map(rows.of("optimal").series, ("loss_m", "lower_bound_m"))
    return {
        "mean": float(np.mean([*known.values()])),
        "figures": listed(known, "{:.3f}"),
        "optimal": float(np.mean(best.mean / floor.mean)) if len(floor) else NAN,
    }


def falls_with_epsilon(results: CityResults) -> Quantities:
    rows = results.of("figure11")
    curves = rows.curves(rows.methods, "loss_m", "epsilon")
    text = [mean for one in curves if one.label in TEXT for mean in one.mean]
    curves = some([one for one in curves if one.label not in TEXT and len(one) > 1])
    wrong = [one.label for one in curves if trend(one.mean) not in FALLING]
    shares = [
        share
        for one in curves
        for other in curves
        if one.label in PUBLISHED and other.label in LARGER_LOSS
        for share in below(one, other)
    ]
    return {
        "wrong": len(wrong),
        "curves": f"not for {', '.join(wrong)}" if wrong else "for every method",
        "least": min(shares, default=NAN),
        "text_low": min(text, default=NAN),
        "text_high": max(text, default=NAN),
    }


def guideline(results: CityResults) -> Quantities:
    rows = results.of("table4")
    series = rows.curves(PUBLISHED, "loss_m")
    some(series if len(series) == len(PUBLISHED) else ())
    losses, anchors = averages(series), averages(rows.curves(PUBLISHED, "anchors"))
    spreads = {one.label: float(np.mean(one.spread / one.mean)) for one in series}
    costs = {
        name: max(values)
        for name in TEXT
        if len(values := results.of("figure7").of(name).numbers("cost_epsilon"))
    }
    best, fewest, steady, gentle = map(_least, (losses, anchors, spreads, costs))
    repeated = all((one.spread > 0).all() for one in series)
    exponential, power, logistic = EXACT
    return {
        "misnamed": (best != power) + (fewest != exponential),
        "unsteady": steady != logistic if repeated else NAN,
        "best": best,
        "losses": listed(losses, "{:,.0f} m"),
        "fewest": fewest,
        "steady": f"steadiest: {steady}" if repeated else "steadiness needs repeats",
        "harsh": gentle != power if gentle else NAN,
        "costs": listed(costs, "{:,.0f} /km") or None,
        "gentle": gentle,
    }


def _least(values: Mapping[str, float]) -> str | None:
    """The variant with the least value."""
    return variant(min(values, key=lambda name: values[name])) if values else None


def guarantee(results: CityResults) -> Quantities:
    rows = results.of("figure12")
    audited = some(rows.of(*PUBLISHED).numbers("audited_epsilon"))
    epsilon = rows[0].cell.setting.epsilon
    finite = audited[np.isfinite(audited)]
    parts = []
    if len(finite):
        parts.append(f"{finite.min():,.0f} to {finite.max():,.0f} /km in {len(finite)} cells")
    if len(finite) < len(audited):
        parts.append(f"infinite in {len(audited) - len(finite)} of {len(audited)} cells")
    return {
        "above": np.sum(audited > epsilon),
        "epsilon": epsilon,
        "audited": " and ".join(parts),
        **exact_runs(results),
    }


def violations_by_delta(results: CityResults) -> Quantities:
    curves = some(results.of("figure17").curves(PUBLISHED, "violated_pairs", "delta"))
    return {"high": max(one.high for one in curves), "low": min(one.low for one in curves)}


def estimates(results: CityResults) -> Quantities:
    rows = results.of("figure18")
    above: dict[str, float] = {}
    for decay in DECAYS:
        own, guess = map(rows.of(decay).mean, ("real", "estimated"))
        if own > 0:
            above[decay] = guess / own - 1
    some(above)
    return {
        "farthest": max(abs(above[decay] - ESTIMATES_ABOVE[decay]) for decay in above),
        "above": listed(above, "{:+.0%}"),
    }


def margin_by_delta(results: CityResults) -> Quantities:
    rows = results.of("figure18")
    words = {
        one.label: trend(one.mean) for one in some(rows.curves(DECAYS, "real", "delta", least=2))
    }
    return {
        "wrong": sum(word not in FALLING for word in words.values()),
        "words": listed(words),
        "none": max(one.high for one in rows.curves(DECAYS, "none", "delta")),
    }


def margin_curves(results: CityResults) -> list[tuple[str, list[Series]]]:
    """Curves over lambda by decay, one for each alpha, with a wide gamma and with the paper's."""
    return [
        (
            decay,
            [
                results.of(name).of(decay).with_options({"alpha": alpha}).series("within", "rates")
                for alpha in ALPHAS
            ],
        )
        for name in ("figure6-wide", "figure6")
        for decay in DECAYS
    ]


def margin_by_lambda(results: CityResults) -> Quantities:
    found = margin_curves(results)
    some([curve for _, curves in found for curve in curves if len(curve)])
    counts: dict[str, Counter[str]] = {decay: Counter() for decay in DECAYS}
    for decay, curves in found:
        counts[decay].update(trend(curve.mean) for curve in curves)
    parts, total = [], Counter[str]()
    for decay, words in counts.items():
        del words["nothing to see"]
        total.update(words)
        told = ", ".join(f"{word} {count}" for word, count in words.items())
        parts.append(f"{decay} {told or 'nothing'}")
    number = total.total()
    return {
        "curves": number,
        "parts": "; ".join(parts),
        "growing": total["grows"] / number if number else NAN,
        "falling": total["falls"] / number if number else NAN,
    }


def margin_by_alpha(results: CityResults) -> Quantities:
    words = [
        trend([curve.at(rate) for curve in curves])
        for _, curves in margin_curves(results)
        for rate in curves[0].x
    ]
    seen = some([word for word in words if word != "nothing to see"])
    falls = seen.count("falls")
    return {"share": falls / len(seen), "falls": falls, "columns": len(seen)}


MEASURES: Mapping[str, Callable[[CityResults], Quantities]] = {
    measure.__name__: measure
    for measure in (
        *(clustering, covered, estimates, falls_with_epsilon, growth, guarantee, guideline),
        *(how_much_lower, lower_loss, margin_by_alpha, margin_by_delta, margin_by_lambda),
        *(order_of_times, ratio, scale, speed_of_variants, violations_by_delta),
    )
}
"""What decides a claim, by the name that `claims.toml` has for it."""
