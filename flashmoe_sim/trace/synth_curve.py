"""A trace with a given LRU hit curve, from the LRU stack model; and hit curves as published, read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Malformed, OutOfRange, TooLarge, Unusable
from flashmoe_sim.io.files import as_utf8
from flashmoe_sim.io.sections import rate
from flashmoe_sim.io.tables import parse_table, share_of
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.synth_kernels import Bands, draw_by_depth
from flashmoe_sim.trace.synth_shape import Shape, assemble, check_size, layer_draws

TOLERANCE = 0.005
CLOSE_ENOUGH = 0.0005
MOST_ROUNDS = 60
USUAL_ROUNDS = 2
SHORTER = 0.8

Layer = tuple[NDArray[np.int16], NDArray[np.int16]]


@dataclass(frozen=True)
class CurveFit:
    """The requested hit rates and the trace's, at each of `banks`, in slots per layer.

    fitted: over the first `curve_tokens` tokens, for which the requested ones were measured. made: over the whole
        trace.
    """

    banks: tuple[int, ...]
    asked: tuple[float, ...]
    fitted: tuple[float, ...]
    made: tuple[float, ...]
    curve_tokens: int


def from_curve(
    curve: Mapping[int, float],
    shape: Shape,
    *,
    tokens: int,
    prompt: int = 0,
    curve_tokens: int | None = None,
    seed: int = 1,
    progress: Callable[[int, int], None] | None = None,
) -> tuple[RoutingTrace, CurveFit]:
    """A trace whose LRU hit curve goes through the given points, in each layer separately.

    Every expert of a token is drawn by its place in the layer's list ordered by last use: a bank of C slots hits places
    below C. Between two banks, the probabilities of places are proportional to 1 / (place + top_k), which is within 3
    points of all bundled traces between powers of two from 16 on. Beyond the last bank all experts are equally likely,
    including those not used before. A bank of all experts misses only first uses, and so does one at which the curve
    has stopped rising: beyond such a last bank, only experts not used before are drawn, as long as there are any. Since
    a token's experts are distinct, a bank begins empty and a band of places may not be filled yet, the probabilities of
    the bands are corrected, round by round, until the trace has the curve.
    curve: hit rate under the contract `atomic` by slots per layer, ascending, as from `check_hit_points`.
    curve_tokens: how many tokens, prompt included, the curve was measured over; by default the trace's number.
    progress: called with the layers drawn and all, if the fit takes no more rounds than usual.
    Raises BadInput for banks that top_k or the experts rule out, and if the curve is missed by over half a point
        (in a very short trace, by one request).
    Source: Mattson et al. 1970 (stack distances); calls of several experts and the correction are our own.
    """
    check_size(shape, tokens=tokens, prompt=prompt, seed=seed)
    run = tokens + prompt if curve_tokens is None else curve_tokens
    check_size(shape, tokens=run, prompt=0, seed=seed)
    banks = tuple(curve)
    target = np.array([curve[slots] for slots in banks])
    _check(shape, banks, target, run)
    drawn = _Drawn(len(shape.n_experts), progress)
    share, fitted = _fit(shape, banks, target, run, seed, drawn)
    layers = list(drawn.each(_layers(shape, banks, target, share, tokens + prompt, seed)))
    made = _hit_rates([depth for _, depth in layers], banks)
    fit = CurveFit(banks, tuple(target.tolist()), tuple(fitted.tolist()), tuple(made.tolist()), run)
    points = ", ".join(
        f"{slots}: {rate(want)} ({rate(got)})" for slots, want, got in zip(banks, fit.asked, fit.fitted, strict=True)
    )
    all_of_it = tokens + prompt
    differ = f"large banks hit {'more' if all_of_it > run else 'less'}"
    notes = (
        f"synthetic, not a recording: drawn by LRU depth to hit in banks as asked (as made): {points}; seed {seed}",
        *([] if run == all_of_it else [f"the curve belongs to a run of {run:,} tokens; with {all_of_it:,}, {differ}"]),
    )
    name = f"{shape.name} from a hit curve"
    return assemble(shape, [expert for expert, _ in layers], prompt=prompt, name=name, notes=notes), fit


class _Drawn:
    """Counts the layers drawn in the rounds of the fit and then once more."""

    def __init__(self, layers: int, progress: Callable[[int, int], None] | None) -> None:
        self._layers, self._progress, self._done = layers, progress, 0

    def each(self, drawn: Iterator[Layer]) -> Iterator[Layer]:
        for layer in drawn:
            yield layer
            self._done += 1
            if self._progress:
                rounds = max(USUAL_ROUNDS + 1, -(-self._done // self._layers))
                self._progress(self._done, rounds * self._layers)


def _check(shape: Shape, banks: tuple[int, ...], target: NDArray[np.float64], tokens: int) -> None:
    """Raise BadInput for a curve that no trace of that many tokens can have."""
    largest = max(shape.n_experts.values())
    if banks[0] < shape.top_k:
        raise OutOfRange(
            f"curve: a bank of {banks[0]} slots does not hold a token's {shape.top_k} experts; leave it out"
        )
    if banks[-1] > largest:
        raise OutOfRange(f"curve: a bank of {banks[-1]} slots; a layer has {largest} experts, leave larger banks out")
    requests = tokens * shape.top_k
    missed = 1 - float(target[-1])
    rises = np.flatnonzero(np.diff(target, prepend=0.0) > 0)
    # a hit beyond a bank's size needs more experts than the bank holds, and each is missed at its first use
    least = max(shape.top_k, 1 + (0, *banks)[rises[-1]]) if len(rises) else shape.top_k
    if missed + TOLERANCE < least / requests:
        raise OutOfRange(
            f"curve: misses {rate(missed)} at bank {banks[-1]}, but the first uses of {least} experts in a layer "
            f"alone are {rate(least / requests)} of the requests of {tokens:,} tokens; give more tokens"
        )
    if _only_first_uses(banks, target, largest) and missed - TOLERANCE > banks[-1] / requests:
        what = f"{rate(missed)} at bank {banks[-1]}, "
        what += "which holds all" if banks[-1] == largest else f"which hits no more than bank {banks[-2]}"
        raise OutOfRange(
            f"curve: misses {what}: these are first uses, of at most {banks[-1]} experts, but in {tokens:,} tokens "
            f"they would be {missed * requests:,.0f}; give the length of the run that the curve is of (--curve-tokens, "
            f"at most {int(banks[-1] / (missed - TOLERANCE) / shape.top_k):,})"
        )


def _only_first_uses(banks: tuple[int, ...], target: NDArray[np.float64], n_experts: int) -> bool:
    """Whether the last bank misses only first uses: it holds all experts, or the curve has stopped rising."""
    return banks[-1] >= n_experts or (len(banks) > 1 and target[-1] == target[-2])


def _fit(
    shape: Shape, banks: tuple[int, ...], target: NDArray[np.float64], tokens: int, seed: int, drawn: _Drawn
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The probabilities of the bands and of the tail, f64 [banks + 1], and the resulting hit rates, f64 [banks]."""
    wanted = np.diff(target, prepend=0.0, append=1.0)
    share = best = wanted
    closest, fitted, step = np.inf, target, 1.0
    least = 0.5 / (tokens * shape.top_k * len(shape.n_experts))
    for _ in range(MOST_ROUNDS):
        layers = drawn.each(_layers(shape, banks, target, share, tokens, seed))
        rates = _hit_rates([depth for _, depth in layers], banks)
        if (off := float(abs(rates - target).max())) < closest:
            closest, best, fitted = off, share, rates
        else:
            step *= SHORTER  # in a short trace a few draws decide, and full steps would oscillate
        if off <= CLOSE_ENOUGH:
            break
        made = np.diff(rates, prepend=0.0, append=1.0)
        share = share * ((wanted + least) / (made + least)) ** step
        share = share / share.sum()
    if closest > max(TOLERANCE, 2 * least):
        worst = int(abs(fitted - target).argmax())
        raise OutOfRange(
            f"curve: in {tokens:,} tokens bank {banks[worst]} comes to {rate(fitted[worst])}, not to "
            f"{rate(target[worst])}; give as many tokens as the curve was measured over"
        )
    return best, fitted


