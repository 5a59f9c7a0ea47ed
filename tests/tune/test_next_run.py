"""What to measure next: what a run would tell, and how it is printed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.machines.belief import normals
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.cached import Cached
from flashmoe_sim.systems.compare import Compared
from flashmoe_sim.systems.cpu import Cpu
from flashmoe_sim.systems.hot_cache import HotCache
from flashmoe_sim.systems.placed import PlacedLayers
from flashmoe_sim.tune.next_run import Next, next_runs
from tests.support import document
from tests.systems.cases import case

ASKED = ["machine", "next", "gpt-oss-120b", "--machine", "rtx-4090", "--system", "placed,hot-cache,cpu"]


def compared(system: System, tok_s: float, on: Case | None = None, **loads: float) -> Compared:
    """A setting whose logarithm is a sum of unknowns."""
    logs = np.asarray(sum(load * normals(name) for name, load in loads.items()))
    launch = system.started(on or case())
    return Compared(system, gpu_bytes=1, ram_bytes=1, tok_s=tok_s, draws=tok_s * np.exp(logs), launch=launch, sure=True)


def runs_of(*each: Compared) -> Next:
    found = next_runs(each, case())
    assert found is not None
    return found


def test_what_is_shared_is_told_and_what_is_not_is_not() -> None:
    first = compared(PlacedLayers(cpu_layers=2), 20.0, ram=0.3)
    alike, other = compared(PlacedLayers(cpu_layers=3), 9.0, ram=0.3), compared(Cpu(), 5.0, disk=0.3)
    narrows = {run.setting.system.spec: run.narrows for run in runs_of(first, alike, other).runs}
    noise = 0.05**2 / (0.3**2 + 0.05**2)
    assert narrows["placed:cpu_layers=3"] == pytest.approx(1 - math.sqrt(noise), abs=0.03)
    assert narrows["cpu"] == pytest.approx(0, abs=0.03)


def test_a_run_that_decides_stands_first() -> None:
    first = compared(PlacedLayers(cpu_layers=2), 20.0, ram=0.5)
    rival = compared(HotCache(max_mib=99), 20.5, ram=0.5, cache=0.1)
    found = runs_of(first, rival, compared(Cpu(), 5.0, cache=0.3))
    assert found.rival is rival
    assert 0.1 < found.wins < 0.9
    assert next(run.setting.system.name for run in found.runs) == "cpu"
    assert found.runs[0].decides == pytest.approx(0.3**2 / (0.3**2 + 0.05**2), abs=0.05)


def test_a_line_measures_what_it_says() -> None:
    run = next(run for run in runs_of(compared(PlacedLayers(cpu_layers=2), 20.0, ram=0.5)).runs)
    assert run.line.startswith("llama-bench -m MODEL.gguf -ngl 99 --n-cpu-moe 2 -fa 1")
    assert run.line.endswith("-o json > bench.json")


@pytest.mark.parametrize("os", ["windows", "linux"])
def test_a_line_is_written_for_the_shell_and_for_one_run(os: str) -> None:
    on = case(f"2x rtx-3090 + epyc-7532 + 128GiB + {os}", gpus=2)
    on = replace(on, model=replace(on.model, repository="ai/Small-GGUF:Q4_0"))
    system = PlacedLayers(ot="exps=CPU,blk.1=CUDA0", ts="5/2")
    line = runs_of(compared(system, 20.0, on, ram=0.5)).runs[0].line
    assert line.startswith("llama-bench -hf ai/Small-GGUF:Q4_0 -ngl 99 -ot 'exps=CPU;blk.1=CUDA0' -ts 5/2 -fa 1 ")


def test_nothing_runs() -> None:
    assert next_runs([replace(compared(Cpu(), 5.0, ram=0.1), tok_s=None, draws=None)], case()) is None


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    runs = document(capsys, *ASKED)["runs"]
    assert {run["setting"].partition(":")[0] for run in runs} == {"placed", "hot-cache", "cpu"}
    assert all(0 <= run["narrows"] <= 1 for run in runs)
    assert main(ASKED) == 0
    printed = capsys.readouterr().out
    assert "narrows: how much of the width" in printed
    assert max(len(line) for line in printed.splitlines() if not line.startswith("    ")) <= 80


def test_a_setting_that_the_benchmark_cannot_have_is_run_by_the_program() -> None:
    run = next(run for run in runs_of(compared(Cached(cache_mib=512), 20.0, ram=0.5)).runs)
    assert run.line.startswith("llama-server ")
    assert "--moe-cache-mib 512" in run.line


def test_the_file_is_the_one_that_is_recommended(capsys: pytest.CaptureFixture[str]) -> None:
    """A model that is named without a quantization is measured in the file that fits, and that is said."""
    asked = ("--model", "kimi-k2", "--machine", "m1-pro-32", "--system", "cpu,slot-bank")
    found, advised = document(capsys, "machine", "next", *asked), document(capsys, "recommend", *asked)
    assert found["model"] == advised["model"] == "kimi-k2:q3_k_m"
    assert main(["machine", "next", *asked]) == 0
    assert "q3_k_m" in capsys.readouterr().err
