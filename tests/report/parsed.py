"""A page as its reader sees it."""

from __future__ import annotations

from html.parser import HTMLParser


class Page(HTMLParser):
    """Whether a page is whole: tags closed in order, nothing fetched; its scripts are no words of it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.words: list[str] = []
        self.seen: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in ("link", "iframe")
        self.seen.append(tag)
        for name, value in attrs:
            assert name not in ("onload", "onerror", "onclick")
            assert name != "src" or (tag == "img" and (value or "").startswith("data:image/svg+xml;base64,"))
            assert name not in ("href", "xlink:href") or (value or "").startswith("#")
        if tag not in ("meta", "br", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "script" not in self.open and "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())
