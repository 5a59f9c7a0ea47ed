"""Captures of GGUF files, against the patched runtime's own traces of the same model and prompt."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.trace.load import load_trace
from native_bridge.capture.llama_cpp import LlamaCpp
from native_bridge.capture.record import TraceWriter
from native_bridge.capture.session import CaptureRequest, capture
from native_bridge.cli.main import main
from native_bridge.fixture import bundled_model
from tests.native_bridge.needs import needs

pytestmark = [pytest.mark.capture, needs("llama_cpp", extra="capture")]

HERE = Path(__file__).parent
RUN = HERE.parents[1] / "data" / "runs" / "prose-bank64"
PROMPT = json.loads((RUN / "run.json").read_text("utf-8"))["prompt"]
PROMPT_TOKENS, LAST_LAYER = 138, 7

Record = dict[str, Any]
Step = dict[int, Record]


def steps(lines: Iterable[str | bytes]) -> list[Step]:
    """Records by step and layer; a step begins where the layer number does not increase."""
    found: list[Step] = []
    before = sys.maxsize
    for record in map(json.loads, lines):
        if record["layer"] <= before:
            found.append({})
        before = record["layer"]
        found[-1][before] = record
    return found


def tokens(some: Iterable[Step]) -> dict[int, list[tuple[int, ...]]]:
    """The experts of each token, layer by layer."""
    found: dict[int, list[tuple[int, ...]]] = defaultdict(list)
    for step in some:
        for layer, record in step.items():
            used, experts = record["n_expert_used"], record["experts"]
            found[layer] += [tuple(experts[at : at + used]) for at in range(0, len(experts), used)]
    return found


def captured(out: Path, *, ubatch: int, decode: int, prompt: str = PROMPT, weights: bool = True) -> list[Step]:
    with (
        LlamaCpp(bundled_model(), ubatch=ubatch, threads=1, weights=weights) as engine,
        TraceWriter(out, origin={}) as writer,
    ):
        done = capture(engine, CaptureRequest(prompt, decode, ubatch), writer)
    assert len(done.generated) == decode
    return steps(out.read_text("utf-8").splitlines())


def assert_equal(ours: list[Step], theirs: list[Step]) -> int:
    """Call by call, and how many there were; of the last layer only the rows that the runtime computed.

    For this architecture newer versions of llama.cpp compute all of its rows, the runtime only those of outputs.
    """
    calls = 0
    assert len(ours) == len(theirs)
    for mine, real in zip(ours, theirs, strict=True):
        assert [*mine][: len(real)] == [*real]
        for layer, record in real.items():
            rows = len(record["experts"])
            assert mine[layer]["experts"][-rows:] == record["experts"]
            assert layer == LAST_LAYER or len(mine[layer]["experts"]) == rows
            calls += 1
    return calls


def test_the_prompt_of_a_recorded_run(tmp_path: Path) -> None:
    """Its tokens were drawn by another program; two steps were a decode made while loading."""
    with gzip.open(RUN / "trace.jsonl.gz") as lines:
        theirs = steps(lines)[2:]
    ours = captured(tmp_path / "t.jsonl", ubatch=1, decode=0)
    assert assert_equal(ours, theirs[:PROMPT_TOKENS]) == 7 * PROMPT_TOKENS + 1


def test_a_whole_run(tmp_path: Path) -> None:
    """The prompt, and the 199 tokens that follow from it."""
    with gzip.open(HERE / "greedy" / "ubatch-1.jsonl.gz") as lines:
        theirs = steps(lines)[2:]
    ours = captured(tmp_path / "t.jsonl", ubatch=1, decode=200)
    assert assert_equal(ours, theirs) == 7 * PROMPT_TOKENS + 1 + 8 * 199


def test_wider_micro_batches(tmp_path: Path) -> None:
    """Token by token: the runtime's server cuts the end of a prompt otherwise."""
    with gzip.open(HERE / "greedy" / "ubatch-4.jsonl.gz") as lines:
        theirs = tokens(steps(lines)[1:])
    ours = captured(tmp_path / "t.jsonl", ubatch=4, decode=200)
    assert [record["n_tokens"] for record in (step[0] for step in ours[:36])] == [4] * 34 + [2, 1]
    for layer, mine in tokens(ours).items():
        assert mine[-len(theirs[layer]) :] == theirs[layer]
        assert len(theirs[layer]) == (200 if layer == LAST_LAYER else PROMPT_TOKENS + 199)


