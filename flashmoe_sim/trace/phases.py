"""Which steps are prompt and which are decode, if that was not recorded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, PHASE_UNKNOWN, RoutingTrace, blocks


@dataclass(frozen=True, eq=False)
class Phases:
    """The phase of each step, u8 [steps], in the order of the steps' first calls.

    recorded: whether the trace records them; otherwise they follow from the rule in `find_phases`. warm_up_steps: how
    many of the first steps are the decode that a runtime makes while loading; 0 if none or unknown.
    """

    number: NDArray[np.int32]
    phase: NDArray[np.uint8]
    recorded: bool
    warm_up_steps: int = 0

    @property
    def prompt_ends(self) -> tuple[int, ...]:
        """The last step of every prompt that is followed by decoded tokens; steps of unknown phase are skipped."""
        known = self.phase != PHASE_UNKNOWN
        phase, number = self.phase[known], self.number[known]
        return tuple(number[:-1][(phase[:-1] == PHASE_PROMPT) & (phase[1:] == PHASE_DECODE)].tolist())

    def of_calls(self, trace: RoutingTrace, calls: slice = slice(None)) -> NDArray[np.uint8]:
        """The phase of each call, or of some consecutive ones, u8 [calls]."""
        if self.recorded and trace.phase is not None:
            return trace.phase[calls]
        return self.phase[np.searchsorted(self.number, trace.steps[calls])]


def distinct_steps(trace: RoutingTrace) -> NDArray[np.int32]:
    """The steps that occur, ascending, i32."""
    steps, found = trace.steps, [trace.steps[:1]]
    for block in blocks(len(steps) - 1):
        later = steps[1:][block]
        found.append(np.unique(later[later != steps[block]]))
    return np.unique(np.concatenate(found))


def find_phases(trace: RoutingTrace) -> Phases | None:
    """The phases as recorded, else inferred from what the last layer computed; None if neither is possible.

    During a prompt the last layer computes only the output rows: depending on the architecture it has no call, or one
    without tokens. A step without the last layer, or with more than one token in a call, is therefore a prompt; so is
    the complete step that ends a run of steps without the last layer, since it has the prompt's last token. A single
    step without the last layer at the end of the trace may merely be cut short: its phase is unknown.
    """
    if not trace.calls:
        return None
    number = distinct_steps(trace)
    if trace.phase is not None:
        return _recorded(trace, trace.phase, number) if trace.phase.any() else None
    lacks_last, wide = np.ones(len(number), np.bool_), np.zeros(len(number), np.bool_)
    for block in blocks(trace.calls):
        step = np.searchsorted(number, trace.steps[block])
        lacks_last[step[(trace.layer[block] == trace.layers[-1]) & trace.has_refs[block]]] = False
        wide[step[trace.n_tokens[block] > 1]] = True
    if len(trace.layers) < 2 or not (lacks_last | wide).any():
        return None
    prompt = lacks_last | wide
    prompt[1:] |= lacks_last[:-1]
    phase = np.where(prompt, PHASE_PROMPT, PHASE_DECODE).astype(np.uint8)
    if lacks_last[-1] and not wide[-1] and (len(phase) == 1 or phase[-2] == PHASE_DECODE):
        phase[-1] = PHASE_UNKNOWN
    return Phases(number, phase, recorded=False, warm_up_steps=_warm_up(trace, lacks_last, prompt))


def _recorded(trace: RoutingTrace, phase: NDArray[np.uint8], number: NDArray[np.int32]) -> Phases:
    """The phase of each step's first call."""
    found = np.zeros(len(number), np.uint8)
    for block in reversed([*blocks(trace.calls)]):
        steps, first = np.unique(trace.steps[block], return_index=True)
        found[np.searchsorted(number, steps)] = phase[block][first]
    return Phases(number, found, recorded=True)


def _warm_up(trace: RoutingTrace, lacks_last: NDArray[np.bool_], prompt: NDArray[np.bool_]) -> int:
    """The warm-up steps: two tokens and one output row before more prompt, as one step of two or two of one."""
    if trace.format not in ("", "runtime-jsonl"):
        return 0
    first_layer = [trace.n_tokens[block][trace.layer[block] == trace.layers[0]][:3] for block in blocks(trace.calls)]
    tokens = np.concatenate(first_layer)
    for steps in (1, 2):
        alone = not lacks_last[steps - 1] and lacks_last[: steps - 1].all() if len(prompt) > steps else False
        if alone and prompt[steps] and len(tokens) > steps and tokens[:steps].sum() == 2:
            return steps
    return 0
