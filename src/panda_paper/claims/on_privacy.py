"""Claims about privacy: guarantees, violations, margins, budgets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

from panda_paper.cells.city_results import CityResults
from panda_paper.cells.outcome import Row
from panda_paper.claims.claim import Claim, Finding, Verdict, verdict
from panda_paper.claims.evidence import TOLERANCE, exact_state, known
from panda_paper.draw.privacy_figures import PAPER_SHARES, REAL_SHARES, SHARES
from panda_paper.draw.series import collect, delta_of, mean_of, trend
from panda_paper.draw.theory_figures import PAPER_ABOVE, alpha_trends, trends
from panda_paper.settings.method_names import COARSE, DECAYS, OURS, PUBLISHED, TEXT

RATE, COARSE_RATE = 1e-7, 0.5333
MOST = 0.95


def _audited(rows: list[Row], methods: tuple[str, ...]) -> list[float]:
    return [
        float(row.value("audited_epsilon"))
        for row in rows
        if row.cell.method in methods and row.value("audited_epsilon") is not None
    ]


def _holding(rows: list[Row]) -> str:
    """Which of our methods have a holding audit in every cell."""
    held = {
        name: [row.value("holds") for row in rows if row.cell.method == name]
        for name in OURS
        if any(row.cell.method == name for row in rows)
    }
    good = [
        name for name, verdicts in held.items() if verdicts and all(v is True for v in verdicts)
    ]
    return (
        f"{', '.join(good)}: no violated pair in {sum(len(held[n]) for n in good)} cells"
        if good
        else ""
    )


def _guarantee(results: CityResults) -> Finding | None:
    rows = results.of("figure12")
    audited = _audited(rows, PUBLISHED)
    if not audited:
        return None
    epsilon = rows[0].cell.setting.epsilon
    state = exact_state(results)
    finite = [value for value in audited if np.isfinite(value)]
    lost = len(audited) - len(finite)
    figures = f"claimed {epsilon:g} /km; audited"
    if finite:
        figures += f" {min(finite):,.0f} to {max(finite):,.0f} /km in {len(finite)} cells"
    if lost:
        figures += f"{' and' if finite else ''} infinite in {lost} of {len(audited)} cells"
    return Finding(
        verdict(all(value <= epsilon for value in audited)),
        figures,
        state.verdict,
        state.figures,
        _holding(rows),
    )


def _violations(results: CityResults) -> Finding | None:
    rows = results.of("figure12")
    rates = [mean_of(rows, (name,), "violated_pairs") for name in known(rows)]
    rates = [rate for rate in rates if not np.isnan(rate)]
    if not rates:
        return None
    alone = mean_of(results.of("figure23"), PUBLISHED, "report_violated")
    figures = (
        f"{min(rates):.2%} to {max(rates):.2%} of the pairs of records, measured over all pairs"
    )
    if not np.isnan(alone):
        figures += f"; counting the report alone, {alone:.2%}"
    text = mean_of(rows, TEXT, "violated_pairs")
    exact: Verdict = "cannot be checked" if np.isnan(text) else verdict(text < RATE)
    exact_figures = "" if np.isnan(text) else f"the text's selection, charged in full: {text:.2%}"
    return Finding(verdict(max(rates) < RATE), figures, exact, exact_figures, _holding(rows))


def _coarse(results: CityResults) -> Finding | None:
    audited = mean_of(results.of("figure12"), (COARSE,), "violated_pairs")
    counted = mean_of(results.of("table4"), ("LP+CA published",), "violation_as_published")
    if np.isnan(audited) and np.isnan(counted):
        return None
    near = TOLERANCE * COARSE_RATE
    published: Verdict = "cannot be checked"
    if not np.isnan(counted):
        published = verdict(abs(counted - COARSE_RATE) <= near)
    exact: Verdict = "cannot be checked"
    if not np.isnan(audited):
        exact = verdict(abs(audited - COARSE_RATE) <= near)
    return Finding(
        published,
        "counting pairs whose cells' representatives are farther apart than the records, as the "
        f"published code does: {_percent(counted)}",
        exact,
        f"pairs of records that break epsilon-mDP, by audit: {_percent(audited)}",
        "the library's coarse grid uses least distances between cells and violates nothing",
    )


def _percent(share: float) -> str:
    return "not run" if np.isnan(share) else f"{share:.2%}"


def _zero_at_any_delta(results: CityResults) -> Finding | None:
    rows = results.of("figure17")
    curves = [collect(rows, name, "violated_pairs", delta_of) for name in PUBLISHED]
    curves = [one for one in curves if len(one)]
    if not curves:
        return None
    top = max(float(one.mean.max()) for one in curves)
    low = min(float(one.mean.min()) for one in curves)
    return Finding(
        verdict(top == 0),
        f"{low:.2%} to {top:.2%} of the pairs over all delta",
        exact="does not apply",
        ours=_holding(rows),
    )


def _budget(name: str, epsilon: float) -> Callable[[CityResults], Finding | None]:
    def check(results: CityResults) -> Finding | None:
        rows = results.of(name)
        shares = [mean_of(rows, PUBLISHED, share) for share in SHARES]
        if np.isnan(shares).any():
            return None
        paper = PAPER_SHARES[epsilon]
        near_paper = all(abs(a - b) <= TOLERANCE for a, b in zip(shares, paper, strict=True))
        exact = [mean_of(rows, PUBLISHED, share) for share in REAL_SHARES]
        text = [mean_of(rows, TEXT, share) for share in SHARES]
        known_exact = not np.isnan(exact).any()
        held = known_exact and all(
            abs(a - b) <= TOLERANCE for a, b in zip(exact, paper, strict=True)
        )
        figures = ""
        if known_exact:
            near = mean_of(rows, PUBLISHED, "near_cost")
            figures = (
                f"the same selection with Phase I charged in full: {_shares(exact)}; between "
                f"anchors nearer than 2 km Phase I costs {near:.0%} of epsilon d"
            )
        if not np.isnan(text).any():
            near = mean_of(rows, TEXT, "near_cost")
            figures += f"; the text's selection: {_shares(text)}, near anchors {near:.0%}"
        return Finding(
            verdict(near_paper),
            _shares(shares),
            verdict(held) if known_exact else "cannot be checked",
            figures,
            "optimal: the whole budget is the table's",
        )

    return check


def _shares(parts: Sequence[float]) -> str:
    first, second, rest = parts
    return f"Phase I {first:.1%}, margin {second:.1%}, table {rest:.1%}"


def _estimates(results: CityResults) -> Finding | None:
    rows = results.of("figure18")
    above = {}
    for decay in DECAYS:
        real, guess = mean_of(rows, (decay,), "real"), mean_of(rows, (decay,), "estimated")
        if real > 0:
            above[decay] = guess / real - 1
    if not above:
        return None
    none = mean_of(rows, DECAYS, "none")
    missed = mean_of(rows, DECAYS, "uncovered")
    held = all(abs(above[decay] - PAPER_ABOVE[decay]) <= TOLERANCE for decay in above)
    figures = ", ".join(f"{decay} {value:+.0%}" for decay, value in above.items())
    return Finding(
        "does not apply",
        "the published code computes no real margin",
        verdict(held),
        f"{figures} above; for {none:.0%} of the pairs no real margin suffices at all, for "
        f"{missed:.0%} the estimate covers too few records to prove anything",
        "optimal and ball need no margin",
    )


def _grows_as_delta_falls(results: CityResults) -> Finding | None:
    rows = results.of("figure18")
    curves = [collect(rows, decay, "real", delta_of) for decay in DECAYS]
    curves = [one for one in curves if len(one) > 1]
    if not curves:
        return None
    words = [trend(one.mean) for one in curves]
    none = [collect(rows, decay, "none", delta_of) for decay in DECAYS]
    figures = ", ".join(f"{one.label} {word}" for one, word in zip(curves, words, strict=True))
    return Finding(
        "does not apply",
        "",
        verdict(all(word in ("falls", "nothing to see") for word in words)),
        f"margin with delta: {figures}; share of pairs without any margin "
        f"{max(float(one.mean.max()) for one in none if len(one)):.0%} at the smallest delta",
    )


def _margin_claim(wanted: str) -> Callable[[CityResults], Finding | None]:
    """Whether the margin moves with lambda as one of the paper's two sentences says."""

    def check(results: CityResults) -> Finding | None:
        wide = [row for row in results.of("figure6-wide") if row.status == "done"]
        paper = [row for row in results.of("figure6") if row.status == "done"]
        if not wide and not paper:
            return None
        curves = [
            (decay, word) for rows in (wide, paper) for (decay, _), word in trends(rows).items()
        ]
        curves = [(decay, word) for decay, word in curves if word != "nothing to see"]
        parts = []
        for decay in DECAYS:
            words = Counter(word for name, word in curves if name == decay)
            figures = ", ".join(f"{word} {count}" for word, count in words.items())
            parts.append(f"{decay} {figures or 'nothing'}")
        none = [float(np.mean(row.value("none"))) for row in paper]
        lacking = ""
        if none:
            lacking = (
                f". At the paper's gamma and delta {np.mean(none):.0%} of the pairs have no margin "
                "at all; the curves are of the margin given an anchor within gamma"
            )
        return Finding(
            "does not apply",
            "",
            verdict(bool(curves) and all(word == wanted for _, word in curves)),
            f"{len(curves)} exact curves over lambda: {'; '.join(parts)}{lacking}",
        )

    return check


