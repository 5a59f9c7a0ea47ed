"""What measured speeds teach about a machine, and which of them its parts cannot explain."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.named import name_in, named_model, named_models
from flashmoe_sim.io.cells import speed
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sizes import size
from flashmoe_sim.machines.anchors import SPEED_SD
from flashmoe_sim.machines.belief import SD_90, error_draws, error_loads
from flashmoe_sim.machines.learning import Observation, after, expected
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.measured.causes import explained
from flashmoe_sim.measured.read import read_measured
from flashmoe_sim.measured.value import Measured, distinct, missing
from flashmoe_sim.options import MemoryOptions
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import at_setting, speed_of
from flashmoe_sim.systems.resolve import resolve
from flashmoe_sim.systems.table import parse_system

DOUBTED = 2.0  # standard deviations from what is expected: one right measurement in twenty is as far off
SAME_FILE = 0.85  # of the bytes of the larger of two files: less is another quantisation
ROOM, ROOMS = 1.15, ("gpu.memory_gib", "memory.ram_gib")  # a plan of memory may be wrong by so much
PROMPT_TOKENS = 512  # of a timed prompt whose length is not told


@dataclass(frozen=True, eq=False)
class _Seen:
    """A measurement as the program sees it, with what is expected of it without any: mean and sd of the logarithm,
    and as it is printed."""

    measured: Measured
    system: System
    observation: Observation
    expected: tuple[float, float]
    printed: str

    @property
    def off(self) -> float:
        """How many standard deviations it is from what is expected."""
        return _off(self.observation, self.expected)


def learn_from(
    given: str | Path | Iterable[str | Path],
    machine: Machine,
    *,
    workload: Workload | None = None,
    model: ModelGeometry | None = None,
) -> Machine:
    """A machine after what engines printed of their speed on it.

    given: files or texts, as `read_measured` takes them. workload, model: in question; a measurement that names another
    known model is of that one. A measurement that the machine cannot explain, after those that it can, teaches nothing,
    and the machine's notes say what may be the reason.
    Raises BadInput for what cannot be read, of an unknown model, or without the place of its experts.
    """
    texts = [given] if isinstance(given, str | Path) else list(given)
    of = model if workload is None else workload.geometry
    seen = [_seen(one, machine, workload, of) for one in distinct(one for text in texts for one in read_measured(text))]
    used, notes = list[_Seen](), list[str]()
    for one in sorted(seen, key=lambda one: abs(one.off)):
        now = expected(machine, one.observation, [other.observation for other in used])
        if abs(_off(one.observation, now)) > DOUBTED:
            notes.append(_doubt(one, now, machine, others=bool(used)))
        else:
            used.append(one)
    return after(machine, [one.observation for one in used], [*map(_learnt, used), *notes])


def _seen(one: Measured, machine: Machine, workload: Workload | None, model: ModelGeometry | None) -> _Seen:
    system = parse_system(_system(one, machine))
    geometry = _model(one, model)
    tokens = (one.tokens or PROMPT_TOKENS) if one.prompt else 0
    on = resolve(
        workload=workload if model is not None and geometry is model else None,
        model=geometry,
        machine=machine,
        systems=system,
        memory=MemoryOptions(
            context=max(one.depth + (one.tokens or 0), PROMPT_TOKENS),
            depth=one.depth,
            kv_type=one.told.get("type_k"),
        ),
        must_fit=False,
    )
    assert on.workload is not None
    case = _with_room(one, on.case, system)
    system = system if system.size_given else system.sized(case)
    speed_on = speed_of(on.workload, case, system, prompt_tokens=tokens)
    whose = system.whose._replace(model=geometry.base_name)
    loads = error_loads(machine, whose, prompt=one.prompt)
    said, timed = (
        at_setting(on.workload, case, system, borrowed=bool(on.borrowed), interval=interval, prompt_tokens=tokens)
        for interval in (True, False)
    )
    draws, tok_s = (timed.prompt_draws, timed.prompt_tok_s) if one.prompt else (timed.draws, timed.tok_s)
    text_sd = 0.0
    if draws is not None and tok_s is not None:
        text_sd = float(np.std(np.log(draws / tok_s) - error_draws(machine, whose, prompt=one.prompt)))
    seen = Observation(one.tok_s, speed_on, loads, math.hypot(SPEED_SD, one.sd or 0.0, text_sd))
    lo, hi = (said.prompt_tok_s_lo, said.prompt_tok_s_hi) if one.prompt else (said.tok_s_lo, said.tok_s_hi)
    printed = f"{speed(tok_s)} tok/s ({speed(lo)} to {speed(hi)})"
    return _Seen(one, system, seen, expected(machine, seen), printed)


def _with_room(one: Measured, case: Case, system: System) -> Case:
    """The case, with as much more memory as a plan may be wrong if the setting needs it: it ran.

    Raises BadInput if it cannot have run even so.
    """
    try:
        system.check(case)
    except BadInput as error:
        roomy = case.machine
        for path in ROOMS:
            if (room := dict(roomy.quantities()).get(path)) is not None:
                roomy = roomy.varied(path, ROOM * room.value)
        larger = replace(case, machine=roomy)
        try:
            system.check(larger)
        except BadInput:
            what = f"{one.where}: {system.spec} cannot have run on {case.machine.name}: {error}"
            raise BadInput(f"{what}; check the setting and the parts") from None
        return larger
    return case


def _system(one: Measured, machine: Machine) -> str:
    """The system that ran: as told, or the only one that a machine leaves open."""
    if one.system:
        return one.system
    if machine.unified and machine.gpu is not None and not one.unplaced:
        return "all-gpu"
    if machine.gpu is None:
        return "cpu"
    raise BadInput(missing(one))


def _model(one: Measured, asked: ModelGeometry | None) -> ModelGeometry:
    """The model that ran: the one in question unless the measurement names another."""
    if not one.model:
        if asked is None:
            raise BadInput(f"{one.where}: does not say which model ran; give it with --model")
        return asked
    if asked is not None and one.model_bytes is not None and _alike(one.model_bytes, _bytes(asked)):
        return asked
    try:
        name = name_in(one.model.replace(":", "-"))
    except BadInput as error:
        raise BadInput(f"{one.where}: {error}; give the speed by hand: --measured SYSTEM={one.tok_s:.4g}") from None
    quant, known = one.quant.lower().replace("-", "_"), named_models()[name].quants
    found = named_model(f"{name}:{quant}" if quant in known else name)
    if asked is not None and name == asked.base_name and (not quant or quant == asked.quant or quant not in known):
        found = asked
    if one.model_bytes is None or _alike(one.model_bytes, _bytes(found)):
        return found
    raise BadInput(
        f"{one.where}: a file of {size(one.model_bytes or 0)} of {name}, which has {size(_bytes(found))} at "
        f"{found.quant}; give that file as --model, or a measurement of the quantisation in question"
    )


def _bytes(model: ModelGeometry) -> int:
    return model.routed_bytes + (model.dense_bytes or 0)


def _alike(one: int, other: int) -> bool:
    return min(one, other) >= SAME_FILE * max(one, other)


def _off(one: Observation, now: tuple[float, float]) -> float:
    return (math.log(one.tok_s) - now[0]) / now[1]


def _learnt(one: _Seen) -> str:
    return f"learnt from {_what(one)}; {one.printed} was expected"


def _doubt(one: _Seen, now: tuple[float, float], machine: Machine, *, others: bool) -> str:
    """That a measurement is not used, and the most likely reasons."""
    times = one.measured.tok_s / math.exp(now[0])
    ratio = f"{times:.1f} times" if times > 1 else f"1/{1 / times:.1f} of"
    expects = f"expected after the other measurements, {_range(now)}" if others else f"expected, {one.printed}"
    causes = explained(one.observation, now, machine, prompt=one.measured.prompt)
    likely = "; or ".join(f"{cause.said} (see {cause.tell})" for cause in causes)
    return f"not used: {_what(one)} is {ratio} what is {expects}. Most likely {likely}"


def _what(one: _Seen) -> str:
    depth = f" at a depth of {one.measured.depth:,}" if one.measured.depth else ""
    what = "prompt at " if one.measured.prompt else ""
    where = one.measured.where
    name = "" if where.startswith("--measured") else f"{where}: "
    return f"{name}{one.system.spec}, {what}{speed(one.measured.tok_s)} tok/s{depth}"


def _range(now: tuple[float, float]) -> str:
    lo, middle, hi = (math.exp(now[0] + sign * SD_90 * now[1]) for sign in (-1, 0, 1))
    return f"{speed(middle)} tok/s ({speed(lo)} to {speed(hi)})"
