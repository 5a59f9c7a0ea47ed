"""The runtime: where it is, which build it is, and what it can do by its own account."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from flashmoe_sim.io.errors import BadInput
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


@dataclass(frozen=True)
class Device:
    """What a runtime can offload to."""

    name: str
    description: str
    total_bytes: int
    free_bytes: int


@dataclass(frozen=True)
class Runtime:
    """A build of llama-cli, as it describes itself.

    flags: every flag of its --help, and the value it takes as shown there, empty for none.
    backends: CPU, and those of its devices.
    """

    path: Path
    version: str
    commit: str
    compiler: str
    backends: tuple[str, ...]
    devices: tuple[Device, ...]
    flags: Mapping[str, str]

    @property
    def modes(self) -> tuple[str, ...]:
        """The choices of its --moe-mode; none where it is not patched."""
        return tuple(self.flags.get("--moe-mode", "").strip("{}").split(",")) if "--moe-mode" in self.flags else ()

    def facts(self) -> dict[str, Any]:
        """What is worth keeping beside a run."""
        return {
            "path": str(self.path),
            "version": self.version,
            "commit": self.commit,
            "compiler": self.compiler,
            "backends": list(self.backends),
            "devices": [asdict(device) for device in self.devices],
        }


def find_runtime(given: str | None) -> Path:
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
    return Runtime(
        path=path,
        version=version[1],
        commit=version[2],
        compiler=compiler[1] if compiler else "",
        backends=tuple(dict.fromkeys(backends)),
        devices=devices,
        flags=flags,
    )


def patched_runtime(given: str | None) -> Runtime:
    """The runtime, described. Raises BadInput where it is none, or one without Flash-MoE."""
    runtime = describe(find_runtime(given))
    if not runtime.modes:
        raise BadInput(f"{runtime.path}: has no flag --moe-mode: a llama-cli that is not patched", advice=GET_ONE)
    return runtime


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
