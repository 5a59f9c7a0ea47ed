"""What measured speeds teach about a machine, and which of them its parts cannot explain."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput, Incomplete, UnknownName, Unsupported, shown
from flashmoe_sim.io.sections import speed
from flashmoe_sim.machines.anchors import SPEED_SD
from flashmoe_sim.machines.belief import SD_90, Draws, ends, error_draws, error_loads
from flashmoe_sim.machines.learning import Learner, Observation
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.machines.normal_unknowns import LEARNT, Loads
from flashmoe_sim.measured.by_hand import BY_HAND
from flashmoe_sim.measured.causes import FEWEST, Cause, Ran, explained
from flashmoe_sim.measured.read import read_with_notes
from flashmoe_sim.measured.usable import PROMPT_TOKENS, Usable, alike_once, spread, usable
from flashmoe_sim.measured.value import Measured, distinct
from flashmoe_sim.options import MemoryOptions
from flashmoe_sim.residency.workload import Workload
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import Replays, at_setting, speed_of
from flashmoe_sim.systems.resolve import resolve
from flashmoe_sim.systems.table import parse_system

NARROWEST = 1e-9
DOUBTED = 2.0  # standard deviations from what is expected: one right measurement in twenty is as far off
NOTABLE = 1.3  # standard deviations: one right measurement in ten is as slow
MOST, MOST_TRIED = 8, 24  # measurements that are learnt from, and tried: 60 speeds teach hardly more, and take minutes
ROOM, ROOMS = 1.15, ("gpu.memory_gib", "memory.ram_gib")  # a plan of memory may be wrong by so much


class Expected(NamedTuple):
    """A predicted speed with its 90% interval, in tokens a second."""

    lo: float
    tok_s: float
    hi: float

    @property
    def in_words(self) -> str:
        """As it is printed."""
        return f"{speed(self.tok_s)} tok/s ({speed(self.lo)} to {speed(self.hi)})"

    def off(self, tok_s: float, sd: float = 0.0) -> float:
        """How many standard deviations a speed is from it. sd: of the measurement's logarithm, beside the interval."""
        far = math.log(tok_s / self.tok_s)
        end = math.log((self.hi if far > 0 else self.lo) / self.tok_s) / SD_90
        return far / math.hypot(end, sd, NARROWEST)


@dataclass(frozen=True, eq=False)
class Seen:
    """A measurement as the program sees it.

    ran: what ran, on the machine as given. on: its expected speed on a machine. before: without any measurement.
    other_model: its model, if it is not the one in question.
    """

    measured: Measured
    ran: Ran
    on: Callable[[Machine], Expected]
    before: Expected
    other_model: str = ""

    @property
    def observation(self) -> Observation:
        """Its speed, for `machines.learning`."""
        return self.ran.observation

    def off(self, expected: Expected) -> float:
        """How many standard deviations it is from what is expected."""
        return expected.off(self.measured.tok_s, self.measured.sd or 0.0)


