"""Traces: a door for each format, and the one that finds the format by the content."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Sequence
from io import BytesIO
from itertools import pairwise
from pathlib import Path

import numpy as np
import zstandard
from hypothesis import strategies as st

from flashmoe_sim.io.errors import SimError
from flashmoe_sim.io.notes import TORN, code_of
from flashmoe_sim.trace import grouped_pairs, plain_csv, route_csv, runtime_jsonl, store, token_pairs
from flashmoe_sim.trace.check import check_trace
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.requests import DEFAULTS, ReadOptions
from flashmoe_sim.trace.routing import RoutingTrace
from tests.fuzz.target import Document, Target
from tests.trace.jsonl_twin import LINE, NEXT, in_layout, twin
from tests.trace.strategies import random_traces, trace_of
from tests.trace.test_route_csv import PREAMBLE, ROWS

Calls = list[tuple[int, list[int]]]


def reader(read: Callable[..., RoutingTrace], name: str) -> Callable[[bytes, Path], RoutingTrace]:
    """A format's door: strict, and lenient beside it, which must not break and must agree."""

    def at_the_door(data: bytes, folder: Path) -> RoutingTrace:
        path = folder / name
        path.write_bytes(data)
        lenient = None
        try:
            lenient = read(path, ReadOptions(lenient=True))
            check_trace(lenient, where=name)
        except SimError:
            pass
        strict = read(path)
        check_trace(strict, where=name)
        assert lenient is not None, "strictly read, but not leniently"
        assert lenient.equals(strict), "strictly and leniently read, it differs"
        return strict

    return at_the_door


def stored(_: bytes, trace: RoutingTrace, folder: Path) -> None:
    """What was read is a whole trace: the store writes it, and reads it back."""
    path = folder / "again.parquet"
    store.write_store(trace, path, force=True)
    assert load_trace(path, format="parquet").equals(trace), "the store reads back another trace"


def as_twin(data: bytes, trace: RoutingTrace, folder: Path) -> None:
    """A runtime's trace as the plain twin reads it, less a torn last line."""
    stored(data, trace, folder)
    if any(code_of(note) == TORN for note in trace.notes):
        data = data[: data.rfind(b"\n") + 1]
        trace = trace.with_(notes=tuple(note for note in trace.notes if code_of(note) != TORN))
    assert twin(data).equals(trace), "the twin reads another trace"


def as_lists(data: bytes, trace: RoutingTrace, folder: Path) -> None:
    """Pairs of tokens as `json` reads them, less a torn last line."""
    stored(data, trace, folder)
    lines = [line for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n") if line.strip()]
    if any(code_of(note) == TORN for note in trace.notes):
        lines = lines[:-1]
    pairs = [pair for line in lines for pair in json.loads(line)]
    layer = np.repeat(trace.layer, np.diff(trace.offset))
    assert pairs == np.stack([layer, trace.expert], axis=1).tolist(), "other pairs"


def undamaged(data: bytes, trace: RoutingTrace, folder: Path) -> None:
    """A store with a checksum is what was written, or refused."""
    stored(data, trace, folder)
    if store.CHECKSUM.encode() in data and any(in_store(one)[:64] == data[:64] for one in STORED):
        assert any(trace.equals(one) for one in STORED), "damaged and accepted"


# ------------------------------------------------------------------------------------------------------ valid documents


def calls_of(trace: RoutingTrace) -> Calls:
    ends = zip(trace.layer.tolist(), trace.offset.tolist(), trace.offset.tolist()[1:], strict=False)
    return [(layer, trace.expert[begin:end].tolist()) for layer, begin, end in ends]


@st.composite
def steps(draw: st.DrawFn) -> list[Calls]:
    """Steps of one token: some of the layers, ascending, each with as many experts."""
    top_k, layers = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    experts = st.lists(
        st.integers(0, draw(st.sampled_from([5, 255, 32767]))), min_size=top_k, max_size=top_k, unique=True
    )
    return draw(
        st.lists(
            st.lists(
                st.tuples(st.integers(0, layers), experts), min_size=1, max_size=layers + 1, unique_by=lambda c: c[0]
            ).map(sorted),
            min_size=1,
            max_size=8,
        )
    )


def flat(read: list[Calls]) -> Calls:
    return [call for step in read for call in step]


@st.composite
def runtime_lines(draw: st.DrawFn) -> Document:
    extra = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "phase": st.sampled_from([0, 1, 2, "prompt", "decode"]),
                "sequence": st.integers(0, 9),
                "host": st.text(max_size=5),
            },
        )
    )
    rows = []
    for number, step in enumerate(draw(steps())):
        for layer, experts in step:
            row = {"layer": layer, "n_expert_used": len(experts), "n_tokens": 1, "experts": experts, "step": number}
            rows.append(dict(draw(st.permutations([*(row | extra).items()]))))
    text = b"\n".join(json.dumps(row, ensure_ascii=draw(st.booleans())).encode() for row in rows) + b"\n"
    return text, twin(text)


