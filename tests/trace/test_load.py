import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from flashmoe_sim.errors import BadInput
from flashmoe_sim.trace import FORMATS, load_trace
from flashmoe_sim.trace.load import find_format
from flashmoe_sim.trace.store import write_store
from tests.trace.strategies import trace_of
from tests.trace.test_route_csv import PREAMBLE, ROWS

EXAMPLES = {
    "route-csv": (PREAMBLE + ROWS).encode(),
    "token-pairs": b"[[1, 5], [1, 2]]\n",
    "grouped-pairs": json.dumps(
        {"trace": [[0, 1]] * 3, "entry_bytes": 1, "num_groups": 1, "experts_per_group": 2}
    ).encode(),
    "plain-csv": b"layer,expert\n0,1\n",
    "runtime-jsonl": b'{"seq":0,"layer":0,"n_expert_used":1,"n_tokens":1,"experts":[1]}\n',
}


@pytest.fixture(params=FORMATS)
def example(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """A small file of every format, under a name that says nothing."""
    if request.param == "runtime-jsonl":
        pytest.importorskip("flashmoe_sim.trace.runtime_jsonl")
    path = tmp_path / "trace.dat"
    if request.param == "parquet":
        write_store(trace_of((0, [1])), path)
    else:
        path.write_bytes(EXAMPLES[request.param])
    return request.param, path


def test_the_content_tells_the_format(example: tuple[str, Path]) -> None:
    name, path = example
    assert find_format(path).name == name
    plain = load_trace(path)
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert load_trace(str(path)).content_id == plain.content_id
    assert load_trace(path, format=name).content_id == plain.content_id


@pytest.mark.parametrize(
    ("content", "found"),
    [
        (b"", "is empty; expected a routing trace"),
        (gzip.compress(b"", mtime=0), "is empty"),
        (b" \n\n", "holds only white space"),
        (b"\0\0\0\0abc", "begins with 4 NUL bytes: a binary file"),
        (b"\0" * 100_000, "begins with only NUL bytes: a binary file"),
        (b"abc\0def", "has NUL bytes: a binary file"),
        (b"\x89PNG\r\n\x1a\n" + b"\xff" * 99, "begins with the bytes 89 50 4e 47: a binary file"),
        (b"GGUF\3\0\0\0", "a GGUF model file, not a trace"),
        (b"x" * 200_000, "begins with 'xxxx"),
        (b"step,slot\n1,2\n", "begins with 'step,slot\\n1,2\\n': no format claims it"),
        ("größe".encode("latin-1") * 9, "a binary file or not UTF-8"),
        (("ü" * 40_000).encode(), "begins with 'üüü"),
    ],
)
def test_content_that_is_no_trace(tmp_path: Path, content: bytes, found: str) -> None:
    pytest.importorskip("flashmoe_sim.trace.runtime_jsonl")
    path = tmp_path / "trace.jsonl"
    path.write_bytes(content)
    with pytest.raises(BadInput) as error:
        load_trace(path)
    assert found in str(error.value)
    assert "\n" not in str(error.value)
    assert "empty" in found or "token-pairs" in str(error.value)


def test_the_folder_of_a_run_stands_for_its_trace(tmp_path: Path) -> None:
    folder = Path(__file__).parents[1] / "validation" / "runs" / "runs" / "prose-bank24"
    trace, file = load_trace(folder), load_trace(folder / "trace.jsonl.gz")
    assert (trace.name, trace.calls) == ("prose-bank24", file.calls)
    assert (trace.expert == file.expert).all()
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(
        BadInput, match=r"a run without trace.jsonl.gz, which only slot-bank and resident-slot-bank rec"
    ):
        load_trace(tmp_path)


def test_missing_files_folders_and_formats(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no such file"):
        load_trace(tmp_path / "none")
    with pytest.raises(BadInput, match="is a directory"):
        load_trace(tmp_path)
    with pytest.raises(BadInput, match="unknown trace format 'xml'; known: grouped-pairs, parquet"):
        load_trace(tmp_path / "none", format="xml")


def test_a_line_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flashmoe_sim.trace.lines.MAX_LINE_BYTES", 1 << 20)
    path = tmp_path / "a"
    path.write_bytes(b"[[1, 2]" + b", [1, 2]" * 200_000)
    with pytest.raises(BadInput, match="line 1 is longer than 1 MiB"):
        load_trace(path)


def test_importing_the_package_stays_light() -> None:
    code = "import sys, flashmoe_sim.trace; print(sorted({'numba', 'polars', 'pyarrow', 'orjson'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