class Turn(NamedTuple):
    """A measurement, and what is expected of it after so many others that taught something."""

    seen: Seen
    expected: Expected
    others: int

    @property
    def doubted(self) -> bool:
        """Whether it is too far from that to teach anything."""
        return abs(self.seen.off(self.expected)) > DOUBTED


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
    Raises BadInput for what cannot be read, and if no speed is of use; what only some lack is a note.
    """
    texts = [given] if isinstance(given, str | Path) else list(given)
    of = model if workload is None else workload.geometry
    read = [read_with_notes(text) for text in texts]
    measured = distinct(one for each in read for one in each.measured)
    seen, notes = _several(measured, machine, workload, of)
    notes = [*alike_once(note for each in read for note in each.left_out), *notes]
    notes += dict.fromkeys(filter(None, (of_another(one, machine) for one in measured)))
    learner = Learner(machine)
    turns = list(in_turn(seen, learner))
    notes += [_doubt(turn) if turn.doubted else _learnt(turn) for turn in turns]
    return learner.after([turn.seen.observation for turn in turns if not turn.doubted], notes)


def in_turn(seen: Iterable[Seen], learner: Learner) -> Iterator[Turn]:
    """Measurements with what is expected of each after those before it that teach something, the likeliest first."""
    used, found = list[Observation](), learner.machine
    for one in sorted(seen, key=lambda one: abs(one.off(one.before))):
        turn = Turn(one, one.on(found) if used else one.before, len(used))
        yield turn
        if not turn.doubted:
            used.append(one.observation)
            found = learner.after(used, roughly=True)


def _several(
    measured: Sequence[Measured], machine: Machine, workload: Workload | None, model: ModelGeometry | None
) -> tuple[list[Seen], list[str]]:
    """At most MOST of the measurements, as different as they can be, with a line on each kind that is not used.

    Raises BadInput for one that was given by hand, and if none is left but those that a word from the user would mend.
    """
    fit, refused = list[Usable](), list[tuple[Measured, BadInput]]()
    for one in measured:
        try:
            fit.append(usable(one, machine, model))
        except BadInput as error:
            _by_hand_or(refused, one, error)
    seen, left = list[Seen](), spread(fit, MOST, in_question="" if model is None else model.name)
    tried = 0
    for tried, (one, geometry) in enumerate(left, 1):
        try:
            seen.append(_seen(one, geometry, machine, workload, model))
        except BadInput as error:
            _by_hand_or(refused, one, error)
        if len(seen) == MOST or tried == MOST_TRIED:
            break
    mended = [(one, error) for one, error in refused if not isinstance(error, UnknownName | Unsupported)]
    if not seen and mended:
        raise next((error for one, error in mended if not one.prompt), mended[0][1])
    notes = alike_once(f"{one.where}: {_reason(one, error)}" for one, error in refused)
    if len(fit) > tried:
        notes.append(f"{len(seen)} of {len(fit):,} speeds are used, spread over settings and depths; more teach little")
    return seen, notes


def _by_hand_or(refused: list[tuple[Measured, BadInput]], one: Measured, error: BadInput) -> None:
    """Note a measurement that is not used. Raises the error if it was given by hand."""
    if one.where.startswith(BY_HAND):
        raise error
    refused.append((one, error))


def _reason(one: Measured, error: BadInput) -> str:
    """Why a measurement is not used, without its own numbers."""
    if isinstance(error, Incomplete) and not one.system:
        return one.unplaced or "does not say where the experts were"
    return error.found.removeprefix(f"{one.where}: ")


def of_another(one: Measured, machine: Machine) -> str:
    """A line if a file names a GPU that is not this machine's; empty if it names none, or the machine does not."""
    gpu = one.settings.get("gpu", "")
    theirs, ours = ({*re.findall(r"[a-z]*\d{3,4}|\bm\d\b", text.lower())} for text in (gpu, machine.title))
    if not theirs or not ours or theirs & ours:
        return ""
    file = one.where.partition(": ")[0]
    return f"{file}: ran on {shown(gpu)}, and this is {machine.title}; leave it out if it is of another machine"


def seen_on(one: Measured, machine: Machine, workload: Workload | None, model: ModelGeometry | None) -> Seen:
    """A measurement with its expected speed on a machine, whether or not the machine's parts can explain it.

    workload, model: in question; a measurement that names another known model is of that one.
    Raises BadInput for an unknown model, for a setting that cannot have run, and without the place of its experts.
    """
    return _seen(*usable(one, machine, model), machine, workload, model)


def _seen(
    one: Measured,
    geometry: ModelGeometry,
    machine: Machine,
    workload: Workload | None,
    model: ModelGeometry | None,
) -> Seen:
    system = parse_system(one.system)
    tokens = (one.tokens or PROMPT_TOKENS) if one.prompt else 0
    known = geometry.attention is not None
    depth = one.depth if known or one.depth > PROMPT_TOKENS else 0  # so few tokens take little time in any model
    on = resolve(
        workload=workload if model is not None and geometry is model else None,
        model=geometry,
        machine=machine,
        systems=system,
        memory=MemoryOptions(
            context=max(depth + (one.tokens or 0), PROMPT_TOKENS) if known else None,
            depth=depth,
            kv_type=one.settings.get("type_k"),
        ),
        must_fit=False,
    )
    assert on.workload is not None
    case = _with_room(one, on.case, system)
    larger = case is not on.case
    system = system if system.size_given else system.sized(case)
    speed_on = speed_of(on.workload, case, system, prompt_tokens=tokens)
    whose = system.whose(geometry.base_name)
    replays: Replays = {}

    def run(machine: Machine, *, interval: bool) -> tuple[Draws, Expected]:
        ran = at_setting(
            on.workload,
            replace(case, machine=machine),
            system,
            borrowed=bool(on.borrowed),
            interval=interval,
            prompt_tokens=tokens,
            replays=replays,
        )
        draws, tok_s = (ran.prompt_draws, ran.prompt_tok_s) if one.prompt else (ran.draws, ran.tok_s)
        if draws is None or tok_s is None:
            raise Unsupported(f"{one.where}: {system.spec}: {ran.why_not or 'the trace has nothing to time'}")
        logs = np.log(draws / tok_s)
        lo, hi = ends(tok_s, logs)
        return logs, Expected(lo, tok_s, hi)

    text, _ = run(case.machine, interval=False)
    unknown = text - error_draws(machine, whose, prompt=one.prompt)
    loads = error_loads(machine, whose, prompt=one.prompt)
    seen = observed(one.tok_s, speed_on, loads, unknown=unknown, sd=one.sd or 0.0)

    def on_it(machine: Machine) -> Expected:
        return run(_larger(machine) if larger else machine, interval=True)[1]

    other = "" if model is None or geometry.name == model.name else geometry.name
    ran = Ran(system, replace(case, machine=machine), seen, prompt=one.prompt, depth=one.depth)
    return Seen(one, ran, on_it, on_it(machine), other)


