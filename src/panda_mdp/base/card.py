"""Facts as a small piece of HTML, for notebooks."""

from __future__ import annotations

import html
from collections.abc import Sequence


def card(title: str, facts: Sequence[tuple[str, str]], *, warning: str = "") -> str:
    """A title over two columns; everything is escaped, nothing is fetched or run.

    >>> "2 &lt; 3" in card("Problem", [("records", "2 < 3")])
    True
    """
    left = 'style="text-align:left"'
    rows = "".join(
        f'<tr><th scope="row" {left}>{html.escape(name)}</th>'
        f"<td {left}>{html.escape(value)}</td></tr>"
        for name, value in facts
    )
    loud = f"<br><b>{html.escape(warning)}</b>" if warning else ""
    head = f"<caption {left}><b>{html.escape(title)}</b>{loud}</caption>"
    return f'<table class="panda-mdp">{head}{rows}</table>'