def _alpha(results: CityResults) -> Finding | None:
    wide = [row for row in results.of("figure6-wide") if row.status == "done"]
    paper = [row for row in results.of("figure6") if row.status == "done"]
    words = [*alpha_trends(wide).values(), *alpha_trends(paper).values()]
    seen = [word for word in words if word != "nothing to see"]
    if not seen:
        return None
    falls = seen.count("falls")
    return Finding(
        "does not apply",
        "",
        verdict(falls >= MOST * len(seen)),
        f"falls in {falls} of {len(seen)} columns of the grid of lambdas and decays",
    )


CLAIMS = (
    Claim(
        "guarantee",
        "PAnDA satisfies (epsilon, delta)-PmDP with epsilon 5 /km and delta 1e-7",
        "abstract, Proposition 5",
        ("figure12", "figure7"),
        "audited epsilon of anchors and report together, all pairs, at most the claimed one",
        _guarantee,
    ),
    Claim(
        "violation below 1e-7",
        "PAnDA's violation rate is below 1e-7",
        "introduction, Figure 12",
        ("figure12", "figure23"),
        "share of pairs of records whose loss exceeds epsilon d below 1e-7",
        _violations,
    ),
    Claim(
        "LP+CA violates 53.33 %",
        "LP+CA violates 53.33 % of its constraints on average",
        "section 4.3.3, Figure 12",
        ("figure12", "table4"),
        "share within 10 % of that",
        _coarse,
    ),
    Claim(
        "no violation at any delta",
        "no violation is observed for any delta up to 0.15",
        "appendix, Figure 17",
        ("figure17",),
        "share of violated pairs is 0",
        _zero_at_any_delta,
    ),
    Claim(
        "67/24/9 % of the budget",
        "67.03 % of the budget is left for the table, 23.91 % goes to Phase I, 9.06 % to margins",
        "section 4.4, Figure 13",
        ("figure13",),
        "each share within 10 points",
        _budget("figure13", 5.0),
    ),
    Claim(
        "89/8/3 % at epsilon 15",
        "at epsilon 15 /km: 89.03, 7.91 and 3.06 %",
        "appendix, Figure 15",
        ("figure15",),
        "each share within 10 points",
        _budget("figure15", 15.0),
    ),
    Claim(
        "margins 13.3 % above",
        "estimated margins exceed the real ones by 13.3, 13.8 and 13.2 %",
        "appendix, Figures 18 to 20",
        ("figure18",),
        "each within 10 points",
        _estimates,
    ),
    Claim(
        "margin against delta",
        "the margin grows as delta falls",
        "appendix, Figures 18 to 20",
        ("figure18",),
        "mean margin falls, or stays, at every step of delta",
        _grows_as_delta_falls,
    ),
    Claim(
        "margin grows with lambda",
        "a larger lambda needs a larger margin",
        "section 4.2, Figure 6",
        ("figure6", "figure6-wide"),
        "every curve grows",
        _margin_claim("grows"),
    ),
    Claim(
        "margin falls with lambda",
        "a larger lambda needs a smaller margin (the appendix, against section 4.2)",
        "appendix, Figures 21 and 22",
        ("figure6", "figure6-wide"),
        "every curve falls",
        _margin_claim("falls"),
    ),
    Claim(
        "margin falls with alpha",
        "a larger alpha needs a smaller margin",
        "section 4.2 and appendix",
        ("figure6", "figure6-wide"),
        "in 95 % of the columns of the grid",
        _alpha,
    ),
)
