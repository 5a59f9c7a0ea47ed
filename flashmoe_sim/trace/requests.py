"""What an engine recorded of one request, and what the user says about a recording."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Conflict, Malformed, shown

PREFILL_CHUNK = 512


@dataclass(frozen=True, kw_only=True)
class Hints:
    """What the user says about a file that the file does not record itself.

    prefill_chunk: prompt tokens that one pass reads; None for PREFILL_CHUNK, llama.cpp's default. moe_layers: the
    model's layer numbers of an array's layers, or of its routed layers.
    model: experts of each routed layer of the model, by layer number.
    n_layers, top_k: sizes of an array sent without its shape.
    prompt_tokens: tokens of the prompt, only for arrays. phase: "prompt" or "decode" if all tokens have that phase.
    start: tokens before the first row. missing: an id that means no routing, beside all negative ones. shared: ids of
    shared experts, which every token has beside its routed ones: they are dropped. axes: the axes of an array in order:
    request, token, layer, k. array, weights_array: names in an archive.
    """

    prefill_chunk: int | None = None
    moe_layers: tuple[int, ...] | None = None
    model: Mapping[int, int] | None = None
    n_layers: int | None = None
    top_k: int | None = None
    prompt_tokens: int | None = None
    phase: str | None = None
    start: int | None = None
    missing: int | None = None
    shared: tuple[int, ...] = ()
    axes: tuple[str, ...] | None = None
    array: str | None = None
    weights_array: str | None = None


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """How to read a file.

    lenient: skip malformed lines and count them in the notes, instead of refusing the first. progress: called after
    each part with its size, in bytes after decompression. hints: for formats that accept them.
    """

    lenient: bool = False
    progress: Callable[[int], None] | None = None
    hints: Hints = Hints()


DEFAULTS = ReadOptions()


def without_shared(
    expert: NDArray[Any], weight: NDArray[Any] | None, shared: Sequence[int], *, where: str
) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Experts and gate weights [..., k] without the ids of shared experts; rows of no routing lose as many.

    Raises BadInput for a token that has some of them, or one twice, and if nothing else is left.
    """
    found, listed = np.isin(expert, shared), ", ".join(map(str, shared))
    none = (expert < 0).all(axis=-1)
    found[none, : len(shared)] = True
    counts = found.sum(axis=-1)
    if (wrong := counts != len(shared)).any():
        ids = expert[wrong][0].tolist()
        raise Conflict(f"{where}: a token has the experts {shown(ids)}; expected each shared one once: {listed}")
    width = expert.shape[-1] - len(shared)
    if not width:
        raise Conflict(f"{where}: tokens have no expert but the shared {listed}; leave --shared out")
    shape = (*expert.shape[:-1], width)
    return expert[~found].reshape(shape), None if weight is None else weight[~found].reshape(shape)


@dataclass(frozen=True, eq=False, kw_only=True)
class Request:
    """One request.

    expert: integers [rows, layers, k]; row i is token `start + i` of prompt and answer. Negative: no routing.
    prompt, generated: tokens of the prompt and of the answer; generated None if unknown.
    start: tokens before the first row; if None (unknown), the last row is assumed to be the last token fed. cached:
    tokens at the beginning that were not computed: their rows are left out. moe_only: whether the array has only the
    model's routed layers, not all layers. counted: whether the number of layers was derived from the number of tokens.
    weight: f32 [rows, layers, k], gate weights. where: how messages name the request.
    """

    expert: NDArray[Any]
    prompt: int
    generated: int | None = None
    start: int | None = None
    cached: int = 0
    moe_only: bool = False
    counted: bool = False
    weight: NDArray[Any] | None = None
    where: str = "request"

    def without(self, shared: Sequence[int]) -> Request:
        """The request without the ids of shared experts."""
        expert, weight = without_shared(self.expert, self.weight, shared, where=self.where)
        return replace(self, expert=expert, weight=weight)

    @property
    def rows(self) -> int:
        return len(self.expert)

    @property
    def first(self) -> int:
        """The place of the first row among the tokens of the request.

        Raises BadInput if the rows do not match the tokens fed.
        """
        if self.generated is None:
            start = self.start or 0
            if start + self.rows < self.prompt - 1:
                raise Malformed(
                    f"{self.where}: {self.rows:,} rows of routing from token {start:,} on, but {self.prompt:,} prompt "
                    "tokens; the recording is incomplete, or this is the number of another request"
                )
            return start
        fed = self.prompt + self.generated - 1  # also for a prompt alone: the last token is fed, but not recorded
        start = fed - self.rows if self.start is None else self.start
        if start + self.rows != fed or not 0 <= start <= self.prompt:
            raise Malformed(
                f"{self.where}: {self.rows:,} rows of routing, but {self.prompt:,} prompt tokens and "
                f"{self.generated:,} generated make {fed:,} tokens fed, {self.start or 0:,} of them before the first "
                "row; the recording is incomplete, or these are the numbers of another request"
            )
        return start
