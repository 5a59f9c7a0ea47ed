"""A whole log as one value."""

from __future__ import annotations

from flashmoe_sim.io.errors import BadInput
from native_bridge.engines.flashmoe.log.failure import exhausted_of, overflow_of
from native_bridge.engines.flashmoe.log.lines import SPEED, Lines, read_lines
from native_bridge.engines.flashmoe.log.routed import routed_of
from native_bridge.engines.flashmoe.log.summary import AHEAD, ALL_HIT_PRIME, counters_of, prime_of
from native_bridge.engines.flashmoe.modes import MODES_WITHOUT_SLOTS
from native_bridge.engines.run_log import Routed, RunLog

LEAST_TOK_S, MOST_TOK_S = 0.1, 1e9  # speeds are printed with one decimal


def parse_log(text: str, *, mode: str, where: str, routes: bool = True) -> RunLog:
    """The content of the log of a run in this mode. where: its file, for messages.

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
    """The same as far as the log goes, even for a failed run: missing or damaged parts are its `failure`."""
    return _parse(text, mode=mode, where=where, routes=routes)[0]


def _parse(text: str, *, mode: str, where: str, routes: bool) -> tuple[RunLog, list[str]]:
    """The log, and a message for each missing or damaged part that a fit needs."""
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
        prime = prime_of(*lines.found[ALL_HIT_PRIME]) if ALL_HIT_PRIME in lines.found else None
    except BadInput as error:
        faults.append(str(error))
    counters = dict(lines.counters)
    for kind, read in {"routed": routed, "residency": routed, ALL_HIT_PRIME: prime}.items():
        if read is not None:
            place, line = lines.found[kind]
            counters |= counters_of(place, kind, line)
    failure = lines.failure or ((lines.complaint or faults[0]) if faults else None)
    overflow, exhausted = (overflow_of(failure), exhausted_of(failure)) if failure else (None, None)
    for kind, stop in (("overflow", overflow), ("exhausted", exhausted)):
        if stop is not None:
            counters[kind] = {name: str(number) for name, number in vars(stop).items()}
    return (
        RunLog(
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
        raise BadInput(f"{place}: 0 t/s: the run failed; the lines above say why; run it again")
    if not all(LEAST_TOK_S <= speed < MOST_TOK_S for speed in (prompt, decode)):
        raise BadInput(f"{place}: {line[:60]}; expected speeds from {LEAST_TOK_S} to {MOST_TOK_S:g} t/s; run it again")
    return prompt, decode


def _routed(lines: Lines) -> Routed:
    for name, shown in (("routed", "routed src=…"), ("residency", "residency cold=…")):
        if name not in lines.found:
            raise BadInput(f"{lines.where}: no line `Flash-MoE {shown}`: not the whole log of the run; run it again")
    return routed_of(*lines.found["routed"], *lines.found["residency"])