def _layers(
    shape: Shape,
    banks: tuple[int, ...],
    target: NDArray[np.float64],
    share: NDArray[np.float64],
    tokens: int,
    seed: int,
) -> Iterator[Layer]:
    """The experts and their depths in each layer, i16 [tokens, top_k] each."""
    for layer, n_experts in sorted(shape.n_experts.items()):
        edge = np.minimum((0, *banks), n_experts).astype(np.int64)
        new_first = _only_first_uses(banks, target, n_experts)
        within = edge[: len(banks) + 1 - new_first]
        draw = layer_draws(seed, layer, n_experts + tokens * shape.top_k * 2)
        stack = np.argsort(draw[:n_experts], kind="stable").astype(np.int16)
        expert, depth = np.empty((2, tokens, shape.top_k), np.int16)
        tail, weight = int(within[within < n_experts][-1]), 1.0 / (np.arange(n_experts) + shape.top_k)
        bands = Bands(edge, np.cumsum(share[:-1]), tail, new_first, weight)
        draw_by_depth(bands, draw[n_experts:].reshape(tokens, shape.top_k, 2), stack, expert, depth)
        yield expert, depth


def _hit_rates(depths: list[NDArray[np.int16]], banks: tuple[int, ...]) -> NDArray[np.float64]:
    """The share of all requests that each bank hits, f64 [banks]."""
    hits = np.zeros(len(banks), np.int64)
    for depth in depths:
        hits += [np.count_nonzero((depth >= 0) & (depth < slots)) for slots in banks]
    return hits / sum(depth.size for depth in depths)


