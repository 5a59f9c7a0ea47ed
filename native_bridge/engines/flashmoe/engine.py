"""The patched llama.cpp with Flash-MoE: its `llama-cli`.

Imports happen inside the methods, so that the command line stays quick.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.systems.slot_bank_flags import IO_SPLIT, VARIABLES
from native_bridge.engines.base import Engine, Finding, RunRequest, Runtime
from native_bridge.engines.flashmoe.modes import DROPPED, GET_ONE, MODES, PREFETCH, bypass_of, prefetch_of
from native_bridge.engines.llama_program import Program, check_flags

if TYPE_CHECKING:
    from flashmoe_sim.geometry.model import ModelGeometry
    from flashmoe_sim.machines.fitting import Fitted
    from flashmoe_sim.systems.base import System
    from flashmoe_sim.trace.routing import RoutingTrace
    from native_bridge.engines.counters import Predicted
    from native_bridge.engines.run_log import RunLog
    from native_bridge.engines.runs import Run

OTHER_IO_SPLIT = 1  # beside the runtime's own


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
        description = self.program.describe(path)
        choices = description.flags.get("--moe-mode")
        modes = () if choices is None else tuple(choices.strip("{}").split(","))
        return Runtime(self.name, path, modes=modes, **vars(description))

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
        """Not how reads are cut, nor what is read ahead."""
        kept = list(run.extra)
        if IO_SPLIT in kept:
            at = kept.index(IO_SPLIT)
            del kept[at : at + 2]
        ahead = tuple(f"--{no}moe-{setting}" for no in ("", "no-") for setting, _ in PREFETCH.values())
        return tuple(flag for flag in kept if not flag.startswith(ahead))

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
        """Every mode: streamed with a small, a medium and a full bank, with reads ahead, and all resident modes."""
        experts = max(layer.n_experts for layer in model.layers.values())
        small, middle = max(model.top_k, experts // 5), max(model.top_k, 3 * experts // 8)
        banked = [("slot-bank", small), ("slot-bank", middle), ("slot-bank", experts), ("resident-slot-bank", middle)]
        all_resident = [("stock", experts), ("resident-bank", experts), ("oracle-all-hit", experts)]
        modes = dict.fromkeys([*banked, *all_resident, ("oracle-prefetch", middle)])
        ahead = [RunRequest("slot-bank", middle, prefetch=one, **options) for one in ("temporal", "predict-prev")]
        return [*(RunRequest(mode, bank, **options) for mode, bank in modes), *ahead]

    def calibration(
        self, model: ModelGeometry, *, bank: int | None, parameters: Sequence[str], **options: Any
    ) -> list[RunRequest]:
        """Two streamed runs, and a replay with every expert resident.

        bank: by default a fifth of the experts, so that the first run misses often. The second has a slot for every
        expert, so that each install fills a slot for the first time. parameters: `request_us` also needs the first with
        another io-split, and `weights_gb_s` a run with half the top-k.
        """
        experts = max(layer.n_experts for layer in model.layers.values())
        slots = max(model.top_k, experts // 5) if bank is None else bank
        requests = [RunRequest("slot-bank", each, **options) for each in sorted({slots, experts})]
        requests.append(RunRequest("oracle-all-hit", experts, **options))
        if "request_us" in parameters:
            requests.append(RunRequest("slot-bank", slots, io_split=OTHER_IO_SPLIT, **options))
        if "weights_gb_s" in parameters:
            requests.append(RunRequest("stock", experts, top_k=max(1, model.top_k // 2), **options))
        return requests

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
