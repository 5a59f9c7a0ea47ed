"""A program of llama.cpp: where it is, which build it is, and its description of itself. Shared by engines."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flashmoe_sim.io.errors import BadInput
from native_bridge.engines.base import Device, Finding, Runtime
from native_bridge.process import Answer, ask

ASK_S = 20.0

_VERSION = re.compile(r"^version: (\S+) \((\w+)\)$", re.MULTILINE)
_COMPILER = re.compile(r"^built with (.+)$", re.MULTILINE)
_DEVICE = re.compile(r"^ {2}(\w+): (.+) \((\d+) MiB, (\d+) MiB free\)$", re.MULTILINE)
_LOADED = re.compile(r"^load_backend: loaded (\w+) backend", re.MULTILINE)
_FLAG = re.compile(r"^(--?\w[\w-]*(?:, +--?\w[\w-]*)*)(?: (\S+))?", re.MULTILINE)


@dataclass(frozen=True)
class Program:
    """The program of an engine. name: on the PATH. variable: names another one. advice: how to get it."""

    name: str
    variable: str
    advice: str

    def find(self, given: str | None) -> Path:
        """The one given, else the one that the variable names, else the one on the PATH, as an absolute path.

        Raises BadInput if there is none, or it is not a program.
        """
        if given is not None:
            return self._at(given, "--runtime")
        if named := os.environ.get(self.variable):
            return self._at(named, self.variable)
        if found := shutil.which(self.name):
            return Path(found).absolute()
        raise BadInput(f"no {self.name} on the PATH", advice=self.advice)

    def describe(self, path: Path) -> Description:
        """The program's description of itself with --version, --list-devices and --help.

        Raises BadInput if it hangs, crashes, or answers unlike llama.cpp.
        """
        output = self._answer(path, "--version")
        if (version := _VERSION.search(output)) is None:
            shown = " ".join(output.split())[:60]
            raise BadInput(
                f"{path}: --version says {shown!r}; expected `version: NUMBER (COMMIT)`: is it a {self.name}? "
                f"{self.advice}"
            )
        compiler = _COMPILER.search(output)
        flags = {
            flag: found[2] or ""
            for found in _FLAG.finditer(self._answer(path, "--help"))
            for flag in re.split(", +", found[1])
        }
        listed = self._answer(path, "--list-devices") if "--list-devices" in flags else ""
        devices = tuple(
            Device(name, what, int(total) << 20, int(free) << 20) for name, what, total, free in _DEVICE.findall(listed)
        )
        backends = (
            "CPU",
            *_LOADED.findall(output + "\n" + listed),
            *(device.name.rstrip("0123456789") for device in devices),
        )
        return Description(
            version=version[1],
            commit=version[2],
            compiler=compiler[1] if compiler else "",
            backends=tuple(dict.fromkeys(backends)),
            devices=devices,
            flags=flags,
        )

    def _at(self, given: str, where: str) -> Path:
        if not given.isprintable():
            raise BadInput(f"{where}: {given!r} cannot be the name of a file", advice=self.advice)
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
            inside = path / self.name
            advice = f"give {inside}" if inside.is_file() else self.advice
            raise BadInput(f"{where}: {path}: {what}", advice=advice)
        return path

    def _answer(self, path: Path, question: str) -> str:
        answer: Answer = ask([str(path), question], timeout_s=ASK_S)
        if answer.timed_out:
            raise BadInput(
                f"{path}: {question} does not end within {ASK_S:.0f} s: not a {self.name}", advice=self.advice
            )
        if answer.code < 0:
            raise BadInput(
                f"{path}: {question} was ended by signal {-answer.code}: a {self.name} that does not run on this "
                "machine",
                advice="build it here, or see `sim bridge doctor`",
            )
        return answer.stdout + "\n" + answer.stderr


def version_of(runtime: Runtime, *, verified: str, to_do: str) -> Finding:
    """The finding on a program's version. verified: the commit with which counts were. to_do: with any other."""
    found = f"{runtime.version} ({runtime.commit}), built with {runtime.compiler}"
    if runtime.commit == verified:
        return Finding("ok", "version", found)
    return Finding("warning", "version", found, f"counts were verified with {verified}; {to_do}")


def check_flags(flags: Sequence[str], known: Mapping[str, str], own: Mapping[str, str]) -> None:
    """Raise BadInput for a user's flags that the program does not have, or that belong to one of our options.

    known: the flags of the program. own: our option, by flag.
    """
    if flags and not flags[0].startswith("-"):
        raise BadInput(f"{flags[0]!r}: not an option; flags of the runtime come after --, such as -- -fa off")
    for flag in flags:
        name = flag.partition("=")[0]
        if option := own.get(name):
            raise BadInput(f"{flag} after --: is recorded by an option of its own; give {option}")
        if re.match(r"--?[A-Za-z]", name) and name not in known:
            raise BadInput(f"{flag} after --: the runtime has no such flag; see its --help")


@dataclass(frozen=True)
class Description:
    """A program's description of itself, with the fields of a `Runtime`."""

    version: str
    commit: str
    compiler: str
    backends: tuple[str, ...]
    devices: tuple[Device, ...]
    flags: Mapping[str, str]
