"""A whole log as one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.run_log.engine import Device, Perf
from flashmoe_sim.machines.run_log.failure import Exhausted, Overflow, exhausted_of, overflow_of
from flashmoe_sim.machines.run_log.lines import SPEED, Lines, read_lines
from flashmoe_sim.machines.run_log.placement import Placement
from flashmoe_sim.machines.run_log.profile import Profile
from flashmoe_sim.machines.run_log.routed import LayerLine, Routed, routed_of
from flashmoe_sim.machines.run_log.summary import Family, OracleTrace, Overlap, Prefetch, Prime, prime_of

LEAST_TOK_S, MOST_TOK_S = 0.1, 1e9  # they are printed with one decimal
MODES_WITHOUT_SLOTS = ("stock", "resident", "resident-bank")


@dataclass(frozen=True)
class RunLog:
    """All that is read from a log; routed is None in the modes that route nothing through slots.

    prompt_tok_s, decode_tok_s: 0 where a run failed. settings: as printed, empty in the mode `stock`. backend: a GPU's,
    in lower case; empty where no line names one. families: by name (`gate_up`, `gate`, `up`, `down`), empty where
    nothing was installed. prefetch: of `--moe-prefetch-temporal`, and the reads of `oracle-prefetch`; predict: of
    `--moe-predict-…`, which overlap judges. prime: of `oracle-all-hit`; resident_prime: of a bank from packed RAM that
    holds the layer. repairs: records that `oracle-prefetch` had to make resident again. perf and profile: of `--perf`.
    build, system_info: as printed. gpu_layers: on the GPU, of how many. placement: where its memory is. metal_kernels:
    how often Metal took each path of a routed matrix product. unread: lines about Flash-MoE that were not
    understood. failure: what went wrong, in the runtime's words where it has any; None for a run that ended well.
    overflow: where it was a bank too small. exhausted: where it was a trace that ended before its replay did.
    """

    prompt_tok_s: float
    decode_tok_s: float
    settings: Mapping[str, str]
    backend: str
    routed: Routed | None = None
    prime: Prime | None = None
    layers: tuple[LayerLine, ...] = ()
    families: Mapping[str, Family] = field(default_factory=dict)
    prefetch: Prefetch | None = None
    predict: Prefetch | None = None
    overlap: Overlap | None = None
    resident_prime: Prime | None = None
    oracle_trace: OracleTrace | None = None
    repairs: int = 0
    perf: Perf | None = None
    profile: Profile | None = None
    build: str = ""
    system_info: str = ""
    devices: tuple[Device, ...] = ()
    gpu_layers: tuple[int, int] | None = None
    placement: Placement = field(default_factory=Placement)
    metal_kernels: Mapping[str, int] = field(default_factory=dict)
    unread: tuple[str, ...] = ()
    failure: str | None = None
    overflow: Overflow | None = None
    exhausted: Exhausted | None = None

    @property
    def on_gpu(self) -> bool:
        """Whether it computed layers on a GPU; without the line that says how many, whether a line names a GPU."""
        return self.gpu_layers[0] > 0 if self.gpu_layers is not None else bool(self.backend)

    @property
    def host_bank_of_gpu(self) -> bool:
        """Whether a GPU computed layers, but the CPU the experts: their slots were in the memory of the host."""
        return self.on_gpu and self.placement.bank_in_host is True


def parse_log(text: str, *, mode: str, where: str, routes: bool = True) -> RunLog:
    """What the log of a run in this mode tells. where: its file, for messages.

    routes: whether routed experts were computed; without them there are no counters.
    Raises BadInput for a log without its summary or its speed, which a crashed run leaves, or with damaged numbers.
    """
    log, faults = _parse(text, mode=mode, where=where, routes=routes)
    if faults:
        raise BadInput(faults[0])
    if log.failure is not None:
        raise BadInput(f"{where}: {log.failure}: the run failed; run it again")
    return log


def read_log(text: str, *, mode: str, where: str, routes: bool = True) -> RunLog:
    """The same as far as the log goes, also of a run that failed: what is missing or damaged is its `failure`."""
    return _parse(text, mode=mode, where=where, routes=routes)[0]


def _parse(text: str, *, mode: str, where: str, routes: bool) -> tuple[RunLog, list[str]]:
    """The log, and a message for each thing that is missing or damaged and that a fit needs."""
    lines = read_lines(text, where)
    faults, prompt_tok_s, decode_tok_s = list(lines.faults), 0.0, 0.0
    routed = prime = None
    try:
        prompt_tok_s, decode_tok_s = _speeds(lines)
    except BadInput as error:
        faults.append(str(error))
    try:
        routes = routes and lines.settings.get("shared-only") != "on" and mode not in MODES_WITHOUT_SLOTS
        routed = _routed(lines) if routes else None
    except BadInput as error:
        faults.append(str(error))
    try:
        prime = prime_of(*lines.found["oracle-all-hit prime"]) if "oracle-all-hit prime" in lines.found else None
    except BadInput as error:
        faults.append(str(error))
    failure = lines.failure or ((lines.complaint or faults[0]) if faults else None)
    return (
        RunLog(
            prompt_tok_s,
            decode_tok_s,
            lines.settings,
            lines.engine.backend,
            routed,
            prime,
            tuple(lines.layers[layer] for layer in sorted(lines.layers)),
            perf=lines.engine.perf,
            profile=lines.profile if lines.profile != Profile() else None,
            build=lines.engine.build,
            system_info=lines.engine.system_info,
            devices=lines.engine.devices,
            gpu_layers=lines.engine.gpu_layers,
            placement=lines.placement,
            metal_kernels=lines.engine.metal_kernels,
            unread=tuple(lines.unread),
            failure=failure,
            overflow=overflow_of(failure) if failure else None,
            exhausted=exhausted_of(failure) if failure else None,
            **lines.values,
        ),
        faults,
    )


def _speeds(lines: Lines) -> tuple[float, float]:
    if "speed" not in lines.found:
        raise BadInput(
            f"{lines.where}: no line `[ Prompt: … t/s | Generation: … t/s ]`: the run did not finish; run it again"
        )
    place, line = lines.found["speed"]
    match = SPEED.fullmatch(line)
    assert match is not None
    try:
        prompt, decode = map(float, match.groups())
    except ValueError:
        raise BadInput(f"{place}: {line}; expected two numbers; run it again") from None
    if prompt == 0 or decode == 0:
        raise BadInput(f"{place}: 0 t/s: the run failed; the lines above tell why; run it again")
    if not all(LEAST_TOK_S <= speed < MOST_TOK_S for speed in (prompt, decode)):
        raise BadInput(f"{place}: {line[:60]}; expected speeds from {LEAST_TOK_S} to {MOST_TOK_S:g} t/s; run it again")
    return prompt, decode


def _routed(lines: Lines) -> Routed:
    for name, shown in (("routed", "routed src=…"), ("residency", "residency cold=…")):
        if name not in lines.found:
            raise BadInput(f"{lines.where}: no line `Flash-MoE {shown}`: not the whole log of the run; run it again")
    return routed_of(*lines.found["routed"], *lines.found["residency"])
