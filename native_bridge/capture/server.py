"""A running server like vLLM's or SGLang's, asked over HTTP for texts and their routing."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any
from urllib.parse import urlsplit

from flashmoe_sim.io.errors import (
    BadInput,
    Incomplete,
    Malformed,
    Missing,
    SimError,
    UnknownName,
    Unusable,
    shortened,
    shown,
)

MOST_BYTES = 1 << 30  # of an answer: 100,000 tokens of 90 layers take half of it
MOST_LISTED_BYTES = 16 << 20  # of a list of models
USUAL_KEY = "OPENAI_API_KEY"
ENGINES = {"vllm": "vLLM", "sglang": "SGLang"}  # by the owner that a server reports for its models


@dataclass(frozen=True)
class AnswerOptions:
    """The parameters of a request beside the prompt.

    tokens: the most to generate. temperature: 0 takes the likeliest token. chat: whether the prompt is a user's
    message, to which the server applies the model's chat template.
    """

    model: str
    tokens: int
    temperature: float
    seed: int
    chat: bool = False


@dataclass(frozen=True)
class Server:
    """A server that answers. engine: vLLM, SGLang, or empty for any other server compatible with OpenAI's.

    timeout_s: for a whole answer. key: sent with every request, and shown nowhere.
    """

    url: str
    engine: str
    models: tuple[str, ...]
    timeout_s: float
    key: str | None = field(default=None, repr=False)

    def model(self, name: str | None) -> str:
        """The served model of this name, or the only one. Raises BadInput if there is none, or several."""
        if name is None and len(self.models) == 1:
            return self.models[0]
        listed = ", ".join(self.models)
        if name is None:
            raise Incomplete(f"{self.url}: serves {len(self.models)} models: {listed}; choose one with --served-model")
        if name not in self.models:
            raise UnknownName(f"{self.url}: serves no model {name!r}; --served-model takes: {listed}")
        return name

    def ask(self, prompt: str, options: AnswerOptions) -> dict[str, Any]:
        """The server's answer to a prompt, with the routing if the server records it.

        Raises BadInput if it refuses the request, and SimError if it fails or does not answer in time.
        """
        path = "/v1/chat/completions" if options.chat else "/v1/completions"
        text = {"messages": [{"role": "user", "content": prompt}]} if options.chat else {"prompt": prompt}
        request: dict[str, Any] = {
            "model": options.model,
            **text,
            "max_tokens": options.tokens,
            "temperature": options.temperature,
            "seed": options.seed,
        }
        if self.engine != "vLLM":  # vLLM has no such field: its flag applies to all requests
            request["return_routed_experts"] = True
        return _json(self.url, path, self.timeout_s, self.key, request)


def find_server(url: str, *, timeout_s: float, key: str | None = None) -> Server:
    """The server at an address, after asking it for its models.

    url: `http://host:port`, also with a path before `/v1`. key: its API key, if it requires one.
    Raises BadInput if nothing answers there, or something other than such a server.
    """
    url = url.rstrip("/").removesuffix("/v1")
    parts = urlsplit(url)
    try:
        known = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        known = False
    if not known:
        raise Malformed(f"{url}: is not the address of a server; expected for example http://127.0.0.1:8000")
    try:
        listed = _json(url, "/v1/models", timeout_s, key).get("data")
    except BadInput:
        raise
    except SimError as error:
        raise Unusable(f"{error}; start the server, or check the address") from None
    cards = [card for card in listed if isinstance(card, dict)] if isinstance(listed, list) else []
    models = tuple(str(card["id"]) for card in cards if card.get("id"))
    if not models:
        raise Unusable(f"{url}: its list of models is empty; expected a server of vLLM or SGLang")
    owner = str(next((card.get("owned_by") for card in cards if card.get("owned_by")), ""))
    return Server(url, ENGINES.get(owner, ""), models, timeout_s, key)


def _json(
    url: str, path: str, timeout_s: float, key: str | None, body: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The object in a server's answer."""
    headers = {} if key is None else {"Authorization": f"Bearer {key}"}
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=timeout_s)
    most = MOST_LISTED_BYTES if body is None else MOST_BYTES
    try:
        if body is None:
            connection.request("GET", parts.path + path, headers=headers)
        else:
            headers["Content-Type"] = "application/json"
            connection.request("POST", parts.path + path, json.dumps(body), headers)
        with _within(timeout_s, connection.sock):
            response = connection.getresponse()
            status, content = response.status, response.read(most)
            if response.length and len(content) < most:
                raise http.client.IncompleteRead(b"", response.length)
    except TimeoutError as error:
        raise SimError(f"{url}: no whole answer in {timeout_s:g} s; give it more with --timeout") from error
    except ConnectionRefusedError as error:
        raise SimError(f"{url}: no server there (connection refused)") from error
    except OSError as error:
        raise SimError(f"{url}: the connection failed ({error.strerror or error})") from error
    except UnicodeError as error:
        raise Malformed(
            f"{url}: is not the address of a server; expected plain letters, for example http://127.0.0.1:8000"
        ) from error
    except http.client.HTTPException as error:
        raise SimError(f"{url}: the answer is not HTTP, or was cut off ({type(error).__name__})") from error
    finally:
        connection.close()
    if len(content) == most:
        advice = "expected a server of vLLM or SGLang" if body is None else "ask for fewer --tokens"
        raise SimError(f"{url}: answers more than {most >> 20} MiB to {path}; {advice}")
    return _object(url, path, status, content, key)


