"""A predictor's predictions in the form the replay loops read: by pool, between the pool's calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import jit
from flashmoe_sim.policies.base import NEVER
from flashmoe_sim.prefetchers.base import Predictions
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.pool import Pool
from flashmoe_sim.residency.pool_state import NO_PAST, Past
from flashmoe_sim.trace.routing import frozen

NOT_READ, UNUSED = -2, -1  # in place of the call that first uses an expert read ahead


class Predicted(NamedTuple):
    """What the replay loops read of an `Ahead`."""

    turn: NDArray[np.int64]
    row: NDArray[np.int32]
    offset: NDArray[np.int64]
    after: NDArray[np.int64]
    key: NDArray[np.uint32]
    upcoming: NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class Ahead:
    """The predictions for one pool, in order, in read-only arrays.

    turn: i64 [calls + 2], where the predictions made before each call of the pool begin, and those after the last.
    row: i32 [predictions]. offset: i64 [predictions + 1].
    after: i64 [predicted], the routed call of the trace after which it was predicted, -1 before the first.
    key: u32 [predicted].
    upcoming: i32 [predicted], the first reference to the key in the next call of the pool that uses it, or NEVER.
    meant: i64 [calls], the prediction for each call of the pool, or -1.
    latest: i64 [layers], the prediction still pending for each layer after all of these calls, or -1.
    """

    turn: NDArray[np.int64]
    row: NDArray[np.int32]
    offset: NDArray[np.int64]
    after: NDArray[np.int64]
    key: NDArray[np.uint32]
    upcoming: NDArray[np.int32]
    meant: NDArray[np.int64]
    latest: NDArray[np.int64]

    def __post_init__(self) -> None:
        for item in fields(self):
            frozen(getattr(self, item.name))

    def arrays(self) -> Predicted:
        """The arrays that the replay loops read."""
        return Predicted(self.turn, self.row, self.offset, self.after, self.key, self.upcoming)


def nothing_ahead(pool: Pool) -> Ahead:
    """No predictions."""
    calls = len(pool.call)
    return Ahead(
        turn=np.zeros(calls + 2, np.int64),
        row=np.empty(0, np.int32),
        offset=np.zeros(1, np.int64),
        after=np.empty(0, np.int64),
        key=np.empty(0, np.uint32),
        upcoming=np.empty(0, np.int32),
        meant=np.full(calls, -1, np.int64),
        latest=np.empty(0, np.int64),
    )


def by_pool(
    predictions: Predictions, pools: list[Pool], n_layers: int, pasts: Sequence[Past] | None = None
) -> list[Ahead]:
    """The predictions for each pool, which is one layer or all layers.

    pasts: for a chunk of a trace, the pending predictions of each pool. They come first in the arrays, before all
        turns.
    """
    if len(pools) == n_layers:
        order = np.argsort(predictions.row, kind="stable")
        bounds = np.searchsorted(predictions.row[order], np.arange(n_layers + 1))
        chosen = [order[bounds[number] : bounds[number + 1]] for number in range(n_layers)]
    else:
        chosen = [np.arange(len(predictions.row))]
    found = []
    for pool, which, past in zip(pools, chosen, pasts or [NO_PAST] * len(pools), strict=True):
        length = np.diff(predictions.offset)[which]
        offset = np.concatenate([[0], np.cumsum(length)])
        begin = predictions.offset[:-1][which]
        expert = predictions.expert[np.repeat(begin - offset[:-1], length) + np.arange(offset[-1])]
        row, after = predictions.row[which], predictions.after[which]
        first_key = np.searchsorted(pool.key_row, row)  # of each prediction's layer
        key = (expert + np.repeat(first_key, length)).astype(np.uint32)
        turn = np.searchsorted(after, np.concatenate([[-2], pool.call, [np.iinfo(np.int64).max]]))
        upcoming = np.empty(len(key), np.int32)
        next_use = np.full(pool.keys, NEVER, np.int32)
        _upcoming(pool.key, pool.offset, turn, offset, key, next_use, upcoming)
        after = np.repeat(after, length)
        meant, latest = np.full(len(pool.call), -1, np.int64), np.full(n_layers, -1, np.int64)
        if pasts is not None:
            turn = turn + len(past.row)
            row, after = np.concatenate([past.row, row]), np.concatenate([past.after, after])
            offset = np.concatenate([past.offset[:-1], past.offset[-1] + offset])
            key = np.concatenate([past.key, key])
            upcoming = np.concatenate([np.full(len(past.key), NEVER, np.int32), upcoming])
            latest[past.row] = np.arange(len(past.row))
        if predictions.target is None:
            _latest(pool.row, pool.offset, turn, row, latest, meant)
        else:
            meant[np.searchsorted(pool.call, predictions.target[which])] = np.arange(len(which))
        found.append(Ahead(turn, row, offset, after, key, upcoming, meant, latest))
    return found


@jit
def _latest(row: Any, offset: Any, turn: Any, ahead_row: Any, latest: Any, out: Any) -> None:
    """Write the last prediction for the layer of each call; a call without tokens consumes it."""
    for call in range(len(row)):
        for serving in range(turn[call], turn[call + 1]):
            latest[ahead_row[serving]] = serving
        out[call] = latest[row[call]]
        if offset[call] == offset[call + 1]:
            latest[row[call]] = -1
    for serving in range(turn[len(row)], turn[len(row) + 1]):
        latest[ahead_row[serving]] = serving


@jit
def _upcoming(key: Any, offset: Any, turn: Any, ahead_offset: Any, ahead_key: Any, next_use: Any, out: Any) -> None:
    for call in range(len(turn) - 2, -1, -1):
        if call < len(offset) - 1:
            for r in range(offset[call + 1] - 1, offset[call] - 1, -1):
                next_use[key[r]] = r
        for i in range(ahead_offset[turn[call]], ahead_offset[turn[call + 1]]):
            out[i] = next_use[ahead_key[i]]


@jit
def compare(
    key: Any, offset: Any, row: Any, meant: Any, ahead_offset: Any, ahead_key: Any, keys: int, counts: Any
) -> None:
    """Compare each call of a pool with its prediction, and add the result to `counts`.

    meant, ahead_offset, ahead_key: of an `Ahead`. counts: i64 [layers, tally.N_COLUMNS].
    """
    predicted = np.full(keys, -1, np.int64)
    asked = np.full(keys, -1, np.int64)
    for call in range(len(offset) - 1):
        serving = meant[call]
        if serving < 0:
            continue
        distinct, right = 0, 0
        for i in range(ahead_offset[serving], ahead_offset[serving + 1]):
            if predicted[ahead_key[i]] != call:
                predicted[ahead_key[i]] = call
                distinct += 1
        for r in range(offset[call], offset[call + 1]):
            if asked[key[r]] != call:
                asked[key[r]] = call
                right += predicted[key[r]] == call
        counts[row[call], tally.PREDICTED] += distinct
        counts[row[call], tally.PREDICTED_RIGHT] += right
