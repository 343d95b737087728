"""Figures as SVG elements of one page, without what a page does not need of them."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ASIDE = re.compile(r"<metadata>.*?</metadata>|<!--.*?-->", re.DOTALL)
_REFERENCE = re.compile(r'(?:xlink:)?(href="#|url\(#)([^")]+)')
_ID = re.compile(r' id="([^"]*)"')
_PLACE = re.compile(r' (d|x|y|width|height)="([^"]*)"')
_FINE = re.compile(r"\.0(?!\d)|(\.\d)\d+")
_CURVED = re.compile("[^-0-9. MLz]")
_LEVEL = re.compile(r' transform="rotate\(-?0 [^)]*\)"')
_GROUP = re.compile(r"<g>|<g [^>]*>|</g>")
_STYLE = re.compile(r' style="([^"]*)"')
_BETWEEN = re.compile(r">\s+<")


class Pictures:
    """The pictures of a page, with one rule for each style that they use, however often.

    Text stays text and points stay points; places are given to a tenth of a point. A page of three
    cities has a third of the size.
    """

    def __init__(self) -> None:
        self._rules: dict[str, str] = {}
        self._names: dict[str, str] = {}

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
        """An SVG element without comments, ids that nothing refers to, repeated styles, groups
        that say nothing and turns by nothing.

        >>> pictures = Pictures()
        >>> path = '<path d="M 1.2345 2.0 L 3 4 " style="fill: red"/>'
        >>> pictures.slim(f'<svg> <g id="a"> {path} </g> <text transform="rotate(-0 1 2)"/> </svg>')
        '<svg><path d="M1.2 2 3 4" class="s0"/><text/></svg>'
        >>> pictures.slim('<svg><path id="mark"/><g class="b"><use xlink:href="#mark"/></g></svg>')
        '<svg><path id="i0"/><g class="b"><use href="#i0"/></g></svg>'
        >>> pictures.css
        '.s0 { fill: red }'
        """
        text = _LEVEL.sub("", _ASIDE.sub("", text))
        used = {match[1] for match in _REFERENCE.findall(text)}
        text = _ID.sub(
            lambda match: f' id="{self._id(match[1])}"' if match[1] in used else "", text
        )
        text = _REFERENCE.sub(lambda match: f"{match[1]}{self._id(match[2])}", text)
        text = _PLACE.sub(_placed, text)
        text = _STYLE.sub(lambda match: f' class="{self._rule(match[1])}"', text)
        return _ungrouped(_BETWEEN.sub("><", text))

    def _rule(self, style: str) -> str:
        return self._rules.setdefault(style, f"s{len(self._rules)}")

    def _id(self, name: str) -> str:
        return self._names.setdefault(name, f"i{len(self._names)}")


def _placed(match: re.Match[str]) -> str:
    places = _FINE.sub(lambda fine: fine[1] or "", " ".join(match[2].split()))
    if match[1] == "d" and not _CURVED.search(places):
        # Whatever follows the first point of a path is a line to the next.
        places = places.replace(" L ", " ").replace("M ", "M")
    return f' {match[1]}="{places}"'


def _ungrouped(text: str) -> str:
    """The text without groups that have no attributes."""
    said: list[bool] = []

    def part(match: re.Match[str]) -> str:
        if match[0] == "</g>":
            return match[0] if said.pop() else ""
        said.append(match[0] != "<g>")
        return match[0] if said[-1] else ""

    return _GROUP.sub(part, text)