def test_weights_are_shares_in_the_order_of_ranks(tmp_path: Path) -> None:
    for step in captured(tmp_path / "t.jsonl", ubatch=32, decode=5):
        for record in step.values():
            for at in range(0, len(record["weights"]), 8):
                token = record["weights"][at : at + 8]
                assert sum(token) == pytest.approx(1, abs=1e-5)
                assert token == sorted(token, reverse=True)
    without = captured(tmp_path / "u.jsonl", ubatch=32, decode=5, weights=False)
    assert not any("weights" in record for step in without for record in step.values())


def test_the_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    out, prompt = tmp_path / "t.jsonl.zst", tmp_path / "prompt.txt"
    prompt.write_text("The runtime keeps a small bank")
    arguments = ["trace", "capture", "--model", str(bundled_model()), "--tokens", "20", "--threads", "1"]
    arguments += ["--out", str(out)]
    assert main([*arguments, "--prompt-file", str(prompt), "--json"]) == 0
    printed = capfd.readouterr()
    assert printed.err == ""  # the library writes there itself
    answer = json.loads(printed.out)
    assert (answer["architecture"], answer["layers"], answer["n_experts"]) == ("qwen35moe", 8, 64)
    assert (answer["prompt_tokens"], answer["said_tokens"], answer["steps"], answer["calls"]) == (10, 20, 20, 160)
    trace = load_trace(out)
    assert (trace.calls, trace.tokens, trace.top_k) == (160, 29, 8)
    assert trace.weight is not None
    assert main([*arguments, "--prompt", "x"]) == 2
    assert "exists; give --force" in capfd.readouterr().err
    assert main([*arguments, "--prompt", "x", "--force", "--temp", "0.8", "--seed", "3"]) == 0
    assert "8 layers" in capfd.readouterr().out


def test_models_and_contexts_that_cannot_be(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(bundled_model().read_bytes())
    content = cut.read_bytes().replace(b"blk.3.ffn_gate_inp.weight", b"blk.3.ffn_gate_ink.weight")
    cut.write_bytes(content)
    arguments = ["trace", "capture", "--out", str(tmp_path / "t.jsonl"), "--prompt", PROMPT]
    for more, *fragments in (
        (["--model", str(cut)], "llama.cpp cannot load it (", "blk.3.ffn_gate_inp.weight"),
        (["--model", str(bundled_model()), "--ctx", "100"], "138 tokens, with 128 more to come, and --ctx is 100"),
        (["--model", str(bundled_model()), "--tokens", "4000"], "and the model was trained with 4096"),
    ):
        assert main([*arguments, *more]) == 2
        printed = capfd.readouterr()
        assert printed.out == ""
        for fragment in fragments:
            assert fragment in printed.err
        assert len(printed.err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == [cut]


@pytest.mark.skipif(sys.platform == "win32", reason="has no such signals")
@pytest.mark.parametrize(
    ("sent", "name", "code"),
    [
        (signal.SIGINT, "t.jsonl.zst", 130),
        (signal.SIGTERM, "t.jsonl.zst", 130),
        # of a compressed file the system may have written half a frame: it is waited for while it grows
        (signal.SIGKILL, "t.jsonl", -signal.SIGKILL),
    ],
)
def test_what_was_captured_stays(tmp_path: Path, sent: signal.Signals, name: str, code: int) -> None:
    listening = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    entry = f"{listening}from native_bridge.cli.main import entry; entry()"
    out = tmp_path / name
    command = [sys.executable, "-c", entry, "trace", "capture", "--model", bundled_model(), "--prompt", "The bank"]
    command += ["--tokens", "4000", "--out", out, "--ctx", "4096", "--temp", "1", "--threads", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as child:
        while not out.exists() or out.stat().st_size < 20_000:
            assert child.poll() is None, child.stderr
        os.kill(child.pid, sent)
        printed, stderr = child.communicate(timeout=60)
    assert child.returncode == code
    trace = load_trace(out)
    assert 0 < trace.tokens < 4000
    assert printed == ""
    if sent is not signal.SIGKILL:
        assert stderr == f"sim: interrupted; {out} has the {len(set(trace.steps.tolist()))} steps up to there\n"
