"""The table that the runtime prints with `--perf`."""

from __future__ import annotations

import re
from dataclasses import replace

from native_bridge.engines.flashmoe.log.text import NUMBER, WHOLE
from native_bridge.engines.run_log import Profile, ProfileRow

_TABLE = "log_perf_profile_table: "
_ROW = re.compile(rf"operator\(\): (\S.*?) +{NUMBER} +{NUMBER} +{WHOLE} +{NUMBER} +{NUMBER}%")
_TOTAL = re.compile(rf"{_TABLE}Routed total +{NUMBER} +100\.0%")
_PER_TOKEN = re.compile(rf"{_TABLE}Accumulated per token: {NUMBER} ms, {NUMBER} GiB .*")
_RATE = re.compile(rf"{_TABLE}  (slot-bank cached expert|Metal replay cache) hit rate: {NUMBER}%")
_RULE = re.compile(rf"{_TABLE}(?:Flash-MoE profile \(.*|Component +ms/layer .*|-+|Legend)")


def take_profile(profile: Profile, line: str) -> Profile | None:
    """The profile extended by one line of the table; None for an unknown kind of line."""
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