@st.composite
def pair_lines(draw: st.DrawFn) -> Document:
    read = draw(steps())
    lines = [json.dumps([[layer, expert] for layer, experts in step for expert in experts]) for step in read]
    return "\n".join(lines).encode() + b"\n", flat(read)


@st.composite
def csv_lines(draw: st.DrawFn) -> Document:
    read = draw(steps())
    columns = draw(st.permutations(["layer", "expert", "step", "rank", "note"]))
    rows = [
        {"layer": layer, "expert": expert, "step": number, "rank": rank, "note": ""}
        for number, step in enumerate(read)
        for layer, experts in step
        for rank, expert in enumerate(experts)
    ]
    lines = [",".join(columns), *(",".join(str(row[name]) for name in columns) for row in rows)]
    return draw(st.sampled_from(["\n", "\r\n"])).join(lines).encode() + b"\n", flat(read)


@st.composite
def grouped(draw: st.DrawFn) -> Document:
    read = [(layer, sorted(experts)) for layer, experts in flat(draw(steps()))]
    # the format does not say where a call ends if another one of the same layer follows
    read = [call for before, call in pairwise([(-1, []), *read]) if before[0] != call[0]]
    pairs = [[layer, expert] for layer, experts in read for _ in range(3) for expert in experts]
    document = {"entry_bytes": 512, "num_groups": 6, "experts_per_group": 32768, "trace": pairs}
    return json.dumps(document).encode(), read


@st.composite
def route_rows(draw: st.DrawFn) -> Document:
    used, bytes_ = draw(st.integers(1, 3)), draw(st.integers(1, 1 << 40))
    experts = st.lists(st.integers(0, 7), min_size=used, max_size=used, unique=True)
    read = [[(layer, draw(experts)) for layer in range(2)] for _ in range(draw(st.integers(1, 6)))]
    head = [f"# route_trace v1\n# n_layer=2 n_expert=8 n_expert_used={used}"]
    head += [f"# layer={layer} expert_bytes={bytes_} dense_bytes=1" for layer in range(2)]
    head.append("turn,phase,step,layer,slot,expert,weight,residency,expert_bytes")
    rows = [
        f"0,1,{number},{layer},{rank},{expert},0.5,{resident},{0 if resident else bytes_}"
        for number, step in enumerate(read)
        for layer, chosen in step
        for rank, expert in enumerate(chosen)
        for resident in [draw(st.integers(0, 1))]
    ]
    return "\n".join([*head, *rows]).encode() + b"\n", flat(read)


def is_whole(trace: RoutingTrace) -> bool:
    """Whether a random trace is one that the program would take."""
    try:
        check_trace(trace, where="random")
    except SimError:
        return False
    return True