def observed(
    tok_s: float, speed_on: Callable[[Machine], float], loads: Loads, *, unknown: Draws, sd: float = 0.0
) -> Observation:
    """A speed for `machines.learning`. unknown: draws of what neither the machine nor the engine explains.

    sd: of the measurement's logarithm. speed_on, loads: as in `Observation`.
    """
    return Observation(tok_s, speed_on, loads, math.hypot(SPEED_SD, sd, float(np.std(unknown))))


def _with_room(one: Measured, case: Case, system: System) -> Case:
    """The case, with as much more memory as a plan may be wrong if the setting needs it: it ran.

    Raises BadInput if it cannot have run even so.
    """
    try:
        system.check(case)
    except BadInput as error:
        larger = with_more_memory(case)
        try:
            system.check(larger)
        except BadInput:
            what = f"{one.where}: {system.spec} cannot have run on {case.machine.name}: {error}"
            raise type(error)(f"{what}{_what_fits(system, case)}; check the setting and the parts") from None
        return larger
    return case


def _what_fits(system: System, case: Case) -> str:
    """The least layers on the CPU that fit, for an engine that places layers."""
    given = getattr(system, "cpu_layers", None)
    if given is None:
        return ""
    for layers in range(given + 1, len(case.model.layers) + 1):
        other = replace(system, cpu_layers=layers)  # type: ignore[call-arg]
        with suppress(BadInput):
            other.check(case)
            return f"; {other.spec} would fit"
    return ""


def with_more_memory(case: Case) -> Case:
    """The case on a machine with as much more memory as a plan may be wrong."""
    return replace(case, machine=_larger(case.machine))


def _larger(machine: Machine) -> Machine:
    known = dict(machine.quantities())
    return machine.with_values({path: ROOM * known[path].value for path in ROOMS if path in known})


def _learnt(turn: Turn) -> str:
    """What was learnt from, and likely reasons if it is slow."""
    one, expected, _ = turn
    sentence = f"{LEARNT} {_what(one)}; {one.before.in_words} was expected"
    if one.off(expected) > -NOTABLE:
        return sentence
    likely = _in_words(_causes(one, expected)[:FEWEST])
    return f"{sentence}; that is slow for these parts: perhaps {likely}"


def _causes(one: Seen, expected: Expected) -> list[Cause]:
    sd = math.log(expected.hi / expected.lo) / (2 * SD_90)
    return explained(one.ran, (math.log(expected.tok_s), sd))


def _in_words(causes: Iterable[Cause]) -> str:
    return "; or ".join(f"{cause.what} ({cause.tell})" for cause in causes)


def _doubt(turn: Turn) -> str:
    """That a measurement is not used, and the most likely reasons."""
    one, expected, others = turn
    times = one.measured.tok_s / expected.tok_s
    ratio = f"{times:.1f} times" if times > 1 else f"1/{1 / times:.1f} of"
    before = " after the other measurements" if others else ""
    likely = _in_words(_causes(one, expected))
    return f"not used: {_what(one)} is {ratio} what is expected{before}, {expected.in_words}. Most likely {likely}"


def _what(one: Seen) -> str:
    depth = f" at a depth of {one.measured.depth:,}" if one.measured.depth else ""
    what = "prompt at " if one.measured.prompt else ""
    where = one.measured.where
    name = "" if where.startswith(BY_HAND) else f"{where}: "
    model = f" with {one.other_model}" if one.other_model else ""
    return f"{name}{one.ran.system.spec}{model}, {what}{speed(one.measured.tok_s)} tok/s{depth}"