@contextmanager
def _within(seconds: float, connected: socket.socket) -> Iterator[None]:
    """Raise TimeoutError if the block takes longer; the socket's own timeout begins again with every byte."""
    late = threading.Event()

    def cut() -> None:
        late.set()
        with suppress(OSError):  # it is closed by now
            socket.socket.shutdown(connected, socket.SHUT_RDWR)  # not TLS's own, which is in use by the other thread

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, http.client.HTTPException):
        if not late.is_set():
            raise
    finally:
        timer.cancel()
    if late.is_set():
        raise TimeoutError


def _object(url: str, path: str, status: int, content: bytes, key: str | None) -> dict[str, Any]:
    import orjson

    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError:
        document = None
    if status == HTTPStatus.UNAUTHORIZED and key is None:
        raise Incomplete(
            f"{url}: asks for a key (401); put it into an environment variable, and name that with --api-key-env"
        )
    if status == HTTPStatus.UNAUTHORIZED:
        raise Unusable(f"{url}: refuses the key (401); check the environment variable that holds it")
    if status == HTTPStatus.NOT_FOUND and document is None:
        raise Unusable(f"{url}: has no {path} (404); expected a server of vLLM or SGLang")
    if status != HTTPStatus.OK:
        found = f"{url}: answers {status} to {path}: {_reason(document, content, key)}"
        raise (
            Unusable(found) if HTTPStatus.BAD_REQUEST <= status < HTTPStatus.INTERNAL_SERVER_ERROR else SimError(found)
        )
    if not isinstance(document, dict):
        raise Malformed(
            f"{url}: answers {shown(_without(key, content)[:40])} to {path}; expected a server of vLLM or SGLang"
        )
    return document


def _reason(document: Any, content: bytes, key: str | None) -> str:
    """A server's error message, in one line and without the key, which some servers repeat."""
    if isinstance(document, dict):
        error = document.get("error")
        inner = error.get("message") if isinstance(error, dict) else error
        content = str(inner or document.get("message") or document.get("detail") or document).encode()
    text = _without(key, content).decode("utf-8", "replace")
    return shortened(" ".join(text.split()) or "nothing more", 200)


def _without(key: str | None, content: bytes) -> bytes:
    return content if key is None else content.replace(key.encode(), b"***")


def key_of(variable: str | None) -> str | None:
    """The API key in an environment variable; None for the usual one, if that is set. No message contains a key.

    Raises BadInput if there is no such variable, or its value does not fit an HTTP header.
    """
    if variable is not None and re.fullmatch("[A-Za-z_][A-Za-z0-9_]*", variable) is None:
        raise Malformed("--api-key-env takes the name of an environment variable that holds the key, not the key")
    key = os.environ.get(variable or USUAL_KEY, "").strip()
    if not key:
        if variable is not None:
            raise Missing(f"--api-key-env {variable}: the variable is not set; put the server's key into it")
        return None
    if not key.isascii() or not key.isprintable():
        raise Malformed(f"{variable or USUAL_KEY}: holds no API key: one line of ASCII expected")
    return key
