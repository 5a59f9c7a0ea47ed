"""Route CSV: a preamble with each layer's expert bytes, then one row per routed expert with its observed residency.

`# route_trace v1`, then `turn,phase,step,layer,slot,expert,weight,residency,expert_bytes`. `slot` is the router rank,
not a slot of a bank. `expert_bytes` is what the row loaded: the layer's expert bytes, or 0. A prompt is written layer
by layer and is one routed call per layer; a decoded token is one call per layer.

Source: BigMoeOnEdge, docs/bench-data route traces; its engine looks residency up once for a whole call.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PureWindowsPath
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Malformed, Unsupported
from flashmoe_sim.io.notes import DROPPED, Note
from flashmoe_sim.trace.calls import ID_MAX, run_starts, with_end
from flashmoe_sim.trace.csv_rows import Rows, TextColumn, read_rows
from flashmoe_sim.trace.lines import Skipped, excerpt, numbered_lines, trace_name
from flashmoe_sim.trace.requests import DEFAULTS, ReadOptions
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, RoutingTrace
from flashmoe_sim.trace.source import open_bytes

VERSION = 1
MOST = (1 << 31) - 1
MOST_BYTES = 1 << 50
COLUMNS = (
    TextColumn("turn", high=MOST),
    TextColumn("phase", high=1),
    TextColumn("step", high=MOST),
    TextColumn("layer"),
    TextColumn("slot"),
    TextColumn("expert"),
    TextColumn("weight", real=True),
    TextColumn("residency", high=1),
    TextColumn("expert_bytes", high=MOST_BYTES),
)
_BEGINNING = re.compile(rb"(?:\xef\xbb\xbf)?# route_trace v([0-9]+)")
_SETTING = re.compile(rb"\b(n_layer|n_expert|n_expert_used|layer|expert_bytes|dense_bytes)=([0-9]{1,15})\b")
_MODEL = re.compile(rb"\bmodel=(.+?)(?: arch=(\S+).*)?$")


def read(path: Path, options: ReadOptions = DEFAULTS) -> RoutingTrace:
    """Read a trace with its weights, observed residency and bytes; references stay in the order of the rows.

    A torn last line, and a last token that is not complete, are dropped and noted.
    Raises BadInput with the line number for any other malformed row, a token without all its ranks, an id outside what
    the preamble says, or a row whose bytes differ from its layer's; unless lenient.
    """
    with open_bytes(path) as stream:
        lines = numbered_lines(stream, path=path)
        preamble, number = _preamble(path, lines)
        header = [column.name for column in COLUMNS]
        rows = read_rows(stream, options, path=path, number=number, header=header, columns=COLUMNS)
    kept, notes = _whole_tokens(rows, preamble, path=path, lenient=options.lenient)
    value = {name: column[kept] for name, column in rows.values.items()}
    if not len(value["layer"]):
        raise Malformed(f"{path}: holds no complete token of {preamble.used} experts; expected a row for each of them")

    prompt = value["phase"] == 0
    token = np.where(prompt, -1, value["step"])
    starts = run_starts(value["turn"], value["phase"], token, value["layer"])
    layer = value["layer"][starts].astype(np.int16)
    begins = np.zeros(len(starts), dtype=np.bool_)
    begins[run_starts(value["turn"][starts], value["phase"][starts], token[starts])] = True
    begins[1:] |= layer[1:] <= layer[:-1]
    offset = with_end(starts, len(token))
    return RoutingTrace(
        layer=layer,
        n_tokens=(np.diff(offset) // preamble.used).astype(np.int32),
        offset=offset,
        expert=value["expert"].astype(np.int16),
        n_experts=dict.fromkeys(preamble.expert_bytes, preamble.experts),
        n_experts_known=True,
        top_k=preamble.used,
        weight=value["weight"].astype(np.float32),
        resident=value["residency"].astype(np.uint8),
        phase=np.where(prompt[starts], PHASE_PROMPT, PHASE_DECODE).astype(np.uint8),
        sequence=value["turn"][starts].astype(np.int32),
        step=np.cumsum(begins, dtype=np.int32) - np.int32(1),
        expert_bytes=preamble.expert_bytes,
        dense_bytes=preamble.dense_bytes,
        format="route-csv",
        name=trace_name(path),
        notes=(*preamble.notes, *rows.notes, *notes),
    )


class _Preamble(NamedTuple):
    experts: int
    used: int
    expert_bytes: dict[int, int]
    dense_bytes: dict[int, int]
    notes: tuple[str, ...]


def _preamble(path: Path, lines: Iterator[tuple[int, bytes]]) -> tuple[_Preamble, int]:
    """The preamble's values, and the line number of the first row."""
    general: dict[str, int] = {}
    expert_bytes: dict[int, int] = {}
    dense_bytes: dict[int, int] = {}
    notes: tuple[str, ...] = ()
    for number, line in lines:
        if not line.startswith(b"#"):
            break
        if version := _BEGINNING.match(line):
            if version[1].lstrip(b"0") != str(VERSION).encode():
                raise Unsupported(
                    f"{path}: line {number}: route_trace v{version[1][:20].decode()}; only v{VERSION} is known"
                )
            continue
        settings = {name.decode(): int(value) for name, value in _SETTING.findall(line)}
        if "layer" in settings:
            expert_bytes[settings["layer"]] = settings.get("expert_bytes", 0)
            dense_bytes[settings["layer"]] = settings.get("dense_bytes", 0)
        else:
            general |= settings
        if model := _MODEL.search(line.rstrip()):
            name = PureWindowsPath(model[1].decode("utf-8", "replace")).name
            arch = f" ({model[2].decode('utf-8', 'replace')})" if model[2] else ""
            notes = (f"recorded from {name}{arch}",)
    else:
        raise Malformed(f"{path}: ends within its preamble; expected rows after it")
    expected = ",".join(column.name for column in COLUMNS)
    if line.strip() != expected.encode():
        raise Malformed(
            f"{path}: line {number}: the header is {excerpt(line.strip())}; expected {excerpt(expected, width=99)}"
        )
    for key, most in (("n_expert", ID_MAX + 1), ("n_expert_used", ID_MAX + 1)):
        if not 0 < general.get(key, 0) <= most:
            raise Malformed(f"{path}: the preamble has no {key} of 1..{most}; record the trace again")
    if not expert_bytes or max(expert_bytes) > ID_MAX:
        raise Malformed(
            f"{path}: the preamble has no usable `# layer=... expert_bytes=...` lines; record the trace again"
        )
    routed = {layer: size for layer, size in expert_bytes.items() if size}
    return _Preamble(general["n_expert"], general["n_expert_used"], routed, dense_bytes, notes), number + 1


