"""What every system in the table says of itself, and that it replays and takes time if it can run."""

from __future__ import annotations

import ast
import re
import sys
from contextlib import suppress
from dataclasses import fields, replace
from functools import cache
from pathlib import Path

import pytest

from flashmoe_sim.budget import own_memory
from flashmoe_sim.io.errors import BadInput, TooLarge, Unsupported
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import Compared, compare
from flashmoe_sim.systems.resolve import parse_systems
from flashmoe_sim.systems.table import SYSTEMS, parse_system
from tests.support import refused
from tests.systems.cases import served_by, shape_of
from tests.systems.models import model_of, short_workload

MACHINES = ("rtx-3090", "strix-halo-128", "m3-max-48", "phone-ufs4", "vm-2core", "rtx-5090", "rtx-4090")
# A repository, and in it a commit or a pull request.
PLACE = re.compile(r"[\w.-]+/[\w.-]+(#\d+|[^#]*\b[0-9a-f]{7,9}\b)")
# Systems whose experts lie in a mapped file, or in the page cache, that are not read by page faults, and why.
NO_FAULTS = {
    "flash-moe": "reads with pread",
    "slot-remap": "reads ahead of its copies into the page cache: LLAMA_FLASH_MOE_ENABLED",
    "turbofieldfare": "reads into slots",
    "slotstream": "reads with pread",
    "colibri": "reads with pread",
}
SIZES_GIB = {"rtx-3090": 40, "strix-halo-128": 118, "m3-max-48": 20, "phone-ufs4": 12, "vm-2core": 1} | {
    "rtx-5090": 40,
    "rtx-4090": 24,  # two of three layers fit beside dense weights
}


def _case(system: System, machine: str, *, size_gib: int | None = None) -> Case:
    layers, experts = shape_of(system, (3, 64))
    model = model_of((size_gib or SIZES_GIB[machine]) * GIB, layers=layers, n_experts=experts)
    return Case(served_by(system, model), load_machine(machine), GIB // 16, 4096)


def _where(system: System) -> str:
    """The first machine that the system says it can run on, and has room on."""
    return next(name for name in MACHINES if _runs(system, _case(system, name)))


def _runs(system: System, case: Case) -> bool:
    with suppress(TooLarge):
        return not system.why_not(case) and bool(system.sized(case))
    return False


@cache
def _ran(name: str) -> Compared:
    system = SYSTEMS[name]()
    machine = _where(system)
    case = _case(system, machine, size_gib=10 if name == "all-gpu" else None)
    return compare(short_workload(case.model, prompt_tokens=1), case, [system])[0]


@pytest.fixture(params=list(SYSTEMS), ids=str)
def system(request: pytest.FixtureRequest) -> System:
    found: System = SYSTEMS[request.param]()
    assert found.name == request.param
    return found


def test_an_engine_is_all_of_its_systems() -> None:
    assert {one.name for one in parse_systems("llama.cpp")} == {*("all-gpu", "cpu", "placed", "whole-layers", "cached")}
    assert [one.spec for one in parse_systems("Strata,placed:cpu_layers=3,llama.cpp")].count("placed:cpu_layers=3") == 1
    assert parse_systems("ik_llama.cpp") == [parse_system("placed-ik"), parse_system("cpu-ik")]


def test_a_system_imports_no_other_but_those_that_it_extends() -> None:
    """So that an answer about one reads the files of that one; whole layers are placed by llama.cpp's rule."""
    modules = {kind.__module__ for kind in SYSTEMS.values()}
    for kind in SYSTEMS.values():
        family = {base.__module__ for base in kind.__mro__} | {"flashmoe_sim.systems.placed"}
        source = Path(sys.modules[kind.__module__].__file__ or "").read_text()
        imported = {one.module for one in ast.walk(ast.parse(source)) if isinstance(one, ast.ImportFrom)}
        assert imported & modules <= family, kind.name


def test_it_says_who_it_is(system: System) -> None:
    assert all((system.title, system.engine, system.keeps, system.misses))
    assert PLACE.search(system.source), system.source
    assert system.meaning.endswith(".")


def test_its_spec_parses_back(system: System) -> None:
    assert parse_system(system.spec) == system
    assert system.spec == system.name  # the defaults
    settings = re.findall(r"^ {0,4}(\w+): ", type(system).__doc__ or "", re.MULTILINE)
    assert {item.name for item in fields(system)} <= set(settings)


def test_it_refuses_a_machine_without_its_hardware_in_one_line(system: System) -> None:
    for name in MACHINES:
        case = _case(system, name)
        reason = system.why_not(case)
        assert "\n" not in reason
        assert not reason.endswith(".")
        machine = case.machine
        wrong = system.own_gpu is not None and (machine.gpu is None or own_memory(machine) is not system.own_gpu)
        apis = system.facts.platform.apis if system.facts is not None and system.uses_gpu else ()
        if wrong or (apis and machine.api not in apis):
            assert reason
            assert compare(short_workload(case.model, steps=3), case, [system])[0].why_not == reason


def test_it_takes_memory_and_can_be_started(system: System) -> None:
    case = _case(system, _where(system))
    sized = system.sized(case)
    shares = sized.memory(case)
    assert shares
    assert all(share.size_bytes >= 0 for share in shares)
    assert {share.where for share in shares} <= {"gpu", "ram", "mapped"}
    assert sized.launch(case).line
    assert sized.plan(case).setup.contract


def test_its_own_size_fits_and_too_large_ones_are_refused(system: System) -> None:
    if not system.size:
        return
    case = _case(system, _where(system))
    system.sized(case).check(case)
    sizes = system.sizes(case)
    assert list(sizes) == sorted(set(sizes))
    assert sizes or system.at_each_size(case) == [system.sized(case)]
    for size in sizes:
        one = replace(system, **{system.size: size})
        assert one.plan(case).setup.bank.size >= 1
        assert all(share.size_bytes >= 0 for share in one.memory(case))
    small = Case(case.model, case.machine, 10**15)
    with pytest.raises(TooLarge) as error:
        system.sized(small).check(small)
    assert "\n" not in str(error.value)


def test_what_is_mapped_is_read_by_page_faults(system: System) -> None:
    case = _case(system, _where(system))
    mapped = any(share.where == "mapped" for share in system.sized(case).memory(case))
    assert system.by_faults == (mapped and system.name not in NO_FAULTS)
    assert mapped or system.name not in NO_FAULTS


def test_it_takes_time_on_some_machine(system: System) -> None:
    row = _ran(system.name)
    assert row.why_not == ""
    assert 0 < row.tok_s_lo < row.tok_s < row.tok_s_hi
    assert 0 <= row.hit_rate <= 1
    assert row.launch is not None


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("llama.cpp", ["all-gpu", "cpu", "placed", "whole-layers", "cached"]),
        ("LM Studio", ["all-gpu", "cpu", "placed", "whole-layers", "cached"]),
        ("ollama", ["all-gpu", "cpu", "placed", "whole-layers", "ollama-layers", "cached"]),
        ("ik_llama", ["placed-ik", "cpu-ik"]),
        ("mlx-lm", ["mlx"]),
        ("vllm-mlx", ["mlx"]),
        ("dwarfstar", ["ds4"]),
        ("Lemonade Server", ["all-gpu", "cpu", "placed", "whole-layers", "cached"]),
        ("mlx_lm.server", ["mlx"]),
        ("kekzl/imp", ["imp"]),
    ],
)
def test_an_engine_is_named_as_people_call_it(name: str, expected: list[str]) -> None:
    assert [system.name for system in parse_systems(name)] == expected


