"""Responses of vLLM and SGLang with the experts of every token: one response, a list of them, or one a line.

vLLM: `routed_experts` of a choice is base64 of a `.npy` file, `[tokens fed, layers, k]`; in 0.21 nested lists of the
routed layers alone, the prompt apart in `prompt_routed_experts`. SGLang: base64 of bare integers in `meta_info`,
`sglext` or `sgl_ext`, of the response or a choice, without layers and k. `{"data": …, "shape": …}` holds base64, too.
Lines of OpenAI's batch output hold a response in `response.body`.

Source: vllm docs/training/routed_experts; sglang state_capturer/routed_experts_wire.py@a6463a1.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from flashmoe_sim.io.errors import BadInput, shown
from flashmoe_sim.trace.lines import BOM, Skipped, trace_name
from flashmoe_sim.trace.requests import Hints, Request, trace_of_requests
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.served_response import WITHOUT, BadResponse, requests_of
from flashmoe_sim.trace.source import open_bytes

FORMAT = "served-json"
_CUT = re.compile(rb'"routed_experts"\s*:\s*"')
_BEGINNING = re.compile(rb"(?:\xef\xbb\xbf)?\s*(?:\[\s*)?\{")
_KEYS = re.compile(rb'"(?:routed_experts|prompt_routed_experts|choices|meta_info)"\s*:')


def sniff(head: bytes) -> bool:
    """Whether a file that begins with these bytes is an object, or a list of objects, with a key of responses."""
    return _BEGINNING.match(head) is not None and _KEYS.search(head) is not None


def read(
    path: Path,
    *,
    lenient: bool = False,
    progress: Callable[[int], None] | None = None,
    hints: Hints | None = None,
) -> RoutingTrace:
    """Read a trace; see `trace_of_requests`. lenient also leaves out responses without routing.

    Raises BadInput, naming the response, for one that is cut short, has no routing or is malformed.
    """
    skipped = Skipped(path, lenient=lenient)
    requests: list[Request] = []
    for number, text in _documents(path, progress):
        try:
            requests += _in_document(text, where=f"{path.name}: {number}", hints=hints or Hints())
        except BadResponse as error:
            skipped.line(int(number.split()[-1]), str(error))
    if not requests:
        raise BadInput(f"{path}: holds no routing: {WITHOUT}")
    return trace_of_requests(
        requests,
        format=FORMAT,
        name=trace_name(path),
        hints=hints,
        lenient=lenient,
        notes=("the ranks of a token's experts are not in the router's order", *skipped.notes()),
    )


def _documents(path: Path, progress: Callable[[int], None] | None) -> Iterator[tuple[str, bytes]]:
    """`line N` and its JSON, or `response 1` and the whole file if its first line is not JSON by itself."""
    with open_bytes(path) as stream:
        number, first = 0, b""
        while not first.strip():
            number += 1
            first = stream.readline()
            if number == 1:
                first = first.removeprefix(BOM)
        if first.strip()[-1:] not in b"}]" or not _is_json(first):
            text = first + stream.read()
            if progress:
                progress(len(text))
            yield "line 1", text
            return
        line = first
        while line:
            if progress:
                progress(len(line))
            if line.strip():
                yield f"line {number}", line
            number += 1
            line = stream.readline()


def _is_json(line: bytes) -> bool:
    import orjson

    try:
        orjson.loads(_without_arrays(line)[0])
    except orjson.JSONDecodeError:
        return False
    return True


def _without_arrays(text: bytes) -> tuple[bytes, list[memoryview]]:
    """The JSON with `"#0"`, `"#1"`, … for each text under the key `routed_experts`, and these texts.

    They are nearly all of a response, and finding where they end is much faster than parsing them. Such a text has no
    escapes; one that has is left where it is. A key inside of another text has a backslash before its last quote.
    """
    arrays: list[memoryview] = []
    kept: list[bytes | memoryview] = []
    view, at = memoryview(text), 0
    for found in _CUT.finditer(text):
        end = text.find(b'"', found.end())
        if found.start() < at or end < 0 or text.find(b"\\", found.end(), end) >= 0:
            continue
        kept += [view[at : found.end()], b"#%d" % len(arrays)]
        arrays.append(view[found.end() : end])
        at = end
    kept.append(view[at:])
    return b"".join(kept), arrays


def _in_document(text: bytes, *, where: str, hints: Hints) -> Iterator[Request]:
    import orjson

    short, arrays = _without_arrays(text)
    try:
        document = orjson.loads(short)
    except orjson.JSONDecodeError as error:
        raise BadResponse(f"not a complete JSON document ({error})") from None
    several = isinstance(document, list)
    for number, response in enumerate(document if several else [document], 1):
        here = f"{where}, response {number}" if several else where
        if not isinstance(response, dict):
            raise BadResponse(f"{shown(response, 40)}; a response expected, an object")
        body = response.get("response")
        if isinstance(body, dict):
            response = body.get("body")  # noqa: PLW2901 - a line of batch output
            if not isinstance(response, dict):
                raise BadResponse("the batch output has no response.body: the request failed")
        yield from requests_of(response, where=here, hints=hints, arrays=arrays)
