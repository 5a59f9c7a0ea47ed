"""The runtime's modes, its prefetch modes, the flags that choose them, and its variables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from flashmoe_sim.systems import slot_bank_flags
from native_bridge.engines.base import Mode

GET_ONE = "build the Flash-MoE fork of llama.cpp and give its llama-cli with --runtime or in FLASHMOE_RUNTIME"
MODES = {
    "stock": Mode("resident", sidecar=False),
    "resident": Mode("resident", offered=False),
    "resident-bank": Mode("resident"),
    "resident-slot-bank": Mode("copied"),
    "slot-bank": Mode("streamed"),
    "oracle-all-hit": Mode("all-hit"),
    "oracle-prefetch": Mode("prefetched"),
}
MODES_WITHOUT_SLOTS = tuple(name for name, mode in MODES.items() if not mode.slots)
TRACED = tuple(name for name, mode in MODES.items() if mode.traced)

# By our name, the predictor's: the log's setting, whose flag is `--moe-` plus the setting, and the log's line that
# counts reads ahead.
_LINES = {"temporal": "prefetch"}  # the others are named like their setting
PREFETCH = {
    name: (flag.removeprefix("--moe-"), _LINES.get(name, flag.removeprefix("--moe-")))
    for name, flag in slot_bank_flags.PREFETCH.items()
}
DROPPED = "LLAMA_ARG_"  # the prefix of variables that would add flags to a run
BYPASSES = ("--moe-router-only", "--moe-shared-only")  # routed experts are left out and not counted
# Every flag of the runtime whose effect on counts is known; `--moe-sort-decode-expert-ids`, of later builds, has none.
KNOWN_FLAGS = frozenset(
    (
        *("--moe-sidecar", "--moe-mode", "--moe-slot-bank", "--moe-topk", slot_bank_flags.IO_SPLIT, "--moe-trace"),
        *("--moe-trace-harness", "--moe-force-expert", "--moe-quant-map", "--moe-verify-sidecar"),
        *(*slot_bank_flags.PREFETCH.values(), *BYPASSES, "--moe-sort-decode-expert-ids"),
    )
)
# Beside its name, later builds give a flag for a second sidecar without `--moe-`.
_OF_THE_BANK = re.compile(r"--(?:force-)?moe-|--(?:prefetch|secondary|tertiary)(?:-sidecar)?$")
LAYER_MAJOR = "--moe-prefill-layer-major"
_READS_AHEAD = ("prefetch-", "predict-", "prefill-")  # settings of later builds


def prefetch_of(extra: Sequence[str], settings: Mapping[str, str]) -> str:
    """The prefetch mode of a run, a setting in PREFETCH or empty: from its log, or if that has none, its flags.

    A predicting mode takes precedence over the other.
    """
    known = [setting for setting, _ in reversed(PREFETCH.values())]
    if any(setting in settings for setting in known):
        return next((setting for setting in known if settings.get(setting) == "on"), "")
    flags = [flag.removeprefix("--moe-") for flag in reversed(extra)]
    return next((flag for flag in flags if flag in known and _is_on(extra, f"--moe-{flag}")), "")


def bypass_of(extra: Sequence[str], settings: Mapping[str, str]) -> str:
    """The flag of a run that leaves routed experts out, or empty: from its flags, else from its log's settings."""
    shared = settings.get("shared-only") == "on"
    return next((flag for flag in BYPASSES if _is_on(extra, flag)), BYPASSES[1] if shared else "")


def unknown_of(extra: Sequence[str], settings: Mapping[str, str]) -> str:
    """A flag of a run whose effect on the bank is not known, or empty: from its flags, else from its log's settings."""
    names = [flag.partition("=")[0] for flag in extra]
    given = [name.replace("--no-", "--", 1) for name in names]
    unknown = [name for name in given if _OF_THE_BANK.match(name) and name not in KNOWN_FLAGS and _is_on(names, name)]
    switched = [f"--moe-{name}" for name, value in settings.items() if name.startswith(_READS_AHEAD) and value == "on"]
    return next((flag for flag in (*unknown, *switched) if flag not in KNOWN_FLAGS), "")


def what_is_unknown(flag: str) -> str:
    """Why the counts of a run with this flag cannot be predicted."""
    if flag == LAYER_MAJOR:
        return f"{flag}: the experts of its prompt are read layer by layer, beside the bank, which is not predicted"
    kind = "prefetch" if flag.removeprefix("--moe-").startswith(_READS_AHEAD[:2]) else "flag"
    return f"{flag}: this {kind} is not known, so what it changes in the bank is not predicted"


def _is_on(flags: Sequence[str], flag: str) -> bool:
    """Whether the last of a flag and its `--no-` is the flag itself."""
    off = flag.replace("--", "--no-", 1)
    return next((given == flag for given in reversed(flags) if given in (flag, off)), False)