@pytest.mark.parametrize(
    ("command", "spec"),
    [
        ("llama.cpp --n-cpu-moe 24", "placed:cpu_layers=24"),
        ("./llama-server -ngl 99 --n-cpu-moe=12 -fa on", "placed:cpu_layers=12"),
        ("llama-server -ngl all --cpu-moe", "placed:ot=exps=CPU"),
        ('llama.cpp -ot ".ffn_.*_exps.=CPU" -ngl 99', "placed:ot=.ffn_.*_exps.=CPU"),
        ("-ts 3/1 -ncmoe 10 -ub 2048", "placed:cpu_layers=10:ts=3/1:ubatch=2048"),
        ("ik_llama.cpp -ot exps=CPU", "placed-ik:ot=exps=CPU"),
        ("llama.cpp -ngl 99", "all-gpu"),
        ("-ngl 20", "whole-layers:gpu_layers=20"),
        ("-ngl 0", "cpu"),
    ],
)
def test_flags_of_llama_cpp_are_a_system(command: str, spec: str) -> None:
    (system,) = parse_systems(command)
    assert system == parse_system(spec)


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("llama.cpp --n-cpu-moe 24 -ctk q8_0", "-ctk does not say where experts are computed; leave it out here"),
        ("./llama-server -ncmoe=12", "-ncmoe=12"),
        ("llama.cpp --n-cpu-moe 24,vllm", "give one value behind --n-cpu-moe"),
        ("llama.cpp -ngl 99 vllm", "another system is another --system"),
        ("ik_llama -ngl 20", "leave -ngl out if all layers are on the GPU"),
    ],
)
def test_flags_that_are_no_system(command: str, says: str) -> None:
    with refused(BadInput, says):
        parse_systems(command)


@pytest.mark.parametrize("name", ["vllm", "ONNX Runtime", "tinyserve"])
def test_any_engine_stands_for_one_that_is_not_modelled(name: str) -> None:
    model = model_of(8 * GIB)
    with refused(Unsupported, "is not modelled", "sim compare --system"):
        parse_systems(name)
    with refused(Unsupported, "names several systems"):
        parse_systems(f"{name}:slots=3", any_engine=True)
    found = parse_systems(f"placed,{name}", any_engine=True)
    rows = compare(short_workload(model), Case(model, load_machine("rtx-4090")), found)
    ways = {row.system.name.rpartition("-")[2]: row for row in rows if row.launch is None}
    assert sorted(ways) == ["cpu", "gpu", "layers", "streamed"]
    (placed,) = (row for row in rows if row.launch is not None)
    apart = [row.tok_s_hi / row.tok_s_lo for row in (placed, *ways.values()) if row.tok_s_lo and row.tok_s_hi]
    assert len(apart) == 1 + len(ways)
    assert min(apart[1:]) > apart[0]


def test_a_row_of_any_engine_is_asked_for_by_its_name() -> None:
    (system,) = parse_systems("vllm-cpu", any_engine=True)
    assert (system.name, system.title) == ("vllm-cpu", "vLLM")
    with refused(Unsupported, "give the settings of one: all-gpu, cpu, placed"):
        parse_systems("llama.cpp:cpu_layers=3")
