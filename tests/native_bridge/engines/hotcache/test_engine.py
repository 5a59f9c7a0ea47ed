"""The engine of the hot cache: with a server that answers by rote, and with the real one."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashmoe_sim.geometry import read_gguf
from flashmoe_sim.io.errors import BadInput, SimError
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.perf_profile import write_perf_profile
from native_bridge.cli.main import main
from native_bridge.engines.base import RunRequest, Runtime
from native_bridge.engines.hotcache.engine import HotCacheEngine
from native_bridge.engines.run_log import LayerLanes
from native_bridge.engines.table import find_runtime
from native_bridge.run import Loaded, run_once
from tests.native_bridge.conftest import MODEL, PROMPT

DATA = Path(__file__).parents[4] / "data" / "hot-cache"
SERVER = r"""#!{python}
import http.server, json, signal, sys
words = sys.argv[1:]
if words == ["--version"]:
    print("version: 7 (04c100386)\nbuilt with cc for Linux")
elif words == ["--help"]:
    flags = "--cpu-moe --no-warmup --moe-layer-perf-out --moe-hot-cache --moe-hot-cache-max-mib --temp"
    print("\n".join(flag + " N" for flag in flags.split()))
else:
    print("0.00.001 I started", file=sys.stderr)
    if "--moe-hot-cache" in words:
        sys.exit("0.00.034.593 E llama_model_load: error loading model: --moe-hot-cache requires a GPU backend device")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))

    class Answers(http.server.BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def send(self, document):
            body = json.dumps(document).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self):
            self.send({{"status": "ok"}})

        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            layer = {{"layer": 0, "calls": 3, "hot_experts": [], "cold_experts": [[2, 4], [5, 2]], "experts": []}}
            open(words[words.index("--moe-layer-perf-out") + 1], "w").write(json.dumps({{"layers": [layer]}}))
            text = f"{{asked['n_predict']}} tokens\n[ Prompt: 1.0 t/s | Generation: 1.0 t/s ]\nmoe-layer-perf: no"
            self.send({{"content": text, "timings": {{"prompt_per_second": 50.25, "predicted_per_second": 12.5}}}})

    http.server.HTTPServer(("127.0.0.1", int(words[words.index("--port") + 1])), Answers).serve_forever()
