"""The fork adrianhoehne/llama.cpp with `--moe-hot-cache`: its `llama-server`, asked once.

Only its server counts the uses of experts, so a run starts one, asks it for the text, and ends it (`serve.py`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from flashmoe_sim.io import strict_json
from flashmoe_sim.io.errors import Conflict, Incomplete, Malformed, Unsupported, Unusable, unknown_name
from flashmoe_sim.systems.hot_cache_flags import ARCHS, BUDGET, COMMIT, PROFILE
from native_bridge.engines.base import DoctorFinding, Mode, RunRequest, Runtime
from native_bridge.engines.llama_program import LlamaProgram, context_tokens, version_of
from native_bridge.engines.run_log import LayerLanes, RunLog

if TYPE_CHECKING:
    from flashmoe_sim.geometry.model import ModelGeometry

NEEDED = ("--cpu-moe", "--moe-layer-perf-out", PROFILE, BUDGET, "--no-warmup")
GET_ONE = "build the fork adrianhoehne/llama.cpp and give its llama-server with --runtime or in HOT_CACHE_RUNTIME"
SERVE = [sys.executable, "-P", "-m", "native_bridge.engines.hotcache.serve"]
PERF = "moe-layer-perf: "
SERVERS = ("--host", "--port", "--moe-layer-perf-out", "-c", "--ctx-size", "-np", "--parallel")
_SPEEDS = re.compile(r"^\[ Prompt: (\d+\.\d+) t/s \| Generation: (\d+\.\d+) t/s \]$", re.MULTILINE)
_GPU = re.compile(r"ggml_(cuda|metal|vulkan)_init")


class HotCacheEngine(LlamaProgram):
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
            raise Unusable(f"{runtime.path}: has no flag {PROFILE}: a llama-server without the cache", advice=GET_ONE)

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
            raise Unsupported(
                f"{model.name}: is {model.arch}; the hot cache takes {', '.join(ARCHS)}; give one of them"
            )
        given = {flag.partition("=")[0] for flag in request.extra}
        if request.mode == "hot-cache" and not {PROFILE, BUDGET} <= given:
            raise Incomplete(
                f"mode hot-cache: found no {PROFILE} or no {BUDGET}; expected both; "
                f"add -- {PROFILE} FILE {BUDGET} N, with a profile of `sim trace profile`"
            )
        if request.mode == "cpu-moe" and (cache := sorted(flag for flag in given if flag.startswith(PROFILE))):
            raise Conflict(f"mode cpu-moe has no hot cache; found {cache[0]}; give --mode hot-cache, or leave it out")
        for option, value in (
            ("--topk", request.top_k),
            ("--prefetch", request.prefetch),
            ("--io-split", request.io_split),
        ):
            if value:
                raise Unsupported(f"{option} {value}: {self.name} has no such setting; leave it out")
        if not request.prompt.strip() or "\0" in request.prompt:
            raise Incomplete(
                "the prompt is empty or has a NUL character; give some text with --prompt or --prompt-file"
            )

    def check_flags(self, flags: Sequence[str], known: Mapping[str, str]) -> None:
        if given := next((flag for flag in flags if flag.partition("=")[0] in SERVERS), None):
            raise Conflict(f"{given} after --: the run itself gives it; leave it out")
        super().check_flags(flags, known)

    def further(self, request: RunRequest) -> list[str]:
        layers = ["-ngl", request.gpu_layers] if request.gpu_layers is not None else []
        return [*layers, "--seed", str(request.seed), *request.extra]

    def command(
        self, request: RunRequest, runtime: Runtime, *, model: Path, sidecar: Path | None, trace: str
    ) -> list[str]:
        """The command, without a warm-up, which would be counted."""
        program = [*SERVE, request.prompt, str(request.n_predict)]
        words = [str(runtime.path), "-m", str(model), "--cpu-moe", "--no-warmup", "-np", "1"]
        words += ["-c", str(context_tokens(request))]
        words += ["-b", str(request.batch), "-ub", str(request.ubatch), "-t", str(request.threads)]
        return [*program, *words, *self.further(request)]

    def read_log(self, text: str, *, mode: str, where: str, extra: Sequence[str], failed_too: bool = False) -> RunLog:
        gpu = _GPU.search(text)
        speeds = list(_SPEEDS.finditer(text))
        counted = text.count("\n", 0, speeds[-1].start()) + 1 if speeds else 0  # earlier lines may be the model's
        lanes = tuple(
            _layer(line.removeprefix(PERF), f"{where}:{number}")
            for number, line in enumerate(text.splitlines()[counted:] if speeds else [], counted + 1)
            if line.startswith(PERF)
        )
        if not speeds or not lanes:
            found = "no line `[ Prompt: … t/s | Generation: … t/s ]`" if not speeds else f"no line `{PERF}…`"
            if not failed_too:
                raise Unusable(f"{where}: {found}: the run did not finish; run it again")
            return RunLog(0.0, 0.0, settings={}, backend=gpu[1] if gpu else "", failure=self.complaint(text) or found)
        prompt, decode = map(float, speeds[-1].groups())
        lines = {
            f"layer {one.layer}": {
                "calls": str(one.calls),
                "hot": str(sum(one.hot.values())),
                "cold": str(sum(one.cold.values())),
            }
            for one in lanes
        }
        return RunLog(prompt, decode, settings={}, backend=gpu[1] if gpu else "", lines=lines, lanes=lanes)

    def complaint(self, log: str) -> str:
        return next((line for line in log.splitlines() if re.match(r"[\d.]+ E ", line)), "")

    def examine(self, runtime: Runtime | None) -> Iterator[DoctorFinding]:
        if runtime is None:
            return
        yield DoctorFinding("ok", "runtime", str(runtime.path))
        yield version_of(runtime, verified=COMMIT, to_do="compare yours")
        if runtime.devices:
            yield DoctorFinding("ok", "devices", ", ".join(device.name for device in runtime.devices))
        else:
            yield DoctorFinding("warning", "devices", "the CPU alone", "the mode hot-cache needs a GPU; cpu-moe runs")


def _layer(text: str, place: str) -> LayerLanes:
    """One layer of the profile that the server wrote."""
    try:
        layer = strict_json.loads(text.encode())
        hot, cold = (
            {int(expert): int(count) for expert, count in layer[f"{lane}_experts"]} for lane in ("hot", "cold")
        )
        return LayerLanes(int(layer["layer"]), int(layer["calls"]), hot, cold)
    except (ValueError, KeyError, TypeError) as error:
        raise Malformed(f"{place}: a damaged count of uses ({error}); run it again") from None
