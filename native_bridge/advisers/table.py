"""The advisers that are known, and the command that asks each, if it is installed here."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

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
