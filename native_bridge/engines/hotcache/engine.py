"""The fork adrianhoehne/llama.cpp with `--moe-hot-cache`: its `llama-server`, asked once.

Only its server counts the uses of experts, so a run starts one, asks it for the text, and ends it (`serve.py`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from flashmoe_sim.io.errors import BadInput, unknown_name
from flashmoe_sim.systems.hot_cache_flags import ARCHS, BUDGET, COMMIT, PROFILE
from native_bridge.engines.base import Finding, Mode, RunRequest, Runtime
from native_bridge.engines.llama_program import LlamaProgram, context_tokens, version_of
from native_bridge.engines.run_log import RunLog

if TYPE_CHECKING:
    from flashmoe_sim.geometry.model import ModelGeometry

NEEDED = ("--cpu-moe", "--moe-layer-perf-out", PROFILE, BUDGET, "--no-warmup")
GET_ONE = "build the fork adrianhoehne/llama.cpp and give its llama-server with --runtime or in HOT_CACHE_RUNTIME"
SERVE = Path(__file__).with_name("serve.py")
SERVERS = ("--host", "--port", "--moe-layer-perf-out", "-c", "--ctx-size", "-np", "--parallel")


class HotCache(LlamaProgram):
    """The fork's llama-server."""

    name = "hot-cache"
    modes: ClassVar[dict[str, Mode]] = {
        "cpu-moe": Mode("resident", sidecar=False),
        "hot-cache": Mode("resident", sidecar=False),
    }
    dropped = ("LLAMA_ARG_",)
    switches = ("LLAMA_MOE_", "GGML_", "CUDA_VISIBLE_DEVICES")
    program, variable, advice = "llama-server", "HOT_CACHE_RUNTIME", GET_ONE
    own_flags: ClassVar[dict[str, tuple[str, ...]]] = {
        "--model": ("-m", "--model"),
        "--mode": ("--cpu-moe", "-cmoe"),
        "--ubatch": ("-ub", "--ubatch-size", "-b", "--batch-size"),
        "--seed": ("-s", "--seed"),
        "--tokens": ("-n", "--predict"),
        "--threads": ("-t", "--threads"),
        "--gpu-layers": ("-ngl", "--gpu-layers"),
    }

    def modes_of(self, flags: Mapping[str, str]) -> tuple[str, ...]:
        return tuple(self.modes) if all(flag in flags for flag in NEEDED) else ()

    def check_runtime(self, runtime: Runtime) -> None:
        if not runtime.modes:
            raise BadInput(f"{runtime.path}: has no flag {PROFILE}: a llama-server without the cache", advice=GET_ONE)

    def check_request(
        self,
        request: RunRequest,
        model: ModelGeometry,
        *,
        sidecar: Path | None,
        replay: Path | None,
        sidecar_follows: bool = False,
    ) -> None:
        if request.mode not in self.modes:
            raise unknown_name("mode", request.mode, self.modes)
        if model.arch not in ARCHS:
            raise BadInput(f"{model.name}: is {model.arch}; the hot cache takes {', '.join(ARCHS)}; give one of them")
        given = {flag.partition("=")[0] for flag in request.extra}
        if request.mode == "hot-cache" and not {PROFILE, BUDGET} <= given:
            raise BadInput(
                f"mode hot-cache: found no {PROFILE} or no {BUDGET}; expected both; "
                f"add -- {PROFILE} FILE {BUDGET} N, with a profile of `sim trace profile`"
            )
        if request.mode == "cpu-moe" and (cache := sorted(flag for flag in given if flag.startswith(PROFILE))):
            raise BadInput(f"mode cpu-moe has no hot cache; found {cache[0]}; give --mode hot-cache, or leave it out")
        for option, value in (
            ("--topk", request.top_k),
            ("--prefetch", request.prefetch),
            ("--io-split", request.io_split),
        ):
            if value:
                raise BadInput(f"{option} {value}: {self.name} has no such setting; leave it out")
        if not request.prompt.strip() or "\0" in request.prompt:
            raise BadInput("the prompt is empty or has a NUL character; give some text with --prompt or --prompt-file")

    def check_flags(self, flags: Sequence[str], known: Mapping[str, str]) -> None:
        if given := next((flag for flag in flags if flag.partition("=")[0] in SERVERS), None):
            raise BadInput(f"{given} after --: the run itself gives it; leave it out")
        super().check_flags(flags, known)

    def further(self, request: RunRequest) -> list[str]:
        layers = ["-ngl", request.gpu_layers] if request.gpu_layers is not None else []
        return [*layers, "--seed", str(request.seed), *request.extra]

    def command(
        self, request: RunRequest, runtime: Runtime, *, model: Path, sidecar: Path | None, trace: str
    ) -> list[str]:
        """The command, without a warm-up, which would be counted."""
        asked = [sys.executable, str(SERVE), request.prompt, str(request.n_predict)]
        words = [str(runtime.path), "-m", str(model), "--cpu-moe", "--no-warmup", "-np", "1"]
        words += ["-c", str(context_tokens(request))]
        words += ["-b", str(request.batch), "-ub", str(request.ubatch), "-t", str(request.threads)]
        return [*asked, *words, *self.further(request)]

    def read_log(self, text: str, *, mode: str, where: str, extra: Sequence[str], failed_too: bool = False) -> RunLog:
        from native_bridge.engines.hotcache.log import read_log

        return read_log(text, where=where, failed_too=failed_too, complaint=self.complaint(text))

    def complaint(self, log: str) -> str:
        return next((line for line in log.splitlines() if re.match(r"[\d.]+ E ", line)), "")

    def examine(self, runtime: Runtime | None) -> Iterator[Finding]:
        if runtime is None:
            return
        yield Finding("ok", "runtime", str(runtime.path))
        yield version_of(runtime, verified=COMMIT, to_do="compare yours")
        if runtime.devices:
            yield Finding("ok", "devices", ", ".join(device.name for device in runtime.devices))
        else:
            yield Finding("warning", "devices", "the CPU alone", "the mode hot-cache needs a GPU; cpu-moe runs")
