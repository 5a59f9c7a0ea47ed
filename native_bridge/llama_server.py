"""A llama-server on this machine: started, asked over HTTP, and ended. It needs only Python's standard library."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

READY_S, ENDED_S, LOOK_S = 600.0, 30.0, 0.05


class NoAnswer(Exception):
    """The server ended, or said no. code: with which its caller ends."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code


class RunningServer:
    """A server that runs. address: of its pages."""

    def __init__(self, process: subprocess.Popen[bytes], port: int) -> None:
        self.process = process
        self.address = f"http://127.0.0.1:{port}"

    def ask(self, page: str, question: dict[str, Any]) -> dict[str, Any]:
        """The answer of a page to a JSON document. Raises NoAnswer."""
        body = json.dumps(question).encode()
        request = urllib.request.Request(f"{self.address}/{page}", body, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request) as response:
                answer: dict[str, Any] = json.load(response)
        except urllib.error.HTTPError as error:
            said = error.read().decode("utf-8", "replace")
            raise NoAnswer(f"the server answered {error.code} to /{page}: {said}", 1) from None
        except (OSError, ValueError) as error:
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(1.0)  # it may be about to end
            raise NoAnswer(f"the server gave no answer ({error})", self.process.poll() or 1) from None
        return answer

    def is_ready(self) -> bool:
        """Wait until the model is loaded; False if the server ended before, or takes too long."""
        end = time.monotonic() + READY_S
        while self.process.poll() is None and time.monotonic() < end:
            try:
                with urllib.request.urlopen(f"{self.address}/health", timeout=5):
                    return True
            except OSError:
                time.sleep(LOOK_S)
        return False


@contextmanager
def served(command: Sequence[str]) -> Iterator[RunningServer]:
    """Start a server on a free port, and wait until it is ready. What it prints goes to stderr.

    Raises NoAnswer if it ends before.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [*command, "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=sys.stderr)
    try:
        server = RunningServer(process, port)
        if not server.is_ready():
            raise NoAnswer("the server did not start", process.poll() or 1)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(ENDED_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
