"""The patched llama.cpp with Flash-MoE: its `llama-cli`.

Imports happen inside the methods, so that the command line stays quick.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.systems.slot_bank_flags import VARIABLES
from native_bridge.engines.base import Engine, Finding, RunRequest, Runtime
from native_bridge.engines.flashmoe.modes import DROPPED, GET_ONE, MODES, PREFETCH
from native_bridge.engines.llama_program import Program, check_flags

if TYPE_CHECKING:
    from flashmoe_sim.geometry.model import ModelGeometry
    from flashmoe_sim.machines.fitting import Fitted
    from flashmoe_sim.systems.base import System
    from flashmoe_sim.trace.routing import RoutingTrace
    from native_bridge.engines.counters import Predicted
    from native_bridge.engines.run_log import RunLog
    from native_bridge.engines.runs import Run


class FlashMoe(Engine):
    """The patched llama-cli."""

    name = "flashmoe"
    modes = MODES
    prefetches = tuple(PREFETCH)
    dropped = (DROPPED,)
    switches = (VARIABLES, "GGML_", "CUDA_VISIBLE_DEVICES")
    program = Program("llama-cli", "FLASHMOE_RUNTIME", GET_ONE)

    def find(self, given: str | None) -> Path:
        return self.program.find(given)

    def describe(self, path: Path) -> Runtime:
        """An unpatched program has no `modes`."""
        said = self.program.describe(path)
        choices = said.flags.get("--moe-mode")
        modes = () if choices is None else tuple(choices.strip("{}").split(","))
        return Runtime(self.name, path, modes=modes, **vars(said))

    def check_runtime(self, runtime: Runtime) -> None:
        if not runtime.modes:
            raise BadInput(f"{runtime.path}: has no flag --moe-mode: a llama-cli that is not patched", advice=GET_ONE)

    def check_request(
        self,
        request: RunRequest,
        model: ModelGeometry,
        *,
        sidecar: Path | None,
        replay: Path | None,
        sidecar_follows: bool = False,
    ) -> None:
        from native_bridge.engines.flashmoe.command import check_request

        check_request(request, model, sidecar=sidecar, replay=replay, sidecar_follows=sidecar_follows)

    def check_flags(self, flags: Sequence[str], known: Mapping[str, str]) -> None:
        from native_bridge.engines.flashmoe.command import OWN_FLAGS

        check_flags(flags, known, OWN_FLAGS)

    def go_on_flags(self, model: Path) -> tuple[str, ...]:
        from native_bridge.engines.flashmoe.end_tokens import go_on_flags

        return go_on_flags(model)

    def further(self, request: RunRequest) -> list[str]:
        from native_bridge.engines.flashmoe.command import further

        return further(request)

    def command(
        self, request: RunRequest, runtime: Runtime, *, model: Path, sidecar: Path | None, trace: str
    ) -> list[str]:
        from native_bridge.engines.flashmoe.command import arguments

        return [str(runtime.path), *arguments(request, model=model, sidecar=sidecar, trace=trace)]

    def read_log(self, text: str, *, mode: str, where: str, extra: Sequence[str], failed_too: bool = False) -> RunLog:
        from native_bridge.engines.flashmoe.log import parse_log, read_log
        from native_bridge.engines.flashmoe.modes import bypass_of, prefetch_of

        read = read_log if failed_too else parse_log
        log = read(text, mode=mode, where=where, routes=not bypass_of(extra))
        return replace(
            log, reads_ahead=prefetch_of(extra, log.settings), bypass=bypass_of(extra, settings=log.settings)
        )

    def refusal(self, request: RunRequest, log: str, *, calls: int | None, model: ModelGeometry) -> str | None:
        from native_bridge.engines.flashmoe.refusals import refusal

        return refusal(request, log, calls=calls, model=model)

    def complaint(self, log: str) -> str:
        from native_bridge.engines.flashmoe.refusals import complaint

        return complaint(log)

    def examine(self, runtime: Runtime | None) -> Iterator[Finding]:
        from native_bridge.engines.flashmoe.examine import environment, program

        if runtime is not None:
            yield from program(runtime)
        yield from environment()

    def examine_bank(self, runtime: Runtime, model: ModelGeometry, bank: int | None) -> Iterator[Finding]:
        from native_bridge.engines.flashmoe.examine import bank_place, gpu_memory

        if runtime.devices:
            yield gpu_memory(runtime, model, bank)
            yield bank_place(runtime, model)

    def routing_flags(self, run: Run) -> tuple[str, ...]:
        from native_bridge.engines.flashmoe.modes import routing_flags

        return routing_flags(run.extra)

    def is_repeatable(self, run: Run) -> bool:
        return "--seed" in run.extra or "-s" in run.extra

    def maps_experts(self, run: Run) -> bool:
        return not MODES[run.mode].slots and "--no-mmap" not in run.extra

    def predict(
        self, run: Run, trace: RoutingTrace, model: ModelGeometry | None, *, failing: tuple[int, int] | None
    ) -> Predicted:
        from native_bridge.engines.flashmoe.predicted import predict

        return predict(run, trace, model, failing=failing)

    def comparison(self, model: ModelGeometry, **options: Any) -> list[RunRequest]:
        from native_bridge.engines.flashmoe.sets import comparison

        return comparison(model, **options)

    def calibration(
        self, model: ModelGeometry, *, bank: int | None, parameters: Sequence[str], **options: Any
    ) -> list[RunRequest]:
        from native_bridge.engines.flashmoe.sets import calibration

        return calibration(model, bank=bank, parameters=parameters, **options)

    def request_of(self, system: System, model: ModelGeometry, runtime: Runtime, **options: Any) -> RunRequest:
        from native_bridge.engines.flashmoe.systems import request_of

        return request_of(system, model, runtime, **options)

    def refuse_two_machines(self, runs: Sequence[Run], *, io_split_may_differ: bool = False) -> None:
        from native_bridge.engines.flashmoe.agree import refuse_two_machines

        refuse_two_machines(runs, io_split_may_differ=io_split_may_differ)

    def fit(
        self, runs: Sequence[Run], model: ModelGeometry | None, *, name: str, command: str, parameters: Sequence[str]
    ) -> Fitted:
        from native_bridge.engines.flashmoe.fit import fit

        return fit(runs, model, name=name, command=command, parameters=parameters)
