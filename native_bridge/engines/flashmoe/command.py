"""Which requests the runtime can run, and their arguments."""

from __future__ import annotations

from pathlib import Path

from flashmoe_sim.geometry.manifest import read_manifest
from flashmoe_sim.geometry.model import MAX_IO_SPLIT, ModelGeometry
from flashmoe_sim.io.errors import BadInput, unknown_name
from flashmoe_sim.systems.slot_bank_flags import IO_SPLIT, bank_flags
from native_bridge.engines.base import RunRequest
from native_bridge.engines.flashmoe.modes import MODES, PREFETCH, TRACED

MAX_PROMPT_BYTES = 100_000  # Linux allows 128 KiB per argument
# The runtime's flags that belong to our options.
OWN_FLAGS = {
    flag: option
    for option, flags in {
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
    }.items()
    for flag in flags
}


def check_request(
    request: RunRequest,
    model: ModelGeometry,
    *,
    sidecar: Path | None,
    replay: Path | None,
    sidecar_follows: bool = False,
) -> None:
    """Raise BadInput if the request is not one that the runtime can do with this model.

    sidecar_follows: the sidecar is written only after all requests are known to be valid.
    """
    offered = [name for name, mode in MODES.items() if mode.offered]
    if request.mode not in offered:
        raise unknown_name("mode", request.mode, offered)
    if MODES[request.mode].sidecar and not sidecar_follows:
        if sidecar is None:
            raise BadInput(
                f"mode {request.mode} reads experts from a sidecar; give --sidecar, written by `sim model make-sidecar`"
            )
        if read_manifest(sidecar).layers != model.layers:
            raise BadInput(
                f"{sidecar}: is not the sidecar of {model.name}: its layers, experts or their bytes "
                "differ; give this model's, or write it again"
            )
    if MODES[request.mode].replays and replay is None:
        raise BadInput(f"mode {request.mode} replays a run of slot-bank; add that mode, or give --replay FOLDER")
    if request.top_k > model.top_k > 0:
        raise BadInput(
            f"--topk {request.top_k}: {model.name} uses {model.top_k} experts a token, and the runtime can only use "
            f"fewer; give 1 to {model.top_k}"
        )
    _check_bank(request, model)
    if request.prefetch is not None:
        if request.prefetch not in PREFETCH:
            raise unknown_name("prefetch", request.prefetch, PREFETCH)
        if request.mode not in TRACED:
            raise BadInput(f"--prefetch works in {' and '.join(TRACED)}; found mode {request.mode}; leave it out")
    if request.io_split is not None and not 1 <= request.io_split <= MAX_IO_SPLIT:
        raise BadInput(f"--io-split {request.io_split}; expected 1 to {MAX_IO_SPLIT}")
    if request.n_predict < 1 or request.threads < 1 or not 1 <= request.ubatch <= request.batch:
        raise BadInput(
            f"{request.n_predict} tokens, {request.threads} threads, micro-batch {request.ubatch} of {request.batch}; "
            "expected each from 1, the micro-batch at most the batch"
        )
    if not request.prompt.strip():
        raise BadInput("the prompt is empty; give some text with --prompt or --prompt-file")
    if "\0" in request.prompt:
        raise BadInput("the prompt has a NUL character, which the runtime cannot be given; take it out")
    if len(request.prompt.encode()) > MAX_PROMPT_BYTES:
        raise BadInput(
            f"the prompt has more than {MAX_PROMPT_BYTES:,} bytes, which the runtime cannot be given; cut it"
        )


def _check_bank(request: RunRequest, model: ModelGeometry) -> None:
    if not MODES[request.mode].slots:
        return
    experts, top_k = max(layer.n_experts for layer in model.layers.values()), request.top_k or model.top_k
    if request.bank > experts:
        raise BadInput(f"--bank {request.bank}: {model.name} has {experts} experts a layer; give at most {experts}")
    if request.bank < max(1, top_k):
        raise BadInput(
            f"--bank {request.bank}: {model.name} uses {top_k} experts a token, and each needs a slot; "
            f"give at least {max(1, top_k)}"
        )


def further(request: RunRequest) -> list[str]:
    """The flags that are listed separately in run.json, as `extra`."""
    flags = [f"--moe-{PREFETCH[request.prefetch][0]}"] if request.prefetch is not None else []
    flags += [IO_SPLIT, str(request.io_split)] if request.io_split is not None else []
    flags += ["-ngl", request.gpu_layers] if request.gpu_layers is not None else []
    return [*flags, "--seed", str(request.seed), *request.go_on, *request.extra]


def arguments(request: RunRequest, *, model: Path, sidecar: Path | None, trace: str) -> list[str]:
    """The runtime's arguments. trace: the file that it writes or, as an oracle, replays."""
    mode = MODES[request.mode]
    read_from, slots = str(sidecar) if mode.sidecar else "", request.bank if mode.slots else 0
    words = ["-m", str(model), *bank_flags(request.mode, sidecar=read_from, slots=slots, top_k=request.top_k)]
    words += ["--moe-trace-harness", "--perf"]
    words += ["--moe-trace", trace] if mode.slots else []
    words += ["-b", str(request.batch), "-ub", str(request.ubatch), "-n", str(request.n_predict)]
    # A prompt has at most as many tokens as bytes; the context of the model itself may take all memory.
    context = 256 * -(-(len(request.prompt.encode()) + request.n_predict + 16) // 256)
    words += ["-t", str(request.threads), "-c", str(context), "--no-escape", "--no-warmup", "--simple-io"]
    words += ["-lv", "3"]  # by default llama-cli does not print where it puts the layers and the bank
    return [*words, *further(request), "-p", request.prompt]
