"""What a log of llama.cpp's programs has said up to a line: settings, loaded models, and requests."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from flashmoe_sim.measured.which import likeliest
from flashmoe_sim.systems.llama_flags import settings_of_command

FEW_ON_CPU = 0.15  # share of a model's bytes beside its experts, such as the embedding of its tokens
_N, _X = r"(\d{1,12})", r"(\d{1,12}(?:\.\d{1,12})?)"
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
_DRAFTS_BY_ITSELF = re.compile(
    r"(?:^|[\s/\\.])llama-(?:lookup|speculative)[\w-]*(?:\.exe)?[\"']?\s+-|\bn_drafted\s*=\s*[1-9]"
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
_CACHED = re.compile(rf"(?:kv cache rm|memory_seq_rm) \[(?:p0|{_N}), end\)(?:.*\bp0={_N})?")
_WHOLE_PROMPT = re.compile(
    rf"new prompt,.*(?:n_prompt_tokens|task\.n_tokens) = {_N}"
    rf"|prompt (?:done|processing progress), n_(?:past|tokens) = {_N}"
)
_ENDED = re.compile(rf"stop processing: n_(?:tokens|past) = {_N}|slot released\b.*\bn_past={_N}")
DRAFTED = "was measured with drafts"


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


def note(state: State, line: str, lines: list[str], number: int) -> None:
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
    if _DRAFTS_BY_ITSELF.search(line):
        state.command["elsewhere"] = DRAFTED
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


def follow(state: State, line: str) -> None:
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
