"""Responses of vLLM and SGLang with the experts of every token: one response, a list, or one per line.

vLLM: `routed_experts` of a choice is base64 of a `.npy` file, `[tokens fed, layers, k]`; in 0.21 nested lists of only
the routed layers, with the prompt separate in `prompt_routed_experts`. SGLang: base64 of bare integers in `meta_info`,
`sglext` or `sgl_ext`, of the response or a choice, without layers and k. `{"data": …, "shape": …}` also holds base64.
Lines of OpenAI's batch output hold a response in `response.body`.

Source: vllm docs/training/routed_experts; sglang state_capturer/routed_experts_wire.py@a6463a1.
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pybase64
from numpy.typing import NDArray

from flashmoe_sim.io import strict_json
from flashmoe_sim.io.errors import Incomplete, Malformed, shown
from flashmoe_sim.trace.arrays import npy_array, small_ids
from flashmoe_sim.trace.formats import NPY_MAGIC
from flashmoe_sim.trace.lines import Skipped, numbered_lines, trace_name
from flashmoe_sim.trace.request_calls import trace_of_requests
from flashmoe_sim.trace.requests import DEFAULTS, Hints, ReadOptions, Request
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.source import open_bytes

FORMAT = "served-json"
LONGEST_LINE = 1 << 40  # a response of any length; memory holds one
KEY, PROMPT_KEY = "routed_experts", "prompt_routed_experts"
EXTRAS = ("meta_info", "sglext", "sgl_ext")  # where SGLang puts the routing
DTYPES = ("int32", "uint16", "uint8", "int16", "int64")
WITHOUT = (
    "the server was started without the flag (vLLM and SGLang: --enable-return-routed-experts), or the request was "
    "aborted"
)


class BadResponse(ValueError):
    """What is wrong with one response."""


class TokenCounts(NamedTuple):
    """Tokens of a request: in the prompt, generated, before the first row, and cached. None: unknown."""

    prompt: int | None
    generated: int | None
    start: int | None
    cached: int

    @property
    def rows(self) -> tuple[int, ...]:
        """The possible numbers of rows, the likeliest first: in SGLang cached tokens have rows, but need not."""
        if self.prompt is None or self.generated is None:
            return ()
        fed = self.prompt + self.generated - 1
        if self.start is not None:
            return (fed - self.start,) if fed > self.start else ()
        return tuple(count for count in dict.fromkeys((fed, fed - self.cached)) if count > 0)


def read(path: Path, options: ReadOptions = DEFAULTS) -> RoutingTrace:
    """Read a trace; see `trace_of_requests`. lenient also leaves out responses without routing.

    Raises BadInput, naming the response, if one is cut short, has no routing or is malformed.
    """
    skipped = Skipped(path, lenient=options.lenient)
    requests: list[Request] = []
    with open_bytes(path) as stream:
        for number, text in _documents(stream, path, options):
            try:
                requests += _requests(text, where=f"{path.name}: line {number}", hints=options.hints)
            except BadResponse as error:
                skipped.line(number, str(error))
    if not requests:
        raise Malformed(f"{path}: holds no routing: {WITHOUT}")
    return trace_of_requests(
        requests,
        format=FORMAT,
        name=trace_name(path),
        options=options,
        notes=("the ranks of a token's experts are not in the router's order", *skipped.notes()),
    )


def _documents(stream: IO[bytes], path: Path, options: ReadOptions) -> Iterator[tuple[int, bytes]]:
    """One document per non-blank line; the whole stream as one if its first such line is not JSON."""
    import orjson

    numbered = numbered_lines(stream, path=path, progress=options.progress, most_bytes=LONGEST_LINE)
    lines = ((number, line) for number, line in numbered if not line.isspace())
    for place, (number, line) in enumerate(lines):
        text = line
        if not place:
            try:
                orjson.loads(line)
            except orjson.JSONDecodeError:
                text = b"".join([line, *(line for _, line in lines)])
        yield number, text


def _requests(text: bytes, *, where: str, hints: Hints) -> Iterator[Request]:
    try:
        document = strict_json.loads(text)
    except json.JSONDecodeError as error:
        raise BadResponse(f"not a complete JSON document ({error})") from None
    except ValueError as error:
        raise BadResponse(f"{error}; expected each key once") from None
    several = isinstance(document, list)
    for number, response in enumerate(document if several else [document], 1):
        here = f"{where}, response {number}" if several else where
        if not isinstance(response, dict):
            raise BadResponse(f"{shown(response, 40)}; expected a response, an object")
        body = response.get("response")
        if isinstance(body, dict):
            response = body.get("body")  # noqa: PLW2901 - a line of batch output
            if not isinstance(response, dict):
                raise BadResponse("the batch output has no response.body: the request failed")
        yield from requests_of(response, where=here, hints=hints)


def requests_of(response: Mapping[str, Any], *, where: str, hints: Hints = DEFAULTS.hints) -> list[Request]:
    """The requests in one response, one for each choice.

    The first choice has the prompt; the others share it.
    Raises BadResponse for one without routing, or malformed.
    """
    choices = response.get("choices")
    if not isinstance(choices, list) or not choices:
        choices = [{}]
    found = []
    for number, choice in enumerate(choices):
        if not isinstance(choice, dict):
            raise BadResponse(f"choice {number} is {shown(choice, 40)}; expected an object")
        here = f"{where}, choice {number}" if len(choices) > 1 else where
        found.append(_request(response, choice, here, hints, alone=len(choices) == 1, shares=number > 0))
    return found


def _request(
    response: Mapping[str, Any], choice: Mapping[str, Any], where: str, hints: Hints, *, alone: bool, shares: bool
) -> Request:
    places = [choice, response]
    extras = [place[name] for place in places for name in EXTRAS if isinstance(place.get(name), dict)]
    routing, holder = next(
        ((place[KEY], place) for place in (*places, *extras) if place.get(KEY) is not None), (None, {})
    )
    before = next((place[PROMPT_KEY] for place in places if place.get(PROMPT_KEY) is not None), None)
    if routing is None and before is None:
        has = any(KEY in place for place in (*places, *extras))
        raise BadResponse(f"{KEY} is {'null' if has else 'not there'}: {WITHOUT}")
    usage = response.get("usage")
    usage = usage if isinstance(usage, dict) else {}
    prompt = _count("prompt_tokens", [*extras, usage], ids=("prompt_token_ids", places))
    generated = _count("completion_tokens", [*extras, usage] if alone else extras, ids=("token_ids", places[:1]))
    details = usage.get("prompt_tokens_details")
    cached = _count("cached_tokens", [*extras, details if isinstance(details, dict) else {}])
    cached = cached or _count("num_cached_tokens", places) or 0
    start = _count("routed_experts_start_len", extras)
    if start is None:
        start = _count("routed_experts_prompt_start", places)
    start = hints.start if start is None else start
    moe_only = counted = False
    if before is not None:
        moe_only = True
        if not isinstance(before, list) or not isinstance(routing, list | None):
            raise BadResponse(f"{PROMPT_KEY} is {shown(before, 40)}; expected lists of expert ids")
        expert = _nested([*before, *(routing or [])])
        prompt, generated = _split(len(before), len(expert) - len(before), prompt=prompt, generated=generated)
    elif isinstance(routing, list):
        expert = _nested(routing)
        if prompt is not None and generated is not None and len(expert) <= generated < prompt + generated - 1:
            moe_only, start, generated = True, prompt, len(expert) + 1
    else:
        if isinstance(routing, dict) and start is None:
            start = _count("start", [routing])
        expert, counted = _array(routing, holder, where, TokenCounts(prompt, generated, start, cached), hints)
    prompt = hints.prompt_tokens if prompt is None else prompt
    if prompt is None:
        raise BadResponse(
            "neither usage.prompt_tokens nor prompt_token_ids say how long the prompt is; keep them with the "
            "routing, or give --prompt-tokens"
        )
    return Request(
        expert=expert,
        prompt=prompt,
        generated=generated,
        start=start,
        cached=prompt if shares else min(cached, prompt),
        moe_only=moe_only,
        counted=counted,
        where=where,
    )


def _count(
    key: str, places: Sequence[Mapping[str, Any]], *, ids: tuple[str, Sequence[Mapping[str, Any]]] = ("", ())
) -> int | None:
    """A number of tokens from the first place that has it; else the number of listed ids."""
    for place in places:
        value = place.get(key)
        if value is not None:
            if type(value) is not int or not 0 <= value < 1 << 31:
                raise BadResponse(f"{key} is {shown(value, 40)}; expected a number of tokens")
            return value
    return next((len(place[ids[0]]) for place in ids[1] if isinstance(place.get(ids[0]), list)), None)


def _array(
    routing: Any, holder: Mapping[str, Any], where: str, counts: TokenCounts, hints: Hints
) -> tuple[NDArray[Any], bool]:
    """The ids in base64, and whether their number of layers was derived from the number of tokens."""
    dtype = shape = None
    if isinstance(routing, dict):
        shape, dtype, routing = routing.get("shape"), routing.get("dtype"), routing.get("data")
    if not isinstance(routing, str):
        raise BadResponse(f"{KEY} is {shown(routing, 40)}; expected base64 or lists of expert ids")
    try:
        content = from_base64(routing)
        if bytes(content[: len(NPY_MAGIC)]) == NPY_MAGIC:
            return small_ids(npy_array(content)), False
    except ValueError as error:
        raise BadResponse(f"{KEY}: {error}") from None
    dtype = dtype or holder.get("routed_experts_dtype") or "int32"
    if dtype not in DTYPES:
        raise BadResponse(f"{KEY} is of dtype {shown(dtype, 40)}; one of {', '.join(DTYPES)} expected")
    if len(content) % np.dtype(dtype).itemsize:
        raise BadResponse(f"{KEY} has {len(content):,} bytes, which are not a whole number of {dtype}")
    try:
        ids = small_ids(content.view(np.dtype(dtype).newbyteorder("<")))
    except ValueError as error:
        raise BadResponse(f"{KEY}: {error}") from None
    counted = shape is None and not hints.n_layers and not hints.model
    return ids.reshape(_shape(ids.size, shape, counts, hints, where)), counted


def from_base64(text: str | bytes) -> NDArray[np.uint8]:
    """Decode base64 into bytes, u8. Raises ValueError for anything else, including line ends."""
    if len(text) % 4:
        raise ValueError(f"base64 of {len(text):,} letters, not a multiple of 4: it is cut off")
    try:
        return np.frombuffer(pybase64.b64decode_as_bytearray(text, validate=True), np.uint8)
    except ValueError as error:
        raise ValueError(f"not valid base64 ({error})") from None


def _shape(size: int, given: Any, counts: TokenCounts, hints: Hints, where: str) -> tuple[int, int, int]:
    """Rows, layers and k of `size` ids: as given, else from the hints and the rows."""
    if given is not None:
        if (
            not isinstance(given, list)
            or len(given) != 3
            or any(type(side) is not int or side < 0 for side in given)
            or given[0] * given[1] * given[2] != size
        ):
            raise BadResponse(f"shape is {shown(given, 40)}; [tokens, layers, k] of {size:,} ids expected")
        return given[0], given[1], given[2]
    k, layers = hints.top_k, hints.n_layers
    if not k or not layers:
        one = k or layers
        if not one or not counts.rows or not size:
            known = f" ({size:,} ids of {counts.rows[0]:,} tokens)" if counts.rows else f" ({size:,} ids)"
            raise Incomplete(
                f"{where}: SGLang sends neither layers nor top-k{known}; give --model, or "
                "`sim trace import --n-layers L --top-k K`"
            )
        rows = next((rows for rows in counts.rows if size % (rows * one) == 0), None)
        if rows is None:
            raise Malformed(
                f"{where}: {size:,} ids with {f'top-k {k}' if k else f'{layers} layers'} are no whole number of layers "
                f"for {counts.rows[0]:,} rows: {counts.prompt:,} prompt tokens, {counts.cached:,} of them cached and "
                f"{counts.start or 0:,} before the first row, and {counts.generated:,} generated; rows are missing: "
                "give --model, or `sim trace import --n-layers L --top-k K`"
            )
        k, layers = k or size // (rows * one), layers or size // (rows * one)
    if size % (layers * k):
        raise Malformed(f"{where}: {size:,} ids are not a whole number of tokens of {layers} layers and top-k {k}")
    return size // (layers * k), layers, k


def _split(before: int, after: int, *, prompt: int | None, generated: int | None) -> tuple[int, int]:
    """The prompt and generated tokens of vLLM 0.21, which has a row for each, or for all but the last."""
    if (prompt is not None and prompt != before) or (generated is not None and after > generated):
        raise BadResponse(
            f"{before:,} rows of {PROMPT_KEY} and {after:,} of {KEY}, but {prompt or 0:,} prompt tokens and "
            f"{generated or 0:,} generated; the recording is incomplete, or these are the numbers of another request"
        )
    return before, after + 1


def _nested(rows: list[Any]) -> NDArray[np.int16]:
    """Nested lists of ids, [rows][layers][k], as i16 [rows, layers, k]; null for a row without routing."""
    try:
        some: list[Any] = next((row for row in rows if row is not None), [])
        absent = [[-1] * len(some[0])] * len(some) if some else []
        rows = [absent if row is None else row for row in rows]
        layers = list(chain.from_iterable(rows))
        flat = array("h", chain.from_iterable(layers))
        widths, depths = set(map(len, layers)), set(map(len, rows))
    except (TypeError, OverflowError, IndexError) as error:
        raise BadResponse(f"{KEY} is not [tokens][layers][k] of expert ids ({error})") from None
    if len(widths) != 1 or len(depths) != 1:
        raise BadResponse(
            f"tokens have {_several(depths)} layers and {_several(widths)} experts (mixed top-k); one number of each "
            "expected"
        )
    return np.frombuffer(flat, np.int16).reshape(len(rows), depths.pop(), widths.pop())


def _several(numbers: set[int]) -> str:
    listed = sorted(numbers)
    return " or ".join(map(str, listed[:3])) + (" …" if len(listed) > 3 else "")
