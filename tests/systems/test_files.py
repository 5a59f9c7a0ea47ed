"""The files that a command line names: written, read back by their readers, and in its words."""

from __future__ import annotations

import re
import resource
import subprocess
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flashmoe_sim.io.errors import Exists, Unusable
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.policies._perf_profile import read_profile
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.base import Case, Launch, System
from flashmoe_sim.systems.bounded_insert import BoundedInsert
from flashmoe_sim.systems.files import PLACEHOLDERS, placeholders, possible_files, with_files, write_together
from flashmoe_sim.systems.hot_cache import HotCache
from flashmoe_sim.systems.ktransformers import KTransformers
from flashmoe_sim.systems.placed import PlacedLayers
from flashmoe_sim.systems.slot_remap import SlotRemap
from flashmoe_sim.systems.static_profile import StaticProfile, profile_csv
from flashmoe_sim.systems.table import SYSTEMS
from flashmoe_sim.trace.perf_profile import write_perf_profile
from tests.residency.builders import trace_of
from tests.systems.cases import case, workload
from tests.systems.models import big_model

MOST_BYTES = 4095  # of a line: the program reads so many at once, and what is left as another line


def write_files(system: System, of: Case, traced: Workload | None, folder: Path, *, force: bool = False) -> Launch:
    launch, files = with_files(system, of, traced, folder, "mine")
    write_together(files, force=force)
    assert set(files) <= set(possible_files(folder, "mine"))
    return launch


def read_csv(path: Path) -> dict[int, Counter[int]]:
    """How often each expert of each layer is in a profile, as thecodacus/llama.cpp ac743f81f counts it.

    Refuses what the program passes over in silence: another line than step, layer and experts, and one too long.
    """
    counts: dict[int, Counter[int]] = {}
    for line in path.read_text().splitlines():
        assert re.fullmatch(r"\d+,\d+(,\d+)+", line), line
        assert len(line) < MOST_BYTES
        _, layer, *experts = map(int, line.split(","))
        counts.setdefault(layer, Counter()).update(experts)
    return counts


def _written(system: System, of: Case, traced: Workload, folder: Path) -> tuple[Launch, Path]:
    launch = write_files(system, of, traced, folder)
    (path,) = folder.iterdir()
    assert str(path) in launch.words
    assert launch.words == tuple(str(path) if word.startswith("PROFILE") else word for word in system.started(of).words)
    return launch, path


@pytest.mark.parametrize("profile", ["half", "all"])
def test_the_profile_of_a_hot_cache_counts_the_trace(profile: str, tmp_path: Path) -> None:
    """All of it: half is how it is judged, not what a person should run with."""
    of = case()
    traced = workload(of.model)
    launch, path = _written(HotCache(max_mib=64, profile=profile), of, traced, tmp_path)
    assert path.name == "mine-profile.json"
    assert not placeholders(launch).keys() - {"MODEL.gguf"}
    found = {layer: dict(of_layer.hits) for layer, of_layer in read_profile(path).items()}
    assert found == {view.layer: Counter(view.expert.tolist()) for view in traced.trace.by_layer}


@pytest.mark.parametrize(("profile", "steps"), [("half", 64), ("first-7", 7), ("all", 64)])
def test_the_profile_of_static_experts_ranks_them_as_the_simulator_does(
    profile: str, steps: int, tmp_path: Path
) -> None:
    of = case()
    traced = workload(of.model)
    system = StaticProfile(slots=3, profile=profile)
    _, path = _written(system, of, traced, tmp_path)
    assert path.name == "mine-profile.csv"
    counts = read_csv(path)
    requests = {
        layer: Counter(
            expert
            for call in np.flatnonzero((traced.trace.layer == layer) & (traced.trace.steps < steps))
            for expert in set(traced.trace.expert[slice(*traced.trace.offset[call : call + 2])].tolist())
        )
        for layer in traced.trace.layers
    }
    assert counts == requests
    of_all = replace(system, profile="all") if profile == "half" else system
    held = of_all.replay(traced, system.plan(of).setup).contents
    for layer, experts in zip(traced.trace.layers, held, strict=True):
        ranked = sorted(counts[layer], key=lambda expert: (-counts[layer][expert], expert))[:3]
        assert sorted(experts.tolist()) == sorted(ranked)


def test_a_call_of_many_experts_is_several_lines(tmp_path: Path) -> None:
    made = trace_of([(0, list(range(1500)), 1500)], 2000)
    path = tmp_path / "p.csv"
    path.write_bytes(profile_csv(prepare(made).layer_pools))
    assert read_csv(path) == {0: Counter(range(1500))}


