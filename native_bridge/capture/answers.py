"""Asking a server one prompt after another; its answers are written as they come, a valid trace at any moment."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import orjson

from flashmoe_sim.io.errors import BadInput, Conflict, Malformed, SimError, Unusable
from flashmoe_sim.io.locks import flock
from flashmoe_sim.io.whole import refuse_existing
from flashmoe_sim.trace.request_calls import trace_of_requests
from flashmoe_sim.trace.requests import Hints, ReadOptions
from flashmoe_sim.trace.served_json import EXTRAS, FORMAT, BadResponse, requests_of
from flashmoe_sim.trace.served_json import KEY as ROUTING
from native_bridge.capture.server import AnswerOptions, Server

KEY = "flashmoe_sim"  # in a line: the request
NPY_BASE64 = "k05VTVBZ"  # how a .npy file begins


class Answers:
    """A file of answers in the format `served-json`, each with the hash of its prompt and the request.

    path: written from the first answer on; a half-written answer of a killed capture is dropped.
    force: an old file is replaced with the first answer instead of being continued.
    Raises BadInput for a name without `.jsonl`, a file that is not such a file, has other requests, is being written by
    another capture, or cannot be written.
    """

    def __init__(self, path: Path, options: AnswerOptions, *, force: bool = False) -> None:
        if path.suffix != ".jsonl":
            raise Malformed(f"{path}: answers of a server are kept in a file whose name ends in .jsonl")
        refuse_existing(path, force=True)
        self.path, self.options = path, options
        self.kept: Counter[str] = Counter()
        self._end, self._is_new = 0, not path.exists()
        try:
            self._file = path.open("ab", buffering=0)
        except OSError as error:
            raise self._unwritable(error) from None
        try:
            self._lock()
            self._end = 0 if force else self._read()
            if self._end:
                self._file.truncate(self._end)
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_new and not self._end:
            self.path.unlink(missing_ok=True)
        self._file.close()

    def _lock(self) -> None:
        """Two captures into one file would cut off each other's answers."""
        try:
            flock(self._file.fileno(), wait=False)
            is_ours = os.fstat(self._file.fileno()).st_nlink > 0
        except BlockingIOError:
            is_ours = False
        except OSError:  # a file system without locks
            is_ours = True
        if not is_ours:
            raise Unusable(f"{self.path}: another capture is writing to it; wait for its end, or give another --out")

    def _read(self) -> int:
        """Count the existing answers; return where the last complete one ends, in bytes."""
        end = 0
        try:
            with self.path.open("rb") as stream:
                for number, line in enumerate(stream, 1):
                    if not line.endswith(b"\n"):
                        break
                    self._count(line, number)
                    end += len(line)
        except OSError as error:
            raise Unusable(f"{self.path}: cannot be read ({error.strerror or error})") from None
        if not end and self.path.stat().st_size:
            raise Malformed(f"{self.path}: holds no whole answer of a server; give another --out, or --force")
        return end

    def _count(self, line: bytes, number: int) -> None:
        try:
            made = orjson.loads(line)[KEY]
            prompt, options = str(made["prompt_sha256"]), dict(made["asked"])
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError):
            raise Malformed(
                f"{self.path}: line {number} was not written by a capture from a server; give another --out, or --force"
            ) from None
        for name, value in asdict(self.options).items():
            if options.get(name) != value:
                raise Conflict(
                    f"{self.path}: holds answers of another capture ({name} {options.get(name)}, now {value}); "
                    "give another --out, or --force"
                )
        self.kept[prompt] += 1

    def add(self, prompt: str, response: dict[str, Any], *, shape: tuple[int, ...]) -> None:
        """Write the answer to a prompt. shape: of its routing, which SGLang does not send; it is added to the response.

        Raises BadInput if the disk is full or the file may not grow; earlier content is kept.
        """
        made = {"prompt_sha256": hash_of_prompt(prompt), "asked": asdict(self.options)}
        _put_shape(response, shape)
        line = orjson.dumps({**response, KEY: made}, option=orjson.OPT_APPEND_NEWLINE)
        left = memoryview(line)
        try:
            self._file.truncate(self._end)
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            self._file.truncate(self._end)
            raise self._unwritable(error) from None
        self._end += len(line)
        self.kept[hash_of_prompt(prompt)] += 1

    @property
    def written_bytes(self) -> int:
        return self._end

    def _unwritable(self, error: OSError) -> BadInput:
        kept = f"; {self.kept.total():,} answers are kept" if self._end else ""
        return Unusable(f"{self.path}: cannot be written ({error.strerror or error}){kept}")


def hash_of_prompt(prompt: str) -> str:
    return hashlib.sha256(prompt.encode("utf-8", "surrogatepass")).hexdigest()


def _put_shape(response: dict[str, Any], shape: tuple[int, ...]) -> None:
    """Add the shape to integers that came as bare base64."""
    choices = response.get("choices")
    places = [response, *(choices if isinstance(choices, list) else [])]
    for holder in [*places, *(place.get(name) for place in places for name in EXTRAS)]:
        routing = holder.get(ROUTING) if isinstance(holder, dict) else None
        if isinstance(routing, str) and not routing.startswith(NPY_BASE64):
            dtype = holder.get("routed_experts_dtype") or "int32"
            holder[ROUTING] = {"data": routing, "shape": list(shape), "dtype": dtype}


def ask_all(
    server: Server,
    prompts: Sequence[str],
    answers: Answers,
    *,
    hints: Hints,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[int, int]:
    """Ask all prompts without an answer, in order; each answer is checked as a trace, and written before the next.

    Returns how many were asked now, and how many were answered before.

    progress: called after each with the number of answered prompts and the total.
    Raises BadInput for an answer without routing or with impossible routing, and whenever `Server.ask` does; the
    message names the prompt, and says that earlier answers are kept.
    """
    left, done = Counter(answers.kept), 0
    waiting = []
    for number, prompt in enumerate(prompts, 1):
        if left[hash_of_prompt(prompt)]:
            left[hash_of_prompt(prompt)] -= 1
            done += 1
        else:
            waiting.append((number, prompt))
    kept = done
    for number, prompt in waiting:
        where = f"{server.url}: the answer to prompt {number}"
        try:
            response = server.ask(prompt, answers.options)
        except SimError as error:
            raise type(error)(f"{error} (prompt {number:,} of {len(prompts):,}){_kept(answers)}") from None
        try:
            requests = requests_of(response, where=where, hints=hints)
            trace_of_requests(requests, format=FORMAT, name=where, options=ReadOptions(hints=hints))
        except BadResponse as error:
            raise Malformed(f"{where}: {error}{_kept(answers)}") from None
        except BadInput as error:
            raise type(error)(f"{error}{_kept(answers)}") from None
        answers.add(prompt, response, shape=requests[0].expert.shape)
        done += 1
        if progress:
            progress(done, len(prompts))
    return len(waiting), kept


def _kept(answers: Answers) -> str:
    count = answers.kept.total()
    return f"; {count:,} answer{'s are' if count > 1 else ' is'} kept, the same command goes on" if count else ""
