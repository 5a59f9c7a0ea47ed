"""What shows that a system is as fast as predicted, and which one an answer names first."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import NEAR, Compared
from flashmoe_sim.systems.facts import YES
from flashmoe_sim.tune.objective import Objective

# A few speeds say less of an engine's error than all speeds of all engines: theirs counts as so many more.
SHARED_ROWS = 2
OF_90 = 1.645 / 0.6745  # the 90 % interval of an error is as many times as wide as half of all errors
MAIN_LINE = "llama-cpp"
ANY_OS = {"linux", "windows"}


@dataclass(frozen=True)
class Proof:
    """Published speeds of a system that bear on a case.

    rows: of this architecture on this kind of GPU. arch: the architecture, for words. every: of this system in all.
    error: by how much a predicted gain may be off in nine of ten cases, as a share. served: whether code and authors
    agree that the engine runs the architecture. there: whether it runs on the machine's operating system, as far as
    that is known.
    common: whether anybody can install the engine.
    """

    rows: int
    arch: str
    every: int
    error: float
    served: bool
    there: bool
    common: bool

    @property
    def shown(self) -> bool:
        """Whether somebody has published its speed for this architecture and kind of GPU."""
        return self.rows > 0 and self.served and self.there

    @property
    def words(self) -> str:
        """`3 speeds`, or why there is no proof."""
        if self.rows:
            return f"{self.rows} speed{'s' * (self.rows > 1)}"
        return "no speed" if self.common else "unproven"

    @property
    def sentence(self) -> str:
        """On how many speeds a prediction rests, of which architecture."""
        speeds = "no published speed" if not self.rows else f"{self.rows} published speed{'s' * (self.rows > 1)}"
        arch = self.arch or "an unknown architecture"
        return f"{speeds} of this engine with {arch} on such a machine, {self.every} in all"


@cache
def checked() -> dict[str, Any]:
    """Errors of the last check of each system, written by `./dev report`."""
    return tomllib.loads(resources.files("flashmoe_sim.tune").joinpath("checked.toml").read_text())


def proof(system: System, case: Case) -> Proof:
    """What shows that a system runs as predicted on a case."""
    published = checked()["published"]
    own, shared = published.get(system.name, {}), published["all"]["median_error"]
    arch, api = case.model.arch, case.machine.api if system.uses_gpu else ""
    of = [one for one in own.get("of", ()) if one["arch"] == arch and one["api"] == api]
    rows = sum(one["rows"] for one in of)
    median = (sum(one["rows"] * one["median_error"] for one in of) + SHARED_ROWS * shared) / (rows + SHARED_ROWS)
    error = (1 + median) ** OF_90 - 1
    served = system.facts is None or system.facts.status(case.model) == YES
    return Proof(rows, arch, own.get("rows", 0), error, served, runs_there(system, case.machine), system.common)


def runs_there(system: System, machine: Machine) -> bool:
    """Whether the engine runs on the machine's operating system; if that is not known, on any that it may have."""
    if system.facts is None:
        return True
    runs_on = set(system.facts.platform.os)
    return machine.os in runs_on if machine.os else runs_on >= ANY_OS


def first(found: Sequence[Compared], case: Case, objective: Objective) -> Compared | None:
    """The system that an answer names first, of one setting of each; None if none runs.

    An engine that anybody can install stands first, unless another one is shown to run this architecture on this kind
    of GPU, and gains more than the error of the speeds that show it. An engine that changes the text, or one without
    proof, stands first only if nothing else runs.
    """
    ran = [one for one in found if objective.seconds(one) is not None]
    same_text = [one for one in ran if not one.system.changes_text(case)] or ran
    there = [one for one in same_text if runs_there(one.system, case.machine)] or same_text
    plain = pick([one for one in there if one.system.common], objective)
    leading = [] if plain is None else [plain]
    for one in there:
        if (
            not one.system.common
            and proof(one.system, case).shown
            and (plain is None or _gains(one, plain, case, objective))
        ):
            leading.append(one)
    return pick(leading or there, objective)


def _gains(one: Compared, plain: Compared, case: Case, objective: Objective) -> bool:
    mine, theirs = objective.seconds(one), objective.seconds(plain)
    assert mine
    assert theirs
    return theirs / mine > 1 + proof(one.system, case).error


def kept_bytes(found: Compared) -> int:
    """The bytes that a system keeps in both memories."""
    return (found.gpu_bytes or 0) + (found.ram_bytes or 0)


def pick(tried: Sequence[Compared], objective: Objective) -> Compared | None:
    """Of the settings within 3 % of the fastest, the one without slot aliasing that uses least memory; None if none
    runs.

    The ratio of two settings' seconds on one machine is only certain to 3 %, so nearer ones count as equal. If two
    use equal memory, llama.cpp itself is chosen. A setting that may not fit is chosen only if all may not.
    """
    ran = [(seconds, one) for one in tried if (seconds := objective.seconds(one)) is not None]
    timed = [(seconds, one) for seconds, one in ran if not one.tight] or ran
    if not timed:
        return None
    least = min(seconds for seconds, _ in timed)
    near = [(seconds, one) for seconds, one in timed if seconds * (1 - NEAR) <= least]
    return min(near, key=lambda item: (*_cost(item[1]), item[0]))[1]


def _cost(found: Compared) -> tuple[bool, int, bool]:
    return bool(found.aliased_share), kept_bytes(found), found.system.program != MAIN_LINE
