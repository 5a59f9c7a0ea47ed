"""A log line by line, and then as one value."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from flashmoe_sim.io.errors import BadInput, Malformed, Unusable
from native_bridge.engines.flashmoe.log.failure import exhausted_of, failure_of, overflow_of
from native_bridge.engines.flashmoe.log.llama_cpp import LlamaCppLines, take_llama_cpp, take_placement
from native_bridge.engines.flashmoe.log.summary import (
    AHEAD,
    ALL_HIT_PRIME,
    RESIDENT_PRIME,
    counters_of,
    layer_of,
    prime_of,
    repairs_of,
    routed_of,
)
from native_bridge.engines.flashmoe.log.text import bare
from native_bridge.engines.flashmoe.modes import (
    MODES_WITHOUT_SLOTS,
    bypass_of,
    prefetch_of,
    unknown_of,
    what_is_unknown,
)
from native_bridge.engines.run_log import LayerLine, Placement, Routed, RunLog
from native_bridge.engines.run_log import Lines as Counters

T = TypeVar("T")
LEAST_TOK_S, MOST_TOK_S = 0.1, 1e9  # speeds are printed with one decimal

# Later builds add the numbers of tokens.
SPEED = re.compile(r"\[ Prompt: ([\d.]+) t/s \| Generation: ([\d.]+) t/s \](?: \[ tokens - .*\])?")
_SETTING = re.compile(r"  ([\w/-]+(?: [\w-]+)*) *= (.+)")
_SUMMARY = "log_runtime_summary: Flash-MoE "
_LAYER = re.compile(r"(?:layer-residency )?layer(?:=| (?=\d))")  # with a space in debug lines
_KIND = re.compile(r"([\w -]+?)(?: summary| breakdown)? [\w/-]+=")

# The settings it prints, which are recognised even if a line of output came between them.
_SETTINGS = {
    "mode",
    "sidecar",
    "slot-bank",
    "topk-override",
    "cache-io-split",
    "prefetch-temporal",
    "predict-prev-token",
    "predict-top1-prev",
    "shared-only",
    "trace-harness",
    "n_gpu_layers",
    "gpu-bank",
    "ds2/kimi-gpu-bank",
    "parallel-reads",
    "async-upload",
    "mixed-slot-buffer",
    "metal-slot-decode",
    "metal-split-glu",
    "metal-disable-mm",
    "metal-disable-mm-id",
    "metal-disable-generic-mm",
    "metal-disable-op-mul-mat",
    "metal-disable-op-mul-mat-id",
    "metal-disable-op-get-rows",
    "metal-disable-routed",
    "metal-routed-only",
    "metal-disable-routed-post",
    "metal-disable-routed-types",
    "metal-disable-shared-types",
    "cpu-vis-writes",
}

# Lines that name Flash-MoE but add nothing to other lines.
_NOTICES = (
    "Flash-MoE trace harness",
    "will split expert preads",
    "mixed slot staging is enabled",
    "resident packed-bank files",
    "keeps warmup on the routed top-k path",
    "GPU-bank placement is enabled for mode",
    "host-backed routed bank path",
    "ignoring Flash-MoE sidecar",
    "applied Flash-MoE sidecar overrides",
    "slot-bank filtered",
    "slot-bank virtualized",
    "slot-bank uses span-sanity checks",
    "compact Flash-MoE dense GGUF",
    "come from the Flash-MoE sidecar path",
    "Flash-MoE routed tensor entries",
    "defaulting Flash-MoE slot-bank GPU runs",
    "Flash-MoE sidecar runs keep --fit on",
    "Flash-MoE sparse virtual-bank mapping reserved",
    "Flash-MoE async slot uploads enabled",
    "loaded Flash-MoE oracle trace",
    "Flash-MoE layer-major prefill",
    "Flash-MoE prefill:",
    "Flash-MoE profile (",
)

_OPTIONAL = ("install", *AHEAD, "overlap", RESIDENT_PRIME)  # a fit can do without them
_NEEDED = ("routed", "residency", ALL_HIT_PRIME)


@dataclass
class Lines:
    """What was found so far; if a line occurs twice, the last one counts.

    found: place and line, by kind. counters: as printed. faults: errors of damaged lines that a fit needs.
    failure: the first certain one; complaint: one that may be the model's. headed, in_settings: after the
        settings' heading, and right after it or one of them. in_prefill: within the summary of a prompt's scratch.
    """

    where: str
    settings: dict[str, str] = field(default_factory=dict)
    found: dict[str, tuple[str, str]] = field(default_factory=dict)
    counters: Counters = field(default_factory=dict)
    layers: dict[int, LayerLine] = field(default_factory=dict)
    llama_cpp: LlamaCppLines = field(default_factory=LlamaCppLines)
    placement: Placement = field(default_factory=Placement)
    unread: list[str] = field(default_factory=list)
    faults: list[BadInput] = field(default_factory=list)
    failure: str | None = None
    complaint: str | None = None
    headed: bool = False
    in_settings: bool = False
    in_prefill: bool = False


def read_lines(text: str, where: str) -> Lines:
    """Every line of a log. where: its file, for messages."""
    lines = Lines(where)
    for number, line in enumerate(text.split("\n"), 1):
        _take(lines, f"{where}: line {number}", bare(line))
    return lines


def _take(lines: Lines, place: str, line: str) -> None:
    if setting := _SETTING.fullmatch(line):
        name, value = setting.groups()
        interrupted = lines.headed and name in _SETTINGS and name not in lines.settings
        if lines.in_settings or interrupted:
            lines.settings[name] = value
            return
    # The model's text may look like a setting, and its last line may precede the heading.
    lines.in_settings = line.endswith("Flash-MoE settings:")
    if lines.in_settings:
        lines.headed = True
        return
    if _SUMMARY in line:
        _take_summary(lines, place, line.partition(_SUMMARY)[2])
    elif SPEED.fullmatch(line):
        lines.found["speed"] = place, line
    elif (llama_cpp := take_llama_cpp(lines.llama_cpp, line)) is not None:
        lines.llama_cpp = llama_cpp
    elif (placement := take_placement(lines.placement, line)) is not None:
        lines.placement = placement
    else:
        _take_rest(lines, line)


def _take_summary(lines: Lines, place: str, rest: str) -> None:
    """A line of the summary, without the names before it; later builds have one of their own for a prompt's scratch."""
    if rest.startswith("routed "):
        lines.in_prefill = rest.startswith("routed src=prefill")
    if lines.in_prefill:
        lines.unread.append(f"{_SUMMARY}{rest}")
        return
    kind = found[1] if (found := _KIND.match(rest)) else ""
    if "overlap=" in rest:
        kind = "overlap"
    if _LAYER.match(rest):
        rest = _LAYER.sub("layer=", rest, count=1)
        try:
            layer = layer_of(place, rest)
            lines.layers[layer.layer] = layer
            _count(lines, place, "layer", rest)
        except BadInput as error:
            lines.faults.append(error)
    elif kind in _NEEDED:
        lines.found[kind] = place, rest
    elif kind in _OPTIONAL:
        try:
            _count(lines, place, kind, rest)
        except BadInput:
            lines.unread.append(f"{_SUMMARY}{rest}")
    else:
        lines.unread.append(f"{_SUMMARY}{rest}")


