"""The log of a run of the patched runtime: its settings, what it counted and what it timed."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite

from flashmoe_sim.errors import BadInput

MIB, GIB = 2**20, 2**30
MODES_WITHOUT_SLOTS = ("stock", "resident", "resident-bank")

_SETTING = re.compile(r"  ([\w/-]+(?: [\w-]+)*) += (.+)")
_SPEED = re.compile(r"\[ Prompt: ([\d.]+) t/s \| Generation: ([\d.]+) t/s \]")
_BACKEND = re.compile(
    r"load_backend: loaded (\w+) backend|ggml_(metal|cuda|hip|vulkan|sycl|opencl)_\w+: ", re.IGNORECASE
)
_SUMMARY = "log_runtime_summary: Flash-MoE "
_NOT_A_GPU = ("cpu", "blas", "rpc")


@dataclass(frozen=True)
class Routed:
    """Sums over all routed calls. Times are milliseconds, as the log has them.

    misses: exact, cold installs and evictions together. bytes_read: rounded to 0.01 GiB by the log.
    reads: reads from the sidecar, or copies from packed RAM. source_ms: over all reading threads; what a call waited
    for is install_ms, which upload_ms is part of.
    """

    calls: int
    refs: int
    requests: int
    misses: int
    bytes_read: float
    reads: int
    topk_ms: float
    resolve_ms: float
    install_ms: float
    source_ms: float
    upload_ms: float
    slotwr_ms: float
    trace_ms: float
    other_ms: float
    io_split: int

    @property
    def call_s(self) -> float:
        """Seconds of the host thread a routed call, but for installs and writing the trace."""
        return (self.topk_ms + self.resolve_ms + self.slotwr_ms + self.other_ms) / 1e3 / self.calls


@dataclass(frozen=True)
class LayerLine:
    """One layer; the log has the eight that installed longest. bytes_read: rounded to 0.01 MiB."""

    layer: int
    calls: int
    requests: int
    misses: int
    bytes_read: float
    install_ms: float


@dataclass(frozen=True)
class Prime:
    """What a replay of a trace installed before the run. bytes_read: rounded to 0.01 GiB."""

    installs: int
    bytes_read: float
    total_ms: float


@dataclass(frozen=True)
class RunLog:
    """All that is read from a log; routed is None in the modes that route nothing through slots.

    settings: as printed, empty in the mode `stock`. backend: a GPU's, in lower case; empty where no line names one.
    """

    prompt_tok_s: float
    decode_tok_s: float
    settings: Mapping[str, str]
    backend: str
    routed: Routed | None = None
    prime: Prime | None = None
    layers: tuple[LayerLine, ...] = ()


@dataclass
class _Lines:
    """What was found so far; where a line is there twice, the last one holds."""

    where: str
    settings: dict[str, str] = field(default_factory=dict)
    found: dict[str, tuple[int, str]] = field(default_factory=dict)
    layers: dict[int, LayerLine] = field(default_factory=dict)
    backend: str = ""
    in_settings: bool = False


def parse_log(text: str, *, mode: str, where: str) -> RunLog:
    """What the log of a run in this mode tells. where: its file, for messages.

    Raises BadInput for a log without its summary or its speed, which a crashed run leaves, or with damaged numbers.
    """
    lines = _Lines(where)
    for number, line in enumerate(text.split("\n"), 1):
        _take(lines, number, line.removesuffix("\r"))
    if "speed" not in lines.found:
        raise BadInput(
            f"{where}: no line `[ Prompt: … t/s | Generation: … t/s ]`: the run did not finish; run it again"
        )
    prompt_tok_s, decode_tok_s = _speeds(lines)
    routed = None
    if mode not in MODES_WITHOUT_SLOTS:
        for name, shown in (("routed", "routed src=…"), ("residency", "residency cold=…")):
            if name not in lines.found:
                raise BadInput(f"{where}: no line `Flash-MoE {shown}`: not the whole log of the run; run it again")
        routed = _routed(lines)
    return RunLog(
        prompt_tok_s,
        decode_tok_s,
        lines.settings,
        lines.backend,
        routed,
        _prime(lines),
        tuple(lines.layers[layer] for layer in sorted(lines.layers)),
    )


def _take(lines: _Lines, number: int, line: str) -> None:
    if lines.in_settings and (setting := _SETTING.fullmatch(line)):
        lines.settings[setting[1]] = setting[2]
        return
    lines.in_settings = line == "Flash-MoE settings:"  # what the model generated may look like one, too
    if line.startswith(_SUMMARY):
        rest = line.removeprefix(_SUMMARY)
        for name, start in (("routed", "routed "), ("residency", "residency "), ("prime", "oracle-all-hit prime ")):
            if rest.startswith(start):
                lines.found[name] = number, rest
        if rest.startswith("layer="):
            of = _Fields(lines.where, number, rest)
            lines.layers[of.count("layer")] = LayerLine(
                of.count("layer"),
                of.count("calls"),
                of.count("uniq"),
                of.count("miss"),
                of.number("bytes") * MIB,
                of.number("install"),
            )
    elif _SPEED.fullmatch(line):
        lines.found["speed"] = number, line
    elif (backend := _BACKEND.match(line)) and (name := (backend[1] or backend[2]).lower()) not in _NOT_A_GPU:
        lines.backend = name


class _Fields:
    """The `key=value` of one line, as numbers."""

    def __init__(self, where: str, number: int, line: str) -> None:
        self.place = f"{where}: line {number}"
        self.values = dict(re.findall(r"([\w/]+)=(\S+)", line))

    def number(self, key: str) -> float:
        text = self.values.get(key)
        if text is None:
            raise BadInput(f"{self.place}: no `{key}=`; expected the log of the patched runtime; run it again")
        try:
            value = float(text)
        except ValueError:
            value = -1.0
        if not 0 <= value < 1e18 or not isfinite(value):
            raise BadInput(f"{self.place}: {key}={text}; expected a number from 0; run it again")
        return value

    def count(self, key: str) -> int:
        value = self.number(key)
        if value != int(value):
            raise BadInput(f"{self.place}: {key}={self.values[key]}; expected a whole number; run it again")
        return int(value)


def _speeds(lines: _Lines) -> tuple[float, float]:
    number, line = lines.found["speed"]
    match = _SPEED.fullmatch(line)
    assert match is not None
    try:
        prompt, decode = map(float, match.groups())
    except ValueError:
        raise BadInput(f"{lines.where}: line {number}: {line}; expected two numbers; run it again") from None
    if prompt == 0 or decode == 0:
        raise BadInput(f"{lines.where}: line {number}: 0 t/s: the run failed; the lines above tell why; run it again")
    return prompt, decode


def _routed(lines: _Lines) -> Routed:
    of = _Fields(lines.where, *lines.found["routed"])
    residency = _Fields(lines.where, *lines.found["residency"])
    misses, calls = residency.count("cold") + residency.count("evict"), of.count("calls")
    if calls == 0:
        raise BadInput(f"{of.place}: calls=0: nothing was routed; run it again")
    shown = of.number("miss/call")
    if abs(misses / calls - shown) > 0.005 + 1e-9:
        raise BadInput(
            f"{residency.place}: {misses} misses in {calls} calls, but the summary tells {shown} a call; "
            "the log is of two runs; run it again"
        )
    times = {
        f"{key}_ms": of.number(key)
        for key in ("topk", "resolve", "install", "source", "upload", "slotwr", "trace", "other")
    }
    return Routed(
        calls=calls,
        refs=of.count("refs"),
        requests=of.count("uniq"),
        misses=misses,
        bytes_read=of.number("bytes") * GIB,
        reads=of.count("pread") + of.count("rcopy"),
        io_split=of.count("iosplit"),
        **times,
    )


def _prime(lines: _Lines) -> Prime | None:
    if "prime" not in lines.found:
        return None
    of = _Fields(lines.where, *lines.found["prime"])
    return Prime(of.count("installs"), of.number("bytes") * GIB, of.number("total"))
