"""A program that answers like llama-server, and breaks in a way of its own."""

from __future__ import annotations

import http.server
import json
import signal
import sys
from pathlib import Path
from typing import Any, ClassVar

FLAGS = (
    "--host --port --n-predict --version -m -c -ngl -fa -ub -b -np -dev -t --cpu-moe --n-cpu-moe -ot -ts --load-mode "
    "--numa --moe-cache-mib"
)
HELP = "usage: llama-server\n" + "\n".join(
    f"{flag} N" for flag in f"--host --port --n-predict --version {FLAGS}".split()
)


def main(behaviour: dict[str, Any], words: list[str], counter: str) -> None:
    """Serve texts.

    speed: tokens a second with everything on the CPU and 8 threads. best: layers on the CPU below which memory lacks.
    breaks: how it fails.
    """
    if "--help" in words:
        print(behaviour.get("help", HELP))
        return
    if "--version" in words:
        print("version: 12210 (abcdef123)\nbuilt with a compiler")
        return
    with Path(counter).open("a") as runs:
        runs.write(json.dumps(words) + "\n")
    if behaviour.get("breaks") == "crash":
        sys.exit("0.00.034.593 E llama_model_load: error loading model: unknown architecture")
    if int(_after(words, "--n-cpu-moe", 99)) < behaviour.get("least_layers", 0):
        sys.exit("ggml_backend_cuda_buffer_type_alloc_buffer: cudaMalloc failed: out of memory")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    Answers.behaviour, Answers.speed = behaviour, _speed(behaviour, words)
    http.server.HTTPServer(("127.0.0.1", int(_after(words, "--port", 0))), Answers).serve_forever()


def _after(words: list[str], flag: str, otherwise: int) -> str:
    return words[words.index(flag) + 1] if flag in words else str(otherwise)


def _speed(behaviour: dict[str, Any], words: list[str]) -> float:
    threads = {8: 1.0, 6: 1.05}.get(int(_after(words, "-t", 8)), 0.8)
    cached = 1 + int(_after(words, "--moe-cache-mib", 0)) / 1e4
    layers = int(_after(words, "--n-cpu-moe", 0))
    return float(behaviour["speed"] * cached * threads * 40 / (4 + layers))


class Answers(http.server.BaseHTTPRequestHandler):
    """A word is a token."""

    behaviour: dict[str, Any]
    speed: float
    held: ClassVar[list[int]] = []

    def log_message(self, *_: Any) -> None:
        pass

    def send(self, document: Any, code: int = 200) -> None:
        body = json.dumps(document).encode()
        self.send_response(code)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send({"status": "ok"})

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        breaks = self.behaviour.get("breaks", "")
        if self.path == "/tokenize":
            self.send({"tokens": [hash(word) % 1000 for word in asked["content"].split()]})
            return
        if breaks == "error":
            self.send({"error": {"message": "the request exceeds the available context size"}}, 400)
            return
        if breaks == "dies":
            import os

            os._exit(3)
        prompt, tokens, cached = asked["prompt"], asked["n_predict"], 0
        if asked["cache_prompt"]:
            same = [one == other for one, other in zip(prompt, Answers.held, strict=False)]
            cached = same.index(False) if False in same else len(same)
        Answers.held = prompt
        computed = len(prompt) - (0 if breaks == "forgets" else cached)
        tokens = 1 if breaks == "stops" else tokens
        timings = {
            "cache_n": len(prompt) - computed,
            "prompt_n": computed,
            "prompt_ms": computed / (20 * self.speed) * 1e3,
            "prompt_per_second": 20 * self.speed,
            "predicted_n": tokens,
            "predicted_ms": 0.0 if breaks == "zero" else tokens / self.speed * 1e3,
            "predicted_per_second": self.speed,
        }
        timings = {"no": "timings"} if breaks == "prose" else timings
        self.send({"content": "text", "model": "a.gguf", "timings": timings})
