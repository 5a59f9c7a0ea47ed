"""Two sockets under every system: as fast as one if that has room, never more RAM than both have, and the command."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashmoe_sim.io.errors import TooLarge
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Machine, Quantity
from flashmoe_sim.machines.sockets import BOUND, INTERLEAVED, MIRRORED, SPLIT
from flashmoe_sim.report.advice import sections
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import Compared, at_setting, otherwise_seated
from flashmoe_sim.systems.cpu import Cpu
from flashmoe_sim.systems.crow import Crow
from flashmoe_sim.systems.ktransformers import KTransformers
from flashmoe_sim.systems.placed import PlacedLayers
from flashmoe_sim.systems.table import SYSTEMS
from flashmoe_sim.systems.whole_layers import OllamaLayers, WholeLayers
from flashmoe_sim.tune.recommend import recommend
from tests.systems.cases import model, workload

MODEL = model()
SERVER = "{}xeon-6454s + ddr5-4800x8 + {}GiB + nvme-gen4 + rtx-4090"


def server(sockets: str, ram_gib: float) -> Machine:
    """A server whose system takes 0.25 GiB."""
    found = load_machine(SERVER.format(sockets, 64))
    assert found.memory is not None
    ram, reserve = (Quantity(gib, gib, gib, "made", "made") for gib in (ram_gib, 0.25))
    return replace(found, memory=replace(found.memory, ram_gib=ram, reserve_gib=reserve))


def asked(name: str, sockets: str, ram_gib: float, mode: str = "") -> tuple[Case, System, Compared]:
    machine = server(sockets, ram_gib)
    case = Case(MODEL, replace(machine, socket_mode=mode))
    system = GIVEN.get(name, SYSTEMS[name]()).sized(case)
    return case, system, at_setting(workload(MODEL), case, system)


RUN = [
    name
    for name in SYSTEMS
    if not SYSTEMS[name]().why_not(Case(MODEL, server("", 64)))
    and not SYSTEMS[name]().uses_profile
    and not SYSTEMS[name].splits_sockets
]
GIVEN = {"whole-layers": WholeLayers(gpu_layers=3), "ollama-layers": OllamaLayers(gpu_layers=3)}  # all would fit


@pytest.mark.parametrize("name", RUN)
def test_bound_is_as_fast_as_one_socket_with_this_ram(name: str) -> None:
    (_, system, one), (case, _, two) = asked(name, "", 64), asked(name, "2x ", 64)
    if system.read_in_ram(case) > case.socket_ram_bytes:
        assert name == "crow", "which fills the RAM that there is"
        return
    assert system.socket_mode(case) in (BOUND, "")
    assert (two.tok_s, two.tok_s_lo, two.tok_s_hi) == (one.tok_s, one.tok_s_lo, one.tok_s_hi)
    assert one.launch is not None
    assert two.launch is not None
    assert two.launch.line.endswith(one.launch.line) or one.launch.words[0].rpartition("/")[2].startswith("llama-")


@pytest.mark.parametrize("name", ["cpu", "placed"])
def test_over_both_if_one_has_no_room(name: str) -> None:
    """One GiB of dense weights and a quarter of experts, on the CPU or beside it; the system takes a quarter."""
    of = PlacedLayers(cpu_layers=6) if name == "placed" else Cpu()
    large = Case(MODEL, server("2x ", 64))
    needed = of.read_in_ram(large) / GIB
    for ram_gib, mode in ((2 * (needed + 0.26), BOUND), (2 * (needed + 0.24), INTERLEAVED)):
        case = Case(MODEL, server("2x ", ram_gib))
        assert of.socket_mode(case) == mode
        found = at_setting(workload(MODEL), case, of)
        assert found.launch is not None
        words = " ".join(found.launch.words)
        if mode == BOUND:
            assert words.startswith("numactl --cpunodebind=0 --membind=0 llama-server ")
            assert words.endswith("--numa numactl -t 32")
        else:
            assert words.startswith("numactl --interleave=all llama-server ")
            assert words.endswith("--numa distribute -t 64")


def test_both_are_less_sure() -> None:
    (_, _, one), (_, _, both) = (asked("cpu", "2x ", 64, mode) for mode in (BOUND, INTERLEAVED))
    assert one.tok_s_lo is not None
    assert both.tok_s_lo is not None
    assert one.tok_s_hi is not None
    assert both.tok_s_hi is not None
    assert both.tok_s_hi / both.tok_s_lo > one.tok_s_hi / one.tok_s_lo


def test_no_more_ram_than_both_have() -> None:
    """The dense weights of the model, 1 GiB, must be in RAM."""
    Cpu().check(Case(MODEL, server("2x ", 3)))
    with pytest.raises(TooLarge, match="of RAM, which has 0"):
        Cpu().check(Case(MODEL, server("2x ", 1)))


def test_copies_need_room_on_each_socket() -> None:
    needed = Cpu().read_in_ram(Case(MODEL, server("2x ", 64))) / GIB

    def check(copies: float, mode: str) -> None:
        Cpu().check(Case(MODEL, replace(server("2x ", 0.25 + copies * needed), socket_mode=mode)))

    check(2.1, MIRRORED)
    check(1.9, INTERLEAVED)
    with pytest.raises(TooLarge, match="of RAM, which has"):
        check(1.9, MIRRORED)


def test_an_engine_that_divides_experts() -> None:
    published = replace(MODEL, quant="fp8", format="safetensors")
    case = Case(published, server("2x ", 64))
    system = KTransformers(experts=4)
    assert system.socket_mode(case) == SPLIT
    words = " ".join(system.started(case).words)
    assert words.startswith("python -m sglang.launch_server ")
    assert " --kt-cpuinfer 64 --kt-threadpool-count 2 " in words
    one = Case(published, server("", 64))
    assert " --kt-cpuinfer 32 --kt-threadpool-count NUMA_NODES " in " ".join(system.started(one).words)


def test_windows_has_no_numactl() -> None:
    case = Case(MODEL, server("2x ", 64))
    on_windows = replace(case, machine=replace(case.machine, os="windows"))
    assert Cpu().started(on_windows).words[0] == "llama-server"
    assert Crow(slots=4).started(case).words[0] == "./Crow/bin/llama-server"  # which runs nowhere else


def test_all_on_the_gpu_needs_no_socket() -> None:
    case, system, found = asked("all-gpu", "2x ", 64)
    assert system.socket_mode(case) == ""
    assert found.launch is not None
    assert found.launch.words[0] == "llama-server"
    assert otherwise_seated(workload(MODEL), case, found) is None


@pytest.mark.parametrize(
    ("ram_gib", "mode", "said"),
    [
        (64, "", "whose RAM has room. With memory interleaved over both, it would have "),
        (2.6, "", "do not fit one. One socket with all that in its RAM would have "),
        (64, MIRRORED, "Sockets: threads on both sockets, each with a copy of the weights."),
    ],
)
def test_what_the_answer_says(ram_gib: float, mode: str, said: str) -> None:
    machine = replace(server("2x ", ram_gib), socket_mode=mode, gpu=None, link=None, api="")
    found = recommend(workload(MODEL, tokens=128), Case(MODEL, machine), [Cpu()])
    texts = [part for part in sections(found)[0].parts if isinstance(part, str)]
    assert sum(said in text for text in texts) == 1
    assert (found.otherwise_seated is None) == bool(mode)