BANKS, RATES = ("bank", "slots"), ("hit_pct", "hit_rate")
WRITTEN_OUT = re.compile(r"\s*\d+\s*:")
MAX_BYTES, MOST_ROWS = 2**20, 10_000


def read_hit_points(given: str | Path) -> dict[int, float]:
    """The hit rate, 0 to 1, by slots of a bank, in ascending order.

    given: `16:0.588,32:72.8%`, or a table with a column `bank` or `slots`, and one `hit_pct` or `hit_rate`.
    Raises BadInput if it cannot be read, and for a curve that falls, which is impossible under LRU.
    """
    text = str(given)
    points = _written_out(text) if isinstance(given, str) and WRITTEN_OUT.match(text) else _of_file(Path(given))
    return check_hit_points(points, text)


def check_hit_points(points: Iterable[tuple[int, float]], where: str = "curve") -> dict[int, float]:
    """The points as `read_hit_points` returns them; raises BadInput like it."""
    ascending = sorted(points)
    if not ascending:
        raise Malformed(f"{where}: no points in it; expected bank sizes and hit rates")
    before_slots, before = 0, 0.0
    for slots, share in ascending:
        if slots < 1:
            raise OutOfRange(f"{where}: a bank of {slots} slots; expected at least 1")
        if not 0 <= share <= 1:
            raise OutOfRange(
                f"{where}: hit rate {share:g} at bank {slots}; expected 0 to 1, or per cent, such as 58.8%"
            )
        if slots == before_slots:
            raise Malformed(f"{where}: bank {slots} is there twice; give the rows of one run")
        if share < before:
            raise Malformed(
                f"{where}: the hit rate falls from {100 * before:.1f}% at bank {before_slots} to {100 * share:.1f}% "
                f"at {slots}; under LRU a larger bank hits at least as often"
            )
        before_slots, before = slots, share
    return dict(ascending)


def _written_out(text: str) -> list[tuple[int, float]]:
    points = []
    for part in text.split(","):
        slots, _, share = part.partition(":")
        point = _point(slots.strip(), "hit_rate", share.strip())
        if point is None:
            raise Malformed(f"curve {text!r}: {part!r} is not slots:hit rate; expected 16:0.588,32:72.8%")
        points.append(point)
    return points


def _of_file(path: Path) -> list[tuple[int, float]]:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise Unusable(f"{path}: {why}; give a CSV file, or points such as 16:0.588,32:0.728") from None
    if len(content) > MAX_BYTES:
        raise TooLarge(f"{path}: more than {MAX_BYTES >> 20} MiB; expected a hit curve")
    try:
        text = as_utf8(content).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Malformed(f"{path}: not a CSV file ({error}); expected columns bank and hit_pct") from None
    names, rows = parse_table(text, where=str(path))
    if len(rows) > MOST_ROWS:
        raise TooLarge(f"{path}: more than {MOST_ROWS:,} rows; expected a hit curve")
    bank, rate = _columns(path, names)
    points = []
    for line, row in rows:
        point = _point(row[bank], rate, row[rate])
        if point is None:
            found = f"{bank} {row[bank]!r} and {rate} {row[rate]!r}"
            raise Malformed(f"{path}:{line}: found {found}; expected a whole number and a number")
        points.append(point)
    return points


def _point(slots: str, column: str, cell: str) -> tuple[int, float] | None:
    rate = share_of(column, cell)
    return (int(slots), rate) if rate is not None and re.fullmatch("[0-9]{1,9}", slots) else None


def _columns(path: Path, header: Iterable[str]) -> tuple[str, str]:
    names = list(header)
    bank = [name for name in BANKS if name in names]
    rate = [name for name in RATES if name in names]
    if len(bank) != 1 or len(rate) != 1:
        raise Malformed(
            f"{path}: begins with the columns {', '.join(names)[:80]!r}; "
            "expected one of bank and slots, and one of hit_pct and hit_rate"
        )
    return bank[0], rate[0]
