"""The patched llama.cpp with Flash-MoE: its `llama-cli`.

What is slow to import waits for the methods that need it, so that the command line stays quick.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.geometry.model import MAX_IO_SPLIT, ModelGeometry
from flashmoe_sim.io.errors import (
    Conflict,
    Incomplete,
    Malformed,
    OutOfRange,
    TooLarge,
    Unusable,
    unknown_name,
)
from flashmoe_sim.systems.slot_bank_flags import IO_SPLIT, VARIABLES, bank_flags
from native_bridge.engines.base import DoctorFinding, RunRequest, Runtime
from native_bridge.engines.flashmoe.modes import (
    DROPPED,
    GET_ONE,
    MODES,
    PREFETCH,
    TRACED,
    unknown_of,
    what_is_unknown,
)
from native_bridge.engines.llama_program import LlamaProgram, context_tokens

if TYPE_CHECKING:
    from flashmoe_sim.machines.fitting import Fitted
    from flashmoe_sim.trace.routing import RoutingTrace
    from native_bridge.engines.run_log import RunLog
    from native_bridge.engines.runs import PredictedRun, Run

MAX_PROMPT_BYTES = 100_000  # Linux allows 128 KiB per argument
OTHER_IO_SPLIT = 1  # beside the runtime's own


class FlashMoeEngine(LlamaProgram):
    """The patched llama-cli; an unpatched one has no modes."""

    name = "flashmoe"
    modes = MODES
    prefetches = tuple(PREFETCH)
    dropped = (DROPPED,)
    switches = (VARIABLES, "GGML_", "CUDA_VISIBLE_DEVICES")
    program, variable, advice = "llama-cli", "FLASHMOE_RUNTIME", GET_ONE
    own_flags: ClassVar[dict[str, tuple[str, ...]]] = {
        "--model": ("-m", "--model"),
        "--sidecar": ("--moe-sidecar",),
        "--mode": ("--moe-mode",),
        "--bank": ("--moe-slot-bank",),
        "--topk": ("--moe-topk",),
        "--ubatch": ("-ub", "--ubatch-size", "-b", "--batch-size"),
        "--prefetch": tuple(f"--{no}moe-{setting}" for setting, _ in PREFETCH.values() for no in ("", "no-")),
        "--io-split": (IO_SPLIT,),
        "--prompt or --prompt-file": ("-p", "--prompt", "-f", "--file"),
        "--seed": ("-s", "--seed"),
        "--tokens": ("-n", "--predict", "--n-predict"),
        "--threads": ("-t", "--threads"),
        "--gpu-layers": ("-ngl", "--gpu-layers", "--n-gpu-layers"),
        "--replay": ("--moe-trace",),
    }

    def modes_of(self, flags: Mapping[str, str]) -> tuple[str, ...]:
        choices = flags.get("--moe-mode")
        return () if choices is None else tuple(choices.strip("{}").split(","))

    def check_runtime(self, runtime: Runtime) -> None:
        if not runtime.modes:
            raise Unusable(f"{runtime.path}: has no flag --moe-mode: a llama-cli that is not patched", advice=GET_ONE)

    def check_request(
        self,
        request: RunRequest,
        model: ModelGeometry,
        *,
        sidecar: Path | None,
        replay: Path | None,
        sidecar_follows: bool = False,
    ) -> None:
        from flashmoe_sim.geometry.manifest import read_manifest

        offered = [name for name, mode in MODES.items() if mode.offered]
        if request.mode not in offered:
            raise unknown_name("mode", request.mode, offered)
        if MODES[request.mode].sidecar and not sidecar_follows:
            if sidecar is None:
                raise Incomplete(
                    f"mode {request.mode} reads experts from a sidecar; give --sidecar, written by "
                    "`sim model make-sidecar`"
                )
            if read_manifest(sidecar).layers != model.layers:
                raise Conflict(
                    f"{sidecar}: is not the sidecar of {model.name}: its layers, experts or their bytes "
                    "differ; give this model's, or write it again"
                )
        if MODES[request.mode].replays and replay is None:
            raise Incomplete(f"mode {request.mode} replays a run of slot-bank; add that mode, or give --replay FOLDER")
        if request.top_k > model.top_k > 0:
            raise OutOfRange(
                f"--topk {request.top_k}: {model.name} uses {model.top_k} experts a token, and the runtime can only "
                f"use fewer; give 1 to {model.top_k}"
            )
        _check_bank(request, model)
        if request.prefetch is not None:
            if request.prefetch not in PREFETCH:
                raise unknown_name("prefetch", request.prefetch, PREFETCH)
            if request.mode not in TRACED:
                raise Conflict(f"--prefetch works in {' and '.join(TRACED)}; found mode {request.mode}; leave it out")
        if request.io_split is not None and not 1 <= request.io_split <= MAX_IO_SPLIT:
            raise OutOfRange(f"--io-split {request.io_split}; expected 1 to {MAX_IO_SPLIT}")
        if request.n_predict < 1 or request.threads < 1 or not 1 <= request.ubatch <= request.batch:
            raise OutOfRange(
                f"{request.n_predict} tokens, {request.threads} threads, micro-batch {request.ubatch} of "
                f"{request.batch}; expected each from 1, the micro-batch at most the batch"
            )
        if not request.prompt.strip():
            raise Incomplete("the prompt is empty; give some text with --prompt or --prompt-file")
        if "\0" in request.prompt:
            raise Malformed("the prompt has a NUL character, which the runtime cannot be given; take it out")
        if len(request.prompt.encode()) > MAX_PROMPT_BYTES:
            raise TooLarge(
                f"the prompt has more than {MAX_PROMPT_BYTES:,} bytes, which the runtime cannot be given; cut it"
            )

    def unknown_effect(self, flags: Sequence[str]) -> str:
        return what_is_unknown(flag) if (flag := unknown_of(flags, {})) else ""

    def go_on_flags(self, model: Path) -> tuple[str, ...]:
        """llama-cli has `--ignore-eos`, but copies its sampling parameters before that flag has an effect on them."""
        from native_bridge.engines.flashmoe.end_tokens import end_tokens

        return tuple(word for token in end_tokens(model) for word in ("--logit-bias", f"{token}-inf"))

    def further(self, request: RunRequest) -> list[str]:
        flags = [f"--moe-{PREFETCH[request.prefetch][0]}"] if request.prefetch is not None else []
        flags += [IO_SPLIT, str(request.io_split)] if request.io_split is not None else []
        flags += ["-ngl", request.gpu_layers] if request.gpu_layers is not None else []
        return [*flags, "--seed", str(request.seed), *request.go_on, *request.extra]

    def command(
        self, request: RunRequest, runtime: Runtime, *, model: Path, sidecar: Path | None, trace: str
    ) -> list[str]:
        mode = MODES[request.mode]
        read_from, slots = str(sidecar) if mode.sidecar else "", request.bank if mode.slots else 0
        words = ["-m", str(model), *bank_flags(request.mode, sidecar=read_from, slots=slots, top_k=request.top_k)]
        words += ["--moe-trace-harness", "--perf"]
        words += ["--moe-trace", trace] if mode.slots else []
        words += ["-b", str(request.batch), "-ub", str(request.ubatch), "-n", str(request.n_predict)]
        # The context of the model itself may take all memory.
        words += ["-t", str(request.threads), "-c", str(context_tokens(request))]
        words += ["--no-escape", "--no-warmup", "--simple-io"]
        words += ["-lv", "3"]  # by default llama-cli does not print where it puts the layers and the bank
        return [str(runtime.path), *words, *self.further(request), "-p", request.prompt]

    def read_log(self, text: str, *, mode: str, where: str, extra: Sequence[str], failed_too: bool = False) -> RunLog:
        from native_bridge.engines.flashmoe.log.parse import read_log

        return read_log(text, mode=mode, where=where, extra=extra, failed_too=failed_too)

    def refusal(self, request: RunRequest, log: str, *, calls: int | None, model: ModelGeometry) -> str | None:
        """Its bank was too small, or the trace that it replayed too short."""
        from native_bridge.engines.flashmoe.log.failure import exhausted_of, overflow_of

        if found := overflow_of(log, of_a_call=True):
            return _overflow(request, found.layer, found.slots, calls, model)
        if ended := exhausted_of(log):
            return (
                f"the trace that it replays ends after {ended.calls} routed calls, and the text went on; replay a run "
                "with as many tokens"
            )
        return None

    def complaint(self, log: str) -> str:
        from native_bridge.engines.flashmoe.log.failure import complaint

        return complaint(log)

    def examine(self, runtime: Runtime | None) -> Iterator[DoctorFinding]:
        from native_bridge.engines.flashmoe.examine import environment, program

        if runtime is not None:
            yield from program(runtime)
        yield from environment()

    def examine_bank(self, runtime: Runtime, model: ModelGeometry, bank: int | None) -> Iterator[DoctorFinding]:
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
    ) -> PredictedRun:
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

    def refuse_two_machines(self, runs: Sequence[Run], *, io_split_may_differ: bool = False) -> None:
        from native_bridge.engines.flashmoe.fit import refuse_two_machines

        refuse_two_machines(runs, io_split_may_differ=io_split_may_differ)

    def fit(
        self, runs: Sequence[Run], model: ModelGeometry | None, *, name: str, command: str, parameters: Sequence[str]
    ) -> Fitted:
        from native_bridge.engines.flashmoe.fit import fit

        return fit(runs, model, name=name, command=command, parameters=parameters)


def _check_bank(request: RunRequest, model: ModelGeometry) -> None:
    if not MODES[request.mode].slots:
        return
    experts, top_k = max(layer.n_experts for layer in model.layers.values()), request.top_k or model.top_k
    if request.bank > experts:
        raise OutOfRange(f"--bank {request.bank}: {model.name} has {experts} experts a layer; give at most {experts}")
    if request.bank < max(1, top_k):
        raise OutOfRange(
            f"--bank {request.bank}: {model.name} uses {top_k} experts a token, and each needs a slot; "
            f"give at least {max(1, top_k)}"
        )


def _overflow(request: RunRequest, layer: int, bank: int, calls: int | None, model: ModelGeometry) -> str:
    """The failed call is not in the trace, so its union is only known to be larger than the bank."""
    top_k = request.top_k or model.top_k
    experts = model.layers[layer].n_experts if layer in model.layers else bank
    enough = min(experts, request.ubatch * top_k)
    where = "" if calls is None else f" at call {calls}"
    smaller = (
        f", a smaller --ubatch (at most {max(1, bank // top_k)} always fits)" if top_k and request.ubatch > 1 else ""
    )
    return (
        f"the bank is too small: layer {layer} needs more than {bank} slots{where}, for {request.ubatch} tokens of "
        f"{top_k} experts each; --bank {enough} always does{smaller}"
    )
