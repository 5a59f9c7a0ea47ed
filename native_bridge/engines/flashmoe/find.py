"""The runtime: where it is, which build it is, and what it can do by its own account."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from flashmoe_sim.io.errors import BadInput
from native_bridge.engines.base import Device, Runtime
from native_bridge.process import Answer, ask

VARIABLE = "FLASHMOE_RUNTIME"
PROGRAM = "llama-cli"
ASK_S = 20.0
GET_ONE = "build the Flash-MoE fork of llama.cpp and give its llama-cli with --runtime or in FLASHMOE_RUNTIME"

_VERSION = re.compile(r"^version: (\S+) \((\w+)\)$", re.MULTILINE)
_COMPILER = re.compile(r"^built with (.+)$", re.MULTILINE)
_DEVICE = re.compile(r"^ {2}(\w+): (.+) \((\d+) MiB, (\d+) MiB free\)$", re.MULTILINE)
_LOADED = re.compile(r"^load_backend: loaded (\w+) backend", re.MULTILINE)
_FLAG = re.compile(r"^(--?\w[\w-]*(?:, +--?\w[\w-]*)*)(?: (\S+))?", re.MULTILINE)


def find_program(given: str | None) -> Path:
    """The runtime given, else the one FLASHMOE_RUNTIME names, else llama-cli on the PATH, as an absolute path.

    Raises BadInput where there is none, or it is not a program.
    """
    if given is not None:
        return _program(given, "--runtime")
    if named := os.environ.get(VARIABLE):
        return _program(named, VARIABLE)
    if found := shutil.which(PROGRAM):
        return Path(found).absolute()
    raise BadInput(f"no {PROGRAM} on the PATH", advice=GET_ONE)


def describe(path: Path) -> Runtime:
    """What the program tells of itself with --version, --list-devices and --help.

    Raises BadInput where it hangs, crashes, or answers unlike llama-cli. One that is not patched has no `modes`.
    """
    told = _answer(path, "--version")
    if (version := _VERSION.search(told)) is None:
        shown = " ".join(told.split())[:60]
        raise BadInput(
            f"{path}: --version says {shown!r}; expected `version: NUMBER (COMMIT)`: is it a llama-cli? {GET_ONE}"
        )
    compiler = _COMPILER.search(told)
    flags = {
        flag: found[2] or "" for found in _FLAG.finditer(_answer(path, "--help")) for flag in re.split(", +", found[1])
    }
    listed = _answer(path, "--list-devices") if "--list-devices" in flags else ""
    devices = tuple(
        Device(name, what, int(total) << 20, int(free) << 20) for name, what, total, free in _DEVICE.findall(listed)
    )
    backends = [
        "CPU",
        *_LOADED.findall(told + "\n" + listed),
        *(device.name.rstrip("0123456789") for device in devices),
    ]
    choices = flags.get("--moe-mode")
    return Runtime(
        engine="flashmoe",
        path=path,
        version=version[1],
        commit=version[2],
        compiler=compiler[1] if compiler else "",
        backends=tuple(dict.fromkeys(backends)),
        devices=devices,
        flags=flags,
        modes=() if choices is None else tuple(choices.strip("{}").split(",")),
    )


def check_runtime(runtime: Runtime) -> None:
    """Raise BadInput for a llama-cli without Flash-MoE."""
    if not runtime.modes:
        raise BadInput(f"{runtime.path}: has no flag --moe-mode: a llama-cli that is not patched", advice=GET_ONE)


def _program(given: str, where: str) -> Path:
    if not given.isprintable():
        raise BadInput(f"{where}: {given!r} cannot be the name of a file", advice=GET_ONE)
    path = Path(given).expanduser().absolute()
    what = ""
    try:
        if not path.exists():
            what = "no such file"
        elif path.is_dir():
            what = "is a folder, not a program"
        elif not os.access(path, os.X_OK) or not path.is_file():
            what = "is not a program that may be run"
    except OSError as error:
        what = error.strerror or str(error)
    if what:
        inside = path / PROGRAM
        raise BadInput(f"{where}: {path}: {what}", advice=f"give {inside}" if inside.is_file() else GET_ONE)
    return path


def _answer(path: Path, question: str) -> str:
    answer: Answer = ask([str(path), question], timeout_s=ASK_S)
    if answer.timed_out:
        raise BadInput(f"{path}: {question} does not end within {ASK_S:.0f} s: not a llama-cli", advice=GET_ONE)
    if answer.code < 0:
        raise BadInput(
            f"{path}: {question} was ended by signal {-answer.code}: a llama-cli that does not run on this machine",
            advice="build it here, or see `sim bridge doctor`",
        )
    return answer.stdout + "\n" + answer.stderr
