"""The simulator's prediction of a run: every slot, and every counter that its log will print."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.geometry.model import LayerGeometry, ModelGeometry
from flashmoe_sim.io.errors import Unsupported
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.prefetchers.table import parse_prefetcher
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from flashmoe_sim.trace.routing import RoutingTrace
from native_bridge.engines.flashmoe.log.summary import AHEAD, ALL_HIT_PRIME, COUNTERS, RESIDENT_PRIME
from native_bridge.engines.flashmoe.modes import PREFETCH
from native_bridge.engines.flashmoe.oracle import oracle_all_hit, oracle_prefetch
from native_bridge.engines.run_log import Lines
from native_bridge.engines.runs import PredictedRun, Run, first_calls

SHOWN_LAYERS = 8  # the log has the layers with the longest installs
FROM_RAM = "resident-packed"
NEED_A_MODEL = ("install", RESIDENT_PRIME)
_FAMILIES = {
    "gate_up": "ffn_gate_up_exps",
    "gate": "ffn_gate_exps",
    "up": "ffn_up_exps",
    "down": "ffn_down_exps",
}


@dataclass(frozen=True)
class _Counted:
    """The work of one layer: the routed calls, or the experts made resident ahead of them.

    filled: slots that hold an expert at the end. geometry: None if no model is known.
    """

    layer: int
    calls: int
    refs: int
    requests: int
    misses: int
    cold: int
    filled: int
    geometry: LayerGeometry | None

    @property
    def bytes_read(self) -> int:
        return self.misses * self.geometry.expert_bytes if self.geometry else 0


def predict(
    run: Run, trace: RoutingTrace, model: ModelGeometry | None, *, failing: tuple[int, int] | None = None
) -> PredictedRun:
    """Predict a run with the calls of a trace; failing: as for `predict_slot_bank`.

    Raises BadInput if the effect of one of its flags is not known.
    """
    if run.log.unknown:
        raise Unsupported(f"{run.folder}: {run.log.unknown}; leave it out to compare counts")
    routed = run.log.routed
    io_split = routed.chunks if routed else 1
    if run.does.replays:
        found = _predict_replay(run, trace, model, io_split=io_split)
    else:
        found = predict_slot_bank(
            trace,
            model,
            slots=run.bank,
            reads_ahead=run.log.reads_ahead,
            io_split=io_split,
            from_ram=run.does.kind == "copied",
            failing=failing,
        )
        if failing is not None:
            found.lines["overflow"] = {"layer": str(failing[0]), "slots": str(run.bank)}
    return replace(found, shown_layers=SHOWN_LAYERS, unknown=NEED_A_MODEL if model is None else ())


def predict_slot_bank(
    trace: RoutingTrace,
    model: ModelGeometry | None,
    *,
    slots: int,
    reads_ahead: str,
    io_split: int,
    from_ram: bool,
    failing: tuple[int, int] | None = None,
) -> PredictedRun:
    """The modes `slot-bank` and, from_ram, `resident-slot-bank`.

    reads_ahead: a setting in PREFETCH, or empty. failing: layer and references of a call after those of the trace
    that finds no slot: the runtime counts it before it fails. Raises BadInput if the bank cannot hold a call, as
    `replay` does.
    """
    workload = prepare(trace, model)
    source = FROM_RAM if from_ram else "pread-slot-bank"
    modes = {setting: (line, predictor) for predictor, (setting, line) in PREFETCH.items()}
    line, predictor = modes.get(reads_ahead, ("", "none"))
    setup = Setup(Bank(slots=slots), contract="runtime", prefetch=parse_prefetcher(predictor), io_split=io_split)
    replayed = replay(workload, setup, record=True)
    table = replayed.counts.table
    ahead_table, filled = table, np.array([len(contents) for contents in replayed.contents])
    if line and failing is not None and failing[0] > trace.layer[-1]:
        ahead_table, filled = _ahead_of_whole_steps(workload, setup, table)

    def counted(row: int, calls: int, requests: int, misses: int) -> _Counted:
        layer = trace.layers[row]
        of = table if calls == tally.CALLS else ahead_table
        fails = failing is not None and failing[0] == layer and calls == tally.CALLS
        return _Counted(
            layer=layer,
            calls=int(of[row, calls]) + fails,
            refs=int(of[row, tally.REFS]) + (failing[1] if failing and fails else 0),
            requests=int(of[row, requests]),
            misses=int(of[row, misses]),
            cold=int(of[row, tally.COLD]),
            filled=int(filled[row]),
            geometry=_geometry(workload, row),
        )

    rows = range(len(trace.layers))
    ahead = [counted(row, tally.PREFETCH_CALLS, tally.PREFETCH_REQUESTS, tally.PREFETCH_ISSUED) for row in rows]
    if from_ram and all(slots == workload.trace.n_experts[layer] for layer in trace.layers):
        found = _filled_before(workload, slots)
        ahead = [replace(one, misses=0) for one in ahead]
    else:
        layers = [counted(row, tally.CALLS, tally.REQUESTS, tally.MISSES) for row in rows]
        if failing is not None and failing[0] not in trace.layers:
            geometry = model.layers[failing[0]] if model else None
            layers.append(_Counted(failing[0], 1, failing[1], 0, 0, 0, 0, geometry))
        lines = _routed_lines(layers, source=source, io_split=io_split)
        found = PredictedRun(lines, replayed.slot, workload, replayed)
    if line:
        _add_ahead(found.lines, line, ahead, workload=workload, setup=setup, source=source, table=table)
    return found


def _add_ahead(
    lines: Lines,
    line: str,
    ahead: Sequence[_Counted],
    *,
    workload: Workload,
    setup: Setup,
    source: str,
    table: NDArray[np.int64],
) -> None:
    """Add the log's lines on a prefetch mode; a log has no line for what never happened.

    ahead: reads ahead, by layer. table: the counts of a replay.
    """
    if any(one.calls for one in ahead):
        lines[line] = _ahead_line(ahead, source=source, io_split=setup.io_split)
    predictions = zip(workload.layer_pools, workload.ahead(setup.prefetch, "layer"), strict=True)
    judged = [pool.requests[made.meant >= 0] for pool, made in predictions]
    if line != "prefetch" and any(map(len, judged)):
        lines[line] = lines.get(line, {}) | _overlap_values(
            right=int(table[:, tally.PREDICTED_RIGHT].sum()),
            predicted=int(table[:, tally.PREDICTED].sum()),
            requested=sum(int(requests.sum()) for requests in judged),
            compared=sum(map(len, judged)),
        )


def _ahead_of_whole_steps(
    workload: Workload, setup: Setup, table: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Counts and filled slots, by layer, of a run that failed within a micro-batch, after which nothing is read ahead.

    table: the counts of all its calls.
    """
    trace = workload.trace
    ahead_table = np.zeros_like(table)
    whole_calls = int(np.searchsorted(trace.steps, trace.steps[-1]))
    if not whole_calls:
        return ahead_table, table[:, tally.COLD]
    whole = replay(prepare(first_calls(trace, whole_calls), workload.geometry), setup)
    rows = [trace.layers.index(layer) for layer in whole.counts.layers]
    ahead_table[rows] = whole.counts.table
    filled = table[:, tally.COLD] - ahead_table[:, tally.COLD]
    filled[rows] += [len(contents) for contents in whole.contents]
    return ahead_table, filled


