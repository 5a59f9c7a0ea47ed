"""`sim bridge doctor`: what is found, what is missing, and what to do."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from flashmoe_sim.geometry import read_gguf
from native_bridge import doctor, host
from native_bridge.cli.main import main
from native_bridge.doctor import DoctorFinding, examine
from tests.native_bridge.conftest import MODEL
from tests.native_bridge.fixture.test_sidecar import filled
from tests.native_bridge.test_bad_input import DENSE
from tests.support.cases import rows

pytestmark = pytest.mark.usefixtures("stand_in")


def by_name(findings: list[DoctorFinding]) -> dict[str, DoctorFinding]:
    return {finding.name: finding for finding in findings}


def test_all_is_there(sidecar: Path) -> None:
    findings = examine(model=MODEL, sidecar=sidecar, bank=24)
    found = by_name(findings)
    assert not [finding for finding in findings if finding.state == "missing"]
    assert found["version"].found == "8456 (64e25509b), built with GNU 12.2.0 for Linux x86_64"
    assert found["devices"].found == "the CPU alone"
    assert found["model"].found == "tiny-moe-64x8: qwen35moe, 8 MoE layers of 64 experts, top-8, 12.8 KiB each"
    assert found["memory"].found.endswith("a bank of 24 and the rest take 454 MiB")
    assert found["sidecar"] == DoctorFinding("ok", "sidecar", f"{sidecar}: holds the model's experts")


def test_without_psutil_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psutil", None)
    (finding,) = examine(model=MODEL)
    assert (finding.state, finding.name) == ("missing", "psutil")
    assert finding.to_do == "pip install '.[bridge]'"


def test_a_table_that_fits(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bridge", "doctor"]) == 0
    printed = capsys.readouterr()
    assert printed.err == ""
    assert max(map(len, printed.out.splitlines())) <= 80
    assert "a bank of up to 64 of 64 slots fits" in " ".join(printed.out.split())


def test_without_a_runtime(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("FLASHMOE_RUNTIME", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    assert main(["bridge", "doctor", "--json"]) == 1
    printed = capsys.readouterr()
    first = json.loads(printed.out)["findings"][0]
    assert first["state"] == "missing"
    assert first["found"] == "no llama-cli on the PATH"
    assert first["to_do"].startswith("build the Flash-MoE fork of llama.cpp")
    assert printed.err == "sim: missing for a run: runtime; the table says what to do\n"


@pytest.mark.parametrize(
    ("does", "state", "found"),
    [
        ("not-patched", "missing", "no --moe-mode: a llama-cli that is not patched"),
        ("older", "missing", "lacks --moe-trace-harness"),
        ("has-a-gpu", "ok", "CUDA0: NVIDIA H100 80GB HBM3, 78.1 GiB free"),
    ],
)
def test_what_the_runtime_can_do(monkeypatch: pytest.MonkeyPatch, does: str, state: str, found: str) -> None:
    monkeypatch.setenv("STAND_IN_DOES", does)
    assert any(finding.state == state and finding.found == found for finding in examine())


H100 = "CUDA0: NVIDIA H100 (81559 MiB, 80000 MiB free)"
# A device, the model's architecture, the variable; state and words of the memory; and of the bank.
ON_A_GPU = f"""
{H100} | qwen35moe | - | ok | 78.1 GiB free on CUDA0: all layers without their experts take | warning | whatever --gpu
{H100} | gemma4 | - | ok | and a bank of 8 | ok | on the GPU
CUDA0: NVIDIA H100 (81559 MiB, 0 MiB free) | qwen35moe | - | warning | 0 B free | warning | in the
Vulkan0: Radeon (0 MiB, 0 MiB free) | qwen35moe | - | warning | not known: | warning | Vulkan0 cannot
MTL0: Apple M3 (36864 MiB, 0 MiB free) | qwen35moe | - | warning | a bank of 8 | ok | CPU and GPU share
MTL0: Apple M3 (36864 MiB, 36863 MiB free) | qwen35moe | 1 | ok | a bank of 8 | warning | is set
"""


@pytest.mark.parametrize("case", rows(ON_A_GPU))
def test_the_memory_of_a_gpu_and_where_the_bank_goes(monkeypatch: pytest.MonkeyPatch, case: list[str]) -> None:
    device, arch, variable, *expected = case
    monkeypatch.setenv("STAND_IN_DEVICE", device)
    monkeypatch.setenv("LLAMA_FLASH_MOE_DISABLE_GPU_BANK", variable.strip("-"))
    model = read_gguf(MODEL)
    monkeypatch.setattr(doctor, "read_gguf", lambda path: replace(model, arch=arch))
    memory, bank = (by_name(examine(model=MODEL))[name] for name in ("gpu memory", "bank"))
    assert [memory.state, bank.state] == expected[::2]
    assert expected[1] in memory.found
    assert expected[3] in bank.found


def test_without_a_gpu_nothing_is_said_of_one() -> None:
    assert not {"gpu memory", "bank"} & by_name(examine()).keys()


def test_variables_that_change_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_FLASH_MOE_BACKEND_TRACE", "1")
    monkeypatch.setenv("LLAMA_ARG_THREADS", "9")
    found = by_name(examine())
    assert found["switches"] == DoctorFinding("ok", "switches", "LLAMA_FLASH_MOE_BACKEND_TRACE=1")
    assert found["environment"].found == "LLAMA_ARG_THREADS: not passed on"


def test_an_older_runtime_lacks_what_some_runs_need(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_DOES", "older")
    assert DoctorFinding("warning", "flags", "lacks --moe-topk", "runs that need them cannot be made") in examine()


def test_a_model_that_is_none(tmp_path: Path, sidecar: Path) -> None:
    assert by_name(examine(model=tmp_path / "none"))["model"].state == "missing"
    (tmp_path / "text.gguf").write_text("text")
    assert by_name(examine(model=tmp_path / "text.gguf"))["model"].to_do == "is it a GGUF file?"
    assert by_name(examine(sidecar=sidecar))["model"].to_do == "give --model, too"


def test_a_model_without_experts(tmp_path: Path) -> None:
    (tmp_path / "dense.gguf").write_bytes(DENSE)
    found = by_name(examine(model=tmp_path / "dense.gguf"))["model"]
    assert found.state == "missing"
    assert "not a mixture-of-experts model" in found.found


def test_an_architecture_that_the_slot_bank_does_not_stream(tmp_path: Path) -> None:
    assert "architecture" not in by_name(examine())
    filled(tmp_path / "other.gguf", "olmoe", fused=False)
    found = by_name(examine(model=tmp_path / "other.gguf"))
    assert found["model"].state == "ok"
    assert found["architecture"].state == "warning"
    assert found["architecture"].found.endswith("not olmoe")


@pytest.mark.parametrize(
    ("bank", "found", "to_do"),
    [
        (65, "a bank of 65, but 64 experts", "give --bank up to 64"),
        (7, "a bank of 7 for top-8", "give --bank 8 or more"),
    ],
)
def test_a_bank_that_cannot_be(bank: int, found: str, to_do: str) -> None:
    assert by_name(examine(bank=bank))["memory"] == DoctorFinding("missing", "memory", found, to_do)
    assert by_name(examine(bank=64 if bank > 64 else 8))["memory"].state == "ok"


def test_a_bank_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    slot = 8 * 13_056
    rest = 2_072_960 + (450 << 20)
    monkeypatch.setattr(host, "free_ram_bytes", lambda: rest + 20 * slot)
    assert by_name(examine(bank=24))["memory"].to_do == "give --bank 20"
    assert by_name(examine())["memory"].found.endswith("a bank of up to 20 of 64 slots fits")
    monkeypatch.setattr(host, "free_ram_bytes", lambda: rest + 7 * slot)
    assert by_name(examine(bank=24))["memory"].to_do == "add memory"
    assert by_name(examine())["memory"].state == "missing"


def test_a_damaged_sidecar(sidecar: Path, tmp_path: Path) -> None:
    shutil.copytree(sidecar, tmp_path / "sidecar")
    with (tmp_path / "sidecar" / "layer_003.bin").open("r+b") as file:
        file.write(b"damaged")
    found = by_name(examine(model=MODEL, sidecar=tmp_path / "sidecar"))["sidecar"]
    assert found.state == "missing"
    assert "layer_003.bin" in found.found or "layer 3" in found.found
    assert by_name(examine(model=MODEL, sidecar=tmp_path / "none"))["sidecar"].state == "missing"


def test_no_disk_for_a_sidecar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "free_disk_bytes", lambda folder: 1 << 20)
    found = by_name(examine())["sidecar"]
    assert found.state == "missing"
    assert found.found == "none given: writing one here takes 6.38 MiB; 1.00 MiB are free"


def test_what_is_odd_about_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host, "amx_trap", lambda: True)
    monkeypatch.setattr(host, "temperature_c", lambda: {"cpu": 71.0, "gpu": 55.0})
    monkeypatch.setattr("native_bridge.page_cache._places", list)
    found = by_name(examine())
    assert found["processor"].state == "warning"
    assert found["processor"].to_do == host.AMX_ADVICE
    assert found["temperature"].found == "cpu 71 °C, gpu 55 °C"
    assert found["page cache"].state == "warning"
