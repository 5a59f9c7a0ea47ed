"""The table that the runtime prints with `--perf`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from flashmoe_sim.machines.run_log.text import NUMBER, WHOLE

_TABLE = "log_perf_profile_table: "
_ROW = re.compile(rf"operator\(\): (\S.*?) +{NUMBER} +{NUMBER} +{WHOLE} +{NUMBER} +{NUMBER}%")
_TOTAL = re.compile(rf"{_TABLE}Routed total +{NUMBER} +100\.0%")
_PER_TOKEN = re.compile(rf"{_TABLE}Accumulated per token: {NUMBER} ms, {NUMBER} GiB .*")
_RATE = re.compile(rf"{_TABLE}  (slot-bank cached expert|Metal replay cache) hit rate: {NUMBER}%")
_RULE = re.compile(rf"{_TABLE}(?:Flash-MoE profile \(.*|Component +ms/layer .*|-+|Legend)")


@dataclass(frozen=True)
class ProfileRow:
    """One row of the table of `--perf`. mib_a_layer: what the table calls MB. layers: those that routed anything."""

    name: str
    ms_a_layer: float
    mib_a_layer: float
    layers: int
    ms_a_token: float
    percent: float


@dataclass(frozen=True)
class Profile:
    """The table of `--perf`. Its token is the routed calls over the routed layers: prompt and output alike.

    gib_a_token: rounded to 0.01 GiB. hit_percent: of the requests. replay_hit_percent: of Metal's own cache of
    commands, not of experts. Each is None where the line is not there.
    """

    rows: tuple[ProfileRow, ...] = ()
    ms_a_token: float | None = None
    gib_a_token: float | None = None
    hit_percent: float | None = None
    replay_hit_percent: float | None = None


def take_profile(profile: Profile, line: str) -> Profile | None:
    """With one line of the table; None for a line of no known kind."""
    if found := _ROW.fullmatch(line):
        name, *numbers = found.groups()
        layer_ms, layer_mib, layers, token_ms, percent = map(float, numbers)
        row = ProfileRow(name, layer_ms, layer_mib, int(layers), token_ms, percent)
        return replace(profile, rows=(*profile.rows, row))
    if found := _PER_TOKEN.fullmatch(line):
        return replace(profile, ms_a_token=float(found[1]), gib_a_token=float(found[2]))
    if found := _RATE.fullmatch(line):
        if found[1].startswith("Metal"):
            return replace(profile, replay_hit_percent=float(found[2]))
        return replace(profile, hit_percent=float(found[2]))
    if found := _TOTAL.fullmatch(line):
        return replace(profile, ms_a_token=float(found[1]))
    if _RULE.fullmatch(line):
        return Profile() if "Flash-MoE profile" in line else profile
    return None
