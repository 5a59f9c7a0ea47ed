"""A double of Hugging Face's hub on loopback: repositories of files, read by range, behind redirects and refusals."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit


@dataclass
class Hub:
    """The files of each repository, and what was asked.

    sizes: of files that are larger than what is kept of them. refuses: the status, and the hub's own word for it, by
    path. ranged: whether it serves parts. drips_s: seconds between two bytes. moved: files that are elsewhere, as most
    are. sent_bytes: of all files.
    """

    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    refuses: dict[str, tuple[int, str]] = field(default_factory=dict)
    ranged: bool = True
    drips_s: float = 0.0
    moved: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)
    sent_bytes: int = 0
    url: str = ""


@contextmanager
def serving(hub: Hub) -> Iterator[Hub]:
    """The hub, in a thread of its own."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:  # the base class calls it so
            path = unquote(urlsplit(self.path).path)
            hub.asked.append((path, self.headers.get("Range", "")))
            assert "Authorization" not in self.headers
            if path in hub.refuses:
                status, word = hub.refuses[path]
                self.answer(status, b"no", {"X-Error-Code": word})
            elif path in hub.moved:
                self.answer(302, b"", {"Location": hub.moved[path]})
            elif path.startswith("/api/models/"):
                repository, _, below = path.removeprefix("/api/models/").partition("/tree/main")
                self.answer(200, json.dumps(self.listed(repository, below.removeprefix("/"))).encode(), {})
            else:
                repository, _, name = path.removeprefix("/").partition("/resolve/main/")
                content = hub.files.get(repository, {}).get(name)
                self.answer(404, b"no", {}) if content is None else self.part(content)

        def listed(self, repository: str, below: str) -> list[dict[str, object]]:
            files = {name: content for name, content in hub.files[repository].items() if name.startswith(below)}
            rows = [{"type": "file", "path": name, "size": hub.sizes.get(name, len(files[name]))} for name in files]
            return [{"type": "directory", "path": "a-folder", "size": 0}, *rows]

        def part(self, content: bytes) -> None:
            asked = self.headers.get("Range")
            if asked is None or not hub.ranged:
                self.answer(200, content, {})
                return
            first, last = (int(number) for number in asked.removeprefix("bytes=").split("-"))
            if first >= len(content):
                self.answer(416, b"", {})
                return
            self.answer(206, content[first : last + 1], {})

        def answer(self, status: int, content: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(content))}.items():
                self.send_header(name, value)
            self.end_headers()
            hub.sent_bytes += len(content)
            try:
                for piece in [content] if not hub.drips_s else [content[at : at + 1] for at in range(len(content))]:
                    self.wfile.write(piece)
                    time.sleep(hub.drips_s)
            except OSError:
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            return

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
