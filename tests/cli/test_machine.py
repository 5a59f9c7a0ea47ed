"""`sim machine`: the presets in a table, and every number of one machine."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.table import PRESETS
from tests.machines.builders import FULL
from tests.support import document, printed_by


def test_list_names_every_preset_and_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    out = printed_by(capsys, "machine", "list")
    lines = out.splitlines()
    assert [line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in PRESETS] == list(PRESETS)
    assert max(map(len, lines)) <= 80
    assert "…" not in out
    by_name = {line.split()[0]: line.split()[-4:] for line in lines if line}
    assert by_name["rtx-4090"] == ["96", "6.2", "23.9", "~860"]
    assert by_name["phone-ufs4"] == ["10.8", "2.58", "-", "~23"]


def test_list_json(capsys: pytest.CaptureFixture[str]) -> None:
    listed = document(capsys, "machine", "list")["machines"]
    assert [entry["name"] for entry in listed] == list(PRESETS)
    for entry in listed:
        for path, quantity in load_machine(entry["name"]).quantities():
            section, _, key = path.partition(".")
            assert entry[section][key]["value"] == quantity.value
    assert listed[-1]["gpu"] is None


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_as_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path, name: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(printed_by(capsys, "machine", "show", name, "--toml"))
    assert load_machine(file) == load_machine(name)


@pytest.mark.parametrize("name", PRESETS)
def test_show_says_all(capsys: pytest.CaptureFixture[str], name: str) -> None:
    out = printed_by(capsys, "machine", "show", name)
    assert max(map(len, out.splitlines())) <= 80
    packed = "".join(out.split())  # a long word is broken where the line ends
    machine = load_machine(name)
    for path, quantity in machine.quantities():
        key = path.partition(".")[2]
        assert f"  {key} {'~' if quantity.estimated else ''}{quantity.value:.4g}" in out
        for text in (quantity.source, quantity.condition):
            assert "".join(text.split()) in packed
    for point in machine.storage.measured:
        line = rf"^    {point.size_kib:g} KiB: .*\b{point.lanes}: {point.gb_s:.3g}(,|$)"
        assert re.search(line, out, re.MULTILINE)
    assert ("share the bandwidth of one memory" in out) == machine.unified


def test_show_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(FULL)
    out = printed_by(capsys, "machine", "show", str(path))
    facts = "operating system: linux\nmaker of the GPU: nvidia\ncompute capability: 8.9\n"
    facts += "features of the CPU: avx2, avx512\ncores of the CPU: 16\n"
    assert out.startswith(f"full: A machine with every section\n{facts}\nmemory\n  ram_gib 64\n")
    assert "  reserve_gib ~4  (2.5 to 6.4)\n" in out
    assert "  4096 KiB: 4: 3.5\n" in out
    assert out.endswith("  date: 2026-01-01\n  command: sim machine fit a b\n")
    found = document(capsys, "machine", "show", str(path))
    assert found["storage"]["measured"] == [{"size_kib": 4096, "lanes": 4, "gb_s": 3.5, "source": "fio"}]
    assert found["anchors"]["runs"] == ["a", "b"]
    assert found["cpu"]["weights_gb_s"] is None
