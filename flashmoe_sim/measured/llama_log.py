"""Logs of llama.cpp's and ik_llama.cpp's programs: llama-cli, llama-server and others that print the same timings.

Source: ggml-org/llama.cpp src/llama-context.cpp and tools/server; ikawrakow/ik_llama.cpp 8337e4cd3, src/llama.cpp,
src/llama-load-tensors.cpp and examples/server/server-context.cpp.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from flashmoe_sim.measured.placement import IK, settings_of_command, system_of
from flashmoe_sim.measured.value import MOST_TOKENS, FoundSpeeds, Measured, quant_of

MOST_LINE = 4000  # letters; a longer line is no line of a log
FEW_ON_CPU = 0.15  # share of a model's bytes beside its experts, such as the embedding of its tokens

_N, _X = r"(\d{1,12})", r"(\d{1,12}(?:\.\d{1,12})?)"
_TIMING = re.compile(rf"(prompt )?eval time\s*=\s*{_X} ms\s*/\s*{_N} (?:tokens|runs)\s*\(\s*{_X} ms per token")
_SHORT = re.compile(rf"\[ Prompt: {_X} t/s \| Generation: {_X} t/s \]")
_COMMAND = re.compile(
    r"(?:^|[\s/\\.])(?:llama-(?:cli|server|completion|run|bench|main)|main|server)(?:\.exe)?[\"']?\s+-"
)
_LOADED = re.compile(r"loaded meta data with \d+ key-value pairs and \d+ tensors from (.+?)(?: \(version|$)")
_OFFLOADED = re.compile(rf"offloaded {_N}/{_N} layers to GPU")
_OVERRIDDEN = re.compile(rf"[Tt]ensor blk\.{_N}\.(\S+)\.(weight|bias) .*?buffer type overridd?en to (\w+)")
_EXPERTS = re.compile(r"ffn_(gate|up|down|gate_up)_exps")
_BUFFER = re.compile(rf"load_tensors:\s+(\S+)\s+(?:model )?buffer size =\s*{_X} MiB")
_DEVICE = re.compile(r"using device ([A-Za-z]+)\d* \(([^)]*)\)")
_INFO = re.compile(r"(?:print_info|llm_load_print_meta): (file type|model ftype|general\.name|n_layer)\s*= (.+)")
_CONTEXT = re.compile(
    r"(?:llama_context|llama_init_from_model|llama_new_context_with_model): (n_ubatch|n_batch|flash_attn)\s*= (\S+)"
)
_THREADS = re.compile(rf"n_threads = {_N}")
_KV = re.compile(r"K \((\w+)\):.*V \((\w+)\):")
_TASK = re.compile(rf"slot +(launch_slot_|print_timing|release): id +{_N} \| task {_N}")
_RELEASE = re.compile(r"slot +release:")
_RELEASED = re.compile(rf"stop processing: n_tokens = {_N}")
_DRAFTS = re.compile(rf"draft acceptance(?: rate)? = {_X}")


def detect(text: str) -> bool:
    return _TIMING.search(text) is not None or _SHORT.search(text) is not None


@dataclass
class TimingLine:
    """One line of timings. task: the request that it belongs to, if the log numbers them."""

    line: int
    prompt: bool
    tokens: int | None
    tok_s: float
    task: str = ""
    depth: int = 0
    drafts: str = ""
    settings: dict[str, str] = field(default_factory=dict)


@dataclass
class State:
    """What the log has said so far. command, load: settings of the program's start, and of the model's last loading."""

    command: dict[str, str] = field(default_factory=dict)
    load: dict[str, str] = field(default_factory=dict)
    on_cpu: dict[int, set[str]] = field(default_factory=dict)
    elsewhere: bool = False
    buffers: dict[str, float] = field(default_factory=dict)
    task: str = ""
    active: set[str] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)

    def settings(self) -> dict[str, str]:
        """The settings in force."""
        settings = {**self.load, **self.command}
        settings |= {name: self.load[name] for name in ("n_gpu_layers", "layers") if name in self.load}
        if not self.buffers and "backend" not in settings:
            return settings
        on_gpu = {name for name in self.buffers if not _of_cpu(name)}
        if self.buffers and not on_gpu:
            settings["backend"] = "CPU"
        if "n_cpu_moe" in settings or "overrides" in settings:
            return settings
        return settings | self._experts(sum(self.buffers[name] for name in on_gpu))

    def _experts(self, gpu_mib: float) -> dict[str, str]:
        """Where the log says that the experts went, if no flag of the command does."""
        families = max((len(found) for found in self.on_cpu.values()), default=0)
        if self.elsewhere or any(len(found) < families for found in self.on_cpu.values()):
            return {"elsewhere": "has the experts of a layer in several places, which no system does"}
        if self.on_cpu:
            layers = "|".join(map(str, sorted(self.on_cpu)))
            return {"overrides": rf"blk\.({layers})\.ffn_(gate|up|down|gate_up)_exps=CPU"}
        cpu_mib = sum(mib for name, mib in self.buffers.items() if _of_cpu(name))
        if gpu_mib and cpu_mib > FEW_ON_CPU * (cpu_mib + gpu_mib):
            return {"elsewhere": f"has {cpu_mib / 1024:.1f} GiB of the model in RAM, and does not say of which layers"}
        return {}


def _of_cpu(buffer: str) -> bool:
    return buffer.startswith("CPU") or buffer.endswith("_Host")


def read(text: str, where: str) -> FoundSpeeds:
    """Each timing of a request, with the settings that the log told before it."""
    state, timings = State(), list[TimingLine]()
    lines = [line[:MOST_LINE] for line in text.split("\n")]
    for number, line in enumerate(lines, 1):
        _note(state, line, lines, number)
        _time(state, timings, line, number)
    if not _RELEASE.search(text):
        state.shared = set()  # without these lines nobody knows
    if any(timing.tokens is not None for timing in timings):  # the short line says the same again
        timings = [timing for timing in timings if timing.tokens is not None]
    engine = IK if "ik_llama" in text or "fused_moe" in text else "llama.cpp"
    found = FoundSpeeds()
    for timing in timings:
        _add(found, timing, state, f"{where}: line {timing.line}", engine)
    return found


def _note(state: State, line: str, lines: list[str], number: int) -> None:
    """Note a setting that the line tells."""
    if _COMMAND.search(line):
        command = line
        for more in lines[number : number + 40] if line.rstrip().endswith(("\\", "`", "^")) else ():
            command = f"{command.rstrip()[:-1]} {more}"
            if not more.rstrip().endswith(("\\", "`", "^")):
                break
        state.command, state.load = settings_of_command(command), {}
        return
    if match := _LOADED.search(line):
        kept = {name: state.load[name] for name in ("backend", "gpu", "threads") if name in state.load}
        state.load, state.on_cpu, state.buffers, state.elsewhere = kept | {"model": match[1].strip()}, {}, {}, False
    elif match := _OFFLOADED.search(line):
        state.load |= {"n_gpu_layers": match[1], "layers": match[2]}
    elif match := _OVERRIDDEN.search(line):
        if not (match[4].startswith("CPU") and _EXPERTS.fullmatch(match[2])):
            state.elsewhere = True
        elif match[3] == "weight":
            state.on_cpu.setdefault(int(match[1]), set()).add(match[2])
    elif match := _BUFFER.search(line):
        state.buffers[match[1]] = state.buffers.get(match[1], 0.0) + float(match[2])
    elif match := _DEVICE.search(line):
        state.load |= {"backend": match[1], "gpu": match[2]}
    elif match := _INFO.search(line):
        name = {"general.name": "name", "n_layer": "n_layer"}.get(match[1], "type")
        state.load[name] = match[2].strip()
    elif match := _CONTEXT.search(line):
        state.load[match[1].removeprefix("n_")] = match[2]
    elif "system_info" in line and (match := _THREADS.search(line)):
        state.load["threads"] = match[1]
    elif "KV" in line and (match := _KV.search(line)):
        state.load |= {"type_k": match[1], "type_v": match[2]}


def _time(state: State, timings: list[TimingLine], line: str, number: int) -> None:
    """Note a timing that the line has, or what it says of earlier ones."""
    if match := _TASK.search(line):
        state.task = match[3]
        if match[1] == "launch_slot_":
            state.active.add(match[3])
            if len(state.active) > 1:  # when the second came, both were noted
                state.shared |= state.active if len(state.active) == 2 else {match[3]}
        elif match[1] == "release":
            state.active.discard(match[3])
            if end := _RELEASED.search(line):
                _deepen([timing for timing in timings[-16:] if timing.task == match[3]], int(end[1]))
    if match := _TIMING.search(line):
        tok_s = 1e3 * int(match[3]) / float(match[2]) if float(match[2]) else 0.0
        timing = TimingLine(number, bool(match[1]), int(match[3]), tok_s, state.task)
        if timings and not timing.prompt and timings[-1].prompt and timings[-1].task == timing.task:
            timing.depth = timings[-1].tokens or 0
        timing.settings = state.settings()
        timings.append(timing)
    elif match := _SHORT.search(line):
        for prompt, speed in ((True, match[1]), (False, match[2])):
            timings.append(TimingLine(number, prompt, None, float(speed), settings=state.settings()))
    elif (match := _DRAFTS.search(line)) and timings:
        timings[-1].drafts = match[1]


def _deepen(timings: list[TimingLine], end: int) -> None:
    """Set the depths of a request's last timings from the tokens in the context at its end."""
    decoded = next((timing for timing in reversed(timings) if not timing.prompt), None)
    if decoded is None or decoded.tokens is None or end < decoded.tokens:
        return
    decoded.depth = end - decoded.tokens
    prompt = next((timing for timing in reversed(timings) if timing.prompt and timing.line < decoded.line), None)
    if prompt is not None and prompt.tokens is not None:
        prompt.depth = max(0, decoded.depth - prompt.tokens)


