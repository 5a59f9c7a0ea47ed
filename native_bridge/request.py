"""What to run: a value, its limits, and the argument list of the runtime it becomes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flashmoe_sim.geometry.manifest import read_manifest
from flashmoe_sim.geometry.model import MAX_IO_SPLIT, ModelGeometry
from flashmoe_sim.io.errors import BadInput, unknown_name
from native_bridge.modes import BANKED, MODES, ORACLES, PREFETCH, TRACED

MAX_PROMPT_BYTES = 100_000  # Linux takes 128 KiB an argument
# What options of ours give the runtime, by its flags.
OWN_FLAGS = {
    flag: option
    for option, flags in {
        "--model": ("-m", "--model"),
        "--sidecar": ("--moe-sidecar",),
        "--mode": ("--moe-mode",),
        "--bank": ("--moe-slot-bank",),
        "--topk": ("--moe-topk",),
        "--ubatch": ("-ub", "--ubatch-size", "-b", "--batch-size"),
        "--prefetch": tuple(f"--{no}{flag[2:]}" for flag in PREFETCH.values() for no in ("", "no-")),
        "--io-split": ("--moe-cache-io-split",),
        "--prompt or --prompt-file": ("-p", "--prompt", "-f", "--file"),
        "--seed": ("-s", "--seed"),
        "--tokens": ("-n", "--predict", "--n-predict"),
        "--threads": ("-t", "--threads"),
        "--gpu-layers": ("-ngl", "--gpu-layers", "--n-gpu-layers"),
        "--replay": ("--moe-trace",),
    }.items()
    for flag in flags
}


@dataclass(frozen=True)
class RunRequest:
    """One run of the runtime.

    bank: slots a layer; every expert where a mode has no bank of its own. ubatch: tokens of a micro-batch.
    top_k: experts a token, 0 for the model's own. prefetch: a name in PREFETCH. io_split: chunks a read is
    cut into, None for the runtime's default. n_predict: tokens to generate. gpu_layers: as the runtime's `-ngl`, None
    for its default. prompt_file: where the prompt was read from. extra: further flags of the runtime, as given.
    go_on: the flags by which a text does not end early, which `run_once` adds.
    """

    mode: str
    bank: int
    prompt: str
    n_predict: int = 100
    ubatch: int = 1
    batch: int = 64
    top_k: int = 0
    prefetch: str | None = None
    io_split: int | None = None
    seed: int = 1
    threads: int = 1
    gpu_layers: str | None = None
    prompt_file: Path | None = None
    extra: tuple[str, ...] = ()
    go_on: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of its folder among runs of one model and prompt."""
        parts = [f"{self.mode}{self.bank}" if self.mode in TRACED else self.mode]
        parts += [f"bank{self.bank}"] if self.mode == "oracle-prefetch" else []
        parts += [f"ub{self.ubatch}"] if self.ubatch > 1 else []
        parts += [f"topk{self.top_k}"] if self.top_k else []
        parts += [self.prefetch] if self.prefetch is not None else []
        parts += [f"split{self.io_split}"] if self.io_split is not None and self.needs_sidecar else []
        return "-".join(parts)

    @property
    def needs_sidecar(self) -> bool:
        """Whether its experts come from a sidecar."""
        return self.mode != "stock"

    @property
    def further(self) -> list[str]:
        """The flags that are told apart from the others in run.json, as `extra`."""
        flags = [PREFETCH[self.prefetch]] if self.prefetch is not None else []
        flags += ["--moe-cache-io-split", str(self.io_split)] if self.io_split is not None else []
        flags += ["-ngl", self.gpu_layers] if self.gpu_layers is not None else []
        return [*flags, "--seed", str(self.seed), *self.go_on, *self.extra]


def check_request(
    request: RunRequest,
    model: ModelGeometry,
    *,
    sidecar: Path | None,
    replay: Path | None,
    sidecar_follows: bool = False,
) -> None:
    """Raise BadInput where the request is not one that the runtime can do with this model.

    sidecar_follows: the sidecar is written only when all requests are known to be good.
    """
    if request.mode not in MODES:
        raise unknown_name("mode", request.mode, MODES)
    if request.needs_sidecar and not sidecar_follows:
        if sidecar is None:
            raise BadInput(
                f"mode {request.mode} reads experts from a sidecar; give --sidecar, written by `sim model make-sidecar`"
            )
        if read_manifest(sidecar).layers != model.layers:
            raise BadInput(
                f"{sidecar}: is the sidecar of another model than {model.name}: its layers, experts or their bytes "
                "differ; give this model's, or write it again"
            )
    if request.mode in ORACLES and replay is None:
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


def check_flags(flags: Sequence[str], known: Mapping[str, str]) -> None:
    """Raise BadInput for flags of the user that the runtime does not have, or that belong to an option of ours.

    known: the flags of the runtime.
    """
    if flags and not flags[0].startswith("-"):
        raise BadInput(f"{flags[0]!r}: not an option; flags of the runtime come after --, such as -- -fa off")
    for flag in flags:
        name = flag.partition("=")[0]
        if option := OWN_FLAGS.get(name):
            raise BadInput(f"{flag} after --: is recorded by an option of its own; give {option}")
        if re.match(r"--?[A-Za-z]", name) and name not in known:
            raise BadInput(f"{flag} after --: the runtime has no such flag; see its --help")


def _check_bank(request: RunRequest, model: ModelGeometry) -> None:
    if request.mode not in BANKED and request.mode != "oracle-all-hit":
        return
    experts, top_k = max(layer.n_experts for layer in model.layers.values()), request.top_k or model.top_k
    if request.bank > experts:
        raise BadInput(f"--bank {request.bank}: {model.name} has {experts} experts a layer; give at most {experts}")
    if request.bank < max(1, top_k):
        raise BadInput(
            f"--bank {request.bank}: {model.name} uses {top_k} experts a token, and each needs a slot; "
            f"give at least {max(1, top_k)}"
        )


def arguments(request: RunRequest, *, model: Path, sidecar: Path | None, trace: str) -> list[str]:
    """The runtime's arguments. trace: the file it writes, or, for an oracle, replays."""
    words = ["-m", str(model), "--moe-mode", request.mode, "--moe-trace-harness", "--perf"]
    words += ["--moe-sidecar", str(sidecar)] if request.needs_sidecar else []
    words += ["--moe-slot-bank", str(request.bank)] if request.mode in (*BANKED, "oracle-all-hit") else []
    words += ["--moe-topk", str(request.top_k)] if request.top_k else []
    words += ["--moe-trace", trace] if request.mode in (*TRACED, *ORACLES) else []
    words += ["-b", str(request.batch), "-ub", str(request.ubatch), "-n", str(request.n_predict)]
    # A prompt has at most as many tokens as bytes; the context of the model itself may take all memory.
    context = 256 * -(-(len(request.prompt.encode()) + request.n_predict + 16) // 256)
    words += ["-t", str(request.threads), "-c", str(context), "--no-escape", "--no-warmup", "--simple-io"]
    words += ["-lv", "3"]  # by default llama-cli does not print where it puts the layers and the bank
    return [*words, *request.further, "-p", request.prompt]