def _whole_tokens(
    rows: Rows, preamble: _Preamble, *, path: Path, lenient: bool
) -> tuple[NDArray[np.bool_], tuple[str, ...]]:
    """Which rows belong to complete tokens that agree with the preamble, and notes on what was left out."""
    value, count = rows.values, len(rows.line)
    size = np.full(ID_MAX + 1, -1, dtype=np.int64)
    size[list(preamble.expert_bytes)] = list(preamble.expert_bytes.values())
    layer_size, loaded = size[value["layer"]], value["expert_bytes"]
    first = value["slot"] == 0
    first[run_starts(value["turn"], value["phase"], value["step"], value["layer"])] = True
    begin = np.flatnonzero(first)
    length = np.diff(with_end(begin, count))
    rank = np.arange(count) - np.repeat(begin, length)
    wrong = (layer_size < 0) | (value["expert"] >= preamble.experts) | ((loaded != 0) & (loaded != layer_size))
    wrong |= (value["slot"] != rank) | (rank >= preamble.used)
    bad = (length != preamble.used) | np.logical_or.reduceat(wrong, begin)
    left_out = np.repeat(bad, length)
    notes: list[str] = []
    if bad[-1] and length[-1] < preamble.used and not wrong[begin[-1] :].any():
        notes = [Note(DROPPED, f"the last token has {length[-1]} of {preamble.used} experts and was dropped")]
        bad[-1] = False
    skipped = Skipped(path, lenient=lenient, what="incomplete or inconsistent token")
    for token in np.flatnonzero(bad).tolist():
        within = wrong[begin[token] : begin[token] + length[token]]
        at = int(begin[token] + (within.argmax() if within.any() else length[token] - 1))
        found = _what_is_wrong(value, at, int(rank[at]), preamble, int(layer_size[at]))
        skipped.line(int(rows.line[at]), found)
    return ~left_out, (*notes, *skipped.notes())


def _what_is_wrong(value: dict[str, NDArray[np.int64]], at: int, rank: int, preamble: _Preamble, size: int) -> str:
    layer, expert = int(value["layer"][at]), int(value["expert"][at])
    if size < 0:
        return f"layer {layer} is not in the preamble"
    if expert >= preamble.experts:
        return f"expert {expert}, but the preamble says n_expert={preamble.experts}"
    if (loaded := int(value["expert_bytes"][at])) not in (0, size):
        return f"expert_bytes {loaded} in layer {layer}, but the preamble says {size}"
    if rank >= preamble.used or int(value["slot"][at]) != rank:
        return f"slot {int(value['slot'][at])}, but rank {rank} of 0..{preamble.used - 1} is next"
    return f"the token has {rank + 1} of {preamble.used} experts"
