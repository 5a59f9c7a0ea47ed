"""What is written loads back to an equal machine."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flashmoe_sim.io.errors import Exists, Unusable
from flashmoe_sim.machines.load import load_machine, parse_machine
from flashmoe_sim.machines.machine import Anchors, Quantity
from flashmoe_sim.machines.reads import MeasuredRead
from flashmoe_sim.machines.table import PRESETS
from flashmoe_sim.machines.write import toml, write_machine
from tests.machines.builders import FULL

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=300).filter(str.strip)
words = st.lists(
    st.sampled_from(["tok/s,", 'a "quoted"', "back\\slash", "x" * 120, "é", "  ", "'''", '"""']), min_size=1
)
rates = st.floats(1e-6, 1e15)


@pytest.mark.parametrize("name", PRESETS)
def test_presets(name: str, tmp_path: Path) -> None:
    path = tmp_path / "copy.toml"
    write_machine(load_machine(name), path)
    assert load_machine(path) == load_machine(name)


def test_everything_a_file_can_say(tmp_path: Path) -> None:
    machine = parse_machine(FULL, where="")
    write_machine(machine, tmp_path / "full.toml")
    assert load_machine(tmp_path / "full.toml") == machine


@given(texts | words.map(" ".join).filter(str.strip), rates, rates, rates, st.booleans())
def test_any_text_and_number(text: str, one: float, two: float, three: float, estimated: bool) -> None:
    lo, value, hi = sorted((one, two, three))
    machine = parse_machine(FULL, where="")
    quantity = Quantity(value, lo, hi, text, text[::-1], estimated)
    changed = replace(
        machine,
        name=text,
        unified=estimated,
        memory=replace(machine.memory, copy_gb_s=quantity),
        storage=replace(machine.storage, measured=(MeasuredRead(one, 3, two, text), MeasuredRead(one, 4, three, text))),
        anchors=Anchors((text, "b"), text, text, text),
    )
    assert parse_machine(toml(changed), where="") == changed


def test_an_interval_that_follows_from_the_value_is_left_out() -> None:
    written = toml(parse_machine(FULL, where=""))
    assert written.count("\nlo = ") == written.count("\nhi = ") == 1
    assert 'value = 60\nlo = 50\nhi = 65.5\nsource = "stream"' in written


@pytest.mark.parametrize("name", PRESETS)
def test_lines_are_short(name: str) -> None:
    assert max(map(len, toml(load_machine(name)).splitlines())) <= 120


def test_nothing_is_overwritten_without_force(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("mine")
    with pytest.raises(Exists, match=r"mine\.toml:"):
        write_machine(load_machine("vm-2core"), path)
    assert path.read_text() == "mine"
    write_machine(load_machine("vm-2core"), path, force=True)
    assert load_machine(path) == load_machine("vm-2core")
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="cannot be written"):
        write_machine(load_machine("vm-2core"), tmp_path / "none" / "mine.toml")
