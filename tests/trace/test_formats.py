"""Which format each file of the project is taken for, and what is imported to read it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.trace.bundled import catalog
from flashmoe_sim.trace.formats import FORMATS, find_format
from tests.trace.jsonl_twin import BOM, LINE, NEXT

ROOT = Path(__file__).parents[2]
SAMPLES = {
    "parquet": [
        "traces/requests/*.parquet",
        "tests/fuzz/corpus/*/control-character-of-arrow",
        "tests/fuzz/corpus/*/sizes-of-a-column",
    ],
    "route-csv": ["traces/bigmoeonedge/*.route.csv.gz"],
    "imp-json": ["data/made-up/imp.json"],
    "token-pairs": ["traces/nvmoe/*.tokens.jsonl.gz"],
    "sglang-pt": ["data/made-up/recorder.pt"],
    "array": ["data/made-up/routing.npy", "data/made-up/shard.safetensors"],
    "served-json": [
        "data/made-up/sglang.jsonl",
        "data/made-up/vllm*.jsonl",
        "tests/measured/files/server-response.json",
    ],
    "grouped-pairs": ["traces/sparsify/qwen3_trace.json.gz", "tests/fuzz/corpus/trace-grouped/expert-out-of-range"],
    "step-layers": ["data/made-up/steps.json"],
    "megatron-jsonl": ["data/made-up/router_trace_rank0.jsonl"],
    "moe-trace-csv": ["data/made-up/moe-trace.csv"],
    "plain-csv": ["tests/fuzz/corpus/trace-plain-csv/ranks-out-of-order"],
    "runtime-jsonl": [
        "data/*/*/trace.jsonl.gz",
        "data/hot-cache/trace*.jsonl.gz",
        "data/paging/*.jsonl.gz",
        "tests/native_bridge/greedy/ubatch-*.jsonl.gz",
        "tests/native_bridge/recorded/*/trace.jsonl.gz",
    ],
}
LOOKED_AT = ("traces", "data", "tests/fuzz/corpus", "tests/measured/files", "tests/native_bridge/greedy",
             "tests/native_bridge/recorded")  # fmt: skip
FOUND = {path: name for name, globs in SAMPLES.items() for one in globs for path in ROOT.glob(one)}


def test_every_format_has_a_sample() -> None:
    assert set(FOUND.values()) == SAMPLES.keys() == FORMATS.keys()
    assert all(next(ROOT.glob(one), None) for globs in SAMPLES.values() for one in globs)


@pytest.mark.parametrize("folder", LOOKED_AT)
def test_each_file_is_taken_for_what_it_is(folder: str) -> None:
    """And no file that is not a trace is claimed, except pages whose first line quotes one."""
    files = [path for path in sorted((ROOT / folder).rglob("*")) if path.is_file() and path.suffix != ".md"]
    assert files
    for path in files:
        try:
            found = find_format(path).name
        except BadInput:
            found = None
        assert found == FOUND.get(path), path


@pytest.mark.parametrize(
    ("name", "head", "ours"),
    [
        ("token-pairs", b" [ [ 1, 2]", True),
        ("token-pairs", b'{"trace": [[1, 2]]}', False),
        ("token-pairs", b"[1, 2]", False),
        ("grouped-pairs", b'{"entry_bytes": 1, "trace" : [[0, 1]', True),
        ("grouped-pairs", b'{"seq":0,"layer":0,"experts":[1]}', False),
        ("plain-csv", b"# note\nstep,Layer,EXPERT\n", True),
        ("plain-csv", b"step,layer\n", False),
        ("plain-csv", b"", False),
        ("route-csv", b"# route_trace v2\n", True),
        ("route-csv", b"# layer,expert\n", False),
        ("runtime-jsonl", LINE + b"\n" + NEXT, True),
        ("runtime-jsonl", LINE[:40], True),
        ("runtime-jsonl", BOM + b"\r\n\n" + LINE + b"\n", True),
        ("runtime-jsonl", b'{"slots":[0],"experts":[1', True),
        ("runtime-jsonl", b'{"layer":1,"experts":[3.5,"x"]}\n', True),
        ("runtime-jsonl", b'{"layer":0,"experts":[1],"trace":[]}\n', True),
        ("grouped-pairs", b'{"layer":0,"experts":[1],"trace":[]}\n', False),
        ("runtime-jsonl", b'{"layer":1,"experts":[3,}\n', True),
        ("runtime-jsonl", b"", False),
        ("runtime-jsonl", b"layer,experts\n1,2\n", False),
        ("runtime-jsonl", b"[" + LINE + b"]", False),
        ("runtime-jsonl", b'{"token":1,"pairs":[[0,1]]}\n' + LINE, False),
        ("runtime-jsonl", b'{"layer":1,"expert":2}\n', False),
        ("runtime-jsonl", b'{"x":{"layer":1,"experts":2}}\n', False),
        ("runtime-jsonl", b"\x1f\x8b\0\xff", False),
        ("runtime-jsonl", b"{\n", False),
    ],
)
def test_a_file_is_claimed_by_its_first_bytes(name: str, head: bytes, *, ours: bool) -> None:
    assert FORMATS[name].claims(head) is ours


READ = """
import os, sys
import numba  # which takes longest, and reads nothing
from native_bridge.cli.main import main
for trace in sys.argv[1:]:
    if not (child := os.fork()):
        kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, 1)
        assert main(["sweep", trace, "--bank", "64", "--contract", "atomic"]) == 0
        sys.stdout.flush()
        os.dup2(kept, 1)
        from flashmoe_sim.trace.formats import FORMATS
        print(*sorted(name for name, one in FORMATS.items() if f"flashmoe_sim.trace.{one.module}" in sys.modules))
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""


def test_a_command_imports_only_the_reader_of_its_trace() -> None:
    """Each in a process of its own, in which nothing is imported but the command line."""
    recorded = "data/runs/prose-bank24"
    command = [sys.executable, "-c", READ, recorded, *catalog()]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    paths = [ROOT / recorded / "trace.jsonl.gz", *(entry.path for entry in catalog().values())]
    assert done.stdout.splitlines() == [find_format(path).name for path in paths]
