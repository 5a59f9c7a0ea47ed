"""Asks other people's programs, each in an environment of its own, and keeps what they said."""

from __future__ import annotations

import csv
import subprocess
import sys
import venv
from pathlib import Path

from flashmoe_sim.cache import cache_root
from flashmoe_sim.cli.progress import working
from native_bridge.advisers.ask import advice
from native_bridge.advisers.table import ADVISERS, Adviser
from reports.referee.estimators import ANSWERS
from reports.referee.questions import questions

COLUMNS = ("estimator", "id", "tok_s", "lo", "hi", "why_not")
VERSIONS = {"llmfit": "1.1.17", "modelscout-llm": "0.1.1", "moe-fit": "0.1.0", "llm-checker": "3.8.1"}
OF_NPM = ("llm-checker",)


def ask_all() -> None:
    """Ask every program every question, and write the answers. One that cannot be installed is named, and stops it."""
    asked, rows = questions(), list[tuple[str, ...]]()
    for adviser in ADVISERS:
        name = f"{adviser.name} {VERSIONS[adviser.name]}"
        print(f"referee: {name}", file=sys.stderr)
        with working(name) as progress:
            said = advice(adviser.command(_program(adviser)), asked, progress=progress)
        for which, one in said.by_id.items():
            rows.append((name, which, *(f"{value:.4g}" if value else "" for value in one[:3]), one.why_not))
    with ANSWERS.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows((COLUMNS, *rows))


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