def _add(found: FoundSpeeds, timing: TimingLine, state: State, where: str, engine: str) -> None:
    if timing.tokens is not None and not found.enough(timing.tokens, where, prompt=timing.prompt):
        return
    if timing.tok_s == 0.0:
        found.left_out.append(
            f"{where}: the {'prompt' if timing.prompt else 'answer'} has no time; measure more tokens"
        )
        return
    if timing.task in state.shared:
        found.left_out.append(f"{where}: this request shared the engine with others; measure one at a time")
        return
    settings = timing.settings
    if timing.drafts:
        settings = settings | {
            "drafts": timing.drafts,
            "elsewhere": f"was measured with drafts ({timing.drafts} accepted)",
        }
    model = settings.get("model") or settings.get("name", "")
    system, unplaced = system_of(settings, engine=engine, prompt=timing.prompt)
    found.measured.append(
        Measured(
            where=where,
            engine=engine,
            system=system,
            unplaced=unplaced,
            model=model,
            quant=quant_of(model, settings.get("type", "")),
            depth=min(timing.depth, MOST_TOKENS),
            prompt=timing.prompt,
            tokens=timing.tokens,
            tok_s=timing.tok_s,
            settings={
                name: value for name, value in settings.items() if name not in ("model", "name", "type", "n_layer")
            },
        )
    )