def in_store(trace: RoutingTrace) -> bytes:
    """The bytes of a store, through memory."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        store.write_store(trace, Path(folder, "t.parquet"))
        return Path(folder, "t.parquet").read_bytes()


def compressed(data: bytes) -> list[bytes]:
    return [gzip.compress(data, mtime=0), zstandard.compress(data), gzip.compress(data, mtime=0) * 2]


def of_calls(found: RoutingTrace, expected: Calls) -> bool:
    return calls_of(found) == expected


def equal(found: RoutingTrace, expected: RoutingTrace) -> bool:
    return found.equals(expected.with_(name=found.name))


STORED = (
    trace_of(
        (0, [1, 2]),
        (3, [7, 0]),
        (0, [2, 3]),
        slots=[[0, 1], [0, 1], [1, 2]],
        step=np.array([0, 0, 1], np.int32),
        weight=np.array([0.5, 0.25, 1, 2, 3, 4], np.float32),
        name="t",
        notes=("a note",),
    ),
    trace_of(*[(layer % 4, [layer % 7, 7 + layer % 5]) for layer in range(40)], name="u"),
)
JSONL = (
    LINE + b"\n" + NEXT + b"\n",
    in_layout(6),
    b'{"layer":0,"experts":[1,2],"weights":[0.5,0.25],"phase":"decode","sequence":1,"step":3,"slots":[-1,4]}\n' * 2,
    b'{"l\\u0061yer":0,"n_tokens":2,"experts":[1,2],"x":[{"y":null}]}\n{"layer":0,"n_expert_used":1,"n_tokens":0,"experts":[]}',
)
PAIRS = (b"[[1, 5], [1, 2], [3, 0], [3, 9]]\n[[1, 2], [1, 7], [3, 9], [3, 4]]\n", b"[[0,1],[0,2],[1,3]]\n[[0,")
ROUTES = ((PREAMBLE + ROWS).encode(),)
CSV = (
    b"expert,layer\n5,0\n2,0\n1,1\n4,1\n5,0\n3,0\n",
    b"# by hand\nSequence, phase ,token,seq,layer,rank,expert,weight,slot,comment\n0,prefill,10,0,0,0,5,0.75,3,x\n"
    b"0,prefill,10,0,0,1,2,0.25,1,\n0,decode,11,1,0,0,7,0.5,0,z\n0,decode,11,1,0,1,1,0.5,4,z\n",
    b"layer,expert,n_tokens\n0,1,2\n0,2,2\n0,1,2\n0,3,2\n",
)
GROUPED = (
    b'{"trace": [[0,1],[0,3],[0,1],[0,3],[0,1],[0,3],[1,2],[1,4],[1,2],[1,4],[1,2],[1,4]], "entry_bytes": 512.0,'
    b' "num_groups": 2, "experts_per_group": 8}',
)
NUMBERS = (b"-1", b"32768", b"65536", b"2147483648", b"1e9", b"0.5", b"null", b"true", b"99999999999999999999", b"NaN")
KEYS = (b'"layer":', b'"experts":', b'"slots":', b'"n_tokens":', b'"weights":', b'"phase":', b'"step":', b"\\u0061")


def everything() -> Sequence[bytes]:
    plain = (JSONL[0], PAIRS[0], ROUTES[0], CSV[0], GROUPED[0])
    return (*plain, in_store(STORED[0]), *(packed for data in plain[:2] for packed in compressed(data)))


def as_gzip(document: Document) -> Document:
    buffer = BytesIO()
    with gzip.GzipFile("", "wb", 6, buffer, 0) as stream:
        stream.write(document[0])
    return buffer.getvalue(), document[1]


def any_trace(path: Path, options: ReadOptions = DEFAULTS) -> RoutingTrace:
    return load_trace(path, lenient=options.lenient)


TARGETS = (
    Target(
        "trace-jsonl",
        reader(runtime_jsonl.read, "t.jsonl"),
        lambda: JSONL,
        (*NUMBERS, *KEYS, b"\n", b"\r\n"),
        "t.jsonl",
        as_twin,
        runtime_lines,
        equal,
    ),
    Target(
        "trace-pairs",
        reader(token_pairs.read, "t.jsonl"),
        lambda: PAIRS,
        (*NUMBERS, b"[[0,1]]\n", b"],["),
        "t.jsonl",
        as_lists,
        pair_lines,
        of_calls,
    ),
    Target(
        "trace-route-csv",
        reader(route_csv.read, "t.csv"),
        lambda: ROUTES,
        (*NUMBERS, b"# layer=", b"n_expert_used=", b"expert_bytes=", b"\n"),
        "t.csv",
        stored,
        route_rows,
        of_calls,
    ),
    Target(
        "trace-plain-csv",
        reader(plain_csv.read, "t.csv"),
        lambda: CSV,
        (*NUMBERS, b"rank", b"step", b"sequence", b"n_tokens", b"phase", b"weight", b"slot", b",", b"\n", b"prompt"),
        "t.csv",
        stored,
        csv_lines,
        of_calls,
    ),
    Target(
        "trace-grouped",
        reader(grouped_pairs.read, "t.json"),
        lambda: GROUPED,
        (*NUMBERS, b'"trace":', b'"num_groups":', b'"entry_bytes":', b"[0,1],"),
        "t.json",
        stored,
        grouped,
        of_calls,
    ),
    Target(
        "trace-store",
        reader(store.read, "t.parquet"),
        lambda: [in_store(trace) for trace in STORED],
        (b"PAR1", b"expert", b"checksum", b"flashmoe_sim.trace"),
        "t.parquet",
        undamaged,
        lambda: random_traces().filter(is_whole).map(lambda trace: (in_store(trace), trace)),
        equal,
    ),
    Target(
        "trace-any",
        reader(any_trace, "t.trace"),
        everything,
        (b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"PAR1", *KEYS),
        "t.trace",
        stored,
        lambda: pair_lines().map(as_gzip),
        of_calls,
        most_mib=192,
    ),
)
