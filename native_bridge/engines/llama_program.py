"""What the engines that are programs of llama.cpp share: where the program is, which build it is, and its flags."""

from __future__ import annotations

import os
import re
import shutil
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from flashmoe_sim.io.errors import Conflict, Malformed, Missing, UnknownName, Unusable
from native_bridge.engines.base import Device, DoctorFinding, Engine, RunRequest, Runtime
from native_bridge.engines.run_log import DeviceMemory
from native_bridge.process import Answer, ask

ASK_S = 20.0

_VERSION = re.compile(r"^version: (\S+) \((\w+)\)$", re.MULTILINE)
_COMPILER = re.compile(r"^built with (.+)$", re.MULTILINE)
_DEVICE = re.compile(r"^ {2}(\w+): (.+) \((\d+) MiB, (\d+) MiB free\)$", re.MULTILINE)
_LOADED = re.compile(r"^load_backend: loaded (\w+) backend", re.MULTILINE)
_WHOLE = r"(\d{1,15})"
_DEVICE_MEMORY = re.compile(
    rf"llama_memory_breakdown_print: \| +- (\S+) \(.*\) +\| +{_WHOLE} = +{_WHOLE} \+ +\( *{_WHOLE} = "
    rf"+{_WHOLE} \+ +{_WHOLE} \+ +{_WHOLE}\) \+ +\d+ \|"
)
_OTHER_MEMORY = re.compile(
    rf"llama_memory_breakdown_print: \| +- (\S+) +\| +{_WHOLE} = +{_WHOLE} \+ +{_WHOLE} \+ +{_WHOLE} +\|"
)
_FLAG = re.compile(r"^(--?\w[\w-]*(?:, +--?\w[\w-]*)*)(?: (\S+))?", re.MULTILINE)


class LlamaProgram(Engine):
    """An engine that is a program of llama.cpp.

    program: its name on the PATH. variable: names another one. advice: how to get it. own_flags: the program's flags
    that belong to our options, by option.
    """

    program: ClassVar[str]
    variable: ClassVar[str]
    advice: ClassVar[str]
    own_flags: ClassVar[Mapping[str, Sequence[str]]]

    @abstractmethod
    def modes_of(self, flags: Mapping[str, str]) -> tuple[str, ...]:
        """The modes of a build with these flags, as in `Runtime`; empty for a build that is not of this engine."""

    def find(self, given: str | None) -> Path:
        """The one given, else the one that the variable names, else the one on the PATH, as an absolute path.

        Raises BadInput if there is none, or it is not a program.
        """
        if given is not None:
            return self._at(given, "--runtime")
        if named := os.environ.get(self.variable):
            return self._at(named, self.variable)
        if found := shutil.which(self.program):
            return Path(found).absolute()
        raise Missing(f"no {self.program} on the PATH", advice=self.advice)

    def describe(self, path: Path) -> Runtime:
        """The program's description of itself with --version, --list-devices and --help.

        Raises BadInput if it hangs, crashes, or answers unlike llama.cpp.
        """
        output = self._answer(path, "--version")
        if (version := _VERSION.search(output)) is None:
            shown = " ".join(output.split())[:60]
            raise Unusable(
                f"{path}: --version says {shown!r}; expected `version: NUMBER (COMMIT)`: is it a {self.program}? "
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
        return Runtime(
            engine=self.name,
            path=path,
            version=version[1],
            commit=version[2],
            modes=self.modes_of(flags),
            compiler=compiler[1] if compiler else "",
            backends=tuple(dict.fromkeys(backends)),
            devices=devices,
            flags=flags,
        )

    def check_flags(self, flags: Sequence[str], known: Mapping[str, str]) -> None:
        if flags and not flags[0].startswith("-"):
            raise Malformed(f"{flags[0]!r}: not an option; flags of the runtime come after --, such as -- -fa off")
        for flag in flags:
            name = flag.partition("=")[0]
            if option := next((option for option, own in self.own_flags.items() if name in own), None):
                raise Conflict(f"{flag} after --: is recorded by an option of its own; give {option}")
            if re.match(r"--?[A-Za-z]", name) and name not in known:
                raise UnknownName(f"{flag} after --: the runtime has no such flag; see its --help")

    def _answer(self, path: Path, question: str) -> str:
        return answer_of(path, question, program=self.program, advice=self.advice)

    def _at(self, given: str, where: str) -> Path:
        if not given.isprintable():
            raise Malformed(f"{where}: {given!r} cannot be the name of a file", advice=self.advice)
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
            inside = path / self.program
            advice = f"give {inside}" if inside.is_file() else self.advice
            raise Unusable(f"{where}: {path}: {what}", advice=advice)
        return path


def answer_of(path: Path, question: str, *, program: str, advice: str) -> str:
    """What a program prints of a question such as --help, on both streams.

    Raises BadInput if it hangs, or does not run on this machine. program: what it should be. advice: how to get one.
    """
    answer: Answer = ask([str(path), question], timeout_s=ASK_S)
    if answer.timed_out:
        raise Unusable(f"{path}: {question} does not end within {ASK_S:.0f} s: not a {program}", advice=advice)
    if answer.code < 0:
        raise Unusable(
            f"{path}: {question} was ended by signal {-answer.code}: a {program} that does not run on this machine",
            advice="build it here, or see `sim bridge doctor`",
        )
    return answer.stdout + "\n" + answer.stderr


def device_memory(line: str) -> DeviceMemory | None:
    """The memory of a device, if a bare line of a log of llama.cpp says it; None for any other line."""
    if found := _DEVICE_MEMORY.fullmatch(line):
        total, free, _, model, context, compute = map(int, found.groups()[1:])
        return DeviceMemory(found[1], model, context, compute, total, free)
    if found := _OTHER_MEMORY.fullmatch(line):
        _, model, context, compute = map(int, found.groups()[1:])
        return DeviceMemory(found[1], model, context, compute)
    return None


def version_of(runtime: Runtime, *, verified: str, to_do: str) -> DoctorFinding:
    """The finding on a program's version. verified: the commit with which counts were. to_do: with any other."""
    found = f"{runtime.version} ({runtime.commit}), built with {runtime.compiler}"
    if runtime.commit == verified:
        return DoctorFinding("ok", "version", found)
    return DoctorFinding("warning", "version", found, f"counts were verified with {verified}; {to_do}")


def context_tokens(request: RunRequest) -> int:
    """The context that a run needs: a prompt has at most as many tokens as bytes."""
    return 256 * -(-(len(request.prompt.encode()) + request.n_predict + 16) // 256)
