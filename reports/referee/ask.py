"""Asks other people's programs, each in an environment of its own, and keeps what they said."""

from __future__ import annotations

import csv
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

from flashmoe_sim.cache import cache_root
from flashmoe_sim.cli.progress import working
from flashmoe_sim.field.estimators import Question
from native_bridge.advisers.ask import ADVISERS, MEMORY, SPEED, Adviser, advice
from reports.referee.estimators import ANSWERS
from reports.referee.memory import KEPT, held
from reports.referee.questions import questions

Line: TypeAlias = tuple[str, ...]
VERSIONS = {"llmfit": "1.1.17", "modelscout-llm": "0.1.1", "moe-fit": "0.1.0", "llm-checker": "3.8.1"}
OF_NPM = ("llm-checker",)


def ask_all() -> None:
    """Ask every program every question, and write the answers. One that cannot be installed is named, and stops it."""
    speeds, memory = list[Line](), list[Line]()
    for adviser in ADVISERS:
        command = adviser.command(_program(adviser))
        speeds += _answers(adviser, command, questions(), SPEED)
        memory += _answers(adviser, command, [one.question for one in held()], MEMORY)
    _write(ANSWERS, ("estimator", "id", "tok_s", "lo", "hi", "why_not"), speeds)
    _write(KEPT, ("estimator", "id", "gpu_gib", "why_not"), [(*line[:3], line[-1]) for line in memory])


def _answers(adviser: Adviser, command: Sequence[str], asked: Sequence[Question], wants: str) -> Iterator[Line]:
    name = f"{adviser.name} {VERSIONS[adviser.name]}"
    print(f"referee: {name}, {wants}", file=sys.stderr)
    with working(name) as progress:
        said = advice(command, asked, wants=wants, progress=progress)
    for which, one in said.by_id.items():
        yield (name, which, *(f"{value:.4g}" if value else "" for value in one[:3]), one.why_not)


def _write(path: Path, columns: Line, lines: Sequence[Line]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows((columns, *lines))


def _program(adviser: Adviser) -> Path:
    """The program in its environment, which is made if it is not there."""
    version = VERSIONS[adviser.name]
    folder = cache_root() / "referee" / f"{adviser.name}-{version}"
    of_npm = adviser.name in OF_NPM
    if not (folder / "installed").exists():
        (_install_by_npm if of_npm else _install_by_pip)(folder, adviser.name, version)
        (folder / "installed").touch()
    return folder / ("node_modules/.bin" if of_npm else "bin") / adviser.program


def _install_by_pip(folder: Path, name: str, version: str) -> None:
    venv.create(folder, with_pip=True, clear=True)
    words = ("-m", "pip", "install", "--quiet", "--disable-pip-version-check", f"{name}=={version}")
    subprocess.run([folder / "bin" / "python", *words], check=True)


def _install_by_npm(folder: Path, name: str, version: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    words = ("install", "--silent", "--ignore-scripts", "--no-audit", "--no-fund", "--prefix", folder)
    subprocess.run(["npm", *words, f"{name}@{version}"], check=True)
