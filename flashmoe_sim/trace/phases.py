"""Which steps are prompt and which are decode, if that was not recorded."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, PHASE_UNKNOWN, RoutingTrace


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

    def of_calls(self, trace: RoutingTrace) -> NDArray[np.uint8]:
        """The phase of each call, u8 [calls]."""
        if self.recorded and trace.phase is not None:
            return trace.phase
        return self.phase[np.searchsorted(self.number, trace.steps)]


def find_phases(trace: RoutingTrace) -> Phases | None:
    """The phases as recorded, else inferred from what the last layer computed; None if neither is possible.

    During a prompt the last layer computes only the output rows: depending on the architecture it has no call, or one
    without tokens. A step without the last layer, or with more than one token in a call, is therefore a prompt; so is
    the complete step that ends a run of steps without the last layer, since it has the prompt's last token. A single
    step without the last layer at the end of the trace may merely be cut short: its phase is unknown.
    """
    if not trace.calls:
        return None
    number, first, step = np.unique(trace.steps, return_index=True, return_inverse=True)
    if trace.phase is not None:
        return Phases(number, trace.phase[first], recorded=True) if trace.phase.any() else None
    lacks_last = np.ones(len(number), dtype=np.bool_)
    lacks_last[step[(trace.layer == trace.layers[-1]) & trace.has_refs]] = False
    wide = np.zeros(len(number), dtype=np.bool_)
    wide[step[trace.n_tokens > 1]] = True
    if len(trace.layers) < 2 or not (lacks_last | wide).any():
        return None
    prompt = lacks_last | wide
    prompt[1:] |= lacks_last[:-1]
    phase = np.where(prompt, PHASE_PROMPT, PHASE_DECODE).astype(np.uint8)
    if lacks_last[-1] and not wide[-1] and (len(phase) == 1 or phase[-2] == PHASE_DECODE):
        phase[-1] = PHASE_UNKNOWN
    return Phases(number, phase, recorded=False, warm_up_steps=_warm_up(trace, step, lacks_last, prompt))


def _warm_up(
    trace: RoutingTrace, step: NDArray[np.intp], lacks_last: NDArray[np.bool_], prompt: NDArray[np.bool_]
) -> int:
    """The warm-up steps: two tokens and one output row before more prompt, as one step of two or two of one."""
    if trace.format not in ("", "runtime-jsonl"):
        return 0
    tokens = trace.n_tokens[trace.layer == trace.layers[0]]
    for steps in (1, 2):
        alone = not lacks_last[steps - 1] and lacks_last[: steps - 1].all() if len(prompt) > steps else False
        if alone and prompt[steps] and len(tokens) > steps and tokens[:steps].sum() == 2:
            return steps
    return 0
