"""Two small pictures as SVG, drawn by hand: no package, no script, no font of its own."""

from __future__ import annotations

import html
from collections.abc import Sequence

import numpy as np

from panda_mdp.base.arrays import FloatArray
from panda_mdp.meaning.words import distance_words, guess_words

WIDTH = 560
INK, BLUE, PALE = "#24292f", "#0072b2", "#dde3ea"
FONT = 'font-family="sans-serif" font-size="12"'


def ladder(steps: Sequence[tuple[str, float]]) -> str:
    """How often a guess between two records is right, by their distance: bars from 50 to 100."""
    left, height = 90, 22
    wide = WIDTH - left - 130
    rows = [
        f'<text x="0" y="14" fill="{INK}" {FONT} font-weight="bold">A guess between two, after '
        "one report, is right at most</text>"
    ]
    for k, (name, guess) in enumerate(steps):
        y = 26 + k * height
        length = max(1.0, wide * (guess - 0.5) / 0.5)
        rows.append(
            f'<text x="{left - 8}" y="{y + 12}" text-anchor="end" fill="{INK}" {FONT}>'
            f"{html.escape(name)}</text>"
            f'<rect x="{left}" y="{y}" width="{wide}" height="15" fill="{PALE}"/>'
            f'<rect x="{left}" y="{y}" width="{length:.1f}" height="15" fill="{BLUE}"/>'
            f'<text x="{left + wide + 8}" y="{y + 12}" fill="{INK}" {FONT}>'
            f"{guess_words(guess)}</text>"
        )
    below = 26 + len(steps) * height
    rows.append(
        f'<text x="{left}" y="{below + 12}" fill="{INK}" {FONT}>50: knows nothing</text>'
        f'<text x="{left + wide}" y="{below + 12}" text-anchor="end" fill="{INK}" {FONT}>100: '
        "knows</text>"
    )
    return _svg(below + 22, rows, "What one report tells about two records, by distance")


def spread_chart(distances: FloatArray, shares: FloatArray, unit: str) -> str:
    """What share of the reports lies within which distance: a curve, to 99 % of the reports."""
    left, top, wide, high = 48, 30, WIDTH - 70, 130
    reached = np.cumsum(shares) / shares.sum()
    last = min(int(np.searchsorted(reached, 0.99)), len(reached) - 1)
    reach = float(distances[last]) or 1.0
    edges = np.linspace(0.0, reach, 120)
    at = np.searchsorted(distances, edges, side="right") - 1
    height = np.where(at >= 0, reached[np.maximum(at, 0)], 0.0)
    points = " ".join(
        f"{left + wide * x / reach:.1f},{top + high * (1 - y):.1f}"
        for x, y in zip(edges, height, strict=True)
    )
    rows = [
        f'<text x="0" y="14" fill="{INK}" {FONT} font-weight="bold">Share of reports within a '
        "distance</text>",
        f'<polyline points="{points}" fill="none" stroke="{BLUE}" stroke-width="2"/>',
    ]
    for share in (0.0, 0.5, 1.0):
        y = top + high * (1 - share)
        rows.append(
            f'<line x1="{left}" x2="{left + wide}" y1="{y:.1f}" y2="{y:.1f}" stroke="{PALE}"/>'
            f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end" fill="{INK}" {FONT}>'
            f"{100 * share:.0f} %</text>"
        )
    for share in (0.0, 0.5, 1.0):
        x = left + wide * share
        anchor = "start" if share == 0 else "end" if share == 1 else "middle"
        name = html.escape(distance_words(reach * share, unit))
        rows.append(
            f'<text x="{x:.1f}" y="{top + high + 16}" text-anchor="{anchor}" fill="{INK}" {FONT}>'
            f"{name}</text>"
        )
    return _svg(top + high + 26, rows, "Share of reports within a distance")


def _svg(height: float, rows: Sequence[str], title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" viewBox="0 0 {WIDTH} {height:.0f}" '
        f'width="{WIDTH}" height="{height:.0f}"><title>{html.escape(title)}</title>'
        f"{''.join(rows)}</svg>"
    )
