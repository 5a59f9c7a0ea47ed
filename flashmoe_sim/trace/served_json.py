"""Responses of vLLM and SGLang with the experts of every token: one response, a list, or one per line.

vLLM: `routed_experts` of a choice is base64 of a `.npy` file, `[tokens fed, layers, k]`; in 0.21 nested lists of only
the routed layers, with the prompt separate in `prompt_routed_experts`. SGLang: base64 of bare integers in `meta_info`,
`sglext` or `sgl_ext`, of the response or a choice, without layers and k. `{"data": …, "shape": …}` also holds base64.
Lines of OpenAI's batch output hold a response in `response.body`.

Source: vllm docs/training/routed_experts; sglang state_capturer/routed_experts_wire.py@a6463a1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from flashmoe_sim.io import strict_json
from flashmoe_sim.io.errors import BadInput, shown
from flashmoe_sim.trace.lines import Skipped, numbered_lines, trace_name
from flashmoe_sim.trace.request_calls import trace_of_requests
from flashmoe_sim.trace.requests import DEFAULTS, Hints, ReadOptions, Request
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.served_response import WITHOUT, BadResponse, requests_of
from flashmoe_sim.trace.source import open_bytes

FORMAT = "served-json"
LONGEST_LINE = 1 << 40  # a response of any length; memory holds one


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
        raise BadInput(f"{path}: holds no routing: {WITHOUT}")
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
    lines = ((number, line) for number, line in numbered if line.strip())
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
