"""The runtime's modes, its prefetch modes, the flags that choose them, and its variables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from flashmoe_sim.systems import slot_bank_flags
from flashmoe_sim.systems.slot_bank_flags import IO_SPLIT
from native_bridge.engines.base import Mode

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

# By our name, which is the predictor's here: the setting of a log, whose flag is `--moe-` and that, and the line of a
# log that counts what was read ahead.
_LINES = {"temporal": "prefetch"}  # the others are called as their setting
PREFETCH = {
    name: (flag.removeprefix("--moe-"), _LINES.get(name, flag.removeprefix("--moe-")))
    for name, flag in slot_bank_flags.PREFETCH.items()
}
DROPPED = "LLAMA_ARG_"  # begins variables that would give a run flags
BYPASSES = ("--moe-router-only", "--moe-shared-only")  # routed experts are left out, and nothing is counted of them


def prefetch_of(extra: Sequence[str], settings: Mapping[str, str]) -> str:
    """The prefetch mode of a run, a setting in PREFETCH or empty: by its log; without settings there, by its flags.

    One that predicts comes before the other.
    """
    known = [setting for setting, _ in reversed(PREFETCH.values())]
    if any(setting in settings for setting in known):
        return next((setting for setting in known if settings.get(setting) == "on"), "")
    flags = [flag.removeprefix("--moe-") for flag in reversed(extra)]
    return next((flag for flag in flags if flag in known and _is_on(extra, f"--moe-{flag}")), "")


def bypass_of(extra: Sequence[str], *, settings: Mapping[str, str] | None = None) -> str:
    """The flag of a run that leaves routed experts out, or empty: by its flags, else by the settings of its log."""
    shared = settings is not None and settings.get("shared-only") == "on"
    return next((flag for flag in BYPASSES if _is_on(extra, flag)), BYPASSES[1] if shared else "")


def _is_on(flags: Sequence[str], flag: str) -> bool:
    """Whether the last of a flag and its `--no-` is the flag itself."""
    off = flag.replace("--", "--no-", 1)
    return next((given == flag for given in reversed(flags) if given in (flag, off)), False)


def routing_flags(extra: Sequence[str]) -> tuple[str, ...]:
    """Of the flags of a run those that decide its text: not how reads are cut, nor what is read ahead."""
    kept = list(extra)
    if IO_SPLIT in kept:
        at = kept.index(IO_SPLIT)
        del kept[at : at + 2]
    ahead = tuple(f"--{no}moe-{setting}" for no in ("", "no-") for setting, _ in PREFETCH.values())
    return tuple(flag for flag in kept if not flag.startswith(ahead))
