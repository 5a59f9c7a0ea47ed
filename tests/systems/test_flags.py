"""Every flag and variable of a command line is one of the program at the commit that the system names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import fields, replace
from itertools import product
from typing import Any

import pytest

from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.systems.base import Case, Launch, System
from flashmoe_sim.systems.files import placeholders
from flashmoe_sim.systems.ktransformers import METHODS
from flashmoe_sim.systems.table import SYSTEMS
from tests.systems.cases import model, served_by, shape_of
from tests.systems.models import big_model
from tests.systems.record import OPTIONS, Record, read_record, record_name

MACHINES = ("rtx-3090", "rtx-5090", "2x rtx-3090 + 64GiB", "m3-max-48", "strix-halo-128", "laptop-ddr4")
# Values to try of settings that are words; those of a system's `choices`, numbers and switches need no line here.
WORDS: dict[str, tuple[dict[str, Any], ...]] = {
    "install": ({"install": "batched"}, {"install": "futures", "io_split": 1}, {"install": "async"}),
    "mode": tuple({"mode": name} for name in ("resident-slot-bank", "resident-bank", "resident")),
    "mmap": ({"mmap": "yes", "cpu_layers": 4}, {"mmap": "no", "cpu_layers": 4}),
    "ot": ({"ot": "exps=CPU"},),
    "profile": (
        {"profile": "all"},
        {"profile": "none"},
        {"profile": "/a file"},
        {"profile": "/a file", "strategy": "frequency"},
    ),
    "revision": ({"revision": "may"},),
    "ts": ({"ts": "1", "cpu_layers": 4},),
    "strategy": ({"strategy": "frequency"}, {"strategy": "front-loading"}),
    "weighting": tuple({"weighting": name} for name in ("balanced", "pressure", "smooth", "time")),
}


def _model(system: System) -> ModelGeometry:
    layers, experts = shape_of(system, (4, 16))
    return served_by(system, model(layers=range(2, 2 + layers), experts=experts))


def _cases(system: System) -> Iterator[Case]:
    for name, of, context in product(MACHINES, (_model(system), served_by(system, big_model())), (0, 5000)):
        case = Case(of, load_machine(name), GIB // 16, context)
        for kv_type in ("f16", "q8_0", "q4_0") if context else ("f16",):
            asked = replace(case, kv_type=kv_type)
            with suppress(BadInput):  # too large for the machine
                if not system.why_not(asked) and system.sized(asked):
                    yield asked


def _settings(system: System, case: Case) -> Iterator[System]:
    """The system as it sizes itself, at its sizes, and with each setting at other values."""
    sized = system.sized(case)
    yield sized
    for size in system.sizes(case):
        yield replace(system, **{system.size: size})
    for item in fields(system):
        asked: tuple[dict[str, Any], ...] = tuple({item.name: value} for value in system.choices.get(item.name, ()))
        if isinstance(item.default, bool):
            asked += ({item.name: not item.default},)
        elif str(item.type).startswith("int"):
            asked += tuple({item.name: value} for value in (-1, 0, 1, 2, 4, 8, 32))
        elif str(item.type).startswith("float"):
            asked += tuple({item.name: value} for value in (0.25, 1.0))
        asked += WORDS.get(item.name, ())
        tried = []
        for settings in asked:
            for base in (sized, system):
                with suppress(BadInput, TypeError):  # a value that the system refuses, or a setting that it has not
                    tried.append(replace(base, **settings))
                    break
        assert any(getattr(one, item.name) != item.default for one in tried), f"{item.name}: add values to WORDS"
        yield from tried


def check(launch: Launch, record: Record) -> None:
    """What the program would refuse in a command line, or not take for what it is meant to be."""
    program = record.head["program"].split()
    words = [*launch.words, *launch.first_start]
    assert words[: len(program)] == program
    del words[: len(program)]
    assert launch.environment.keys() <= record.variables
    while words:
        option = words.pop(0)
        assert option in record.values, f"{option!r} is no option of {program}"
        for _ in range(record.values[option]):
            assert words, f"{option} takes a value"
            value = words.pop(0)
            assert value not in record.values, f"{option} takes a value, and {value} is an option"
            if allowed := record.choices.get(option):
                assert value.partition("=")[0] in allowed, f"{option} {value}"


@pytest.mark.parametrize("name", SYSTEMS)
def test_flags_and_variables_are_the_programs_own(name: str) -> None:
    system = SYSTEMS[name]()
    record = read_record(record_name(system))
    assert system.version.startswith(record.head["repository"])
    assert system.version.endswith(record.head["commit"])
    cases = list(_cases(system))
    assert cases
    for case in cases:
        for one in _settings(system, case):
            launch = one.launch(case)
            check(launch, record)
            words = {word for word in launch.words if word[:4].isupper()} - set(METHODS.values())
            assert words <= placeholders(launch).keys()


def test_every_record_is_of_a_system() -> None:
    records = {path.stem: path.read_text() for path in OPTIONS.iterdir()}
    included = {name for name in records for text in records.values() if f"include {name}\n" in text}
    assert set(records) - included <= {record_name(kind()) for kind in SYSTEMS.values()} <= set(records)


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        ("llama-cli --moe-mode slot-bank --fit off -ub 1", ""),
        ("llama-cli --moe-modus slot-bank", "is no option"),
        ("llama-cli --moe-mode slots", "--moe-mode slots"),
        ("llama-cli --moe-slot-bank -ngl 99", "takes a value, and -ngl is an option"),
        ("llama-cli --moe-slot-bank", "takes a value"),
        ("llama-cli --moe-prefetch-temporal on", "'on' is no option"),
        ("llama-server --fit off", "assert"),
    ],
)
def test_what_the_check_finds(words: str, wrong: str) -> None:
    record = read_record(record_name(SYSTEMS["slot-bank"]()))
    if not wrong:
        return check(Launch(tuple(words.split())), record)
    with pytest.raises(AssertionError, match=wrong):
        check(Launch(tuple(words.split())), record)
    return None


def test_a_variable_that_the_program_does_not_read() -> None:
    with pytest.raises(AssertionError):
        check(Launch(("llama-cli",), {"FLASH_MOE": "1"}), read_record(record_name(SYSTEMS["slot-bank"]())))
