"""Several traces of one model as one workload: decoded together, one after another, or in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, OutOfRange
from flashmoe_sim.io.notes import code_of, with_code
from flashmoe_sim.trace.check import largest_experts
from flashmoe_sim.trace.cut import WITHOUT_RANKS, shown_layers
from flashmoe_sim.trace.join import LAST_STEP, end_to_end, join_calls
from flashmoe_sim.trace.lines import counted
from flashmoe_sim.trace.phases import find_phases
from flashmoe_sim.trace.routing import RoutingTrace

NAMED_PARTS = 3
Steps = list[NDArray[np.int64]]
Progress = Callable[[int, int], None]


def union(parts: Sequence[RoutingTrace], *, stagger: int = 0, progress: Progress | None = None) -> RoutingTrace:
    """All parts decoded together, as a server decodes concurrent conversations: step i is step i of every part.

    A step has one call per layer, with the tokens of the parts' calls in the order of the parts (see `join_calls`).
    A part drops out at its end.
    stagger: each part begins this many steps further into its trace than the one before, and wraps around at its end:
        copies of one trace are then never at the same place, and all parts run throughout.
    progress: called with the passes over the calls that are done, and all.
    Raises BadInput for parts of different models.
    """
    if not 0 <= stagger <= LAST_STEP:
        raise OutOfRange(f"stagger {stagger} steps; expected 0 to {LAST_STEP}")
    steps = _steps(parts)
    ahead = stagger * np.arange(len(parts))
    shifted = [(step - shift) % count for step, shift, count in zip(steps, ahead, _counts(steps), strict=True)]
    how = f", each {counted(stagger, 'step')} further into its trace than the one before" if stagger else ""
    return _merged(parts, shifted, what="union", how=how, progress=progress)


def concat(parts: Sequence[RoutingTrace], *, progress: Progress | None = None) -> RoutingTrace:
    """One part after another; every part is at least one sequence of its own. Raises what `union` raises."""
    steps = _steps(parts)
    return _merged(parts, _in_turns(steps, max(_counts(steps))), what="concatenation", how="", progress=progress)


def interleave(parts: Sequence[RoutingTrace], *, every: int, progress: Progress | None = None) -> RoutingTrace:
    """`every` steps of each part in turn, like a server that switches conversations; a part drops out at its end.

    Every part is at least one sequence of its own. Raises what `union` raises.
    """
    if not 1 <= every <= LAST_STEP:
        raise OutOfRange(f"turns of {every} steps; expected 1 to {LAST_STEP}")
    steps = _steps(parts)
    how = f", {counted(every, 'step')} of each in turn"
    return _merged(parts, _in_turns(steps, every), what="interleaving", how=how, progress=progress)


def _steps(parts: Sequence[RoutingTrace]) -> Steps:
    """For every part the step of each call, counted from 0."""
    if not parts:
        raise Incomplete("no traces; give at least one to merge")
    for part in parts:
        if not part.calls:
            raise Incomplete(f"{part.name or 'trace'}: no routed calls in it; record or convert the trace again")
    return [part.steps.astype(np.int64) - int(part.steps.min()) for part in parts]


def _counts(steps: Steps) -> list[int]:
    return [int(step.max()) + 1 for step in steps]


def _in_turns(steps: Steps, every: int) -> Steps:
    counts = np.array(_counts(steps))
    turns = np.clip(counts - every * np.arange(-(-counts.max() // every))[:, np.newaxis], 0, every)  # [rounds, parts]
    begin = (np.cumsum(turns) - turns.ravel()).reshape(turns.shape)
    return [begin[step // every, number] + step % every for number, step in enumerate(steps)]


def _merged(
    parts: Sequence[RoutingTrace], new: Steps, *, what: str, how: str, progress: Progress | None
) -> RoutingTrace:
    """The merged parts, with each call at its new step."""
    trace = stacked(parts)
    if progress:
        progress(1, 2)
    return described(join_calls(trace, np.arange(trace.calls), np.concatenate(new)), parts, what=what, how=how)


def described(merged: RoutingTrace, parts: Sequence[RoutingTrace], *, what: str, how: str) -> RoutingTrace:
    """The trace with a name and notes that say what was done with the parts."""
    few = len({part.name for part in parts}) <= NAMED_PARTS
    return merged.with_(
        name=f"{what} of {_listed(parts) if few else f'{len(parts)} traces'}",
        notes=tuple(
            dict.fromkeys([*notes_of(parts), f"{what} of {_listed(parts)}{how}", *_weights(parts), *_warm_ups(parts)])
        ),
    )


def stacked(parts: Sequence[RoutingTrace]) -> RoutingTrace:
    """The calls of all parts in one trace, with steps and sequences numbered on from part to part.

    Phases are as recorded or inferred for each part. Raises what `union` raises.
    """
    steps = _steps(parts)

    sequences, next_sequence = [], 0
    for part in parts:
        recorded = np.zeros(part.calls, np.int32) if part.sequence is None else part.sequence
        sequences.append(np.unique(recorded, return_inverse=True)[1] + next_sequence)
        next_sequence = int(sequences[-1].max()) + 1
    first_step = np.cumsum([0, *_counts(steps)[:-1]])
    return parts[0].with_(
        **end_to_end(parts),
        sequence=np.concatenate(sequences).astype(np.int32),
        step=np.concatenate([step + at for step, at in zip(steps, first_step, strict=True)]),
        **_one_model(parts),
    )


def _one_model(parts: Sequence[RoutingTrace]) -> dict[str, Any]:
    """What the parts together record about their model; raises BadInput, naming two parts, if they contradict each
    other.

    Recorded numbers of experts override numbers inferred from the ids; among inferred ones, the largest counts.
    """
    first = parts[0]
    for part in parts[1:]:
        if part.layers != first.layers:
            raise _differ(first, part, f"layers {shown_layers(first.layers)} and {shown_layers(part.layers)}")
    sure = [part for part in parts if part.n_experts_known]
    n_experts: Mapping[int, int] = {layer: max(part.n_experts[layer] for part in parts) for layer in first.layers}
    if sure:
        n_experts = sure[0].n_experts
        _same(sure, "n_experts", "experts")
        for part in parts:
            largest = largest_experts(part)
            for layer in first.layers:
                if largest[layer] >= n_experts[layer]:
                    found = f"{n_experts[layer]} experts in layer {layer}, and expert {largest[layer]} used there"
                    raise _differ(sure[0], part, found)
    of_token = [part for part in parts if part.top_k]
    for part in of_token:
        if part.top_k != of_token[0].top_k:
            raise _differ(of_token[0], part, f"{of_token[0].top_k} and {part.top_k} experts per token")
    weighed = [part for part in parts if part.expert_bytes]
    _same(weighed, "expert_bytes", "bytes an expert")
    dense = [part.dense_bytes for part in parts if part.dense_bytes]
    return {
        "n_experts": n_experts if len(parts) > 1 else first.n_experts,
        "n_experts_known": bool(sure),
        "top_k": first.top_k if all(part.top_k == first.top_k for part in parts) else 0,
        "expert_bytes": weighed[0].expert_bytes if weighed else first.expert_bytes,
        "dense_bytes": dense[0] if dense and all(one == dense[0] for one in dense) else None,
        "format": next((part.format for part in parts if part.format in WITHOUT_RANKS), first.format),
    }


def _same(parts: Sequence[RoutingTrace], field: str, what: str) -> None:
    """Raise BadInput if a layer's `field` is not the same in all parts."""
    for part in parts[1:]:
        for layer in part.layers:
            one, other = getattr(parts[0], field)[layer], getattr(part, field)[layer]
            if one != other:
                raise _differ(parts[0], part, f"{one} and {other} {what} in layer {layer}")


