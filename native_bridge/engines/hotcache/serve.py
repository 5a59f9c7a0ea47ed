"""Start a llama-server, ask it for one text, print the text, its speeds and its profile, and end it.

    python serve.py PROMPT TOKENS PROGRAM [FLAGS...]

It needs only Python, since it is started as a separate program.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

READY_S, ENDED_S, LOOK_S = 600.0, 30.0, 0.05


def main(arguments: list[str]) -> int:
    prompt, tokens, *command = arguments
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as place:
        perf = Path(place) / "perf.json"
        command += ["--host", "127.0.0.1", "--port", str(port), "--moe-layer-perf-out", str(perf), "--cache-ram", "0"]
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=sys.stderr)
        try:
            address = f"http://127.0.0.1:{port}"
            if not _is_ready(server, address):
                return server.poll() or 1
            answer = _ask(
                address, {"prompt": prompt, "n_predict": int(tokens), "ignore_eos": True, "cache_prompt": False}
            )
        except (OSError, ValueError) as error:
            print(f"the server gave no answer ({error})", file=sys.stderr)
            return server.poll() or 1
        finally:
            _end(server)
        prompt_s, text_s = (answer["timings"][f"{part}_per_second"] for part in ("prompt", "predicted"))
        print(f"\n> {prompt}\n\n{answer['content']}\n")
        print(f"[ Prompt: {prompt_s:.1f} t/s | Generation: {text_s:.1f} t/s ]")
        for layer in json.loads(perf.read_bytes())["layers"]:
            kept = {name: layer[name] for name in ("layer", "calls", "hot_experts", "cold_experts")}
            print(f"moe-layer-perf: {json.dumps(kept, separators=(',', ':'))}")
    return 0


def _is_ready(server: subprocess.Popen[bytes], address: str) -> bool:
    """Wait until the model is loaded; False if the server ended before, or takes too long."""
    end = time.monotonic() + READY_S
    while server.poll() is None and time.monotonic() < end:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            time.sleep(LOOK_S)
    return False


def _ask(address: str, question: dict[str, Any]) -> dict[str, Any]:
    body = json.dumps(question).encode()
    request = urllib.request.Request(f"{address}/completion", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request) as response:
        answer: dict[str, Any] = json.load(response)
    return answer


def _end(server: subprocess.Popen[bytes]) -> None:
    server.terminate()
    try:
        server.wait(ENDED_S)
    except subprocess.TimeoutExpired:
        server.kill()
        server.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
