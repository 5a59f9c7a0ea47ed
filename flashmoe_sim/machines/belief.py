"""Draws of everything uncertain, from which every interval and every "faster than" is read."""

from __future__ import annotations

import math
import tomllib
import zlib
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib import resources
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.machines.machine import Machine, Quantity
from flashmoe_sim.machines.normal_unknowns import Learnt, Loads

DRAWS = 512
SD_90 = 1.645  # standard deviations from the centre to either end of a 90% interval
ANY = "all"  # an engine that nothing is known of
FITTED = ("", "slot-bank")  # what machines are fitted on
ENDS_OF_90 = (0.05, 0.95)

Draws = NDArray[np.float64]


class Whose(NamedTuple):
    """Whose speed is predicted: a system, its program, its setting and its model; empty if not known."""

    system: str = ""
    program: str = ""
    setting: str = ""
    model: str = ""


@cache
def normals(name: str) -> Draws:
    """Standard normal draws of one unknown: f64 [512], one from each 512th of the probability.

    The name alone decides their order, so unknowns are independent, and one unknown is the same in every prediction.
    Source: Latin hypercube sampling (McKay, Beckman and Conover 1979, Technometrics 21, 2).
    """
    found = np.random.default_rng(zlib.crc32(name.encode())).permutation(_strata())
    found.setflags(write=False)
    return found


@cache
def _strata() -> Draws:
    """The middle of each 512th of a standard normal's probability."""
    return np.array([NormalDist().inv_cdf((number + 0.5) / DRAWS) for number in range(DRAWS)])


def unknown(machine: Machine, name: str) -> Draws:
    """Draws of one unknown on a machine, f64 [512]: standard normal, unless measurements there taught something."""
    learnt = machine.learnt
    return normals(name) if learnt is None or name not in learnt.place else _drawn(learnt)[learnt.place[name]]


@lru_cache(maxsize=8)
def _drawn(learnt: Learnt) -> Draws:
    """Draws of what was learnt, f64 [unknowns, 512]: the symmetric root keeps each close to its draws of before."""
    values, vectors = np.linalg.eigh(learnt.covariance)
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return np.asarray(learnt.mean[:, None] + root @ np.array([normals(name) for name in learnt.names]))


def moved(draws: Draws, at_lo: float, at_hi: float) -> Draws:
    """What an unknown with these standard normal draws adds, if it adds so much at the ends of its 90% interval."""
    here = draws / SD_90
    return np.where(here < 0, -here * at_lo, here * at_hi)


def drawn(machine: Machine, paths: Mapping[str, Quantity], draw: int) -> Machine:
    """The machine in one draw. paths: what varies."""
    return machine.with_values({path: at(one, float(unknown(machine, path)[draw])) for path, one in paths.items()})


def at(quantity: Quantity, deviations: float) -> float:
    """A quantity so many standard deviations from its value, on the scale of its logarithm, unless it may be 0."""
    lo, value, hi = quantity.lo, quantity.value, quantity.hi
    here = deviations / SD_90
    if min(lo, value) > 0:
        return value * math.exp(-here * math.log(lo / value) if here < 0 else here * math.log(hi / value))
    return max(value + (-here * (lo - value) if here < 0 else here * (hi - value)), 0.0)


ANY_ENGINE = Whose()


def error_draws(machine: Machine, whose: Whose | None, *, prompt: bool = False) -> Draws:
    """Logarithms of measured over predicted speed that an engine's published speeds allow: f64 [512].

    Parts of the error are common to all engines on a machine, to all settings of a program, and to a model; the rest is
    a setting's. What measurements taught of it is in `learnt_times`, not here.
    A machine that was fitted on runs of the engine has none; nor has the machine alone, if `whose` is None.
    prompt: of the speed of prompts, which no fit has seen.
    """
    found = np.zeros(DRAWS)
    for name, load in error_loads(machine, whose, prompt=prompt).items():
        found += load * _centred(machine, name)
    return found


def times_of(machine: Machine, whose: Whose | None, *, prompt: bool = False) -> float:
    """How many times as fast as its parts say an engine decodes on a machine, by published speeds of it."""
    if prompt or whose is None or not error_loads(machine, whose):
        return 1.0
    return published_times(whose.system)


def published_times(system: str) -> float:
    """How many times as fast as its parts say people found a system to be; as most are if nobody published a speed.

    1 of those that machines are fitted on, whose recorded runs say how fast they are.
    """
    known: dict[str, float] = errors()["times"]
    return 1.0 if system in FITTED else known.get(system, known[ANY])


def learnt_times(machine: Machine, whose: Whose | None, *, prompt: bool = False) -> float:
    """The same, also by what was measured on the machine."""
    times = times_of(machine, whose, prompt=prompt)
    if machine.learnt is None:
        return times
    return times * math.exp(machine.learnt.of(error_loads(machine, whose, prompt=prompt))[0])


def error_loads(machine: Machine, whose: Whose | None, *, prompt: bool = False) -> Loads:
    """What one standard deviation of each unknown of an engine's error adds to the logarithm of a speed."""
    if whose is None or (not prompt and machine.anchors is not None and whose.system in FITTED):
        return {}
    known, of = errors(), "prompt " if prompt else ""
    sd: float = known["prompts"]["sd"] if prompt else known["sd"].get(whose.system, known["sd"][ANY])
    return {f"{of}{name}": sd * math.sqrt(share) for name, share in shares(whose, known["shares"]).items()}


def shares(whose: Whose, known: Mapping[str, float]) -> dict[str, float]:
    """The share of the square of an error that each unknown has. known: of `common`, `program` and `model`."""
    own = 1 - sum(known.values())
    names = {"common": "engines", "program": f"program {whose.program}", "model": f"model {whose.model}"}
    return {name: known[share] for share, name in names.items()} | {f"setting {whose.setting} {whose.model}": own}


def _centred(machine: Machine, name: str) -> Draws:
    draws, learnt = unknown(machine, name), machine.learnt
    return draws if learnt is None or name not in learnt.place else draws - learnt.mean[learnt.place[name]]


@cache
def errors() -> dict[str, Any]:
    """How far published speeds are from predictions, written by `python -m reports.field`."""
    return tomllib.loads(resources.files("flashmoe_sim.machines").joinpath("errors.toml").read_text("utf-8"))


def ends(value: float, draws: Draws) -> tuple[float, float]:
    """The 90% interval of a value from draws of its logarithm's deviations; it always has the value in it."""
    lo, hi = np.quantile(draws, ENDS_OF_90)
    return value * math.exp(min(float(lo), 0.0)), value * math.exp(max(float(hi), 0.0))
