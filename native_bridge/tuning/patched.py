"""The patched llama-cli, which streams experts into slots: run for one text after another with the line that is named.

Source: Anemll/anemll-flash-llama.cpp 64e25509b, tools/cli/cli.cpp and tools/server/server-context.cpp.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

from flashmoe_sim.cli.progress import over_bytes
from flashmoe_sim.geometry.gguf import read_gguf
from flashmoe_sim.geometry.manifest import FILE_NAME, read_manifest
from flashmoe_sim.io.errors import Conflict, Unsupported
from flashmoe_sim.systems.slot_bank import SlotBank
from flashmoe_sim.systems.slot_bank_flags import INSTALLS
from flashmoe_sim.tune.objective import Objective
from native_bridge.engines.table import ENGINES
from native_bridge.fixture.sidecar import write_sidecar
from native_bridge.tuning.complete import LEAST, RUNTIME
from native_bridge.tuning.program import Program, Wanted
from native_bridge.tuning.server import TextProgram

SIDECAR = "SIDECAR"  # in a line
ASKS = [sys.executable, "-P", "-m", "native_bridge.tuning.complete"]
MEASURED = ("--moe-trace-harness", "--perf", "--no-escape", "--no-warmup", "--simple-io", "-lv", "3", "--seed", "1")


@dataclass(frozen=True)
class LlamaCli(TextProgram):
    """A llama-cli with Flash-MoE. sidecar: of its model."""

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
