"""A double of a server of vLLM or SGLang on loopback: it speaks their dialects, and routes by drawing lots.

It runs no model. A text has a token for each byte; what a token is routed to follows from the text alone.
"""

from __future__ import annotations

import base64
import io
import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np

LAYERS, DENSE, EXPERTS, TOP_K = 5, 1, 16, 4
MODEL = "double/moe"
OWNERS = {"vllm": "vllm", "vllm-0.21": "vllm", "sglang": "sglang", "other": "double"}


def routing(prompt: str, tokens: int) -> np.ndarray:
    """What the double routes, u8 [tokens fed, LAYERS, TOP_K]; the first layer is dense: zeros."""
    rows = len(prompt.encode()) + tokens - 1
    draws = np.random.default_rng(list(sha256(prompt.encode()).digest())).random((rows, LAYERS, EXPERTS))
    chosen = np.argsort(draws, axis=2)[:, :, :TOP_K].astype(np.uint8)
    chosen[:, :DENSE] = 0
    return chosen


@dataclass
class Double:
    """dialect: a key of OWNERS. with_flag: whether it was started to return routed experts.

    instead: called before each answer with how many there were; what it returns, status and body, is sent instead.
    key: what it wants in the header of every request, if anything.
    asked: the requests that came.
    """

    dialect: str
    with_flag: bool = True
    instead: Callable[[int], tuple[int, bytes] | None] = lambda _: None
    key: str | None = None
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)

    def models(self) -> dict[str, Any]:
        return {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": OWNERS[self.dialect]}]}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        chat, tokens = "messages" in request, request["max_tokens"]
        prompt = templated(request["messages"]) if chat else request["prompt"]
        chosen = routing(prompt, tokens)
        completion = {"message": {"role": "assistant", "content": "x" * tokens}} if chat else {"text": "x" * tokens}
        choice: dict[str, Any] = {"index": 0, **completion, "finish_reason": "length"}
        usage = {"prompt_tokens": len(prompt.encode()), "completion_tokens": tokens}
        response: dict[str, Any] = {"id": "cmpl-1", "object": "text_completion", "created": int(time.time())}
        response |= {"model": request["model"], "choices": [choice], "usage": usage}
        if self.dialect == "vllm":
            file = io.BytesIO()
            np.save(file, chosen)
            choice["routed_experts"] = base64.b64encode(file.getvalue()).decode() if self.with_flag else None
        elif self.dialect == "vllm-0.21":
            begin = usage["prompt_tokens"]
            routed = chosen[:, DENSE:].tolist()
            response["prompt_routed_experts"] = routed[:begin] if self.with_flag else None
            choice["routed_experts"] = routed[begin:] if self.with_flag else None
        elif self.with_flag and request.get("return_routed_experts"):
            (choice if chat else response)["sglext"] = {
                "routed_experts": base64.b64encode(chosen.astype("<i4").tobytes()).decode()
            }
        return response


def templated(messages: list[dict[str, str]]) -> str:
    """The double's chat template."""
    return "".join(f"<{one['role']}>{one['content']}" for one in messages) + "<assistant>"


class _Handler(BaseHTTPRequestHandler):
    double: Double

    def do_GET(self) -> None:
        if self._refuses():
            return
        self._send(*((200, self.double.models()) if self.path == "/v1/models" else (404, {"detail": "Not Found"})))

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        double = self.double
        instead = double.instead(len(double.asked))
        double.asked.append(request)
        if self._refuses():
            return
        if instead is not None:
            self._send(instead[0], instead[1])
        elif self.path != ("/v1/chat/completions" if "messages" in request else "/v1/completions"):
            self._send(404, {"detail": "Not Found"})
        elif request["model"] != MODEL:
            self._send(404, {"error": {"message": f"The model `{request['model']}` does not exist."}})
        else:
            self._send(200, double.answer(request))

    def _refuses(self) -> bool:
        """Whether the key is not the right one; the answer then repeats it, as some servers do."""
        sent = self.headers.get("Authorization")
        if self.double.key is None or sent == f"Bearer {self.double.key}":
            return False
        self._send(401, {"error": {"message": f"Incorrect API key provided: {sent}"}})
        return True

    def _send(self, status: int, body: dict[str, Any] | bytes) -> None:
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        with suppress(BrokenPipeError):  # who asked was killed, or did not wait
            self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(double: Double) -> Iterator[Double]:
    """The double, answering at its `url` while the block runs."""
    handler = type("Handler", (_Handler,), {"double": double})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    double.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield double
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
