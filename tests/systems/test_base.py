"""What all systems share: refusals, room, costs of their own."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import pytest

from flashmoe_sim.geometry.named import named_model
from flashmoe_sim.io.errors import OutOfRange, TooLarge
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.systems.all_gpu import AllGpu
from flashmoe_sim.systems.base import Case, Cost, Launch, Share, System, gpu_left, ladder
from flashmoe_sim.systems.cpu import Cpu
from flashmoe_sim.systems.fits import why_none_fits
from flashmoe_sim.systems.flash_moe import FlashMoe
from flashmoe_sim.systems.ktransformers import KTransformers
from flashmoe_sim.systems.placed import PlacedLayers
from flashmoe_sim.systems.placed_ik import PlacedIk
from flashmoe_sim.systems.slot_bank import SlotBank
from flashmoe_sim.systems.static_profile import StaticProfile
from flashmoe_sim.systems.table import SYSTEMS
from tests.systems.cases import case, machine, served_by


@dataclass(frozen=True, kw_only=True)
class Choosy(AllGpu):
    name: ClassVar[str] = "choosy"
    program: ClassVar[str] = "slot-remap"


@pytest.mark.parametrize(
    ("system", "name", "reason"),
    [
        (AllGpu(), "laptop-ddr4", "needs a GPU"),
        (PlacedLayers(), "m3-max-48", "needs a GPU with a memory of its own"),
        (PlacedLayers(), "laptop-ddr4", "needs a GPU with a memory of its own"),
        (FlashMoe(), "rtx-3090", "needs a GPU that shares the RAM"),
        (FlashMoe(), "strix-halo-128", "needs metal; the machine has rocm"),
        (PlacedIk(), "rtx-3090", ""),
        (Choosy(), "rtx-3090", "needs rocm or vulkan; the machine has cuda"),
        (Choosy(), "strix-halo-128", "is not known to run qwen35moe; it serves qwen3moe"),
    ],
)
def test_what_a_system_cannot_run_on(system: System, name: str, reason: str) -> None:
    assert system.why_not(case(name)) == reason


@pytest.mark.parametrize(
    ("system", "reason"),
    [
        (AllGpu(), ""),
        (Cpu(), ""),
        (PlacedIk(), ""),
        (KTransformers(), ""),
        (StaticProfile(), "is known for one GPU only; the machine has 2"),
        (SlotBank(), "is known for one GPU only; the machine has 2"),
    ],
)
def test_what_a_system_cannot_run_on_with_two_gpus(system: System, reason: str) -> None:
    one, two = (replace(on, model=served_by(system, on.model)) for on in (case(), case(gpus=2)))
    assert system.why_not(two) == reason
    assert system.why_not(one) == ""


def test_a_machine_that_does_not_say_what_programs_its_gpu() -> None:
    unknown = Case(case().model, replace(machine(), api=""))
    assert PlacedIk().why_not(unknown) == "needs cuda; the machine has a GPU whose api its file does not say"


def test_memory_of_a_case() -> None:
    own, shared = case(gpu_gib=8, ram_gib=32), case("m3-max-48")
    assert (own.gpu_bytes, own.ram_bytes) == (8 * GIB, 31.5 * GIB)
    assert gpu_left(replace(own, kv_bytes=GIB)) == (8 - 1 - 1 - 1) * GIB
    assert 0 < shared.gpu_bytes <= shared.ram_bytes
    assert case("laptop-ddr4").gpu_bytes == 0


def test_what_does_not_fit_is_refused() -> None:
    AllGpu().check(case(gpu_gib=2.25))  # 1 GiB of dense weights, 1 of buffers, a quarter of experts
    with pytest.raises(TooLarge, match=r"takes 2\.2 GiB of the GPU, which has 2\.0 for it"):
        AllGpu().check(case(gpu_gib=2))
    with pytest.raises(TooLarge, match=r"takes 2\.0 GiB of RAM, which has 0\.5 for it"):
        Cpu().check(case("laptop-ddr4", ram_gib=1))


@dataclass(frozen=True, kw_only=True)
class Costly(AllGpu):
    name: ClassVar[str] = "costly"
    costs: ClassVar[tuple[Cost, ...]] = (
        Cost("cpu.weights_gb_s", 0.5, 0.8, 1.0, "measured"),
        Cost("host.call_us", 10, 20, 40, "read", scales=False),
        Cost("link.request_us", 1, 2, 3, "read", scales=False),
    )


def test_costs_scale_what_is_known_and_replace_only_estimates() -> None:
    known = machine()
    assert known.cpu.weights_gb_s is not None
    known = replace(
        known,
        host=replace(known.host, call_us=replace(known.host.call_us, estimated=True)),
        link=replace(known.link, request_us=replace(known.link.request_us, estimated=False)),
    )
    found, rate = Costly().adapted(known), known.cpu.weights_gb_s
    assert found.cpu.weights_gb_s is not None
    scaled = found.cpu.weights_gb_s
    assert (scaled.lo, scaled.value, scaled.hi) == (0.5 * rate.lo, 0.8 * rate.value, rate.hi)
    assert scaled.source == "costly: measured"
    assert (found.host.call_us.lo, found.host.call_us.value, found.host.call_us.hi) == (10, 20, 40)
    assert found.link.request_us == known.link.request_us
    assert AllGpu().adapted(known) == known


def test_a_command_line_as_a_shell_takes_it() -> None:
    assert Launch(("run", "a b"), {"X": "1 2"}).line == "X='1 2' run 'a b'"


@pytest.mark.parametrize(
    ("least", "most", "sizes"), [(8, 20, [8, 12, 16, 20]), (5, 5, [5]), (9, 8, []), (1, 6, [1, 4, 6])]
)
def test_ladder(least: int, most: int, sizes: list[int]) -> None:
    assert ladder(least, most) == sizes


def test_flash_moe_has_no_cache_of_its_own() -> None:
    system, on = FlashMoe(top_k=1), case("m3-max-48")
    assert Share("experts", "mapped", on.model.routed_bytes) in system.memory(on)
    assert system.plan(on).execution.name == "page-cache"
    with pytest.raises(OutOfRange, match=r"top_k=9 is not in 1\.\.8"):
        FlashMoe(top_k=9)


@pytest.mark.parametrize(
    ("launch", "line"),
    [
        (Launch(("run", "-c", "4096", "-ngl", "23", "-m", r"C:\m\a.gguf")), r"run -c 4096 -ngl 23 -m C:\m\a.gguf"),
        (Launch(("run", "-m", r"C:\my models\a.gguf")), r"run -m 'C:\my models\a.gguf'"),
        (Launch(("run", "-ts", "3,1")), "run -ts '3,1'"),  # else an array: two words
        (Launch(("run", "--share=0.5", "0.5", "-0.5")), "run '--share=0.5' 0.5 -0.5"),  # else cut at the dot
        (Launch(("run", "-ot", r"blk\.(1|2)\.ffn=CPU")), r"run -ot 'blk\.(1|2)\.ffn=CPU'"),
        (Launch(("run", "it's", "@here", "$HOME", "a;b", "")), "run 'it''s' '@here' '$HOME' 'a;b' ''"),
        (Launch((r"C:\Program Files\run.exe", "-x")), r"& 'C:\Program Files\run.exe' -x"),
        (Launch(("run",), {"A": "1", "B": "two words"}), "$env:A = '1'; $env:B = 'two words'; run"),
        (Launch(("run", "-a"), first_start=("--learn", "a b")), "run -a --learn 'a b'"),
    ],
)
def test_a_line_for_powershell(launch: Launch, line: str) -> None:
    assert replace(launch, powershell=True).line == line


@pytest.mark.parametrize("os", ["linux", "windows"])
def test_a_line_is_for_the_shell_of_the_machine(os: str) -> None:
    case = Case(named_model("gpt-oss-120b"), load_machine(f"rtx-3060 + ryzen-5600 + 64GiB + nvme-gen4 + {os}"))
    kinds = [kind() for kind in SYSTEMS.values() if not why_none_fits(case, kind())]
    assert len(kinds) > 5
    assert {one.at_each_size(case)[-1].started(case).powershell for one in kinds} == {os == "windows"}
