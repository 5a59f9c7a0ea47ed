"""`sim` as a process: what it imports, what it compiles, Ctrl-C and closed pipes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flashmoe_sim.trace.store import write_store
from tests.trace.strategies import trace_of

ROOT = Path(__file__).parents[2]
ENTRY = "from native_bridge.cli.main import entry; entry()"
HEAVY = ("numba", "numpy", "polars", "scipy", "matplotlib", "pyarrow", "rich", "orjson", "altair", "vl_convert")
IMPORTED = "import sys; from native_bridge.cli.main import main; code = main(); print(*sys.modules); sys.exit(code)"


def sim(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", ENTRY, *arguments]
    return subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment}, check=False)


EACH = """
import sys
from native_bridge.cli.main import main
for words in sys.argv[2:]:
    main(words.split())
    assert "click" in sys.modules
    assert not (heavy := set(sys.argv[1].split()) & set(sys.modules)), (words, heavy)
"""


def test_help_imports_nothing_heavy() -> None:
    asked = (
        "--help",
        "",
        "sweep --help",
        "replay -h",
        "curve -h",
        "diagnose -h",
        "trace -h",
        "machine -h",
        "predict -h",
    )
    asked += ("report -h", "policy -h", "prefetch -h")
    subprocess.run([sys.executable, "-c", EACH, " ".join(HEAVY), *asked], stdout=subprocess.DEVNULL, check=True)


def test_a_sweep_imports_no_library_that_counting_does_not_need() -> None:
    """numba would import all of scipy.linalg, which takes longer than the counts; the first run may compile."""
    command = [sys.executable, "-c", IMPORTED, "sweep", "gpt-oss-120b", "--bank", "8..64"]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    imported = set(done.stdout.splitlines()[-1].split())
    assert {"numba", "flashmoe_sim.residency.many"} < imported
    assert imported.isdisjoint({"scipy.linalg", "matplotlib", "polars", "pyarrow"})


WARM = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
LIBRARIES = ("click", "llvmlite", "numba", "numpy")


def test_a_sweep_imports_its_own_modules_as_quickly_as_those_of_numba() -> None:
    """-X importtime says the microseconds of each module; the best of at most eight runs after a first one."""
    command = [sys.executable, "-X", "importtime", "-c", ENTRY, "sweep", "gpt-oss-120b", "--bank", "8..64"]
    ratios: list[float] = []
    while len(ratios) < 9 and min(ratios[1:], default=1.0) >= 1:  # other programs slow down one run or another
        printed = subprocess.run(command, capture_output=True, text=True, check=True, env=WARM).stderr
        spent = Counter[str]()
        for own_us, name in re.findall(r"^import time: +(\d+) \| +\d+ \| +(\w+)", printed, re.MULTILINE):
            spent[name] += int(own_us)
        ratios.append(spent["flashmoe_sim"] / sum(spent[name] for name in LIBRARIES))
    assert min(ratios[1:]) < 1


CROSSED = """
import os, sys, threading
from native_bridge.cli.main import main
found, packages = {}, tuple(os.path.join(sys.argv[1], name, "") for name in ("flashmoe_sim", "native_bridge"))
del sys.argv[1]
def called(frame, event, _):
    code, above = frame.f_code, frame.f_back
    if event == "call" and code.co_filename.startswith(packages) and code.co_flags & 2 and code.co_name[0] != "<":
        while above is not None and above.f_code.co_name != "<module>":
            above = above.f_back
        if above is None or above.f_code.co_filename == "<string>":
            found.setdefault((code.co_filename, code.co_qualname))
