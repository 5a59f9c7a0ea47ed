"""Asks other people's programs, each in an environment of its own, and keeps what they said."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from flashmoe_sim.cache import cache_root
from reports.referee.estimators import ANSWERS
from reports.referee.questions import questions

OUTSIDE = Path(__file__).with_name("outside")
TIMEOUT_S = 1800  # for all questions together
COLUMNS = ("estimator", "id", "tok_s", "lo", "hi", "why_not")


class Outside(NamedTuple):
    """A program on PyPI, and the script beside `lines.py` that asks it."""

    package: str
    version: str
    script: str


PROGRAMS = (
    Outside("llmfit", "1.1.17", "ask_llmfit.py"),
    Outside("modelscout-llm", "0.1.1", "ask_modelscout.py"),
    Outside("moe-fit", "0.1.0", "ask_moe_fit.py"),
)


def ask_all() -> None:
    """Ask every program every question, and write the answers. One that cannot be installed is named, and stops it."""
    asked = questions()
    rows = [row for program in PROGRAMS for row in _answers(program, asked)]
    with ANSWERS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def answers(python: Path, script: Path, asked: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """What a script answers, by the id of the question.

    What is no JSON, has no number, or does not come in time is a refusal with its reason.
    """
    given = "".join(f"{json.dumps(question)}\n" for question in asked)
    try:
        said = subprocess.run(
            [python, script], input=given, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
        )
        lines, ended = said.stdout.splitlines(), f"ended with {said.returncode}"
    except subprocess.TimeoutExpired as error:
        lines, ended = (error.stdout or b"").decode().splitlines(), f"no answer in {TIMEOUT_S} s"
    found: dict[str, dict[str, Any]] = {}
    for line in lines:
        try:
            answer = json.loads(line)
            found[answer["id"]] = _checked(dict(answer))
        except (ValueError, KeyError, TypeError):
            continue
    return {question["id"]: found.get(question["id"], {"why_not": f"did not answer: {ended}"}) for question in asked}


def _checked(answer: dict[str, Any]) -> dict[str, Any]:
    """The answer, or a refusal of one that is no speed."""
    if answer.get("why_not"):
        return {"why_not": str(answer["why_not"])}
    numbers = {name: answer.get(name) for name in ("tok_s", "lo", "hi")}
    if not isinstance(numbers["tok_s"], int | float) or not 0 < numbers["tok_s"] < 1e5:
        return {"why_not": f"answered {numbers['tok_s']!r}, which is no speed in tokens a second"}
    return {name: value and f"{value:.4g}" for name, value in numbers.items()}


def _answers(program: Outside, asked: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    name = f"{program.package} {program.version}"
    print(f"referee: {name}", file=sys.stderr)
    for which, answer in answers(_python(program), OUTSIDE / program.script, asked).items():
        yield {"estimator": name, "id": which, **answer}


def _python(program: Outside) -> Path:
    """The interpreter of the program's environment, which is made if it is not there."""
    folder = cache_root() / "referee" / f"{program.package}-{program.version}"
    python = folder / "bin" / "python"
    if not (folder / "installed").exists():
        venv.create(folder, with_pip=True, clear=True)
        wanted = f"{program.package}=={program.version}"
        subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wanted], check=True)
        (folder / "installed").touch()
    return python
