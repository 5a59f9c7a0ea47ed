import bz2
import gzip
import json
import os
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import zstandard

from flashmoe_sim.io.errors import Malformed, Missing, UnknownName, Unusable
from flashmoe_sim.trace import FORMATS, load_trace
from flashmoe_sim.trace.bundled import catalog
from flashmoe_sim.trace.formats import find_format
from flashmoe_sim.trace.requests import Hints
from flashmoe_sim.trace.store import write_store
from tests.support import refused
from tests.trace import recordings
from tests.trace.strategies import trace_of
from tests.trace.test_route_csv import PREAMBLE, ROWS

EXAMPLES = {
    "route-csv": (PREAMBLE + ROWS).encode(),
    "token-pairs": b"[[1, 5], [1, 2]]\n",
    "grouped-pairs": json.dumps(
        {"trace": [[0, 1]] * 3, "entry_bytes": 1, "num_groups": 1, "experts_per_group": 2}
    ).encode(),
    "plain-csv": b"layer,expert\n0,1\n",
    "sglang-pt": recordings.torch_zip(recordings.recorder(recordings.made())),
    "array": recordings.npy(recordings.made().expert),
    "served-json": recordings.lines([recordings.vllm(recordings.made())]),
    "imp-json": recordings.imp(recordings.made()),
    "step-layers": recordings.step_layers(recordings.made()),
    "megatron-jsonl": recordings.megatron(recordings.made()),
    "moe-trace-csv": recordings.phase_csv(recordings.made()),
    "runtime-jsonl": b'{"seq":0,"layer":0,"n_expert_used":1,"n_tokens":1,"experts":[1]}\n',
}


HINTS = Hints(phase="decode")  # which arrays alone need


@pytest.fixture(params=FORMATS)
def example(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    """A small file of every format, under a name that says nothing."""
    path = tmp_path / "trace.dat"
    if request.param == "parquet":
        write_store(trace_of((0, [1])), path)
    else:
        path.write_bytes(EXAMPLES[request.param])
    return request.param, path


def test_the_content_tells_the_format(example: tuple[str, Path]) -> None:
    name, path = example
    assert find_format(path).name == name
    plain = load_trace(path, hints=HINTS)
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert load_trace(str(path), hints=HINTS).content_id == plain.content_id
    assert load_trace(path, format=name, hints=HINTS).content_id == plain.content_id


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
        (bz2.compress(b"x"), "compressed by bzip2; unpack it first (gzip and zstd are read as they are)"),
        (b"ARROW1\0\0", "an Arrow file; save it as Parquet"),
        (pickle.dumps([1]), "a pickle, which is never run; save the array with numpy.save"),
        (b"x" * 200_000, "begins with 'xxxx"),
        (b"step,slot\n1,2\n", "begins with 'step,slot\\n1,2\\n': no format claims it"),
        ("größe".encode("latin-1") * 9, "a binary file or not UTF-8"),
        (("ü" * 40_000).encode(), "begins with 'üüü"),
    ],
)
def test_content_that_is_no_trace(tmp_path: Path, content: bytes, found: str) -> None:
    path = tmp_path / "trace.jsonl"
    path.write_bytes(content)
    with refused(Malformed, found, match="" if "empty" in found else "token-pairs"):
        load_trace(path)


def test_the_folder_of_a_run_stands_for_its_trace(tmp_path: Path) -> None:
    folder = Path(__file__).parents[2] / "data" / "runs" / "prose-bank24"
    trace, file = load_trace(folder), load_trace(folder / "trace.jsonl.gz")
    assert (trace.name, trace.calls) == ("prose-bank24", file.calls)
    assert (trace.expert == file.expert).all()
    (tmp_path / "run.json").write_text("{}")
    with pytest.raises(Missing, match=r"a run without trace.jsonl.gz, which only slot-bank and resident-slot-bank rec"):
        load_trace(tmp_path)