threading.setprofile(called)
sys.setprofile(called)
main()
sys.setprofile(None)
files = [file for file, _ in found]
folders = [os.path.dirname(file) for file in files]
print(len(set(files)), sum(one != other for one, other in zip(folders, folders[1:])))
"""


@pytest.mark.parametrize(
    ("arguments", "most_modules", "most_changes"),
    [
        (["sweep", "gpt-oss-120b", "--bank", "8..64"], 57, 89),
        (["sweep", "python-256", "--bank", "16..64"], 63, 94),  # with a manifest
        (["recommend", "qwen3-30b-a3b", "--machine", "rtx-4090 + 64GiB"], 151, 264),
    ],
    ids=["a model's trace", "a trace", "an answer"],
)
def test_a_command_crosses_few_modules(arguments: list[str], most_modules: int, most_changes: int) -> None:
    """The functions that it calls, in the order of their first calls: their modules, and how often the folder changes.

    Not counted: what modules call while they are imported, and what a first run makes for later ones.
    """
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", CROSSED, str(ROOT), *arguments], capture_output=True, text=True, check=True
        )
    modules, changes = map(int, done.stdout.splitlines()[-1].split())
    assert 30 < modules <= most_modules
    assert changes <= most_changes


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.parquet"
    write_store(trace_of(*((0, [n % 7]) for n in range(50))), path)
    return path


def test_the_second_run_compiles_nothing(trace: Path, tmp_path: Path) -> None:
    """numba says when it writes a compiled kernel, and when it reads one."""
    arguments = ("sweep", str(trace), "--bank", "4", "--contract", "atomic")
    cache = {"FLASHMOE_CACHE": str(tmp_path / "cache"), "NUMBA_DEBUG_CACHE": "1"}
    first, second = sim(*arguments, **cache), sim(*arguments, **cache)
    assert (first.returncode, second.returncode) == (0, 0)
    assert "data saved to" in first.stdout
    assert "saved" not in second.stdout
    assert "data loaded from" in second.stdout


def test_a_closed_pipe_is_no_error(trace: Path) -> None:
    """As `sim … | head -1` does: a long output, and a short one that is only written at the end."""
    for bank in (("--bank", "1..7", "--bank-step", "1"), ("--bank", "4")):
        command = [sys.executable, "-c", ENTRY, "sweep", str(trace), *bank, "--json"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            child.stdout.close()
            messages = child.stderr.read().splitlines()
        assert len(messages) == 1
        assert messages[0].startswith("sim: banks ")
        assert child.returncode == 1


@contextmanager
def long_sweep(folder: Path, *options: str) -> Iterator[subprocess.Popen[str]]:
    """A sweep that would take minutes, at the time when its plan is out and its replays run."""
    trace = folder / "long.parquet"
    if not trace.exists():
        write_store(
            trace_of(*((layer, [7 * n % 251, n * n % 257 + 251]) for n in range(4000) for layer in range(8))), trace
        )
    # a job in the background of a shell ignores Ctrl-C, and so would what it starts
    listening = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {ENTRY}"
    command = [sys.executable, "-c", listening, "sweep", str(trace), "--bank", "2..500", "--bank-step", "1"]
    command += ["--policy", "random,lfu,fifo", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        assert child.stderr.readline().startswith("sim: banks 2, 3, 4, ..., 500")
        try:
            yield child
        finally:
            child.kill()


@pytest.mark.skipif(sys.platform == "win32", reason="has no SIGINT to send")
def test_ctrl_c_leaves_whole_rows_and_no_traceback(tmp_path: Path) -> None:
    """Before the first row, the results of an earlier run stay as they are."""
    results = tmp_path / "results"
    for options in ((), ("--force",)):
        with long_sweep(tmp_path, "--out", str(results), *options) as child:
            child.send_signal(signal.SIGINT)
            out, err = child.communicate(timeout=60)
        assert (child.returncode, out) == (130, "")
        if (results / "ledger.ndjson").read_bytes().count(b"\n") > 1:
            assert err.splitlines()[-1].endswith(f" of {results} are kept; the same command goes on from there")
        else:
            assert err == "sim: interrupted; nothing was left half-written\n"
            assert [path.name for path in results.glob("results.*")] == ["results.csv"][: len(options)]
        (results / "results.csv").write_text("of an earlier run")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_a_trace_is_read_and_written_leaves_nothing(tmp_path: Path, number: int, code: int) -> None:
    """Whatever is compiled at that moment: a signal within it ended the process without a word, and left its file."""
    line = '{"layer":%d,"n_expert_used":8,"n_tokens":1,"experts":[0,1,2,3,4,5,6,7]}\n'
    text, written = tmp_path / "t.jsonl", tmp_path / "t.parquet"
    text.write_text("".join(line % layer for layer in range(16)) * 100_000)
    entry = f"import signal; signal.signal(signal.SIGINT, signal.default_int_handler); {ENTRY}"
    command = [sys.executable, "-c", entry, "trace", "convert", str(text), str(written), "--force"]
    for steps in range(1, 5):
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
            while child.poll() is None and len(list(tmp_path.glob(".*.part"))) == 0:
                time.sleep(0.01)
            time.sleep(0.04 * steps)
            child.send_signal(number)
            _, err = child.communicate(timeout=60)
        assert (child.returncode, err) == (code, "sim: interrupted; nothing was left half-written\n")
        assert [path.name for path in tmp_path.iterdir()] == ["t.jsonl"]


def test_a_mistake_of_the_program_is_one_line_too(trace: Path) -> None:
    broken = f"import flashmoe_sim.sweep.collect as module; module.sweep = None; {ENTRY}"
    command = [sys.executable, "-c", broken, "sweep", str(trace), "--bank", "4"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(
        "sim: internal error, TypeError: 'NoneType' object is not callable; FLASHMOE_TRACEBACK=1"
    )
    assert done.stderr.count("\n") == 1
    shown = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "FLASHMOE_TRACEBACK": "1"}
    )
    assert "Traceback" in shown.stderr
    assert shown.returncode == 1
