"""Which recorded runs may predict others, and on which a machine is fitted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete
from flashmoe_sim.machines.fitting import FIRST_FILLS
from native_bridge.check.folder import RunFolder, open_folders, without_repeat
from native_bridge.engines.read import read_run

UNEVEN = 1.25  # times: repeats of one setting on a quiet machine are within a tenth
ALL_HIT = ("all-hit", "resident")  # the first is best: it resolves slots, like a streamed run


def choose_anchors(runs: Sequence[RunFolder], *, than: str = "") -> list[RunFolder]:
    """The runs that determine most of a machine: the one with the most misses, and one with all experts resident.

    A second streamed run follows if it shows the cost of first fills.
    than: the run that is excluded, for the message. Raises BadInput if either of the two is missing.
    """
    beside = f" beside {than}" * bool(than)
    streamed = [
        one
        for one in runs
        if one.run.does.kind == "streamed" and one.run.trace and not one.run.log.reads_ahead and _misses_per_call(one)
    ]
    if not streamed:
        raise Incomplete(f"no streamed run (slot-bank, with its trace, without prefetch) of this machine{beside}")
    all_hit = [
        one
        for one in runs
        if one.run.does.kind in ALL_HIT and not one.run.log.reads_ahead and not reads_while_decoding(one)
    ]
    if not all_hit:
        raise Incomplete(f"no all-hit or stock run of this machine{beside}")
    missing = max(streamed, key=_misses_per_call)
    others = [one for one in streamed if not is_repeat(one, missing) and io_split(one) == io_split(missing)]
    filling = max(others, key=_first_fills, default=missing)
    shows_fills = _first_fills(filling) - _first_fills(missing) > FIRST_FILLS
    best = min(all_hit, key=lambda one: (ALL_HIT.index(one.run.does.kind), [*one.run.engine.modes].index(one.run.mode)))
    return [missing, best, *([filling] if shows_fills else [])]


def anchors_among(
    folders: Sequence[Path], *, model: str | None, cache: str | None, parameters: Sequence[str] = ()
) -> list[Path]:
    """The folders of the recorded runs that determine most of their machine, with the repeats of each.

    cache: which state of the page cache, if the runs have two. parameters: `request_us` also needs a run with another
    io-split, and `weights_gb_s` one with another top-k.
    Raises BadInput if the runs have two machines, models or cache states, or lack a necessary run.
    """
    given = open_folders(folders, model=model).given
    runs = [one for one in given if not one.unfit and not reads_while_decoding(one)]
    states = sorted({one.cache for one in runs if one.cache})
    if cache is not None:
        runs = [one for one in runs if one.cache == cache]
        if not runs:
            raise Incomplete(
                f"--cache {cache}: none of these runs is; found {' and '.join(states) or 'no recorded state'}"
            )
    elif len(states) > 1:
        raise Conflict(f"runs with the page cache {' and '.join(states)} are of two machines; give --cache {states[0]}")
    native = [one for one in runs if not one.run.top_k]  # with the model's own top-k
    chosen = choose_anchors(native or runs)
    _refuse_others(runs, chosen[0], io_split_may_differ="request_us" in parameters)
    if "request_us" in parameters:
        chosen += _another(chosen[0], runs, "request_us", "another --moe-cache-io-split", io_split)
    if "weights_gb_s" in parameters:
        chosen += _another(chosen[1], runs, "weights_gb_s", "another --moe-topk", lambda one: one.run.top_k)
    return list(dict.fromkeys(one.place for anchor in chosen for one in runs if is_repeat(one, anchor)))


def uneven_repeats(folders: Sequence[Path]) -> str:
    """What the repeats of each setting say about the machine if they are further apart than UNEVEN, else empty."""
    return " and ".join(
        f"repeats of {name} ran at {runs[0][0]:g} to {runs[-1][0]:g} tok/s"
        for name, runs in _by_setting(folders).items()
        if runs[-1][0] > UNEVEN * runs[0][0]
    )


def fastest_repeats(folders: Sequence[Path]) -> list[Path]:
    """Of the repeats of each setting the one that other programs slowed down least."""
    return [runs[-1][1] for runs in _by_setting(folders).values()]


def _by_setting(folders: Sequence[Path]) -> dict[str, list[tuple[float, Path]]]:
    """Decode speed and folder of each run, from the slowest, by the name that it shares with its repeats."""
    found: dict[str, list[tuple[float, Path]]] = {}
    for folder in folders:
        found.setdefault(without_repeat(folder.name), []).append((read_run(folder).log.decode_tok_s, folder))
    return {name: sorted(runs) for name, runs in found.items()}


def _refuse_others(runs: Sequence[RunFolder], anchor: RunFolder, *, io_split_may_differ: bool) -> None:
    """Refuse runs of another machine: nobody would know which one was fitted."""
    for one in runs:
        same_k = one.run.top_k == anchor.run.top_k
        if same_k and not is_like(one, anchor, io_split_may_differ=io_split_may_differ):
            raise Conflict(
                f"{one.place}: is of another machine, build or model than {anchor.place}; calibrate each by itself"
            )


def _another(
    anchor: RunFolder, runs: Sequence[RunFolder], parameter: str, what: str, of: Callable[[RunFolder], int]
) -> list[RunFolder]:
    found = [
        one for one in runs if one.run.mode == anchor.run.mode and of(one) != of(anchor) and not one.run.log.reads_ahead
    ]
    if not found:
        raise Incomplete(f"{parameter} needs a run like {anchor.name} with {what}; none of these is")
    return found[:1]


def is_like(one: RunFolder, other: RunFolder, *, io_split_may_differ: bool = False) -> bool:
    """Whether both ran the same model on the same machine with the same settings and page-cache state."""
    if one.unfit or one.model is None or other.model is None or one.model.layers != other.model.layers:
        return False
    if one.cache != other.cache or _top_k(one) != _top_k(other):
        return False
    return _agree(one, other, io_split_may_differ=io_split_may_differ)


def _agree(one: RunFolder, other: RunFolder, *, io_split_may_differ: bool = False) -> bool:
    try:
        one.run.engine.refuse_two_machines([one.run, other.run], io_split_may_differ=io_split_may_differ)
    except BadInput:
        return False
    return True


def reads_while_decoding(one: RunFolder) -> bool:
    """Whether its experts are in mapped files that were not in memory: each is read when it is first used."""
    return one.run.engine.maps_experts(one.run) and one.cache == "cold"


def is_repeat(one: RunFolder, other: RunFolder) -> bool:
    """Whether they are the same run, or repeats on the same machine in the same environment."""
    if one.place.resolve() == other.place.resolve():
        return True
    if not _agree(one, other):
        return False
    same = (one.run.mode, one.run.bank, one.routing) == (other.run.mode, other.run.bank, other.routing)
    if one.model is None or other.model is None:
        same = same and one.place.resolve().parent == other.place.resolve().parent  # probably one model
    else:
        same = same and one.model.layers == other.model.layers
    same = same and one.run.log.reads_ahead == other.run.log.reads_ahead
    flags = (one.cache, one.run.threads) == (other.cache, other.run.threads)
    return same and flags and io_split(one) == io_split(other)


def _top_k(one: RunFolder) -> int:
    return one.run.top_k or (one.model.top_k if one.model else 0)


def io_split(one: RunFolder) -> int:
    return one.run.log.routed.chunks if one.run.log.routed else 1


def _misses_per_call(one: RunFolder) -> float:
    routed = one.run.log.routed
    return routed.misses / routed.calls if routed else 0.0


def _first_fills(one: RunFolder) -> float:
    """The share of first fills among its installs."""
    routed = one.run.log.routed
    return routed.cold_installs / routed.misses if routed and routed.misses else 0.0
