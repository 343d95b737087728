"""Pictures of estimates with their limits."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np

from panda_mdp.base.arrays import BoolArray, FloatArray
from panda_mdp.city.places import Places
from panda_mdp.meaning.deconvolution import CONFIDENCE
from panda_mdp.meaning.estimate import Estimate, Flows, Trips, Zones, zone_matrix
from panda_mdp.plot.maps import Ground, draw_values
from panda_mdp.plot.style import BLUE, INK, ORANGE, PALE, VERMILION, chart_figure
from panda_mdp.space.domain import Domain

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_BARS = 40
LENGTH_BINS = 8


def draw_shares(estimate: Estimate, window: int = 0, before: FloatArray | None = None) -> Figure:
    """Zones by their share: the estimate with its limits, what the reports say unprocessed, and
    what was there before where that is known."""
    order = np.argsort(-estimate.share[window], kind="stable")[:MOST_BARS]
    numbers = (estimate.share, estimate.low, estimate.high, estimate.raw)
    return _shares(
        f"People per zone, {estimate.windows[window]}: {estimate.reports[window]:,.0f} reports",
        [str(estimate.zones[k])[:28] for k in order],
        [part[window, order] for part in (*numbers, *([] if before is None else [before]))],
        estimate.told_apart[window, order],
        "people",
    )


def _shares(
    title: str, names: Sequence[str], parts: Sequence[FloatArray], told: BoolArray, of: str
) -> Figure:
    """A line for each name, from above: share, low, high, raw and perhaps what was before."""
    figure, axes = chart_figure(7.5, 1.6 + 0.24 * len(names), title)
    share, low, high, raw, *before = (100 * part for part in parts)
    y = -np.arange(len(names))
    for mask, colour, label in (
        (told, BLUE, f"estimate, {CONFIDENCE:.0%} limits"),
        (~told, PALE, "cannot be told apart here"),
    ):
        if mask.any():
            axes.hlines(y[mask], low[mask], high[mask], color=colour, linewidth=2.5, alpha=0.7)
            axes.plot(share[mask], y[mask], "o", color=colour, label=label)
    axes.plot(raw, y, "x", color=VERMILION, label="reports as they are")
    for true in before:
        axes.plot(true, y, "|", color=INK, markersize=12, label="before")
    axes.set_yticks(y, names)
    axes.set(xlabel=f"share of {of}, %", xlim=(0, None))
    figure.legend(frameon=False, loc="outside lower center", ncols=4)
    return figure


def draw_density(
    estimate: Estimate,
    domain: Domain,
    zones: Zones | None = None,
    window: int = 0,
    of: Literal["share", "width"] = "share",
) -> Figure:
    """A heat map of each zone's share, over its records or filled where zones are outlines; or of
    how wide its limits are."""
    _, members = zone_matrix(zones, domain)
    name = "share of people"
    numbers = estimate.share[window]
    if of == "width":
        name = "width of the limits"
        numbers = (estimate.high - estimate.low)[window]
    title = f"Estimate, {name}: {estimate.windows[window]}"
    if isinstance(zones, Places) and zones.shapes is not None:
        known = dict(zip(estimate.zones, numbers.tolist(), strict=True))
        values = 100 * np.array([known.get(zone, 0.0) for zone in zones.names])
        return draw_values(Ground(zones.domain, None, zones), values, title, f"{name}, %")
    # A share is that of all of a zone's records; what a zone's limits leave open is each one's.
    each = numbers / members.sum(axis=0) if of == "share" else numbers
    spread = "share of people per record, %" if of == "share" else f"{name}, %"
    return draw_values(Ground(domain, None), 100 * members @ each, title, spread)


def draw_flows(flows: Flows) -> Figure:
    """Zones by zones: the estimated share of trips, dotted where zero is outside the limits."""
    count = len(flows.zones)
    side = float(np.clip(0.42 * count + 2.5, 4.5, 12))
    figure, axes = chart_figure(side + 1, side, f"Trips from zone to zone: {flows.reports:,.0f}")
    axes.grid(visible=False)
    image = axes.imshow(100 * flows.share, cmap="Blues", vmin=0)
    start, end = np.nonzero(flows.low > 0)
    axes.plot(end, start, "o", color=ORANGE, markeredgecolor=INK, markersize=5)
    names = [str(zone)[:18] for zone in flows.zones]
    axes.set_xticks(range(count), names, rotation=90)
    axes.set_yticks(range(count), names)
    axes.set(
        xlabel="to (a dot: zero is outside the limits; so it is for up to one in 20 empty pairs)",
        ylabel="from",
    )
    figure.colorbar(image, ax=axes, shrink=0.7, label="share of trips, %").outline.set_visible(
        False
    )
    return figure


def draw_lengths(
    flows: Trips, domain: Domain, zones: Zones | None = None, before: FloatArray | None = None
) -> Figure:
    """How far trips go, between the middles of zones."""
    _, members = zone_matrix(zones, domain)
    if domain.plane is None:
        middle = np.array([int(np.flatnonzero(column)[0]) for column in members.T])
        apart = domain.distances(middle, middle)
    else:
        centres = members.T @ domain.plane / members.sum(axis=0)[:, None]
        apart = np.linalg.norm(centres[:, None] - centres, axis=-1)
    edges = np.linspace(0.0, float(apart.max()) * (1 + 1e-9), LENGTH_BINS + 1)
    chosen = np.digitize(apart, edges) == np.arange(1, LENGTH_BINS + 1)[:, None, None]
    limits = flows.sums(chosen.astype(float))
    share, raw, *true = (
        (part * chosen).sum(axis=(1, 2))
        for part in (flows.share, flows.raw, *([] if before is None else [before]))
    )
    return _shares(
        "How far trips go, between the middles of zones",
        [f"{low:.3g} to {high:.3g} {domain.unit}" for low, high in pairwise(edges)],
        (share, *limits, raw, *true),
        np.ones(LENGTH_BINS, np.bool_),
        "trips",
    )
