"""Hooks of mkdocs: for links that leave docs/, and for lines of code that are longer than a terminal."""

from __future__ import annotations

import html
import logging
import re
from pathlib import Path
from typing import Any

LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<path>\.\.[^)#\s]*)(?:#[\w-]+)?\)")
CODE = re.compile(r"(<pre><code[^>]*>)(.*?)(?=</code></pre>)", re.DOTALL)
TERMINAL = 80  # letters
log = logging.getLogger("mkdocs.hooks.links")


def on_page_markdown(markdown: str, *, page: Any, config: Any, files: Any) -> str:
    """The page with `text (path)` for each link out of docs/; a path that leads nowhere is a warning."""
    docs = Path(config.docs_dir).resolve()

    def plain(link: re.Match[str]) -> str:
        target = (docs / page.file.src_uri).parent.joinpath(link["path"]).resolve()
        if target.is_relative_to(docs):
            return link[0]
        if not target.exists():
            log.warning(f"{page.file.src_uri}: no such file: {link['path']}")
        return f"{link['text']} (`{target.relative_to(docs.parent)}`)"

    return LINK.sub(plain, markdown)


def on_page_content(content: str, **_: Any) -> str:
    """The page with each word of a long line of code in a span: a browser breaks the line between words only."""
    return CODE.sub(lambda code: code[1] + "\n".join(map(_in_words, code[2].split("\n"))), content)


def _in_words(line: str) -> str:
    if len(html.unescape(line)) <= TERMINAL:
        return line
    return " ".join(f"<span>{word}</span>" for word in line.split(" "))
