"""Examples in the documentation, run again: `python -m tests.examples PAGE...` puts what they print into the pages.

A block of `console` is commands, `$ sim …`, and what they print; if there are several, only the last one's output
stands there; ` | head -20` and the like shorten it. They run in one folder of their own, in which the project's `data`
is. What a block of `python` prints stands after it, between comments, as Markdown; the blocks of a page share their
names. What goes to stderr is not shown.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest import mock

import polars

from native_bridge.cli.main import main

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- printed by the code above -->", "<!-- end -->"
COMMANDS = r"(?:\$ sim (?:.*\\\n)*.*\n)+"
CONSOLE = re.compile(rf"```console\n(?P<commands>{COMMANDS})(?:(?!```)[^\n]*\n)*```\n")
PYTHON = re.compile(rf"```python\n(?P<code>.*?)```\n(?:\n{BEGIN}\n.*?\n{END}\n)?", re.DOTALL)


def refreshed(page: str) -> str:
    """The page with what its examples print today."""
    names: dict[str, Any] = {}

    def command(found: re.Match[str]) -> str:
        for line in found["commands"].replace("\\\n", " ").splitlines():
            sim, _, shortened = line.removeprefix("$ sim ").partition(" | ")
            printed = _printed(lambda sim=sim: _run(sim))
            if shortened:
                shell = ["sh", "-c", shortened]
                printed = subprocess.run(shell, check=True, input=printed, stdout=subprocess.PIPE, text=True).stdout
        return f"```console\n{found['commands']}{printed.rstrip()}\n```\n"

    def code(found: re.Match[str]) -> str:
        printed = _printed(lambda: exec(found["code"], names))
        return f"```python\n{found['code']}```\n" + (f"\n{BEGIN}\n\n{printed}\n{END}\n" if printed else "")

    with polars.Config(), mock.patch.dict(os.environ, COLUMNS="80"), TemporaryDirectory() as folder, chdir(folder):
        Path("data").symlink_to(ROOT / "data")
        return PYTHON.sub(code, CONSOLE.sub(command, page))


def _run(command: str) -> None:
    assert main(shlex.split(command)) == 0, f"sim {command}: fails"


def _printed(run: Callable[[], object]) -> str:
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(io.StringIO()):
        run()
    return out.getvalue()


if __name__ == "__main__":
    for name in sys.argv[1:]:
        page = Path(name)
        page.write_text(refreshed(page.read_text()))