def _predict_replay(run: Run, trace: RoutingTrace, model: ModelGeometry | None, *, io_split: int) -> PredictedRun:
    """The modes `oracle-all-hit` and `oracle-prefetch`, as far as the run came in the trace, or beyond its end."""
    calls = min(run.log.routed.calls, trace.calls) if run.log.routed else trace.calls
    outlived = run.log.exhausted is not None
    if run.does.kind == "all-hit":
        all_hit, workload = oracle_all_hit(trace, slots=run.bank), prepare(trace, model)
        played = prepare(first_calls(trace, calls), model)
        lines = _only_hits(played, lambda layer: 0, source=run.mode, io_split=io_split, outlived=outlived)
        lines[ALL_HIT_PRIME] = _prime_line(all_hit.installs, model.layers if model else None)
        return PredictedRun(lines, all_hit.slot, workload)
    found, workload = oracle_prefetch(trace, slots=run.bank, calls=calls), prepare(trace, model)
    played = prepare(first_calls(trace, calls), model)
    lines = _only_hits(played, lambda layer: found.filled[layer], source=run.mode, io_split=io_split, outlived=outlived)
    ahead = [
        _Counted(layer, 0, 0, 0, found.misses[layer], 0, found.filled[layer], _geometry(workload, row))
        for row, layer in enumerate(trace.layers)
    ]
    misses = sum(found.misses.values())
    lines["prefetch"] = _ahead_line(ahead, source=run.mode, io_split=io_split) | {
        "calls": str(found.primes),
        "uniq": str(found.requests),
        "hit": f"{100 * (found.requests - misses) / found.requests:.1f}",
    }
    if found.repairs:
        lines["repaired"] = {"records": str(found.repairs)}
    return PredictedRun(lines, found.slot, workload)


def _filled_before(workload: Workload, slots: int) -> PredictedRun:
    """A bank in RAM with a slot for every expert: at the first call each expert is put into the slot of its number."""
    trace, model = workload.trace, workload.geometry
    lines = _only_hits(workload, lambda layer: slots, source=FROM_RAM, io_split=1)
    if model is not None:
        installs = {layer: one.n_experts for layer, one in model.layers.items()}
        lines[RESIDENT_PRIME] = _prime_line(installs, model.layers)
        copies = sum(one.n_experts * len(one.family_bytes) for one in model.layers.values())
        lines[RESIDENT_PRIME]["rcopy"] = str(copies)
    return PredictedRun(lines, trace.expert.astype(np.int32), workload)


