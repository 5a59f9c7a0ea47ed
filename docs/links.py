"""A hook of mkdocs: links that leave docs/ become the path in the repository, and must name a file that exists."""

from __future__ import annotations

import logging
import re
from pathlib import Path
from typing import Any

LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<path>\.\.[^)#\s]*)(?:#[\w-]+)?\)")
log = logging.getLogger("mkdocs.hooks.links")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """The page with `text (path)` for each link out of docs/."""
    docs = Path(config.docs_dir).resolve()

    def plain(link: re.Match[str]) -> str:
        target = (docs / page.file.src_uri).parent.joinpath(link["path"]).resolve()
        if target.is_relative_to(docs):
            return link[0]
        if not target.exists():
            log.warning(f"{page.file.src_uri}: no such file: {link['path']}")
        return f"{link['text']} (`{target.relative_to(docs.parent)}`)"

    return LINK.sub(plain, markdown)