def _count(lines: Lines, place: str, kind: str, rest: str) -> None:
    for name, values in counters_of(place, kind, rest).items():
        lines.counters.setdefault(name, {}).update(values)


def _take_rest(lines: Lines, line: str) -> None:
    """A failure, a count of repairs, or any other line that names Flash-MoE."""
    failure, certain = failure_of(line)
    if failure is not None and certain:
        lines.failure = lines.failure or failure
    elif failure is not None:
        lines.complaint = lines.complaint or failure
    elif (repairs := repairs_of(line)) is not None:
        lines.counters["repaired"] = {"records": repairs}
    elif "Flash-MoE" in line and not any(notice in line for notice in _NOTICES):
        lines.unread.append(line)


def read_log(text: str, *, mode: str, where: str, extra: Sequence[str], failed_too: bool = False) -> RunLog:
    """The content of the log of a run in this mode; without routed experts, by a flag, there are no counters.

    where: its file, for messages. extra: the flags of the run. failed_too: as far as the log goes, even for a failed
    run: missing or damaged parts are its `failure`.
    Raises BadInput for a log without its summary or its speed, which a crashed run leaves, or with damaged numbers.
    """
    lines = read_lines(text, where)
    faults = list(lines.faults)

    def tried(read: Callable[[], T]) -> T | None:
        try:
            return read()
        except BadInput as error:
            faults.append(error)
        return None

    prompt_tok_s, decode_tok_s = tried(lambda: _speeds(lines)) or (0.0, 0.0)
    bypass = bypass_of(extra, lines.settings)
    routed = None if bypass or mode in MODES_WITHOUT_SLOTS else tried(lambda: _routed(lines))
    prime = tried(lambda: prime_of(*lines.found[ALL_HIT_PRIME])) if ALL_HIT_PRIME in lines.found else None
    counters = dict(lines.counters)
    for kind, read in {"routed": routed, "residency": routed, ALL_HIT_PRIME: prime}.items():
        if read is not None:
            place, line = lines.found[kind]
            counters |= counters_of(place, kind, line)
    failure = lines.failure or ((lines.complaint or str(faults[0])) if faults else None)
    if not failed_too and failure is not None:
        raise faults[0] if faults else Unusable(f"{where}: {failure}: the run failed; run it again")
    overflow, exhausted = (overflow_of(failure), exhausted_of(failure)) if failure else (None, None)
    for kind, stop in (("overflow", overflow), ("exhausted", exhausted)):
        if stop is not None:
            counters[kind] = {name: str(number) for name, number in vars(stop).items()}
    return RunLog(
        prompt_tok_s,
        decode_tok_s,
        lines.settings,
        lines.llama_cpp.backend,
        routed,
        prime,
        tuple(lines.layers[layer] for layer in sorted(lines.layers)),
        lines=counters,
        prefetched=sum(int(float(counters[name]["miss"])) for name in AHEAD if "miss" in counters.get(name, {})),
        build=lines.llama_cpp.build,
        gpu_layers=lines.llama_cpp.gpu_layers,
        placement=lines.placement,
        unread=tuple(lines.unread),
        failure=failure,
        overflow=overflow,
        exhausted=exhausted,
        reads_ahead=prefetch_of(extra, lines.settings),
        bypass=bypass,
        unknown=what_is_unknown(unknown) if (unknown := unknown_of(extra, lines.settings)) else "",
    )


