"""Responses of vLLM and SGLang with the experts of every token: one response, a list, or one per line.

vLLM: `routed_experts` of a choice is base64 of a `.npy` file, `[tokens fed, layers, k]`; in 0.21 nested lists of only
the routed layers, with the prompt separate in `prompt_routed_experts`. SGLang: base64 of bare integers in `meta_info`,
`sglext` or `sgl_ext`, of the response or a choice, without layers and k. `{"data": …, "shape": …}` also holds base64.
Lines of OpenAI's batch output hold a response in `response.body`.

Source: vllm docs/training/routed_experts; sglang state_capturer/routed_experts_wire.py@a6463a1.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

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
_CUT = re.compile(rb'"routed_experts"\s*:\s*"')


@dataclass(frozen=True)
class Document:
    """The value of a JSON document, the texts cut out of it, and its error; cut: if later lines may complete it."""

    value: Any
    arrays: Sequence[memoryview] = ()
    error: str = ""
    cut: bool = False


def read(path: Path, options: ReadOptions = DEFAULTS) -> RoutingTrace:
    """Read a trace; see `trace_of_requests`. lenient also leaves out responses without routing.

    Raises BadInput, naming the response, if one is cut short, has no routing or is malformed.
    """
    skipped = Skipped(path, lenient=options.lenient)
    requests: list[Request] = []
    with open_bytes(path) as stream:
        for number, document in _documents(stream, path, options):
            try:
                requests += _requests(document, where=f"{path.name}: line {number}", hints=options.hints)
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


def _documents(stream: IO[bytes], path: Path, options: ReadOptions) -> Iterator[tuple[int, Document]]:
    """One document per non-blank line; the whole stream as one if its first such line is not JSON."""
    numbered = numbered_lines(stream, path=path, progress=options.progress, most_bytes=LONGEST_LINE)
    lines = ((number, line) for number, line in numbered if line.strip())
    for place, (number, line) in enumerate(lines):
        document = _document(line)
        if document.cut and not place:
            document = _document(b"".join([line, *(line for _, line in lines)]))
        yield number, document


def _document(text: bytes) -> Document:
    """The JSON in a text, without the texts under the key `routed_experts`.

    These texts are nearly all of a response, and finding where they end is much faster than parsing them. `"#0"`,
    `"#1"`, … stand for them. Such a text has no escaped quotes. A key inside another text has a backslash before its
    last quote.
    """
    import orjson

    arrays: list[memoryview] = []
    kept: list[bytes | memoryview] = []
    view, at = memoryview(text), 0
    while found := _CUT.search(text, at):
        close = text.find(b'"', found.end())
        if close < 0:
            break
        kept += [view[at : found.end()], b"#%d" % len(arrays)]
        arrays.append(view[found.end() : close])
        at = close
    kept.append(view[at:])
    try:
        return Document(strict_json.loads(b"".join(kept)), arrays)
    except orjson.JSONDecodeError as error:
        return Document(None, error=f"not a complete JSON document ({error})", cut=True)
    except ValueError as error:
        return Document(None, error=f"{error}; expected each key once")


def _requests(document: Document, *, where: str, hints: Hints) -> Iterator[Request]:
    if document.error:
        raise BadResponse(document.error)
    several = isinstance(document.value, list)
    for number, response in enumerate(document.value if several else [document.value], 1):
        here = f"{where}, response {number}" if several else where
        if not isinstance(response, dict):
            raise BadResponse(f"{shown(response, 40)}; expected a response, an object")
        body = response.get("response")
        if isinstance(body, dict):
            response = body.get("body")  # noqa: PLW2901 - a line of batch output
            if not isinstance(response, dict):
                raise BadResponse("the batch output has no response.body: the request failed")
        yield from requests_of(response, where=here, hints=hints, arrays=document.arrays)
