"""The runtime: where it is, which build it is, and what it can do by its own account."""

from __future__ import annotations

from pathlib import Path

from flashmoe_sim.io.errors import BadInput
from native_bridge.engines.base import Runtime
from native_bridge.engines.llama_program import Program

VARIABLE = "FLASHMOE_RUNTIME"
GET_ONE = "build the Flash-MoE fork of llama.cpp and give its llama-cli with --runtime or in FLASHMOE_RUNTIME"
PROGRAM = Program("llama-cli", VARIABLE, GET_ONE)


def find_program(given: str | None) -> Path:
    """The runtime given, else the one FLASHMOE_RUNTIME names, else llama-cli on the PATH, as an absolute path.

    Raises BadInput if there is none, or it is not a program.
    """
    return PROGRAM.find(given)


def describe(path: Path) -> Runtime:
    """The program's description of itself with --version, --list-devices and --help.

    Raises BadInput if it hangs, crashes, or does not answer like llama-cli. An unpatched one has no `modes`.
    """
    said = PROGRAM.describe(path)
    choices = said.flags.get("--moe-mode")
    modes = () if choices is None else tuple(choices.strip("{}").split(","))
    return Runtime("flashmoe", path, modes=modes, **vars(said))


def check_runtime(runtime: Runtime) -> None:
    """Raise BadInput for a llama-cli without Flash-MoE."""
    if not runtime.modes:
        raise BadInput(f"{runtime.path}: has no flag --moe-mode: a llama-cli that is not patched", advice=GET_ONE)
