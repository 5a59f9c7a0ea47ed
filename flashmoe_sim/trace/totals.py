"""Tables of how often each expert was used, which are not traces: they hold no order of tokens."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput, Malformed, shown

ADVICE = (
    "counts hold no order of tokens: record the experts of each token, or make a trace from a hit curve with "
    "`sim trace synth`"
)
COUNTS = {"count", "counts", "cnt", "freq", "freqs", "frequency", "frequencies", "occurrences", "histogram"}
TOTALS = COUNTS | {"hits", "load", "loads", "usage", "uses", "activations", "popularity", "share", "percent", "pct"}
TOTALS |= {"sum", "total", "totals", "sums", "num"}
OF_A_STEP = COUNTS | {"n", "num_tokens", "token_count", "hit_count", "use_count"}
MOST_CHOSEN = 8  # experts of a token, of models that use all they have
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+")


def totals_of(path: Path, found: str) -> BadInput:
    """The refusal of such a table."""
    return Malformed(f"{path}: {found}; {ADVICE}")


def named_as(names: Iterable[str], words: set[str]) -> list[str]:
    """The names of columns with one of the words in them, such as `hit_count` or `hitCount`."""
    return [name for name in names if words & {word.lower() for word in _WORD.findall(name)}]


def refuse_totals(path: Path, value: Mapping[str, NDArray[Any]], unread: Iterable[str], *, ordered: bool) -> None:
    """Raise BadInput for a table of counts, loads or sums of weights of experts.

    value: by field: i64 [rows], experts [rows] or [rows, k]; also the unread columns that are counts, f32 [rows].
    unread: the names of columns that are not read. ordered: whether a column numbers steps, calls, tokens or times.
    """
    unread = list(unread)
    if ordered:
        for name in unread:
            if name.lower() in OF_A_STEP and name in value and (value[name] > 1).any():
                raise totals_of(path, f"column {shown(name, 40)} has counts of experts")
        if unread and "rank" not in value and _all_of_every_call(value):
            raise totals_of(
                path, f"every expert is there once, beside {', '.join(shown(name, 40) for name in unread[:3])}"
            )
        return
    if named := named_as(unread, TOTALS):
        raise totals_of(path, f"column {shown(named[0], 40)} has counts or sums of experts")
    layer, expert = value["layer"], value["expert"].reshape(len(value["layer"]), -1)
    layers, rows_of = np.unique(layer, return_counts=True)
    if expert.shape[1] > 1:
        if len(layers) == len(layer) > 1 and expert.shape[1] > 16:
            raise totals_of(path, f"lists of {expert.shape[1]} numbers, one for each layer")
        return
    pairs = len(np.unique(layer.astype(np.int64) << 16 | expert[:, 0]))
    if pairs < len(layer) or rows_of.max() == 1:
        return
    if unread:
        raise totals_of(
            path, f"each expert of a layer is there once, beside {', '.join(shown(name, 40) for name in unread[:3])}"
        )
    if "weight" in value and (value["weight"] > 1).any() and (value["weight"] >= 0).all():
        raise totals_of(path, "each expert of a layer is there once, with a weight above 1: sums of weights")
    if (
        "n_tokens" in value
        and len(layers) > 1
        and len(np.unique(np.stack((layer, value["n_tokens"])), axis=1).T) > len(layers)
    ):
        raise totals_of(path, "each expert of a layer is there once, with its own n_tokens")


def _all_of_every_call(value: Mapping[str, NDArray[Any]]) -> bool:
    """Whether each step has every expert of each layer once, of more than any router chooses."""
    order = [value[name].astype(np.int64) for name in ("request", "sequence", "step", "call", "layer") if name in value]
    expert = value["expert"].reshape(len(order[-1]), -1)
    if expert.shape[1] > 1 or not {"step", "call"} & value.keys():
        return False
    experts, calls = len(np.unique(expert)), len(np.unique(np.stack(order), axis=1).T)
    whole = len(np.unique(np.stack([*order, expert[:, 0]]), axis=1).T)
    return experts > MOST_CHOSEN and calls * experts == whole == len(expert)
