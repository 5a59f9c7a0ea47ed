"""A predictor's predictions in the form the replay loops read: by pool, between the pool's calls."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim._jit import allocating, jit
from flashmoe_sim.policies.base import NEVER
from flashmoe_sim.prefetchers.base import Predictions
from flashmoe_sim.residency import tally
from flashmoe_sim.residency.pool import Pool
from flashmoe_sim.trace.routing import blocks, frozen

NOT_READ, UNUSED = -2, -1  # in place of the call that first uses an expert read ahead


class Ahead(NamedTuple):
    """The predictions for one pool, in order, in read-only arrays, as the replay loops get them.

    turn: i64 [calls + 2], where the predictions made before each call of the pool begin, and those after the last.
    row: i32 [predictions]. offset: i64 [predictions + 1].
    after: i64 [predicted], the routed call of the trace after which it was predicted, -1 before the first.
    key: u32 [predicted].
    upcoming: i32 [predicted], the first reference to the key in the next call of the pool that uses it, or NEVER.
    meant: i64 [calls], the prediction for each call of the pool, or -1.
    """

    turn: NDArray[np.int64]
    row: NDArray[np.int32]
    offset: NDArray[np.int64]
    after: NDArray[np.int64]
    key: NDArray[np.uint32]
    upcoming: NDArray[np.int32]
    meant: NDArray[np.int64]


def nothing_ahead(pool: Pool) -> Ahead:
    """No predictions."""
    calls = len(pool.call)
    turn, meant = pool.trace.empty(calls + 2, np.int64), pool.trace.empty(calls, np.int64)
    turn[:], meant[:] = 0, -1
    row, offset, after = np.empty(0, np.int32), np.zeros(1, np.int64), np.empty(0, np.int64)
    key, upcoming = np.empty(0, np.uint32), np.empty(0, np.int32)
    return Ahead(*map(frozen, (turn, row, offset, after, key, upcoming, meant)))


def by_pool(predictions: Predictions, pools: list[Pool], n_layers: int) -> list[Ahead]:
    """The predictions for each pool, which is one layer or all layers."""
    found = []
    shared = _shared_out(predictions, pools, by_layer=len(pools) == n_layers)
    for number, (pool, mine) in enumerate(zip(pools, shared, strict=True)):
        row, offset, after, key = mine.row, mine.offset, mine.after, mine.key
        calls, empty = len(pool.call), pool.trace.empty
        turn, upcoming, meant = empty(calls + 2, np.int64), empty(len(key), np.int32), empty(calls, np.int64)
        turn[0], turn[-1], meant[:] = 0, len(row), -1
        for block in blocks(calls):
            turn[1:-1][block] = np.searchsorted(mine.made, pool.call[block])
        _upcoming(pool.key, pool.offset, turn, offset, key, np.full(pool.keys, NEVER, np.int32), upcoming)
        if predictions.target is None:
            _latest(pool.row, pool.offset, turn, row, np.full(n_layers, -1, np.int64), meant)
        else:
            target = predictions.target if len(pools) < n_layers else predictions.target[predictions.row == number]
            meant[np.searchsorted(pool.call, target)] = np.arange(len(target))
        found.append(Ahead(*map(frozen, (turn, row, offset, after, key, upcoming, meant))))
    return found


class _Share:
    """The predictions for one pool, in order. made: i64 [predictions], the call after which each was made.

    The other arrays are those of an `Ahead`.
    """

    def __init__(self, pool: Pool, predictions: int, experts: int) -> None:
        empty = pool.trace.empty
        self.row, self.made = empty(predictions, np.int32), empty(predictions, np.int64)
        self.offset = empty(predictions + 1, np.int64)
        self.after, self.key = empty(experts, np.int64), empty(experts, np.uint32)
        self.offset[0] = 0
        self._pool, self._filled, self._keys_filled = pool, 0, 0

    def add(self, predictions: Predictions, which: NDArray[np.int64]) -> None:
        """Add some predictions, by their numbers."""
        row, made, begin = predictions.row[which], predictions.after[which], predictions.offset[which]
        length = predictions.offset[which + 1] - begin
        ends = np.cumsum(length)
        expert = predictions.expert[np.repeat(begin - ends + length, length) + np.arange(length.sum())]
        first_key = np.searchsorted(self._pool.key_row, row)  # of each prediction's layer
        mine = slice(self._filled, self._filled + len(which))
        keys = slice(self._keys_filled, self._keys_filled + len(expert))
        self.row[mine], self.made[mine], self.offset[1:][mine] = row, made, ends + keys.start
        self.after[keys], self.key[keys] = np.repeat(made, length), expert + np.repeat(first_key, length)
        self._filled, self._keys_filled = mine.stop, keys.stop


def _shared_out(predictions: Predictions, pools: list[Pool], *, by_layer: bool) -> list[_Share]:
    """The predictions of each pool. by_layer: whether a pool is a layer; else there is only one pool."""
    each = len(predictions.expert) // max(len(predictions.row), 1) + 1
    parts = [*blocks(len(predictions.row), width=each)]
    number, experts = np.zeros((2, len(pools)), np.int64)
    for part in parts:
        row = predictions.row[part] * by_layer
        length = predictions.offset[1:][part] - predictions.offset[part]
        number += np.bincount(row, minlength=len(pools))
        experts += np.bincount(row, length, len(pools)).astype(np.int64)
    shares = [_Share(pool, *sizes) for pool, *sizes in zip(pools, number.tolist(), experts.tolist(), strict=True)]
    for part in parts:
        row = predictions.row[part] * by_layer
        order = np.argsort(row, kind="stable")
        bounds = np.searchsorted(row[order], np.arange(len(pools) + 1))
        for place, share in enumerate(shares):
            share.add(predictions, part.start + order[bounds[place] : bounds[place + 1]])
    return shares


@jit
def _latest(row: Any, offset: Any, turn: Any, ahead_row: Any, latest: Any, out: Any) -> None:
    """Write the last prediction for the layer of each call; a call without tokens consumes it."""
    for call in range(len(row)):
        for serving in range(turn[call], turn[call + 1]):
            latest[ahead_row[serving]] = serving
        out[call] = latest[row[call]]
        if offset[call] == offset[call + 1]:
            latest[row[call]] = -1


@jit
def _upcoming(key: Any, offset: Any, turn: Any, ahead_offset: Any, ahead_key: Any, next_use: Any, out: Any) -> None:
    for call in range(len(turn) - 2, -1, -1):
        if call < len(offset) - 1:
            for r in range(offset[call + 1] - 1, offset[call] - 1, -1):
                next_use[key[r]] = r
        for i in range(ahead_offset[turn[call]], ahead_offset[turn[call + 1]]):
            out[i] = next_use[ahead_key[i]]


@allocating
def compare(
    key: Any, offset: Any, row: Any, meant: Any, ahead_offset: Any, ahead_key: Any, keys: int, counts: Any
) -> None:
    """Compare each call of a pool with its prediction, and add the result to `counts`.

    meant, ahead_offset, ahead_key: of an `Ahead`. counts: i64 [layers, tally.N_COLUMNS].
    """
    predicted = np.full(keys, -1, np.int64)
    last_call = np.full(keys, -1, np.int64)
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
            if last_call[key[r]] != call:
                last_call[key[r]] = call
                right += predicted[key[r]] == call
        counts[row[call], tally.PREDICTED] += distinct
        counts[row[call], tally.PREDICTED_RIGHT] += right
