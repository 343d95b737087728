"""Figures as SVG elements of one page, without what a page does not need of them."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ASIDE = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->", re.DOTALL)
_REFERENCE = re.compile(r'(?:href="#|url\(#)([^")]+)')
_ID = re.compile(r' id="([^"]*)"')
_PLACE = re.compile(r' (d|x|y)="([^"]*)"')
_FINE = re.compile(r"(\.\d)\d+")
_STYLE = re.compile(r' style="([^"]*)"')
_BETWEEN = re.compile(r">\s+<")


class Pictures:
    """The pictures of a page, with one rule for each style that they use, however often.

    Text stays text and points stay points; places are given to a tenth of a point. A page of three
    cities has half the size.
    """

    def __init__(self) -> None:
        self._rules: dict[str, str] = {}

    @property
    def css(self) -> str:
        """The rules, for the page's head."""
        return "\n".join(f".{name} {{ {style} }}" for style, name in self._rules.items())

    def svg(self, figure: Figure, salt: str) -> str:
        """A figure as an element; its ids are its own by the salt."""
        import matplotlib as mpl

        stream = io.StringIO()
        with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": salt}):
            figure.savefig(stream, format="svg", transparent=False, metadata={"Date": None})
        text = stream.getvalue()
        return self.slim(text[text.index("<svg") :])

    def slim(self, text: str) -> str:
        """An SVG element without comments, ids that nothing refers to, and repeated styles.

        >>> pictures = Pictures()
        >>> pictures.slim('<svg> <g id="a"> <path d="M 1.2345 2" style="fill: red"/> </g> </svg>')
        '<svg><g><path d="M 1.2 2" class="s0"/></g></svg>'
        >>> pictures.css
        '.s0 { fill: red }'
        """
        text = _ASIDE.sub("", text)
        used = set(_REFERENCE.findall(text))
        text = _ID.sub(lambda match: match[0] if match[1] in used else "", text)
        text = _PLACE.sub(_placed, text)
        text = _STYLE.sub(lambda match: f' class="{self._rule(match[1])}"', text)
        return _BETWEEN.sub("><", text)

    def _rule(self, style: str) -> str:
        return self._rules.setdefault(style, f"s{len(self._rules)}")


def _placed(match: re.Match[str]) -> str:
    places = _FINE.sub(r"\1", " ".join(match[2].split()))
    return f' {match[1]}="{places}"'
