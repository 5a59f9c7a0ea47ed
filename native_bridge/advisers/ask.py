"""Asks a program for its estimates: questions as lines of JSON on its stdin, an answer as a line of JSON for each.

An answer has the `id` of its question, and `tok_s`, maybe with `lo` and `hi`, in tokens a second; or `why_not`. A
question that `wants` something else, such as `gpu_gib`, is answered by that name. A line `{"version": "1.2"}` says
which program it is.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any, NamedTuple

from flashmoe_sim.field.estimators import OneEstimate, Question
from flashmoe_sim.io.errors import BadInput, shown
from native_bridge.process import Around, listen

SCRIPTS = Path(__file__).with_name("scripts")
_SHEBANG = re.compile(r"#!(/.*python[\d.]*)\s*$|'''exec' \"?(/[^\"]*python[\d.]*)\"? ", re.MULTILINE)


class Adviser(NamedTuple):
    """A program that estimates speeds. name: of its package. program: its command.

    command: what asks it, by the path of its program. The script reads questions and prints answers as `ask` has it.
    """

    name: str
    program: str
    command: Callable[[Path], list[str]]


def _asked_from_outside(script: str) -> Callable[[Path], list[str]]:
    """A script in our own Python, which starts the program."""
    return lambda program: [sys.executable, "-E", str(SCRIPTS / script), str(program)]


def _asked_from_inside(script: str) -> Callable[[Path], list[str]]:
    """A script in the program's own Python, which imports it."""
    return lambda program: [_python_of(program), "-E", str(SCRIPTS / script)]


def _python_of(program: Path) -> str:
    """The interpreter that a program in Python starts with; the one beside it if it does not say."""
    with program.open("rb") as file:
        match = _SHEBANG.search(file.read(512).decode("utf-8", "replace"))
    return str(program.resolve().with_name("python")) if match is None else match[1] or match[2]


ADVISERS = (
    Adviser("llmfit", "llmfit", _asked_from_outside("ask_llmfit.py")),
    Adviser("modelscout-llm", "modelscout", _asked_from_inside("ask_modelscout.py")),
    Adviser("moe-fit", "moefit", _asked_from_inside("ask_moe_fit.py")),
    Adviser("llm-checker", "llm-checker", lambda program: ["node", str(SCRIPTS / "ask_llm_checker.js"), str(program)]),
)


def installed() -> tuple[dict[str, list[str]], list[str]]:
    """The commands of the advisers on the PATH, by their names, and the names of the others."""
    found = {adviser: shutil.which(adviser.program) for adviser in ADVISERS}
    there = {adviser.name: adviser.command(Path(path)) for adviser, path in found.items() if path}
    return there, [adviser.name for adviser, path in found.items() if not path]


SILENT_S = 60.0  # without an answer: then it is ended
TRIES = 3  # times in a row that it may end without an answer
MOST_BYTES = 1 << 24  # printed in one go
SPEED, MEMORY = "tok_s", "gpu_gib"
UNITS = {SPEED: "speed in tokens a second", MEMORY: "size in GiB"}
MOST = 1e5
UNTOLD = ("tok_s", "source")  # what was measured, and by whom
Progress = Callable[[int, int], None]


class Advised(NamedTuple):
    """What a program answered, by the id of the question, and its version; empty if it does not say."""

    version: str
    by_id: dict[str, OneEstimate]


def advice(
    command: Sequence[str], asked: Sequence[Question], *, wants: str = SPEED, progress: Progress | None = None
) -> Advised:
    """What a program answers; a question without an answer is a refusal with its reason. wants: of UNITS.

    After a crash, or SILENT_S without an answer, it is started again for the questions behind the one that it failed.
    """
    heard, failed = _Heard(frozenset(one["id"] for one in asked), wants), 0
    left = [one if wants == SPEED else {**one, "wants": wants} for one in asked]
    while left:
        before = len(heard.found)
        ended = _run(command, left, heard, progress and (lambda done: progress(done, len(asked))))
        left = [one for one in left if one["id"] not in heard.found]
        failed = 0 if len(heard.found) > before else failed + 1
        for one in left if failed == TRIES else left[:1]:
            heard.found[one["id"]] = OneEstimate(why_not=f"did not answer: {ended}")
            left = left[1:]
    return Advised(heard.version, {one["id"]: heard.found[one["id"]] for one in asked})


def _run(
    command: Sequence[str], asked: Sequence[Question], heard: _Heard, progress: Callable[[int], None] | None
) -> str:
    """Let the program answer; returns how it ended."""
    lines = (json.dumps({name: value for name, value in one.items() if name not in UNTOLD}) for one in asked)
    with TemporaryDirectory() as folder:
        given = Path(folder) / "questions.jsonl"
        given.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

        def enough() -> bool:
            if progress is not None:
                progress(len(heard.found))
            return heard.silent or heard.taken > MOST_BYTES

        heard.begin()
        try:
            ended = listen(command, take=heard.take, enough=enough, around=Around(stdin=given))
        except BadInput as error:
            return str(error)
    heard.end()
    if ended.timed_out:
        return "printed too much" if heard.taken > MOST_BYTES else f"no answer in {SILENT_S:g} s"
    last = ended.stderr.strip().splitlines()[-1:]
    return f"ended with {ended.code}" + (f" ({shown(last[0][:150])})" if last else "")


class _Heard:
    """Answers as they come."""

    def __init__(self, ids: frozenset[str], wants: str) -> None:
        self.ids, self.wants, self.version = ids, wants, ""
        self.found = dict[str, OneEstimate]()

    def begin(self) -> None:
        """The program starts."""
        self.rest, self.taken, self.last_s = b"", 0, monotonic()

    @property
    def silent(self) -> bool:
        return monotonic() - self.last_s > SILENT_S

    def take(self, data: bytes) -> None:
        """Take a piece of what it prints."""
        self.taken += len(data)
        *lines, self.rest = (self.rest + data).split(b"\n")
        for line in lines:
            self._line(line)

    def end(self) -> None:
        """The program ended, maybe within a line."""
        self._line(self.rest)

    def _line(self, line: bytes) -> None:
        try:
            answer = json.loads(line)
        except ValueError:
            return
        if not isinstance(answer, dict):
            return
        if isinstance(answer.get("version"), str):
            self.version = answer["version"][:40]
        if answer.get("id") in self.ids - self.found.keys():
            self.found[answer["id"]] = checked(answer, self.wants)
            self.last_s = monotonic()


def checked(answer: dict[str, Any], wants: str = SPEED) -> OneEstimate:
    """The answer, or a refusal of one that is no such number."""
    if answer.get("why_not"):
        return OneEstimate(why_not=str(answer["why_not"])[:300])
    value, lo, hi = (answer.get(name) for name in (wants, "lo", "hi"))
    if not _is_size(value):
        return OneEstimate(why_not=f"answered {value!r:.80}, which is no {UNITS[wants]}")
    ends = (lo, hi) if _is_size(lo) and _is_size(hi) else (None, None)
    return OneEstimate(value, *ends)


def _is_size(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < MOST
