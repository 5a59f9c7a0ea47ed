"""The runs on which a machine is fitted, chosen from recorded ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from flashmoe_sim.io.errors import BadInput
from native_bridge.check.folder import RunFolder, open_folders
from native_bridge.check.seconds import choose_anchors, is_like, is_repeat, reads_while_decoding

REQUEST_US, WEIGHTS = "request_us", "weights_gb_s"


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
            raise BadInput(
                f"--cache {cache}: none of these runs is; found {' and '.join(states) or 'no recorded state'}"
            )
    elif len(states) > 1:
        raise BadInput(f"runs with the page cache {' and '.join(states)} are of two machines; give --cache {states[0]}")
    chosen = choose_anchors(_of_native_top_k(runs))
    _refuse_others(runs, chosen[0], io_split_may_differ=REQUEST_US in parameters)
    if REQUEST_US in parameters:
        chosen += _another(chosen[0], runs, REQUEST_US, "another --moe-cache-io-split", _io_split)
    if WEIGHTS in parameters:
        chosen += _another(chosen[1], runs, WEIGHTS, "another --moe-topk", lambda one: one.run.top_k)
    return list(dict.fromkeys(one.place for anchor in chosen for one in runs if is_repeat(one, anchor)))


def _of_native_top_k(runs: Sequence[RunFolder]) -> list[RunFolder]:
    """The runs with the model's own top-k, if there are any."""
    return [one for one in runs if not one.run.top_k] or list(runs)


def _refuse_others(runs: Sequence[RunFolder], anchor: RunFolder, *, io_split_may_differ: bool) -> None:
    """Refuse runs of another machine: nobody would know which one was fitted."""
    for one in runs:
        same_k = one.run.top_k == anchor.run.top_k
        if same_k and not is_like(one, anchor, io_split_may_differ=io_split_may_differ):
            raise BadInput(
                f"{one.place}: is of another machine, build or model than {anchor.place}; calibrate each by itself"
            )


def _another(
    anchor: RunFolder, runs: Sequence[RunFolder], parameter: str, what: str, of: Callable[[RunFolder], int]
) -> list[RunFolder]:
    found = [
        one for one in runs if one.run.mode == anchor.run.mode and of(one) != of(anchor) and not one.run.log.reads_ahead
    ]
    if not found:
        raise BadInput(f"{parameter} needs a run like {anchor.name} with {what}; none of these is")
    return found[:1]


def _io_split(one: RunFolder) -> int:
    return one.run.log.routed.chunks if one.run.log.routed else 0