def _differ(one: RoutingTrace, other: RoutingTrace, found: str) -> BadInput:
    names = " and ".join(part.name or "trace" for part in (one, other))
    return Conflict(f"{names} are of different models: {found}; give traces of one model")


def _listed(parts: Sequence[RoutingTrace]) -> str:
    """The parts' names in order, with repeats in a row counted: 2 x a, b."""
    runs = [(name, len(list(run))) for name, run in groupby(part.name or "trace" for part in parts)]
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in runs)


def notes_of(parts: Sequence[RoutingTrace]) -> list[str]:
    """The notes that a merged trace has from its parts."""
    return [with_code(code_of(note), f"{part.name or 'trace'}: {note}") for part in parts for note in part.notes]


def _weights(parts: Sequence[RoutingTrace]) -> list[str]:
    """A note if some parts have gate weights and others none, so that the merged trace has none."""
    without = list(dict.fromkeys(part.name or "trace" for part in parts if part.weight is None))
    if all(part.weight is None for part in parts) or not without:
        return []
    named = ", ".join(without[:NAMED_PARTS]) + (" and others" if len(without) > NAMED_PARTS else "")
    return [f"gate weights are left out: {named} {'has' if len(without) == 1 else 'have'} none"]


def _warm_ups(parts: Sequence[RoutingTrace]) -> list[str]:
    """A note if parts begin with the decode that a runtime makes while loading, which is kept."""
    steps = [phases.warm_up_steps for phases in map(find_phases, parts) if phases and phases.warm_up_steps]
    if not steps:
        return []
    return [
        f"{len(steps)} of {len(parts)} parts begin with the decode that a runtime makes while loading; "
        f"`sim trace cut --steps {max(steps)}:` leaves it out"
    ]
