"""Hooks of the documentation's build (mkdocs.yml): reference, gallery, links into the source."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))
from gallery import draw_gallery

ROOT = Path(__file__).resolve().parents[1]


def on_files(files: Files, config: Any) -> Files:
    """Draw the gallery's pictures and add them to the site."""
    for path in draw_gallery(ROOT / "out" / "gallery"):
        files.append(File.generated(config, f"gallery/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """The reference's entries; files that are no pages are named instead of linked."""
    if page.file.src_uri == "reference.md":
        markdown = markdown.replace("<!-- reference -->", "\n\n".join(entries()))

    def named(found: re.Match[str]) -> str:
        target = (ROOT / "docs" / page.file.src_uri).parent / found[2].partition("#")[0]
        if not target.exists():
            msg = f"{page.file.src_uri} links to {found[2]}, which does not exist"
            raise PluginError(msg)
        inside = target.resolve().is_relative_to(ROOT / "docs")
        shown = target.is_file() and target.suffix in {".md", ".png", ".html", ".svg"}
        return found[0] if inside and shown else f"{found[1]} (`{found[2].lstrip('./')}`)"

    return re.sub(r"(?<!!)\[([^\]]+)\]\(((?!https?:|#|gallery/)[^)\s]+)\)", named, markdown)


GROUPS = {
    "What is asked": ("space", "problem", "outputs", "loss", "prior"),
    "Cities": ("city",),
    "Methods": ("methods",),
    "Tables and guarantees": ("table", "privacy"),
    "PAnDA": ("panda",),
    "What it means": ("meaning",),
    "Tables of data": ("frames",),
}
"""Headings of the reference, and the rooms whose names stand under each."""


def entries() -> list[str]:
    """One entry for every exported name, under the heading of its room."""
    import panda_mdp

    rooms = {
        name: getattr(panda_mdp, name).__module__.split(".")[1]
        for name in panda_mdp.__all__
        if name != "__version__"
    }
    listed: list[str] = []
    for heading, group in GROUPS.items():
        listed.append(f"## {heading}")
        listed += [f"::: panda_mdp.{name}" for name, room in rooms.items() if room in group]
    return listed


def on_post_build(config: Any) -> None:
    """Every exported name has its place in the reference."""
    import panda_mdp

    page = (Path(config["site_dir"]) / "reference" / "index.html").read_text(encoding="utf-8")
    missing = [
        name
        for name in panda_mdp.__all__
        if name != "__version__" and not re.search(rf'id="panda_mdp\.[\w.]*\b{name}"', page)
    ]
    if missing:
        msg = f"the reference lacks {', '.join(missing)}"
        raise PluginError(msg)
