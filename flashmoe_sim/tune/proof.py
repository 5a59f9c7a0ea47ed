"""What shows that a system is as fast as predicted, and which one an answer names first."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

import numpy as np

from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import NEAR, Compared
from flashmoe_sim.systems.facts import YES
from flashmoe_sim.tune.objective import Objective

SURE = 0.9  # share of the draws in which a fork must be faster than what anybody can install
LEAST_SPEEDS = 2  # published ones that show a fork to run as predicted
MAIN_LINE = "llama-cpp"
ANY_OS = {"linux", "windows"}


@dataclass(frozen=True)
class Proof:
    """Published speeds of a system that bear on a case.

    rows, machines: of this architecture on this kind of GPU, and on how many machines. arch: the architecture, for
    words. every: of this system in all. served: whether code and authors agree that the engine runs the architecture.
    there: whether it runs on the machine's operating system, as far as that is known. common: whether anybody can
    install the engine. where: `on such a GPU` or `on a CPU`.
    """

    rows: int
    machines: int
    arch: str
    every: int
    served: bool
    there: bool
    common: bool
    where: str

    @property
    def shown(self) -> bool:
        """Whether its speed has been published often enough for this architecture and kind of GPU."""
        return self.rows >= LEAST_SPEEDS and self.served and self.there

    @property
    def words(self) -> str:
        """`3 speeds, 1 machine`, or why there is no proof."""
        if self.rows:
            return f"{count(self.rows, 'speed')}, {count(self.machines, 'machine')}"
        return "no speed" if self.common else "unproven"

    @property
    def short(self) -> str:
        """`3 (1)`: speeds, and from how many machines; or why there is no proof."""
        return f"{self.rows} ({self.machines})" if self.rows else self.words

    @property
    def sentence(self) -> str:
        """On how many speeds a prediction rests, of which architecture."""
        speeds = "no published speed"
        if self.rows:
            speeds = f"{count(self.rows, 'published speed')}, on {count(self.machines, 'machine')},"
        arch = self.arch or "an unknown architecture"
        return f"{speeds} of this engine with {arch} {self.where}, {self.every} in all"


@cache
def checked() -> dict[str, Any]:
    """Errors of the last check of each system, written by `./dev report`."""
    return tomllib.loads(resources.files("flashmoe_sim.tune").joinpath("checked.toml").read_text("utf-8"))


def proof(system: System, case: Case) -> Proof:
    """What shows that a system runs as predicted on a case."""
    own = checked()["published"].get(system.name, {})
    arch, api = case.model.arch, case.machine.api if system.uses_gpu else ""
    of = [one for one in own.get("of", ()) if one["arch"] == arch and one["api"] == api]
    rows, machines = (sum(one[key] for one in of) for key in ("rows", "machines"))
    served = system.facts is None or system.facts.status(case.model) == YES
    where = "on such a GPU" if api else "on a CPU"
    there = runs_there(system, case.machine)
    return Proof(rows, machines, arch, own.get("rows", 0), served, there, system.common, where)


def runs_there(system: System, machine: Machine) -> bool:
    """Whether the engine runs on the machine's operating system; if that is not known, on any that it may have."""
    if system.facts is None:
        return True
    runs_on = set(system.facts.platform.os)
    return machine.os in runs_on if machine.os else runs_on >= ANY_OS


def first(found: Sequence[Compared], case: Case, objective: Objective) -> Compared | None:
    """The system that an answer names first, of one setting of each; None if none runs.

    An engine that anybody can install stands first (see `common_first`), unless another one is shown to run this
    architecture on this kind of GPU, and is faster in nine of ten draws. An engine that changes the text, or one
    without proof, stands first only if nothing else runs.
    """
    ran = _in_front([one for one in found if objective.seconds(one) is not None])
    same_text = [one for one in ran if not one.system.changes_text(case)] or ran
    there = [one for one in same_text if runs_there(one.system, case.machine)] or same_text
    plain = common_first(there, objective)
    leading = [] if plain is None else [plain]
    for one in there:
        if (
            not one.system.common
            and proof(one.system, case).shown
            and (plain is None or wins(one, plain, objective) >= SURE)
        ):
            leading.append(one)
    return pick(leading or there, objective)


def common_first(found: Sequence[Compared], objective: Objective) -> Compared | None:
    """What anybody can install that an answer names first, of one setting of each; None if none of it runs.

    Of two as fast, the one that uses the GPU, which also reads prompts faster: the CPU alone stands first only if it is
    faster in nine of ten draws, or if what uses the GPU may not fit. A cache stands before whole layers only if it is
    faster in nine of ten draws, too: on a slow link it is less than half as fast.
    """
    common = _in_front([one for one in found if one.system.common and objective.seconds(one) is not None])
    if plain := pick([one for one in common if not one.system.caches], objective):
        common = [one for one in common if not one.system.caches or wins(one, plain, objective) >= SURE]
    best, on_gpu = pick(common, objective), pick([one for one in common if one.system.uses_gpu], objective)
    if best is None or on_gpu is None or on_gpu.tight or wins(best, on_gpu, objective) >= SURE:
        return best
    return best if best.system.uses_gpu else on_gpu


def _in_front(ran: Sequence[Compared]) -> list[Compared]:
    """Those of the systems that run that do not stand behind another one of them."""
    names = {one.system.name for one in ran}
    return [one for one in ran if one.system.behind not in names]


def wins(one: Compared, other: Compared, objective: Objective) -> float:
    """The share of draws in which a setting takes less time than another one that runs too."""
    mine, theirs = objective.draws_s(one), objective.draws_s(other)
    return float(np.mean(mine < theirs) + np.mean(mine == theirs) / 2)


def count(number: int, what: str) -> str:
    """`1 speed`, `2 speeds`."""
    return f"{number} {what}{'s' * (number != 1)}"


def kept_bytes(found: Compared) -> int:
    """The bytes that a system keeps in both memories."""
    return (found.gpu_bytes or 0) + (found.ram_bytes or 0)


def pick(tried: Sequence[Compared], objective: Objective) -> Compared | None:
    """Of the settings within 3% of the fastest, the one without slot aliasing, of llama.cpp itself rather than of a
    fork, that uses least memory; None if none runs.

    The ratio of two settings' seconds on one machine is only certain to 3%, so nearer ones count as equal. A setting
    that may not fit is chosen only if all may not.
    """
    ran = [(seconds, one) for one in tried if (seconds := objective.seconds(one)) is not None]
    timed = [(seconds, one) for seconds, one in ran if not one.tight] or ran
    if not timed:
        return None
    least = min(seconds for seconds, _ in timed)
    near = [(seconds, one) for seconds, one in timed if seconds * (1 - NEAR) <= least]
    return min(near, key=lambda item: (*_cost(item[1]), item[0]))[1]


def _cost(found: Compared) -> tuple[bool, bool, int]:
    return bool(found.aliased_share), found.system.program != MAIN_LINE, kept_bytes(found)
