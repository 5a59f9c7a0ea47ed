"""Measurements with their model and system, and the work that they did and that no prediction has."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar

from flashmoe_sim.geometry.compute_buffers import MICRO_BATCH
from flashmoe_sim.geometry.model import DEFAULT_TYPE, ModelGeometry
from flashmoe_sim.io.errors import Incomplete, Unsupported
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.measured.value import FEW_PROMPT, Measured, known_by_hand, missing
from flashmoe_sim.measured.which import model_that_ran
from flashmoe_sim.systems.llama_flags import IK, UNSURE, system_of

PROMPT_TOKENS = 512  # of a timed prompt of unknown length
FEW_AT_ONCE = 0.5  # of the tokens that are predicted to be read together; fewer are slower
OFF = {"0", "off", "disabled", "false"}


class Usable(NamedTuple):
    """A measurement of a known model with a system."""

    measured: Measured
    geometry: ModelGeometry

    @property
    def group(self) -> tuple[Any, ...]:
        """What it has in common with others that differ by depth, length or repeat."""
        return self.geometry.name, self.measured.system, self.measured.prompt


def with_layers(measured: Measured, layers: int) -> Measured:
    """The measurement with its system, if only the number of the model's layers was missing."""
    if not measured.unplaced.endswith(UNSURE):
        return measured
    system, why = system_of(measured.settings, engine=measured.engine, prompt=measured.prompt, layers=layers)
    return replace(measured, system=system, unplaced=why)


def usable(one: Measured, machine: Machine, model: ModelGeometry | None) -> Usable:
    """A measurement with its model and system. Raises BadInput if it has none, or did other work than is predicted."""
    geometry = model_that_ran(one, model)
    if why := _other_work(one, geometry) or _other_split(one, machine):
        raise Unsupported(why, where=one.where)
    one = with_layers(one, max(geometry.layers) + 1)
    return Usable(replace(one, system=_system(one, machine)), geometry)


def _other_work(one: Measured, geometry: ModelGeometry) -> str:
    """What an engine did that no prediction has, or empty."""
    settings, name = one.settings, geometry.name
    experts = {layer.n_experts for layer in geometry.layers.values()}
    used, of = (
        int(settings[key]) if settings.get(key, "").isdecimal() else None for key in ("experts_used", "experts")
    )
    if used is not None and geometry.top_k is not None and used != geometry.top_k:
        return f"computes {used} experts for each token, and {name} has {geometry.top_k}"
    if of is not None and of not in experts:
        return f"has {of} experts in a layer, and {name} has {max(experts)}" if of else "has no experts (n_expert = 0)"
    if one.prompt and one.tokens is not None and one.tokens < FEW_PROMPT:
        return f"has a prompt of fewer than {FEW_PROMPT} tokens, which says little"
    if one.prompt and one.system in ("all-gpu", "cpu", "cpu-ik"):
        batch = min(int(settings.get(key, MICRO_BATCH)) for key in ("ubatch", "batch"))
        if batch < FEW_AT_ONCE * min(one.tokens or PROMPT_TOKENS, MICRO_BATCH):
            return f"reads its prompt {batch} tokens at a time, and {one.system} {MICRO_BATCH}"
    if one.depth <= PROMPT_TOKENS or geometry.attention is None:
        return ""
    if settings.get("flash_attn", "on") in OFF:
        return "has no flash attention at this depth, which is not predicted"
    keys, values = (settings.get(name, DEFAULT_TYPE) for name in ("type_k", "type_v"))
    if keys != values and not any(layer.latent for layer in geometry.attention.layers):
        return f"has keys of {keys} and values of {values}, and both are predicted of one type"
    return ""


def _other_split(one: Measured, machine: Machine) -> str:
    """That several GPUs shared the work otherwise than by whole layers, or empty."""
    mode = one.settings.get("split_mode", "layer")
    several = machine.gpus > 1 or len(machine.cards) > 1
    return f"splits the model by {mode} between GPUs, and layers are predicted" if several and mode != "layer" else ""


def _system(one: Measured, machine: Machine) -> str:
    """The system that ran: as given, or the only one that this machine can run."""
    if one.system:
        return one.system
    if not known_by_hand(one):
        raise Unsupported(one.unplaced, where=one.where)
    if machine.unified and machine.gpu is not None and not {"n_gpu_layers", "elsewhere"} & set(one.settings):
        return "all-gpu"
    if machine.gpu is None:
        return "cpu-ik" if one.engine == IK else "cpu"
    raise Incomplete(missing(one))


T = TypeVar("T")
_PLACE = re.compile(r"(.*?: )((?:line|test|result|record|entry) \d+: )(.*)", re.DOTALL)


def alike_once(lines: Iterable[str]) -> list[str]:
    """Each line on what is not used, once for all places in a file."""
    found: dict[tuple[str, str], list[str]] = {}
    for line in lines:
        place = _PLACE.match(line)
        file, where, why = (place[1], place[2], place[3]) if place else ("", "", line)
        found.setdefault((file, why), []).append(where)
    return [
        f"not used: {file}{places[0]}{why}" + (f"; and {len(places) - 1:,} more" if len(places) > 1 else "")
        for (file, why), places in found.items()
    ]


def spread(usable: Sequence[Usable], most: int, *, in_question: str) -> list[Usable]:
    """The measurements in an order in which the first `most` differ most, in their settings and then in depth."""
    if len(usable) <= most:
        return list(usable)
    groups: dict[tuple[Any, ...], list[Usable]] = {}
    for one in usable:
        groups.setdefault(one.group, []).append(one)
    each = [sorted(group, key=lambda one: (one.measured.depth, one.measured.tokens or 0)) for group in groups.values()]
    each = [group for of_it in (True, False) for group in _far_apart(_of_model(each, in_question, of_it))]
    turns = zip_longest(*(_far_apart(group) for group in each))
    return [one for turn in turns for one in turn if one is not None]


def _of_model(groups: list[list[Usable]], name: str, of_it: bool) -> list[list[Usable]]:
    return [group for group in groups if (group[0].geometry.name == name) == of_it]


def _far_apart(ordered: Sequence[T]) -> list[T]:
    """The values in another order: both ends first, then the middle of the largest gap, and so on."""
    last = len(ordered) - 1
    places, gaps = [0, last][: len(ordered)], deque([(0, last)])
    while gaps:
        lo, hi = gaps.popleft()
        if hi - lo > 1:
            middle = (lo + hi) // 2
            places.append(middle)
            gaps += [(lo, middle), (middle, hi)]
    return [ordered[place] for place in places]