def _speeds(lines: Lines) -> tuple[float, float]:
    if "speed" not in lines.found:
        raise Unusable(
            f"{lines.where}: no line `[ Prompt: … t/s | Generation: … t/s ]`: the run did not finish; run it again"
        )
    place, line = lines.found["speed"]
    match = SPEED.fullmatch(line)
    assert match is not None
    try:
        prompt, decode = map(float, match.groups())
    except ValueError:
        raise Malformed(f"{place}: {line}; expected two numbers; run it again") from None
    if prompt == 0 or decode == 0:
        raise Unusable(f"{place}: 0 t/s: the run failed; the lines above say why; run it again")
    if not all(LEAST_TOK_S <= speed < MOST_TOK_S for speed in (prompt, decode)):
        raise Malformed(f"{place}: {line[:60]}; expected speeds from {LEAST_TOK_S} to {MOST_TOK_S:g} t/s; run it again")
    return prompt, decode


def _routed(lines: Lines) -> Routed:
    for name, shown in (("routed", "routed src=…"), ("residency", "residency cold=…")):
        if name not in lines.found:
            raise Malformed(f"{lines.where}: no line `Flash-MoE {shown}`: not the whole log of the run; run it again")
    return routed_of(*lines.found["routed"], *lines.found["residency"])
