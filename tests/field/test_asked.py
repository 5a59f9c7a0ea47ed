"""Rows are asked of the system that ran, with its setting, and of a plain engine if there is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from flashmoe_sim.field.asked import Traces, asked_of, system_of
from flashmoe_sim.field.engines import engine_of, program
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.machines.belief import errors
from flashmoe_sim.systems.any_engine import Plain
from flashmoe_sim.systems.cached import Cached
from flashmoe_sim.systems.table import SYSTEMS
from reports.field.asked import answered
from reports.field.report import all_rows
from reports.field.residuals import known, on_parts
from tests.field.builders import published, residuals, row


@pytest.mark.parametrize(
    ("named", "found"),
    [
        ("LM Studio", "llama.cpp"),
        ("Ollama", "llama.cpp"),
        ("llama.cpp (ROCm)", "llama.cpp"),
        ("llama.cpp b9020", "llama.cpp"),
        ("ToshLLM (llama.cpp Metal)", "llama.cpp"),
        ("igllama (llama.cpp)", "llama.cpp"),
        ("nvmoe (llama.cpp patch series)", "nvmoe"),
        ("NVMAI (TurboFieldfare fork)", "TurboFieldfare"),
        ("ds4 (dstar fork)", "ds4"),
        ("Strata fork", "Strata"),
        ("nobody's engine (nvmoe fork)", "nvmoe"),
        ("NVMOE 0.3", "nvmoe"),
        ("nobody's server (Ollama 0.20)", "llama.cpp"),
        ("nobody's fork", "nobody's fork"),
        ("mlx-lm 0.31.3", "MLX"),
        ("mlx", "MLX"),
        ("LM Studio (MLX)", "MLX"),
        ("oMLX 0.5", "MLX"),
        ("mlx-swift-lm 3.31.3", "MLX"),
        ("llama.cpp + moe-stream patch (Crow)", "llama.cpp + moe-stream patch"),
        ("nobody's engine", "nobody's engine"),
    ],
)
def test_programs_that_only_repackage_another_are_that_one(named: str, found: str) -> None:
    assert program(named) == found


@pytest.mark.parametrize(("quant", "engine"), [("4bit MLX", "MLX"), ("Q4_K_M", "llama.cpp"), ("4-bit", "llama.cpp")])
def test_lm_studio_runs_files_of_mlx_with_mlx(tmp_path: Path, quant: str, engine: str) -> None:
    assert engine_of(row(tmp_path, engine="LM Studio", quant=quant)) == engine


def test_published_rows_are_asked_as_they_ran() -> None:
    """Of the system, and with the setting, that the committed answers are of; a size that no row says is chosen."""
    answered = on_parts(residuals())
    for name, system, setting in known(answered).select("id", "system", "setting").iter_rows():
        asked = system_of(published()[name])
        assert (asked.name, setting if asked.size_given else asked.spec) == (system, asked.spec)
    assert len(answered) > 1000


@pytest.mark.parametrize(
    ("flags", "system"),
    [("-ngl 0 -t 8", "cpu"), ("-ngl 7", None), ("--n-gpu-layers=7", None), ("-ot exps=CPU -ngl 99", None)],
)
def test_the_cpu_alone_ran_only_what_left_no_layer_to_the_gpu(tmp_path: Path, flags: str, system: str | None) -> None:
    one = row(tmp_path, strategy="page_cache_mmap", flags=flags)
    if system:
        assert system_of(one).name == system
    else:
        with pytest.raises(BadInput, match="puts layers on the GPU"):
            system_of(one)
        assert isinstance(asked_of(one, Traces()).system, Plain)


def test_a_run_is_of_one_system() -> None:
    runs = [(engine, way) for kind in SYSTEMS.values() for engine, ways in kind.ran_as.items() for way in ways]
    assert len(runs) == len(set(runs))


@pytest.mark.parametrize(
    ("cells", "spec"),
    [
        ({"experts_on_cpu_layers": "24"}, "placed:cpu_layers=24"),
        ({"flags": "-ngl 99 --n-cpu-moe 24 -fa on"}, "placed:cpu_layers=24"),
        ({"flags": "ncmoe=24"}, "placed:cpu_layers=24"),
        ({"flags": "-ngl 99 -ncmoe 999"}, "placed:cpu_layers=48"),
        ({"flags": "--cpu-moe", "engine": "ik_llama.cpp"}, "placed-ik:cpu_layers=48"),
        ({"flags": "--n-cpu-moe 12", "model": "DeepSeek-V2-Lite"}, "placed:cpu_layers=11"),
        ({"flags": "--n-cpu-moe 12", "experts_on_cpu_layers": "24"}, "placed:cpu_layers=24"),
        ({"engine": "Ollama 0.20", "strategy": "all_gpu"}, "all-gpu"),
        ({"engine": "ik_llama.cpp", "strategy": "all_gpu"}, "placed-ik:cpu_layers=0"),
        ({"strategy": "cpu_only"}, "cpu"),
        ({"engine": "ik_llama.cpp", "strategy": "cpu_only"}, "cpu-ik"),
        ({"engine": "mlx_lm", "strategy": "all_gpu", "quant": "MLX 4-bit", "gpu": "Apple M3 Max"}, "mlx"),
    ],
)
def test_a_row_is_asked_with_its_setting(tmp_path: Path, cells: dict[str, str], spec: str) -> None:
    assert asked_of(row(tmp_path, **cells), Traces()).system.spec == spec


@pytest.mark.parametrize(("told", "build"), [("b11505 (ff5888f99), Vulkan", 11505), ("#29887", 11480), ("new", None)])
def test_the_cache_of_llama_cpp_is_that_of_its_build(tmp_path: Path, told: str, build: int | None) -> None:
    cells = {"strategy": "vram_lru", "flags": "--moe-cache-mib 4096", "engine_version_or_pr": told}
    assert asked_of(row(tmp_path, **cells), Traces()).system == Cached(cache_mib=4096, build=build)


def test_layers_that_are_not_told_are_those_that_fit(tmp_path: Path) -> None:
    asked = asked_of(row(tmp_path, gpu="RTX 3060"), Traces()).system
    assert asked.name == "placed"
    assert 0 < asked.chosen < 48


@pytest.mark.parametrize(
    ("cells", "name", "way"),
    [
        ({"engine": "vLLM", "strategy": "all_gpu"}, "all-gpu", "gpu"),
        ({"engine": "vLLM", "strategy": "all_gpu", "quant": "AWQ 4-bit"}, "all-gpu", "gpu"),
        ({"engine": "nobody's engine"}, "placed", "cpu"),
        ({"engine": "nobody's engine", "strategy": "vram_lru"}, "placed", "cpu"),
        ({"engine": "Ollama (moe-cache fork)", "strategy": "vram_lru"}, "placed", "cpu"),
        ({"engine": "nobody's engine", "strategy": "ssd_stream"}, "big-moe-on-edge", "streamed"),
        ({"engine": "nobody's engine", "strategy": "all_gpu", "gpu": "RTX 3060"}, "placed", "cpu"),
    ],
)
def test_an_engine_without_a_system_is_a_plain_one(tmp_path: Path, cells: dict[str, str], name: str, way: str) -> None:
    asked = asked_of(row(tmp_path, **cells), Traces())
    assert isinstance(asked.system, Plain)
    assert (asked.system.name, asked.system.way) == (name, way)
    assert asked.whose.system == f"any engine, {way}"


def test_a_plain_engine_is_as_fast_as_such_engines_were(tmp_path: Path) -> None:
    own, other = (
        answered([row(tmp_path, engine=engine, machine_id="m", gpu="2x RTX 3090")])[0]
        for engine in ("llama.cpp", "nobody's engine")
    )
    assert own.found.tok_s is not None
    times = errors()["times"]
    assert own.found.tok_s / times["placed"] == pytest.approx(other.found.tok_s / times["any engine, cpu"], rel=1e-6)
    assert (own.plain, other.plain) == (False, True)


def test_what_cannot_be_asked_says_why(tmp_path: Path) -> None:
    for cells, why in (({"model": "Nobody-7B"}, "unknown model"), ({"gpu": "Voodoo 2", "cpu": ""}, "no part is named")):
        with pytest.raises(BadInput, match=why):
            asked_of(row(tmp_path, **cells), Traces())


@pytest.mark.parametrize(("name", "within"), [("luka-2k-cpu", 1.1), ("v620-cpu", 1.5)])
def test_small_steps_on_a_cpu(name: str, within: float) -> None:
    """Published speeds of Qwen3.8-Flash-Next on CPUs alone; the second had half of its cores."""
    (one,) = (row for row in all_rows() if row.id == name)
    (found,) = answered([one])
    assert one.decode_tok_s is not None
    assert found.found.tok_s is not None
    of_parts = found.found.tok_s / errors()["times"]["cpu"]
    assert 1 / within < of_parts / one.decode_tok_s < within


@pytest.mark.parametrize(("flags", "drafted"), [("", 3), ("--spec 6", 5), ("MTP drafts on", 3), ("no drafts", None)])
def test_strata_drafts_as_its_setup_does(tmp_path: Path, flags: str, drafted: int | None) -> None:
    cells = {"engine": "Strata 0.2", "strategy": "vram_lru", "model": "Qwen3.8-Flash-Next", "quant": "IQ3_S"}
    asked = asked_of(row(tmp_path, **cells, flags=flags), Traces())
    assert (None if asked.case.drafts is None else asked.case.drafts.count) == drafted


@pytest.mark.parametrize(
    ("of", "asked"),
    [
        ("neu-pc1-1-cache", "neurall"),  # what it had learnt was kept
        ("neu-pol-fork329", "neurall:slots=100:lead=-2:admit=0:profile=none"),
        ("neu-pol-default,334", "neurall:slots=100:admit=0:profile=none"),
        ("neu-pol-default,335", "neurall:slots=100:lead=-2:profile=none"),
        ("neu-pred-0", "neurall:profile=none"),
        ("neu-hit-src-1", "neurall:lead=-2:admit=0:profile=none"),
        ("neu-hit-src-2", "neurall:swaps=8:lead=4:admit=0:profile=none"),
        *((row, "no setting") for row in ("neu-pol-lru330", "neu-pol-slru332", "neu-pol-aging333", "neu-pred-1")),
        ("neu-pred-2", "no setting"),
        ("neu-hit-src-0", "did not wait"),
    ],
)
def test_rows_of_neurall_are_asked_as_their_builds_were(of: str, asked: str) -> None:
    if asked.startswith("neurall"):
        assert system_of(published()[of]).spec == asked
    else:
        with pytest.raises(BadInput, match=asked):
            system_of(published()[of])