"""
CACHED = ("--moe-hot-cache", "p.json", "--moe-hot-cache-max-mib", "2")


@pytest.fixture
def server(tmp_path: Path) -> Path:
    path = tmp_path / "llama-server"
    path.write_text(SERVER.format(python=sys.executable))
    path.chmod(0o755)
    return path


@pytest.fixture
def runtime(server: Path) -> Runtime:
    return find_runtime(str(server))


def test_it_is_found_and_described(server: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FLASHMOE_RUNTIME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("HOT_CACHE_RUNTIME", str(server))
    for ready in (True, False):
        found = find_runtime(None, ready=ready)
        assert (found.engine, found.commit, found.modes) == ("hot-cache", "04c100386", ("cpu-moe", "hot-cache"))


def test_a_run_keeps_the_text_the_speeds_and_the_uses(runtime: Runtime, tmp_path: Path) -> None:
    request = RunRequest("cpu-moe", 64, PROMPT, n_predict=9, extra=("--temp", "0"))
    run = run_once(request, Loaded(runtime, MODEL), folder=tmp_path / "run", timeout_s=60)
    assert (run.engine.name, run.log.prompt_tok_s, run.log.decode_tok_s) == ("hot-cache", 50.2, 12.5)
    assert run.log.lanes == (LayerLanes(0, 3, {}, {2: 4, 5: 2}),)
    assert run.log.lines == {"layer 0": {"calls": "3", "hot": "0", "cold": "6"}}
    assert (run.folder / "text.txt").read_text().startswith("9 tokens\n[ Prompt: 1.0")
    command = json.loads((run.folder / "run.json").read_text())["command"]
    assert command[4:8] == [PROMPT, "9", str(runtime.path), "-m"]
    assert command[-4:] == ["--seed", "1", "--temp", "0"]


def test_a_server_that_ends_gives_its_own_words(runtime: Runtime, tmp_path: Path) -> None:
    request = RunRequest("hot-cache", 64, PROMPT, extra=CACHED)
    with pytest.raises(SimError, match="requires a GPU backend device"):
        run_once(request, Loaded(runtime, MODEL), folder=tmp_path / "run", timeout_s=60)


def test_the_command_line_runs_it_and_the_doctor_knows_it(
    server: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["--runtime", str(server), "--mode", "cpu-moe", "--cache", "as-is", "--tokens", "5", "--json"]
    assert main(["bridge", "run", *asked, "--out", str(tmp_path / "runs")]) == 0
    assert json.loads(capsys.readouterr().out)["runs"][0]["decode_tok_s"] == 12.5
    main(["bridge", "doctor", "--runtime", str(server), "--json"])
    assert "the CPU alone" in capsys.readouterr().out
    assert main(["bridge", "check", str(tmp_path / "runs" / "cpu-moe")]) == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"mode": "slot-bank"}, "unknown mode 'slot-bank'; known: cpu-moe, hot-cache"),
        ({"mode": "hot-cache"}, "mode hot-cache: found no --moe-hot-cache or no --moe-hot-cache-max-mib"),
        ({"extra": CACHED}, "mode cpu-moe has no hot cache; found --moe-hot-cache;"),
        ({"top_k": 4}, "--topk 4: hot-cache has no such setting"),
        ({"prompt": " "}, "the prompt is empty"),
    ],
)
def test_what_it_cannot_do(change: dict[str, Any], message: str) -> None:
    request = RunRequest(**({"mode": "cpu-moe", "bank": 64, "prompt": PROMPT} | change))
    with pytest.raises(BadInput, match=message):
        HotCacheEngine().check_request(request, read_gguf(MODEL), sidecar=None, replay=None)


@pytest.mark.parametrize(
    ("flag", "message"),
    [
        ("--port", "the run itself gives it"),
        ("--seed", "recorded by an option of its own; give --seed"),
        ("--nonsense", "no such flag"),
        ("word", "not an option"),
    ],
)
def test_flags_of_the_user(flag: str, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        HotCacheEngine().check_flags([flag], {"--temp": "N"})


def test_a_log_that_is_not_whole() -> None:
    speeds = "[ Prompt: 5.0 t/s | Generation: 2.0 t/s ]\n"
    for text, message in (
        ("", "log.txt: no line `\\[ Prompt"),
        (speeds, "log.txt: no line `moe-layer-perf"),
        (f"{speeds}moe-layer-perf: {{}}\n", "log.txt:2: a damaged count"),
    ):
        with pytest.raises(BadInput, match=message):
            HotCacheEngine().read_log(text, mode="cpu-moe", where="log.txt", extra=())
    log = HotCacheEngine().read_log("0.1 E bad\n", mode="cpu-moe", where="log.txt", extra=(), failed_too=True)
    assert log.failure == "0.1 E bad"


REAL = os.environ.get("HOT_CACHE_RUNTIME", "")
real = pytest.mark.skipif(not REAL, reason="HOT_CACHE_RUNTIME names no llama-server")


@real
@pytest.mark.runtime
def test_the_real_server_counts_the_references_of_the_recorded_trace(tmp_path: Path) -> None:
    """The text and threads of data/hot-cache/none-cpu; the last layer routes all tokens, the trace only some."""
    flags = json.loads((DATA / "none-cpu" / "flags.json").read_text())
    assert flags["commit"] == "04c100386"
    runtime = find_runtime(REAL)
    prompt = json.loads((DATA.parent / "runs-gpu" / "bank8" / "run.json").read_text())["prompt"]
    request = RunRequest("cpu-moe", 64, prompt, n_predict=100, threads=2, extra=("--temp", "0"))
    run = run_once(request, Loaded(runtime, MODEL), folder=tmp_path / "run", timeout_s=120)
    trace = load_trace(DATA / "trace-cpu.jsonl.gz")
    assert len(run.log.lanes) == 8
    for lanes in run.log.lanes[:7]:
        of_layer = np.repeat(trace.layer == lanes.layer, np.diff(trace.offset))
        uses = np.bincount(trace.expert[of_layer])
        assert lanes.cold == {int(expert): int(uses[expert]) for expert in np.flatnonzero(uses)}
        assert (lanes.calls, lanes.hot) == (157, {})


@real
@pytest.mark.runtime
def test_the_real_server_reads_our_profile(tmp_path: Path) -> None:
    """Without a GPU it stops after reading it, for want of one; a profile that it cannot read stops it before."""
    write_perf_profile(load_trace(DATA / "trace.jsonl.gz"), tmp_path / "p.json")
    (tmp_path / "bad.json").write_text("{}")
    runtime = find_runtime(REAL)
    for name, passes in (("p", True), ("bad", False)):
        extra = ("--moe-hot-cache", str(tmp_path / f"{name}.json"), "--moe-hot-cache-max-mib", "2")
        request = RunRequest("hot-cache", 64, PROMPT, n_predict=5, gpu_layers="99", extra=extra)
        folder = tmp_path / name
        try:
            run = run_once(request, Loaded(runtime, MODEL), folder=folder, timeout_s=120)
            assert passes
            assert any(lanes.hot for lanes in run.log.lanes)
        except SimError:
            log = (folder / "log.txt").read_text()
            assert ("requires a GPU backend device" in log) == passes
