"""The real runtime on the small model; needs FLASHMOE_RUNTIME, the path of a patched llama-cli."""

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashmoe_sim.geometry import read_gguf
from flashmoe_sim.io.errors import SimError
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.prefetchers.table import parse_prefetcher
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, prepare
from flashmoe_sim.trace.load import load_trace
from native_bridge.cache import Cache
from native_bridge.cli.main import main
from native_bridge.engines.base import RunRequest, Runtime
from native_bridge.engines.flashmoe.modes import MODES
from native_bridge.engines.read import read_run
from native_bridge.engines.runs import Run
from native_bridge.engines.table import find_runtime
from native_bridge.repeats import run_name
from native_bridge.run import Loaded, run_once
from tests.native_bridge.conftest import MODEL, PROMPT
from tests.native_bridge.needs import RUNTIME

pytestmark = RUNTIME
REQUEST = RunRequest("slot-bank", 16, PROMPT, n_predict=30)
SHORT_OF_DISK = """#!{python}
import os, resource, signal, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
os.execv({program!r}, [{program!r}, *sys.argv[1:]])
"""


@pytest.fixture(scope="module")
def runtime() -> Runtime:
    return find_runtime(None)


@pytest.fixture
def once(runtime: Runtime, sidecar: Path, tmp_path: Path) -> Iterator[Any]:
    def run(request: RunRequest, **options: Any) -> Run:
        files = {"runtime": runtime, "model": MODEL, "sidecar": sidecar}
        loaded = Loaded(**{name: options.pop(name, file) for name, file in files.items()})
        given = {"folder": tmp_path / run_name(request, MODES[request.mode]), "timeout_s": 60.0}
        return run_once(request, loaded, **(given | options))

    yield run
    assert not list(tmp_path.glob(".*")), "something half-written is left"


def assert_every_slot(run: Run, prefetch: str) -> None:
    """The simulator gives every slot of every call of a run that was just made."""
    assert run.trace is not None
    trace = load_trace(run.trace)
    setup = Setup(Bank(slots=run.bank), contract="runtime", prefetch=parse_prefetcher(prefetch))
    replayed = replay(prepare(trace, read_gguf(MODEL)), setup, record=True)
    assert replayed.slot is not None
    np.testing.assert_array_equal(replayed.slot, trace.slot)


@pytest.mark.parametrize("flag", ["--moe-router-only", "--moe-shared-only"])
def test_a_run_without_routed_experts_is_whole(once: Any, flag: str) -> None:
    run = once(replace(REQUEST, extra=(flag,)))
    assert (run.log.bypass, run.flags, run.log.routed) == (flag, (flag,), None)


def test_flags_of_the_user_reach_it(tmp_path: Path) -> None:
    given = ["--out", str(tmp_path), "--bank", "16", "--tokens", "5", "--threads", "1", "--", "-fa", "off"]
    assert main(["bridge", "run", *given]) == 0
    assert "flash_attn    = disabled" in (tmp_path / "slot-bank16" / "log.txt").read_text("utf-8", "replace")


def test_all_modes_and_banks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    modes = "stock,resident-bank,resident-slot-bank,slot-bank,oracle-all-hit,oracle-prefetch"
    given = ["--out", str(tmp_path), "--mode", modes, "--bank", "16,64", "--tokens", "30", "--threads", "1"]
    assert main(["bridge", "run", *given]) == 0
    rows = {tuple(line.split()[:3]) for line in capsys.readouterr().out.splitlines()[3:] if line}
    assert ("oracle-all-hit", "64", "100.0") in rows
    assert len(rows) == 9
    placed = {name: read_run(tmp_path / name).log for name in ("stock", "slot-bank16")}
    assert [log.unread for log in placed.values()] == [(), ()]
    assert [log.placement.bank for log in placed.values()] == [(), ("CPU_Mapped",)]
    assert [memory.place for log in placed.values() for memory in log.placement.memory] == ["Host", "Host"]
    texts = {mode: (tmp_path / mode / "text.txt").read_bytes() for mode in ("stock", "resident-bank", "slot-bank64")}
    assert len(texts["stock"]) > 0
    assert set(texts.values()) == {texts["stock"]}


def test_the_trace_and_the_log_agree(once: Any) -> None:
    run = once(REQUEST)
    trace = load_trace(run.trace)
    assert trace.calls == run.log.routed.calls
    assert len(trace.expert) == run.log.routed.refs
    assert_every_slot(run, "none")
    again = once(replace(REQUEST, mode="resident-slot-bank"))
    assert again.log.routed.misses == run.log.routed.misses
    assert (load_trace(again.trace).slot == trace.slot).all()


@pytest.mark.parametrize("prefetch", ["temporal", "predict-prev", "predict-top1"])
def test_prefetch_top_k_and_split(once: Any, prefetch: str) -> None:
    run = once(replace(REQUEST, prefetch=prefetch, top_k=4, io_split=2))
    assert_every_slot(run, prefetch)
    assert len(load_trace(run.trace).expert) == 4 * run.log.routed.calls
    assert run.log.routed.io_split == 2


def test_a_prompt_is_taken_as_it_is(once: Any) -> None:
    prompt = "Two lines\nand a \\n that is none, \"quotes\", 'others', $HOME and ünïcode."
    run = once(replace(REQUEST, mode="stock", prompt=prompt))
    assert f"\n> {prompt}\n\n" in (run.folder / "log.txt").read_text()
    assert (run.folder / "text.txt").exists()


def test_an_overflow_says_what_would_do(once: Any) -> None:
    with pytest.raises(SimError, match=r"layer \d needs more than 8 slots at call \d+, .* --bank 32 always does"):
        once(replace(REQUEST, bank=8, ubatch=4))
    once(replace(REQUEST, bank=32, ubatch=4))


def test_a_full_disk_leaves_a_trace_that_is_usable(once: Any, runtime: Runtime, tmp_path: Path) -> None:
    short = tmp_path / "short-of-disk"
    short.write_text(SHORT_OF_DISK.format(python=sys.executable, program=str(runtime.path)))
    short.chmod(0o755)
    with pytest.raises(SimError, match=r"its trace has (\d+) of \d+ routed calls; the disk may be full"):
        once(REQUEST, runtime=replace(runtime, path=short))
    assert 0 < load_trace(tmp_path / run_name(REQUEST, MODES[REQUEST.mode]) / "trace.jsonl.gz").calls < 400


def test_a_model_that_it_cannot_load_says_why(once: Any, tmp_path: Path) -> None:
    (tmp_path / "cut.gguf").write_bytes(MODEL.read_bytes()[:4_000_000])
    with pytest.raises(SimError):
        once(replace(REQUEST, mode="stock"), model=tmp_path / "cut.gguf")


def test_cold_reads_from_disk(once: Any, tmp_path: Path) -> None:
    cache = Cache("cold")
    run = once(replace(REQUEST, bank=64), cache=cache)  # a bank of every expert reads each at most once
    assert run.log.routed.misses < 512
    assert cache.facts()["from_disk"] >= 0.5
    with pytest.raises(SimError, match=r"not cold: \d+% of the .* MiB it read came from the disk; "):
        once(replace(REQUEST, bank=16, n_predict=100), cache=cache)
