"""Logs of llama.cpp's and ik_llama.cpp's programs: llama-cli, llama-server and others that print the same timings.

Source: ggml-org/llama.cpp src/llama-context.cpp and tools/server; ikawrakow/ik_llama.cpp 8337e4cd3, src/llama.cpp,
src/llama-load-tensors.cpp and examples/server/server-context.cpp.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from flashmoe_sim.io.sizes import parse_size
from flashmoe_sim.measured.dress import NUMBER, figure, two_meanings
from flashmoe_sim.measured.placement import IK, settings_of_command, system_of
from flashmoe_sim.measured.value import FEW_DECODED, FEW_PROMPT, MOST_TOKENS, FoundSpeeds, Measured, quant_of
from flashmoe_sim.measured.which import likeliest

MOST_LINE = 4000  # letters; a longer line is no line of a log
FEW_ON_CPU = 0.15  # share of a model's bytes beside its experts, such as the embedding of its tokens

_N, _X = r"(\d{1,12})", r"(\d{1,12}(?:\.\d{1,12})?)"
_TIMING = re.compile(rf"(prompt )?eval time\s*=\s*{NUMBER} ms\s*/\s*{_N} (?:tokens|runs)\s*\(\s*{NUMBER} ms per token")
_SHORT = re.compile(rf"\[ Prompt: {NUMBER} t/s \| Generation: {NUMBER} t/s \]")
# What the lines of several programs, servers or containers begin with in one log.
_STREAM = re.compile(r"\[(\d{4,5})\] |([\w.-]+)\s+\| |[A-Z][a-z]{2} [ \d]\d [\d:]{8} \S+ ([^\s:]+\[\d+\]):")
_COMMAND = re.compile(
    r"(?:^|[\s/\\.])(?:llama-(?:cli|server|completion|run|bench|main)|main|server)(?:\.exe)?[\"']?\s+-"
)
_START = re.compile(r"\bbuild: \d+ \(|\bbuild = \d+ \(|\bbuild info \|")
_OTHER = re.compile(  # programs that do not answer one prompt, by their command or by what they print
    r"(?:^|[\s/\\.])(llama-(?:perplexity|imatrix|batched-bench|batched|parallel|embedding|retrieval|lookahead"
    r"|cvector-generator|finetune|passkey))(?:\.exe)?[\"']?\s+-"
    r"|\b(perplexity|compute_imatrix|hellaswag_score|winogrande_score|multiple_choice_score|kl_divergence): "
    r"|^Final estimate: (PPL)\b"
)
_CHUNKS = re.compile(r"over (\d+) chunks, n_ctx=(\d+)")
_LOADED = re.compile(
    r"llama_model_loader: loaded meta data with \d+ key-value pairs and \d+ tensors from (.+?)(?: \(version|$)"
)
_DRAFTER_NEXT = re.compile(r"load(?:ing)?[ _]draft[ _]model", re.IGNORECASE)
_OFFLOADED = re.compile(rf"offloaded {_N}/{_N} layers to GPU")
_OVERRIDDEN = re.compile(rf"[Tt]ensor blk\.{_N}\.(\S+)\.(weight|bias) .*?buffer type overridd?en to (\w+)")
_EXPERTS = re.compile(r"ffn_(gate|up|down|gate_up)_exps")
_BUFFER = re.compile(rf"load_tensors:\s+(\S+)\s+(?:model )?buffer size =\s*{_X} MiB")
_DEVICE = re.compile(r"using device ([A-Za-z]+)\d* \(([^)]*)\)")
_INFO = re.compile(
    r"(?:print_info|llm_load_print_meta): (file type|model ftype|general\.name|n_layer|arch|n_expert|n_expert_used)"
    r"\s*= (.+)"
)
NAMES = {  # of what the log says of a model, in `Measured.settings` or for its name and quantization
    "general.name": "name",
    "n_layer": "n_layer",
    "arch": "arch",
    "n_expert": "experts",
    "n_expert_used": "experts_used",
}
NO_SETTINGS = ("model", "file", "file_size", "name", "type", "n_layer", "n_ctx", "experts_reduced")
_FILE_SIZE = re.compile(rf"(?:print_info: file size|llm_load_print_meta: model size)\s*= {_X} ([MG]iB)")
_EXPERTS_USED = re.compile(rf"metadata override .*expert_used_count' = {_N}")
_CONTEXT = re.compile(
    r"(?:llama_context|llama_init_from_model|llama_new_context_with_model): "
    r"(?:n_(ubatch|batch|ctx)\s*= (\d{1,12})\b|(flash_attn)\s*= (\S+))"
)
_THREADS = re.compile(rf"n_threads = {_N}")
_KV = re.compile(r"K \((\w+)\):.*V \((\w+)\):")
# A slot's step and request, as llama.cpp prints them, and as ik_llama.cpp and llama.cpp of 2024 do.
_SLOT = re.compile(
    rf"slot +(\w+): id +{_N} \| task {_N}|\[ *(launch_slot\w*|release_slots|update_slots|print_timings)\]"
    rf".*\bid_slot={_N} id_task={_N}"
)
_RELEASE = re.compile(r"slot +release:|\brelease_slots\]")
_CACHED = re.compile(rf"(?:kv cache rm|memory_seq_rm) \[(?:p0|{_N}), end\)(?:.*\bp0={_N})?")
_WHOLE_PROMPT = re.compile(
    rf"new prompt,.*(?:n_prompt_tokens|task\.n_tokens) = {_N}"
    rf"|prompt (?:done|processing progress), n_(?:past|tokens) = {_N}"
)
_ENDED = re.compile(rf"stop processing: n_(?:tokens|past) = {_N}|slot released\b.*\bn_past={_N}")
_DRAFTS = re.compile(rf"draft acceptance(?: rate)? = {_X}")
DRAFTED = "was measured with drafts"


def detect(text: str) -> bool:
    return _TIMING.search(text) is not None or _SHORT.search(text) is not None


@dataclass
class LoggedRequest:
    """What the log says of a request.

    cached, prompt: tokens of its prompt that were in the context before, and all. end: in the context at its end.
    at_once: whether the engine had another one meanwhile.
    """

    slot: str = ""
    cached: int | None = None
    prompt: int | None = None
    end: int | None = None
    at_once: bool = False


@dataclass
class TimingLine:
    """One line of timings, with the settings in force. prompt_tokens, answer_tokens: timed of the same request."""

    line: int
    prompt: bool
    tokens: int | None
    tok_s: float | None
    request: LoggedRequest
    settings: dict[str, str]
    other_work: str = ""
    number: str = ""
    drafts: str = ""
    prompt_tokens: int = 0
    answer_tokens: int = 0


@dataclass
class Load:
    """A model that the log says was loaded. beside: whether it only drafts, or sees, for another one."""

    settings: dict[str, str] = field(default_factory=dict)
    on_cpu: dict[int, set[str]] = field(default_factory=dict)
    buffers: dict[str, float] = field(default_factory=dict)
    elsewhere: bool = False
    beside: str = ""


@dataclass
class State:
    """What the log has said so far of one program.

    command, common: settings of its command line, and of its start. loads: since the last timing or start, the last one
    last. other_work: why its timings are not of one prompt.
    """

    command: dict[str, str] = field(default_factory=dict)
    common: dict[str, str] = field(default_factory=dict)
    loads: list[Load] = field(default_factory=list)
    drafter_next: bool = False
    timed: bool = False
    other_work: str = ""
    task: str = ""
    requests: dict[str, LoggedRequest] = field(default_factory=dict)
    active: dict[str, LoggedRequest] = field(default_factory=dict)

    @property
    def load(self) -> Load:
        """The model that was loaded last."""
        if not self.loads:
            self.loads.append(Load())
        return self.loads[-1]

    def loaded(self, file: str) -> None:
        """Note that a model is loaded: a second time, after another one, or beside it."""
        drafter = self.command.get("drafter", "")
        beside = "mmproj" if "mmproj" in file.lower() else ""
        if self.drafter_next or (drafter and re.split(r"[/\\]", file)[-1] == re.split(r"[/\\]", drafter)[-1]):
            beside = "drafter"
        if self.timed and not beside:
            self.loads, self.timed, self.other_work = [], False, ""
        self.loads = [load for load in self.loads if load.settings.get("file", file) != file]
        self.loads.append(Load({"file": file}, beside=beside))
        self.drafter_next = False

    def settings(self) -> dict[str, str]:
        """The settings in force, of the model that answers."""
        answering = [load for load in self.loads if not load.beside] or [Load()]
        load = max(answering, key=lambda one: sum(one.buffers.values()))
        settings = {**self.common, **load.settings, **self.command}
        settings |= {name: load.settings[name] for name in ("n_gpu_layers", "layers") if name in load.settings}
        names = (load.settings.get("file", ""), self.command.get("model", ""), load.settings.get("name", ""))
        settings["model"] = likeliest(names)
        if len(answering) > 1 or any(one.beside == "drafter" for one in self.loads):
            settings["elsewhere"] = DRAFTED
        if not load.buffers and "backend" not in settings:
            return settings
        on_gpu = {name for name in load.buffers if not _of_cpu(name)}
        if load.buffers and not on_gpu:
            settings["backend"] = "CPU"
        if "n_cpu_moe" in settings or "overrides" in settings or "elsewhere" in settings:
            return settings
        return settings | _experts(load, sum(load.buffers[name] for name in on_gpu))


def _experts(load: Load, gpu_mib: float) -> dict[str, str]:
    """Where the log says that the experts went, if no flag of the command does."""
    families = max((len(found) for found in load.on_cpu.values()), default=0)
    if load.elsewhere or any(len(found) < families for found in load.on_cpu.values()):
        return {"elsewhere": "has the experts of a layer in several places, which no system does"}
    if load.on_cpu:
        layers = "|".join(map(str, sorted(load.on_cpu)))
        return {"overrides": rf"blk\.({layers})\.ffn_(gate|up|down|gate_up)_exps=CPU"}
    cpu_mib = sum(mib for name, mib in load.buffers.items() if _of_cpu(name))
    if gpu_mib and cpu_mib > FEW_ON_CPU * (cpu_mib + gpu_mib):
        return {"elsewhere": f"has {cpu_mib / 1024:.1f} GiB of the model in RAM, and does not say of which layers"}
    return {}


def _of_cpu(buffer: str) -> bool:
    return buffer.startswith("CPU") or buffer.endswith("_Host")


def read(text: str, where: str) -> FoundSpeeds:
    """Each timing of a request, with the settings that the log told before it."""
    states, timings = {"": State()}, list[TimingLine]()
    lines = [line[:MOST_LINE] for line in text.split("\n")]
    for number, line in enumerate(lines, 1):
        match = _STREAM.match(line)
        stream = (match[1] or match[2] or match[3]) if match else ""
        state = states.setdefault(stream, State(command=dict(states[""].command)))
        _note(state, line, lines, number)
        _follow(state, line)
        for timing in _timed(state, line, number):
            previous = timings[-1] if timings else None
            if previous and previous.prompt and not timing.prompt and previous.request is timing.request:
                timing.prompt_tokens, previous.answer_tokens = previous.tokens or 0, timing.tokens or 0
            timings.append(timing)
        if (drafted := _DRAFTS.search(line)) and timings:
            timings[-1].drafts = drafted[1]
    if any(timing.tokens is not None for timing in timings):  # the short line says the same again
        timings = [timing for timing in timings if timing.tokens is not None]
    engine = IK if "ik_llama" in text or "fused_moe" in text else "llama.cpp"
    released = _RELEASE.search(text) is not None  # without these lines nobody knows what ran at once
    found = FoundSpeeds()
    for timing in timings:
        timing.request.at_once = timing.request.at_once and released
        _add(found, timing, f"{where}: line {timing.line}", engine)
    return found


def _note(state: State, line: str, lines: list[str], number: int) -> None:
    """Note a setting that the line tells."""
    if _COMMAND.search(line):
        command = line
        for more in lines[number : number + 40] if line.rstrip().endswith(("\\", "`", "^")) else ():
            command = f"{command.rstrip()[:-1]} {more}"
            if not more.rstrip().endswith(("\\", "`", "^")):
                break
        state.command, state.loads, state.timed, state.other_work = settings_of_command(command), [], False, ""
        return
    if _START.search(line):
        state.command = {} if state.timed else state.command
        state.loads, state.timed, state.requests, state.active = [], False, {}, {}
        state.other_work = "" if state.timed else state.other_work
    if match := _OTHER.search(line):
        chunks = _CHUNKS.search(line)
        more = f", {int(chunks[1]):,} chunks of {chunks[2]} tokens" if chunks else ""
        if chunks or not state.other_work:
            state.other_work = f"is of {match[1] or match[2] or match[3]}{more}, not of one prompt"
    if match := _LOADED.search(line):
        state.loaded(match[1].strip())
    elif _DRAFTER_NEXT.search(line):
        state.drafter_next = True
    elif match := _OFFLOADED.search(line):
        state.load.settings |= {"n_gpu_layers": match[1], "layers": match[2]}
    elif match := _OVERRIDDEN.search(line):
        if not (match[4].startswith("CPU") and _EXPERTS.fullmatch(match[2])):
            state.load.elsewhere = True
        elif match[3] == "weight":
            state.load.on_cpu.setdefault(int(match[1]), set()).add(match[2])
    elif match := _BUFFER.search(line):
        state.load.buffers[match[1]] = state.load.buffers.get(match[1], 0.0) + float(match[2])
    elif match := _DEVICE.search(line):
        state.common |= {"backend": match[1], "gpu": match[2]}
    elif match := _INFO.search(line):
        state.load.settings[NAMES.get(match[1], "type")] = match[2].strip()
    elif match := _FILE_SIZE.search(line):
        state.load.settings["file_size"] = f"{match[1]}{match[2]}"
    elif match := _EXPERTS_USED.search(line):
        state.load.settings["experts_used"] = match[1]
    elif match := _CONTEXT.search(line):
        state.load.settings[(match[1] or match[3]).replace("ctx", "n_ctx")] = match[2] or match[4]
    elif "system_info" in line and (match := _THREADS.search(line)):
        state.common["threads"] = match[1]
    elif "KV" in line and (match := _KV.search(line)):
        state.load.settings |= {"type_k": match[1], "type_v": match[2]}


def _follow(state: State, line: str) -> None:
    """Note what the line says of a request."""
    if match := _SLOT.search(line):
        state.other_work = ""
        step, slot, state.task = match[1] or match[4], match[2] or match[5], match[3] or match[6]
        if step.startswith("launch_slot"):
            state.requests[state.task] = LoggedRequest(slot)
        request = state.requests.setdefault(state.task, LoggedRequest(slot))
        if step.startswith("launch_slot"):
            state.active = {task: one for task, one in state.active.items() if one.slot != slot} | {state.task: request}
            for one in state.active.values() if len(state.active) > 1 else ():
                one.at_once = True
        elif step.startswith("release"):
            state.active.pop(state.task, None)
        if match := _ENDED.search(line):
            request.end = int(match[1] or match[2])
        if match := _WHOLE_PROMPT.search(line):
            request.prompt = max(request.prompt or 0, int(match[1] or match[2]))
        match = _CACHED.search(line)
        if match and (match[1] or match[2]) and request.cached is None:  # a later one is of a later part of the prompt
            request.cached = int(match[1] or match[2])


def _timed(state: State, line: str, number: int) -> Iterator[TimingLine]:
    """The timings that the line has."""
    match, short = _TIMING.search(line), _SHORT.search(line)
    if match is None and short is None:
        return
    request, settings = state.requests.setdefault(state.task, LoggedRequest()), state.settings()
    state.timed = True
    if match is not None:
        ms, tokens = figure(match[2]), int(match[3])
        tok_s = None if ms is None else 1e3 * tokens / ms if ms else 0.0
        yield TimingLine(number, bool(match[1]), tokens, tok_s, request, settings, state.other_work, match[2])
        state.other_work = state.other_work if match[1] else ""  # the last line of a run
    elif short is not None:
        for prompt, speed in ((True, short[1]), (False, short[2])):
            yield TimingLine(number, prompt, None, figure(speed), request, settings, state.other_work, speed)


def _depth(timing: TimingLine) -> int:
    """Tokens in the context before the first timed one."""
    request, tokens = timing.request, timing.tokens or 0
    whole = request.prompt
    if timing.prompt:
        if request.cached is not None:
            return request.cached
        whole = whole or (request.end or 0) - timing.answer_tokens
        return max(whole - tokens, 0)
    if request.cached is not None and timing.prompt_tokens:
        return request.cached + timing.prompt_tokens
    if whole is not None:
        return whole
    if request.end is not None and request.end >= tokens:
        return request.end - tokens
    return timing.prompt_tokens


def _no_use(timing: TimingLine) -> str:
    """Why a timing is none of a whole model's answer to one prompt, or empty."""
    settings, tokens = timing.settings, timing.tokens or 0
    most, reduced = int(settings.get("n_ctx", 0)), settings.get("experts_reduced", "")
    if timing.other_work:
        return timing.other_work
    if timing.tok_s is None:
        return two_meanings(timing.number)
    if timing.tok_s == 0.0 and tokens >= (FEW_PROMPT if timing.prompt else FEW_DECODED):
        return f"the {'prompt' if timing.prompt else 'answer'} has no time; measure more tokens"
    if timing.request.at_once:
        return "this request shared the engine with others; measure one at a time"
    if timing.prompt and 0 < most < tokens:
        return f"{tokens:,} tokens in a context of {most:,} are not one prompt"
    if reduced and not reduced.startswith(("-", "0")):
        return f"computes fewer experts than the model (-ser {reduced})"
    return ""


def _add(found: FoundSpeeds, timing: TimingLine, where: str, engine: str) -> None:
    settings = timing.settings
    if why := _no_use(timing):
        found.left_out.append(f"{where}: {why}")
        return
    if timing.tok_s is None or (
        timing.tokens is not None and not found.enough(timing.tokens, where, prompt=timing.prompt)
    ):
        return
    if timing.drafts:
        settings = settings | {"drafts": timing.drafts, "elsewhere": f"{DRAFTED} ({timing.drafts} accepted)"}
    model = settings["model"]
    system, unplaced = system_of(settings, engine=engine, prompt=timing.prompt)
    found.measured.append(
        Measured(
            where=where,
            engine=engine,
            system=system,
            unplaced=unplaced,
            model=model,
            model_bytes=parse_size(settings["file_size"]) if "file_size" in settings else None,
            quant=quant_of(model, settings.get("type", "")),
            depth=min(_depth(timing), MOST_TOKENS),
            prompt=timing.prompt,
            tokens=timing.tokens,
            tok_s=timing.tok_s,
            settings={name: value for name, value in settings.items() if name not in NO_SETTINGS},
        )
    )
