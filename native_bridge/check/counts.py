"""What the simulator predicts of a recorded run against what the runtime did: every slot and every counter, exactly."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.routing import RoutingTrace
from native_bridge.check.failed import failing_call
from native_bridge.check.folder import RunFolder, RunFolders
from native_bridge.engines.counters import Predicted, first_calls
from native_bridge.generated import generated


@dataclass(frozen=True)
class Difference:
    """Where a run differs, what the runtime did there, and what the simulator says."""

    where: str
    runtime: str
    simulator: str

    def __str__(self) -> str:
        return f"{self.where}: the runtime {self.runtime}, the simulator {self.simulator}"


@dataclass(frozen=True, eq=False)
class CountCheck:
    """The comparison of one run.

    slots, calls: references whose slots, and routed calls whose routing, were compared. counters: numbers of the log.
    differences: of the slots the first, of the counters all. aliased: references whose slot belonged to another expert
    of the call; None if nothing was replayed. tokens: that the run generated; None if its calls do not say. unlike:
    why it could not be compared, or empty. same_text_as: the run that wrote the same, if nothing is routed.
    rounded: how its text differs from another's if a GPU computed either.
    """

    folder: RunFolder
    slots: int = 0
    calls: int = 0
    counters: int = 0
    differences: tuple[Difference, ...] = ()
    aliased: int | None = None
    tokens: int | None = None
    notes: tuple[str, ...] = ()
    unlike: str = ""
    same_text_as: str = ""
    rounded: str = ""
    predicted: Predicted | None = None

    @property
    def passed(self) -> bool:
        return not self.differences and not self.unlike

    @property
    def short(self) -> bool:
        """Whether the run generated fewer tokens than it was asked for, without failing."""
        return self.tokens is not None and self.tokens < self.folder.run.n_predict

    @property
    def compared(self) -> bool:
        return bool(self.slots or self.counters)


def check_counts(folder: RunFolder, among: RunFolders) -> CountCheck:
    """Compare one run; what is wrong with it is in the result, never raised."""
    try:
        if folder.run.log.bypass and not folder.failure:
            return CountCheck(folder, notes=(f"{folder.run.log.bypass}: no routed expert was computed",))
        if not folder.run.does.slots:
            return _check_text(folder, among)
        return _check_routed(folder, among)
    except BadInput as error:
        return CountCheck(folder, unlike=str(error))


def _check_routed(folder: RunFolder, among: RunFolders) -> CountCheck:
    run = folder.run
    if folder.failure and run.log.overflow is None and run.log.exhausted is None:
        raise BadInput(f"{folder.place}: the run failed: {folder.failure}; run it again, or leave it out")
    source = _source_of_calls(folder, among)
    assert source.run.trace is not None
    trace = load_trace(source.run.trace)
    notes = [f"counted on the trace of {source.name}"] * (source is not folder)
    if folder.model is None:
        notes.append("no manifest.json with it and no --model: bytes and reads are not compared")
    if run.log.host_bank_of_gpu:
        notes.append("layers were on a GPU, but the slots in the host's memory: the CPU computed the experts")
    failing = None
    if run.log.overflow is not None:
        if run.does.replays:
            return _check_refused(folder, trace, notes)
        failing, said = failing_call(folder, trace, among)
        notes.append(said)
    predicted = run.engine.predict(run, trace, folder.model, failing=failing)
    came_to = run.log.routed.calls if run.log.routed else 0
    if run.does.replays and came_to < trace.calls:
        notes.append(f"the run came to {came_to:,} of the {trace.calls:,} calls of the trace")
    if run.log.exhausted is not None:
        notes.append(f"it went on after the {trace.calls:,} calls of the trace, and failed: compared up to there")
    tokens = None if folder.failure else generated(first_calls(trace, came_to))
    if tokens is not None and tokens < run.n_predict:
        notes.append(f"it ended after {tokens:,} of {run.n_predict:,} tokens")
    differences = list(_counters_that_differ(folder, predicted))
    slots = 0
    if source is folder and trace.slot is not None and predicted.slot is not None:
        slots = trace.refs
        if first := _first_slot_that_differs(folder, trace, predicted.slot):
            differences.insert(0, first)
    elif source is folder:
        notes.append("its trace has no slots")
    return CountCheck(
        folder,
        slots=slots,
        calls=trace.calls if slots else 0,
        counters=sum(len(values) for name, values in predicted.lines.items() if name in folder.lines),
        differences=tuple(differences),
        aliased=predicted.replayed.counts.total()["aliased_refs"] if predicted.replayed else None,
        tokens=tokens,
        notes=tuple(notes),
        predicted=predicted,
    )


def _source_of_calls(folder: RunFolder, among: RunFolders) -> RunFolder:
    """The run whose trace has the calls of this one."""
    if folder.run.does.replays:
        return among.replayed_by(folder)
    if folder.run.trace is not None:
        return folder
    twin = among.twin_of(folder)
    if twin is None:
        raise BadInput(
            f"{folder.place}: no trace.jsonl.gz, nor a run beside it that routes the same; record one (--moe-trace)"
        )
    return twin


def _check_refused(folder: RunFolder, trace: RoutingTrace, notes: list[str]) -> CountCheck:
    """A replay that the runtime refused: the simulator must, too."""
    try:
        folder.run.engine.predict(folder.run, trace, folder.model, failing=None)
    except BadInput as error:
        return CountCheck(folder, counters=1, notes=(*notes, f"refused, as predicted: {error}"))
    refused = Difference(f"{folder.place / 'log.txt'}", f"says {folder.failure!r}", "finds a slot for every expert")
    return CountCheck(folder, counters=1, differences=(refused,), notes=tuple(notes))


def _counters_that_differ(folder: RunFolder, predicted: Predicted) -> Iterator[Difference]:
    log = folder.place / "log.txt"
    layers = [name for name in predicted.lines if name.startswith("layer ")]
    shown = [name for name in folder.lines if name.startswith("layer ")]
    expected = min(len(layers), predicted.shown_layers)
    if len(shown) != expected:
        yield Difference(f"{log}, lines of layers", f"has {len(shown)}", f"expects {expected} of {len(layers)}")
    for name, values in predicted.lines.items():
        printed = folder.lines.get(name)
        if printed is None:
            if name not in layers:
                yield Difference(f"{log}, line `{name}`", "printed none", f"expects {_shown(values)}")
            continue
        for key, value in values.items():
            if printed.get(key) != value:
                yield Difference(
                    f"{log}, line `{name}`, {key}", f"printed {printed.get(key, 'none')}", f"counts {value}"
                )
    for name in sorted(folder.lines.keys() - predicted.lines.keys() - set(predicted.unknown)):
        yield Difference(f"{log}, line `{name}`", f"printed {_shown(folder.lines[name])}", "expects none")


def _shown(values: dict[str, str]) -> str:
    return " ".join(f"{key}={value}" for key, value in values.items())


def _first_slot_that_differs(folder: RunFolder, trace: RoutingTrace, slot: NDArray[np.int32]) -> Difference | None:
    assert trace.slot is not None
    differ = np.flatnonzero(trace.slot != slot)
    if not len(differ):
        return None
    first = int(differ[0])
    call = int(np.searchsorted(trace.offset, first, side="right")) - 1
    return Difference(
        f"{folder.run.trace}, line {call + 1} (layer {trace.layer[call]}), reference {first - trace.offset[call]}, "
        f"expert {trace.expert[first]}",
        f"used slot {trace.slot[first]}",
        f"slot {slot[first]} ({len(differ):,} of {trace.refs:,} slots differ)",
    )


def _check_text(folder: RunFolder, among: RunFolders) -> CountCheck:
    """Nothing is routed: what it generated is that of any run whose experts all have a slot of their own."""
    notes = ("nothing is routed through slots",)
    if folder.failure:
        raise BadInput(f"{folder.place}: the run failed: {folder.failure}; run it again, or leave it out")
    if folder.text is None or not folder.is_repeatable:
        return CountCheck(folder, notes=notes)
    same = [
        one
        for one in among.others(folder)
        if one.routing == folder.routing and one.text and not one.failure and _is_whole(one)
    ]
    if not same:
        return CountCheck(folder, notes=notes)
    other = min(same, key=lambda one: not one.run.does.slots)
    if other.text == folder.text:
        said = f"{notes[0]}; its text is that of {other.name}"
        return CountCheck(folder, notes=(said,), same_text_as=other.name)
    assert other.text is not None
    place = next(
        (i for i, (a, b) in enumerate(zip(folder.text, other.text, strict=False)) if a != b),
        min(len(folder.text), len(other.text)),
    )
    if gpu := next((one.name for one in (folder, other) if one.run.log.on_gpu), ""):
        said = (
            f"its text differs from {other.name}'s from character {place + 1}: {gpu} had layers on a GPU, "
            "which may round otherwise, so that this is no failure"
        )
        return CountCheck(folder, notes=(*notes, said), rounded=said)
    difference = Difference(
        f"{folder.place / 'text.txt'}, character {place + 1}",
        f"wrote {folder.text[place : place + 20]!r}",
        f"expects the text of {other.name}: {other.text[place : place + 20]!r}",
    )
    return CountCheck(folder, differences=(difference,), notes=notes)


def _is_whole(one: RunFolder) -> bool:
    """Whether every expert has a place of its own."""
    if not one.run.does.slots:
        return True
    experts = [layer.n_experts for layer in one.model.layers.values()] if one.model else []
    return bool(experts) and one.run.does.traced and one.run.bank >= max(experts)