def test_a_profile_of_ones_own_is_named_and_not_written(tmp_path: Path) -> None:
    of = case()
    traced, mine = workload(of.model), tmp_path / "my own.json"
    write_perf_profile(traced.trace, mine)
    launch = write_files(HotCache(max_mib=64, profile=str(mine)), of, traced, tmp_path)
    assert f"--moe-hot-cache '{mine}' --moe" in launch.line
    assert list(tmp_path.iterdir()) == [mine]


def test_a_trace_of_another_model_makes_no_profile(tmp_path: Path) -> None:
    launch = write_files(HotCache(max_mib=64), case(), None, tmp_path)
    assert placeholders(launch) == {word: PLACEHOLDERS[word] for word in ("MODEL.gguf", "PROFILE.json", "PROMPT")}
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten_without_force(tmp_path: Path) -> None:
    of = case()
    traced, system = workload(of.model), StaticProfile(slots=3)
    (tmp_path / "mine-profile.csv").write_text("old")
    with pytest.raises(Exists, match=r"mine-profile\.csv:"):
        write_files(system, of, traced, tmp_path)
    assert (tmp_path / "mine-profile.csv").read_text() == "old"
    write_files(system, of, traced, tmp_path, force=True)
    assert read_csv(tmp_path / "mine-profile.csv")


def test_all_files_are_written_or_none(tmp_path: Path) -> None:
    files = {tmp_path / "a.csv": b"a", tmp_path / "none" / "b.md": b"b"}
    with pytest.raises(Unusable, match=r"b\.md: cannot be written"):
        write_together(files)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "c.md").write_text("old")
    with pytest.raises(Exists, match=r"c\.md: exists"):
        write_together({tmp_path / "a.csv": b"a", tmp_path / "c.md": b"c"})
    assert [path.name for path in tmp_path.iterdir()] == ["c.md"]


def test_many_variables_are_a_file_that_a_shell_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of = Case(big_model(), load_machine("strix-halo-128"))
    system = SlotRemap(slots=48)
    monkeypatch.chdir(tmp_path)
    launch = write_files(system, of, None, Path())
    server = "./llama-cpp-moe-flash/llama.cpp/build/bin/llama-server"
    assert launch.line == f". ./mine.env && {server} -m MODEL.gguf -ngl 99 --cpu-moe"
    printed = subprocess.run(["sh", "-c", ". ./mine.env && env"], capture_output=True, text=True, check=True).stdout
    assert {f"{name}={value}" for name, value in system.launch(of).environment.items()} <= set(printed.splitlines())


@pytest.mark.parametrize("system", [PlacedLayers(cpu_layers=3), BoundedInsert(slots=2)])
def test_a_system_without_files(system: System, tmp_path: Path) -> None:
    of = case()
    assert write_files(system, of, workload(of.model), tmp_path) == system.started(of)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["placed", "cpu", "imp", "slot-bank", "big-moe-on-edge"])
def test_the_models_own_file_is_in_the_command_line(name: str) -> None:
    of = case()
    of = replace(of, model=replace(of.model, gguf="my models/a.gguf"))
    line = SYSTEMS[name]().launch(of).line
    assert " 'my models/a.gguf' " in f"{line} "
    assert "MODEL" not in line


def test_llama_cpp_downloads_from_the_repository_that_is_named() -> None:
    """Its forks do not: of them it was not read."""
    of = case()
    of = replace(of, model=replace(of.model, repository="unsloth/Small-GGUF:Q4_K_M"))
    launch = PlacedLayers(cpu_layers=1).started(of)
    assert launch.words[:3] == ("llama-server", "-hf", "unsloth/Small-GGUF:Q4_K_M")
    assert "-m" not in launch.words
    assert placeholders(launch) == {"-hf": PLACEHOLDERS["-hf"]}
    assert HotCache(max_mib=64).started(of).words[1:3] == ("-m", "MODEL.gguf")


def test_what_the_words_of_ktransformers_stand_for() -> None:
    launch = KTransformers(experts=2, strategy="frequency").launch(case())
    words = ("MODEL", "CORES", "NUMA_NODES", "ACTIVATION.pt")
    assert placeholders(launch) == {word: PLACEHOLDERS[word] for word in words}


def test_a_full_disk_leaves_none_of_them(tmp_path: Path) -> None:
    """The last file has room, the first has not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
    try:
        with pytest.raises(Unusable, match=r"a\.csv: cannot be written \(File too large\)"):
            write_together({tmp_path / "a.csv": b"a" * 50, tmp_path / "b.csv": b"b"})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