def _only_hits(
    workload: Workload, filled: Callable[[int], int], *, source: str, io_split: int, outlived: bool = False
) -> Lines:
    """outlived: whether one more token came after the trace; the runtime counts its first call before it fails."""
    trace = workload.trace
    refs = np.diff(trace.offset)
    after = trace.layers.index(int(trace.layer[-1])) + 1
    failing = trace.layers[after % len(trace.layers)] if outlived else None
    layers = [
        _Counted(
            layer=layer,
            calls=len(pool.call) + (layer == failing),
            refs=int(refs[pool.call].sum()) + (int(refs[pool.call[-1]]) if layer == failing else 0),
            requests=int(pool.requests.sum()),
            misses=0,
            cold=0,
            filled=filled(layer),
            geometry=_geometry(workload, row),
        )
        for row, (layer, pool) in enumerate(zip(trace.layers, workload.layer_pools, strict=True))
    ]
    lines = _routed_lines(layers, source=source, io_split=io_split)
    if failing is not None:
        lines["exhausted"] = {"layer": str(failing), "calls": str(trace.calls)}
    return lines


def _geometry(workload: Workload, row: int) -> LayerGeometry | None:
    return None if workload.layer_geometry is None else workload.layer_geometry[row]


def _routed_lines(layers: Sequence[_Counted], *, source: str, io_split: int) -> Lines:
    """The log's lines on a run's routed calls. source: the log's name for where installs come from."""
    values = _counters(layers, unit_bytes=GIB, source=source, io_split=io_split)
    lines: Lines = {"routed": {"src": source, **_line("routed", values)}, "residency": _line("residency", values)}
    if any(one.bytes_read for one in layers):
        lines["install"] = {
            name: f"{sum(one.misses * _family(one, family) for one in layers) / GIB:.2f}"
            for name, family in _FAMILIES.items()
        }
    for one in layers:
        values = _counters([one], unit_bytes=MIB, source=source, io_split=io_split)
        lines[f"layer {one.layer}"] = _line("layer", values)
    return lines


def _ahead_line(layers: Sequence[_Counted], *, source: str, io_split: int) -> dict[str, str]:
    """The log's line on experts made resident ahead of the routed calls."""
    return _line(AHEAD[0], _counters(layers, unit_bytes=GIB, source=source, io_split=io_split))


def _overlap_values(*, right: int, predicted: int, requested: int, compared: int) -> dict[str, str]:
    """The log's values on the accuracy of predictions. compared: the calls that had one."""
    return {
        "overlap": f"{right}/{predicted}",
        "precision": _percent(right, predicted),
        "coverage": _percent(right, requested),
        "layers": str(compared),
    }


def _prime_line(installs: Mapping[int, int], geometry: Mapping[int, LayerGeometry] | None) -> dict[str, str]:
    """The log's line on installs before the run; installs: by layer number."""
    line = {"installs": str(sum(installs.values()))}
    if geometry is not None:
        read = sum(number * geometry[layer].expert_bytes for layer, number in installs.items())
        line["bytes"] = f"{read / GIB:.2f}"
    return line


def _line(kind: str, values: Mapping[str, str]) -> dict[str, str]:
    """The counters that a line of the log has; without a model some are unknown."""
    return {key: values[key] for key in COUNTERS[kind] if key in values}


def _counters(layers: Sequence[_Counted], *, unit_bytes: int, source: str, io_split: int) -> dict[str, str]:
    """The counters of these layers together. Bytes and reads need a model; from RAM a tensor family is one copy."""
    calls, requests = sum(one.calls for one in layers), sum(one.requests for one in layers)
    misses, cold = sum(one.misses for one in layers), sum(one.cold for one in layers)
    values = {
        "calls": str(calls),
        "refs": str(sum(one.refs for one in layers)),
        "uniq": str(requests),
        "hit": _percent(requests - misses, requests),
        "miss": str(misses),
        "miss/call": f"{misses / calls if calls else 0:.2f}",
        "cold": str(cold),
        "evict": str(misses - cold),
        "peak": str(sum(one.filled for one in layers)),
    }
    models = [(one.misses, one.geometry) for one in layers if one.geometry]
    if len(models) < len(layers):
        return values
    moved = sum(
        number * (len(model.family_bytes) if source == FROM_RAM else model.read_ops(io_split=io_split))
        for number, model in models
    )
    pread, rcopy = (0, moved) if source == FROM_RAM else (moved, 0)
    read = sum(one.bytes_read for one in layers)
    return values | {"bytes": f"{read / unit_bytes:.2f}", "pread": str(pread), "rcopy": str(rcopy)}


def _family(one: _Counted, family: str) -> int:
    return one.geometry.family_bytes.get(family, 0) if one.geometry else 0


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole if whole else 0:.1f}"
