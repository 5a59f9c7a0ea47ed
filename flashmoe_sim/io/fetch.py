"""The beginning of a public file, read over HTTP; nothing calls this unless the user asked for it."""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from time import monotonic
from urllib.parse import urlsplit

from flashmoe_sim.io.errors import Malformed, Missing, SimError, TooLarge, Unusable

SILENT_S, WHOLE_S = 15.0, 180.0  # without a byte; for all that one `Fetcher` reads
MOST_BYTES = 64 << 20  # of all that one `Fetcher` reads
_PIECE = 1 << 16


class _SecureRedirects(urllib.request.HTTPRedirectHandler):
    """Follows five redirects, and none from HTTPS to HTTP."""

    max_redirections = 5
    max_repeats = 2

    def redirect_request(self, req: urllib.request.Request, *details: object) -> urllib.request.Request | None:
        newurl = str(details[-1])
        if req.type == "https" and urlsplit(newurl).scheme != "https":
            raise Unusable(f"{req.full_url}: leads to an address without encryption; nothing was read from there")
        return super().redirect_request(req, *details)  # type: ignore[arg-type]


@dataclass
class Fetcher:
    """Reads parts of files over HTTP, all together at most MOST_BYTES in WHOLE_S seconds; it sends no key.

    progress: called with the bytes that came. read_bytes: all that came so far.
    """

    progress: Callable[[int], None] = lambda count_bytes: None
    read_bytes: int = 0
    _begun: float = field(default_factory=monotonic)

    def get(self, url: str, *, most_bytes: int) -> bytes:
        """A whole file. Raises BadInput if it is larger, not there, or not for everybody; SimError for the network."""
        content = self._read(url, most_bytes + 1, {})
        if len(content) > most_bytes:
            raise TooLarge(f"{url}: has more than {_mib(most_bytes)}; nothing that large is read")
        return content

    def part(self, url: str, *, at: int, most_bytes: int) -> bytes:
        """The bytes of a file from `at` on; fewer than `most_bytes` only at its end. Raises like `get`."""
        return self._read(url, most_bytes, {"Range": f"bytes={at}-{at + most_bytes - 1}"}, at)

    def _read(self, url: str, most_bytes: int, headers: dict[str, str], at: int = 0) -> bytes:
        if self.read_bytes + most_bytes > MOST_BYTES:
            raise TooLarge(f"{url}: {_mib(MOST_BYTES)} were read, and its header is not complete; give the file itself")
        found = bytearray()
        try:
            with _opener().open(_request(url, headers), timeout=SILENT_S) as answer:
                if at and answer.status != HTTPStatus.PARTIAL_CONTENT:
                    raise Unusable(f"{url}: the server sends whole files only; give the file itself")
                while len(found) < most_bytes:
                    if monotonic() - self._begun > WHOLE_S:
                        raise TimeoutError
                    piece = answer.read1(min(_PIECE, most_bytes - len(found)))
                    if not piece:
                        break
                    found += piece
                    self.read_bytes += len(piece)
                    self.progress(len(piece))
                if answer.length and len(found) < most_bytes:
                    raise http.client.IncompleteRead(b"", answer.length)
        except urllib.error.HTTPError as error:
            with error:
                if at and error.code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                    return b""
                raise _refused(url, error) from None
        except (TimeoutError, urllib.error.URLError, OSError, http.client.HTTPException) as error:
            raise _failed(url, error) from None
        return bytes(found)


def _opener() -> urllib.request.OpenerDirector:
    """HTTP and HTTPS, through the user's proxy if there is one; no files, no FTP, no passwords."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        urllib.request.HTTPErrorProcessor(),
        _SecureRedirects(),
    ):
        opener.add_handler(handler)
    return opener


def _request(url: str, headers: dict[str, str]) -> urllib.request.Request:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Malformed(f"{url}: is no address of a server; expected https://...")
    return urllib.request.Request(url, headers={"User-Agent": "flashmoe-sim", "Accept-Encoding": "identity", **headers})


def _refused(url: str, error: urllib.error.HTTPError) -> SimError:
    """The error for an answer that is not the file."""
    why, status = error.headers.get("X-Error-Code", ""), error.code
    if "redirect" in str(error.reason).lower() and HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST:
        return Unusable(f"{url}: leads from address to address without end, or to one that is not HTTP")
    if why == "GatedRepo":
        return Unusable(f"{url}: its owner shows it only to whom he lets in; get the file in a browser, and give it")
    if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
        return Missing(f"{url}: is not there, or not public ({status}); check the spelling, or give the file itself")
    if status == HTTPStatus.NOT_FOUND:
        return Missing(f"{url}: is not there (404); check the spelling")
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return SimError(f"{url}: the server wants fewer questions (429); try again later")
    return SimError(f"{url}: the server answers {status} {re.sub(r'[^ -~]', '', str(error.reason))[:80]}".rstrip())


def _failed(url: str, error: Exception) -> SimError:
    """The error of a connection."""
    cause = error.reason if isinstance(error, urllib.error.URLError) else error
    host = urlsplit(url).netloc
    if isinstance(cause, TimeoutError):
        return SimError(f"{url}: {host} did not answer in time; try again, or give the file itself")
    if isinstance(cause, http.client.HTTPException):
        return SimError(f"{url}: the answer is not HTTP, or was cut off ({type(cause).__name__}); try again")
    reason = (cause.strerror if isinstance(cause, OSError) else None) or str(cause)
    return SimError(f"{url}: {host} cannot be reached ({reason}); is there a network? Without, give the file itself")


def _mib(count_bytes: int) -> str:
    return f"{count_bytes / 2**20:.0f} MiB"