def test_missing_files_folders_and_formats(tmp_path: Path) -> None:
    with pytest.raises(Missing, match="no such file"):
        load_trace(tmp_path / "none")
    with pytest.raises(Unusable, match="is a directory"):
        load_trace(tmp_path)
    with pytest.raises(UnknownName, match="unknown trace format 'xml'; known: array, grouped-pairs, "):
        load_trace(tmp_path / "none", format="xml")


def test_a_line_without_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("flashmoe_sim.trace.lines.MAX_LINE_BYTES", 1 << 20)
    path = tmp_path / "a"
    path.write_bytes(b"[[1, 2]" + b", [1, 2]" * 200_000)
    with pytest.raises(Malformed, match="line 1 is longer than 1 MiB"):
        load_trace(path)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_pipe_is_read_like_a_file(example: tuple[str, Path], pack: Callable[[bytes], bytes]) -> None:
    _, path = example
    plain, pipe = load_trace(path, hints=HINTS), path.with_name("pipe")
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(pack(path.read_bytes()),))
    writer.start()
    piped = load_trace(pipe, hints=HINTS)
    writer.join()
    assert (piped.content_id, piped.format) == (plain.content_id, plain.format)


@pytest.fixture
def stdin() -> Iterator[None]:
    """Another file can be put in the place of this process's own."""
    kept = os.dup(0)
    yield
    os.dup2(kept, 0)
    os.close(kept)


def pour(data: bytes, into: int) -> None:
    with os.fdopen(into, "wb") as file:
        file.write(data)


@pytest.mark.usefixtures("stdin")
@pytest.mark.parametrize("given", ["-", "/dev/stdin"])
def test_stdin(example: tuple[str, Path], given: str) -> None:
    """A pipe and a file."""
    _, path = example
    if given == "-":
        source, into = os.pipe()
        threading.Thread(target=pour, args=(path.read_bytes(), into)).start()
    else:
        source = os.open(path, os.O_RDONLY)
    os.dup2(source, 0)
    os.close(source)
    assert load_trace(given, hints=HINTS).content_id == load_trace(path, hints=HINTS).content_id


DRAWS = random.Random(1)
LINES = b"".join(b'{"layer":%d,"experts":[%d]}\n' % (n % 40, DRAWS.randrange(30_000)) for n in range(60_000))


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress])
def test_cut_off_data_is_read_up_to_the_cut(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    """Two compressed parts one after another, the second cut in the middle; nothing before the cut is lost."""
    whole = pack(LINES)
    path = tmp_path / "cut.jsonl.gz"
    path.write_bytes(whole + whole[: len(whole) // 2])
    with pytest.raises(Malformed, match="data is cut off; copy or record it again, or read up to there with"):
        load_trace(path)
    trace = load_trace(path, lenient=True)
    assert 60_000 < trace.calls < 120_000
    assert trace.notes[-1] == "its compressed data is cut off: read up to the cut"
    again = tmp_path / "again.jsonl"
    again.write_bytes(LINES + b"".join(LINES.splitlines(keepends=True)[: trace.calls - 60_000]))
    assert load_trace(again).content_id == trace.content_id
    path.write_bytes(whole + whole)
    assert load_trace(path, lenient=True).notes == load_trace(path).notes
    assert load_trace(path, lenient=True).content_id == load_trace(path).content_id


def test_a_pipe_of_nothing() -> None:
    command = [sys.executable, "-c", "from flashmoe_sim.cli.main import entry; entry()", "trace", "inspect", "-"]
    done = subprocess.run(command, input=b"", capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (2, b"sim: /dev/stdin: is empty; expected a routing trace\n")


@pytest.mark.parametrize("name", catalog())
def test_the_catalogue_has_the_sizes_of_each_trace(name: str) -> None:
    trace, entry = load_trace(name), catalog()[name]
    sizes = trace.tokens, len(trace.layers), max(trace.n_experts.values()), trace.top_k
    assert (entry.tokens, entry.layers, entry.experts, entry.top_k) == sizes
