"""What fits nowhere is refused before anything is replayed."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.geometry.named import file_bytes, quantizations
from flashmoe_sim.io.errors import BadInput, TooLarge, Unsupported
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.compare import at_setting
from flashmoe_sim.systems.cpu import Cpu
from flashmoe_sim.systems.fits import another_file, check_any_fits, file_that_fits, nothing_runs, why_none_fits
from flashmoe_sim.systems.placed import PlacedLayers
from flashmoe_sim.systems.resolve import parse_systems, resolve
from flashmoe_sim.systems.slot_bank import SlotBank
from flashmoe_sim.systems.table import SYSTEMS
from flashmoe_sim.verbs.compare import Compare
from flashmoe_sim.verbs.recommend import Recommend
from tests.systems.cases import case, workload


@pytest.mark.parametrize("machine", ["rtx-3090", "m1-8", "laptop-ddr4"])
@pytest.mark.parametrize("name", SYSTEMS)
def test_no_reason_means_that_some_size_fits(name: str, machine: str) -> None:
    of = Case(case().model, load_machine(machine))
    system = SYSTEMS[name]()
    reason = why_none_fits(of, system)
    sizes = [replace(system, **{system.size: size}) for size in _sizes(system, of)] or [system]
    checked = []
    for one in sizes:
        try:
            one.sized(of).check(of)
        except BadInput:
            continue
        checked.append(one)
    assert bool(checked) == (not reason)


def _sizes(system: object, of: Case) -> list[int]:
    try:
        return list(system.sizes(of))  # type: ignore[attr-defined]
    except BadInput:
        return []


def test_what_replays_is_not_refused() -> None:
    of = case()
    on = workload(of.model)
    for name in ("placed", "slot-bank", "cpu"):
        system = SYSTEMS[name]()
        assert why_none_fits(of, system) == ""
        assert at_setting(on, of, system.sized(of), interval=False).tok_s


def test_nothing_is_made_for_a_model_that_fits_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(model: object) -> object:
        raise AssertionError("no trace is needed")

    monkeypatch.setattr("flashmoe_sim.systems.borrow.borrow", refuse)
    kimi, small = load_model("kimi-k2"), load_machine("m1-8")
    with pytest.raises(
        TooLarge, match=r"m1-8: no system can run kimi-k2.*the least that any of them needs is 7\.\d GiB"
    ):
        resolve(workload=None, model=kimi, machine=small)


def test_a_file_that_some_engine_reads_is_named() -> None:
    mac = Case(load_model("glm-5.3-flash"), load_machine("m5-max-128"))
    with pytest.raises(
        Unsupported, match=r"; another quantization is --model glm-5\.3-flash:ds4-q4, .* GiB, which ds4 can run"
    ):
        check_any_fits(mac, parse_systems("placed,ds4"))
    with pytest.raises(Unsupported, match=r"does not run qwen3moe; it serves [^;]*$"):
        check_any_fits(Case(load_model("qwen3-30b-a3b"), load_machine("m5-max-128")), parse_systems("ds4"))


def test_a_model_named_alone_is_answered_for_a_file_that_some_engine_reads() -> None:
    model, mac = load_model("qwen3.8-flash-next"), load_machine("m5-pro-48")
    found = resolve(workload=None, model=model, machine=mac, may_borrow=False, any_file=True)
    assert found.case.model.name == "qwen3.8-flash-next:mlx-4bit"
    assert found.notes[0] == (
        "no system can run qwen3.8-flash-next:q4_k_m here, but from storage page by page; this is "
        "qwen3.8-flash-next:mlx-4bit, which slotstream can"
    )
    runs = load_model("gpt-oss-20b")
    assert resolve(workload=None, model=runs, machine=mac, may_borrow=False, any_file=True).case.model == runs
    named = Compare(model="qwen3.8-flash-next:q4_k_m", machine="m5-pro-48").run()
    assert {row.system.name for row in named.rows if not row.why_not} == {"cpu"}


def test_what_a_name_was_taken_for_is_a_note() -> None:
    model, machine = load_model("Smoothie-Qwen3-235B-A22B.IQ4_XS.gguf"), load_machine("rtx-4090 + 192GiB")
    notes = resolve(workload=None, model=model, machine=machine, may_borrow=False).notes
    assert "is taken as of the shape of qwen3-235b-a22b" in notes[0]


def test_a_model_that_no_engine_reads_is_answered_for_in_its_usual_quantization() -> None:
    """A thousand gigabytes of FP8, which fit nowhere: read from storage page by page, its usual GGUF runs."""
    model, machine = load_model("kimi-k2:fp8"), load_machine("rtx-4090 + ryzen-9950x + ddr5-5600x2 + 192GiB")
    found = resolve(workload=None, model=model, machine=machine, may_borrow=False, any_file=True)
    assert found.case.model.name == "kimi-k2:q4_k_m"
    assert found.notes[0].startswith("no system can run kimi-k2:fp8 here; this is kimi-k2:q4_k_m, which ")
    with pytest.raises(BadInput, match="no system can run kimi-k2:fp8 there"):
        check_any_fits(Case(model, machine), parse_systems("all"))


@pytest.mark.parametrize(
    ("name", "machine", "taken"),
    [
        ("Qwen3 30B A3B 4-bit", "rtx-3060 + 32GiB", "q4_k_m"),
        ("qwen3-30b-a3b 8bit", "rtx-4090 + 64GiB", "q8_0"),
        ("Qwen3 30B A3B 4-bit", "m3-max-48", "mlx-4bit"),
    ],
)
def test_bits_alone_are_of_the_files_that_run_there(name: str, machine: str, taken: str) -> None:
    assert Recommend(model=name, machine=machine, systems="placed,cpu,mlx").advise().case.model.quant == taken


def test_mlx_by_its_name_is_not_taken_for_another_file() -> None:
    with pytest.raises(Unsupported, match="reads GGUF, not mlx"):
        Recommend(model="Qwen3-30B-A3B-MLX-4bit", machine="rtx-3060 + 32GiB").advise()


def test_several_machines_get_a_file_that_some_engine_on_one_of_them_reads() -> None:
    asked = Recommend(model="qwen3.8-flash-next", machine="m5-pro-48", systems="cpu,slotstream")
    macs = asked.run_each(["m5-pro-48", "m2-16"], ["qwen3.8-flash-next"]).cells
    assert {cell.model for cell in macs} == {"qwen3.8-flash-next:mlx-4bit"}
    assert all(cell.found.tok_s for cell in macs)
    model, mac, card = load_model("qwen3.8-flash-next"), load_machine("m5-pro-48"), load_machine("rtx-4090")
    systems = parse_systems("all")
    assert file_that_fits(model, [mac, card], systems) == model
    assert file_that_fits(load_model("kimi-k2"), [load_machine("m1-8")], systems).name == "kimi-k2:q4_k_m"
    several = asked.run_each(["m5-pro-48"], ["qwen3.8-flash-next", "gpt-oss-20b"]).cells
    assert [cell.model for cell in several] == ["qwen3.8-flash-next:mlx-4bit", "gpt-oss-20b:mxfp4"]


def test_several_machines_are_not_refused_for_the_first() -> None:
    model, small = load_model("olmoe-1b-7b"), load_machine("m1-8")
    assert resolve(workload=None, model=model, machine=small, systems="placed", must_fit=False).workload is not None
    with pytest.raises(Unsupported, match="no system can run"):
        resolve(workload=None, model=model, machine=small, systems="placed")


def test_three_reasons_are_named_each_with_its_systems() -> None:
    of, systems = case("m1-8"), parse_systems("cpu,placed,slot-bank,crow,imp,nvmoe")
    message = str(nothing_runs(of, list(zip(systems, ("no", "never", "no", "hardly", "not", "nor"), strict=True))))
    assert message.startswith(
        "m1-8: no system can run small there: cpu, slot-bank: no; placed: never; crow: hardly; and 2 more"
    )
    check_any_fits(of, [Cpu()])
    with pytest.raises(Unsupported, match="placed: needs a GPU with a memory of its own"):
        check_any_fits(of, [PlacedLayers()])
    with pytest.raises(Unsupported, match="1 slots; a token routes 2 experts"):
        check_any_fits(of, [SlotBank(slots=1)])


@pytest.mark.parametrize(
    "machine", ["m4-max-128", "m1-ultra + 64GiB", "m2-16", "rtx-4090 + xeon-8480 + 512GiB + linux"]
)
@pytest.mark.parametrize(
    "model", ["qwen3-30b-a3b:mlx-4bit", "glm-4.5-air:mlx-4bit", "qwen3-next-80b-a3b:fp8", "qwen3.5-122b-a10b:mlx-4bit"]
)
def test_the_file_that_is_named_instead_is_the_nearest_in_size_that_runs(model: str, machine: str) -> None:
    case, systems = Case(load_model(model), load_machine(machine)), parse_systems("all")
    found = another_file(case, systems)
    assert found is not None
    running = [
        other
        for other in quantizations(case.model)
        for system in systems
        if not why_none_fits(replace(case, model=other), system) and system.caches
    ]
    nearest = min(map(apart_from(case.model), running), default=math.inf)
    assert apart_from(case.model)(found[0]) <= nearest
    assert why_none_fits(replace(case, model=found[0]), found[1]) == ""


def apart_from(model: ModelGeometry) -> Callable[[ModelGeometry], float]:
    return lambda other: abs(math.log(file_bytes(other) / file_bytes(model)))


def test_a_refused_format_gets_the_nearest_that_the_engine_loads_and_why_that_does_not_run() -> None:
    asked = Case(load_model("deepseek-v3"), load_machine("rtx-4090 + xeon-8480 + 512GiB + linux"))
    with pytest.raises(Unsupported) as caught:
        check_any_fits(asked, parse_systems("ktransformers"))
    message = str(caught.value)
    assert "give --model deepseek-v3:int4, 327 GiB, nearest in size; " in message
    assert "bf16," not in message.partition("give --model")[2]
    roomy = Case(load_model("deepseek-v3"), load_machine("rtx-5090 + xeon-8480 + 1024GiB + linux"))
    with pytest.raises(Unsupported, match="another quantization is --model deepseek-v3:int4, 327 GiB, which ktransf"):
        check_any_fits(roomy, parse_systems("ktransformers"))
