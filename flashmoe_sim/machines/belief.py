"""Draws of everything uncertain, from which every interval and every "faster than" is read."""

from __future__ import annotations

import math
import tomllib
import zlib
from collections.abc import Mapping
from functools import cache
from importlib import resources
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.machines.machine import Machine, Quantity

DRAWS = 512
SD_90 = 1.645  # standard deviations from the centre to either end of a 90 % interval
ANY = "all"  # an engine that nothing is known of
FITTED = ("", "slot-bank")  # what machines are fitted on
ENDS_OF_90 = (0.05, 0.95)

Draws = NDArray[np.float64]


class Whose(NamedTuple):
    """Whose speed is predicted: a system, the program that it is part of, and its setting; empty if not known."""

    system: str = ""
    program: str = ""
    setting: str = ""


@cache
def normals(name: str) -> Draws:
    """Standard normal draws of one unknown: f64 [512], one from each 512th of the probability.

    The name alone decides their order, so unknowns are independent, and one unknown is the same in every prediction.
    Source: Latin hypercube sampling (McKay, Beckman and Conover 1979, Technometrics 21, 2).
    """
    strata = [NormalDist().inv_cdf((number + 0.5) / DRAWS) for number in range(DRAWS)]
    found = np.random.default_rng(zlib.crc32(name.encode())).permutation(strata)
    found.setflags(write=False)
    return found


def moved(name: str, at_lo: float, at_hi: float) -> Draws:
    """What an unknown adds to a logarithm, if it adds these at the ends of its 90 % interval: f64 [512]."""
    draws = normals(name) / SD_90
    return np.where(draws < 0, -draws * at_lo, draws * at_hi)


def drawn(machine: Machine, paths: Mapping[str, Quantity], draw: int) -> Machine:
    """The machine in one draw. paths: what varies, on the scale of its logarithm, unless it may be 0."""
    for path, quantity in paths.items():
        lo, value, hi = quantity.lo, quantity.value, quantity.hi
        if min(lo, value) > 0:
            changed = value * math.exp(moved(path, math.log(lo / value), math.log(hi / value))[draw])
        else:
            changed = max(value + moved(path, lo - value, hi - value)[draw], 0.0)
        machine = machine.varied(path, changed)
    return machine


ANY_ENGINE = Whose()


def error_draws(machine: Machine, whose: Whose | None) -> Draws:
    """Logarithms of measured over predicted speed that an engine's published speeds allow: f64 [512].

    Part of the error is common to all engines on a machine, part to all settings of a program, the rest is a setting's.
    A machine that was fitted on runs of the engine has none; nor has the machine alone, if `whose` is None.
    """
    if whose is None or (machine.anchors is not None and whose.system in FITTED):
        return np.zeros(DRAWS)
    known = errors()
    sd: float = known["sd"].get(whose.system, known["sd"][ANY])
    return sd * shared_draws(whose, common=known["common"], program=known["program"])


def prompt_error_draws(whose: Whose) -> Draws:
    """Likewise of the speed of prompts, which no fit has seen: f64 [512]."""
    known = errors()
    sd: float = known["prompts"]["sd"]
    return sd * shared_draws(whose, common=known["common"], program=known["program"])


def shared_draws(whose: Whose, *, common: float, program: float) -> Draws:
    """Standard normal draws of a setting, of which these shares are common to all engines and to its program."""
    found = np.zeros(DRAWS)
    names = ("engines", f"program {whose.program}", f"setting {whose.setting}")
    for share, name in zip((common, program, 1 - common - program), names, strict=True):
        found += math.sqrt(share) * normals(name)
    return found


@cache
def errors() -> dict[str, Any]:
    """How far published speeds are from predictions, written by `python -m reports.field`."""
    return tomllib.loads(resources.files("flashmoe_sim.machines").joinpath("errors.toml").read_text())


def ends(value: float, draws: Draws) -> tuple[float, float]:
    """The 90 % interval of a value from draws of its logarithm's deviations; it always has the value in it."""
    lo, hi = np.quantile(draws, ENDS_OF_90)
    return value * math.exp(min(float(lo), 0.0)), value * math.exp(max(float(hi), 0.0))
