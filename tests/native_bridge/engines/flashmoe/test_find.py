"""Which runtime is found, and what it says of itself."""

from pathlib import Path

import pytest

from flashmoe_sim.io.errors import BadInput
from native_bridge.engines import llama_program
from native_bridge.engines.table import ENGINES, find_runtime
from tests.native_bridge.conftest import STAND_IN
from tests.refusals import refused


def test_the_one_given_then_the_environment_then_the_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("given", "named", "llama-cli"):
        (tmp_path / name).write_text("#!/bin/sh\n")
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("FLASHMOE_RUNTIME", str(tmp_path / "named"))
    assert ENGINES["flashmoe"].find(str(tmp_path / "given")) == tmp_path / "given"
    assert ENGINES["flashmoe"].find(None) == tmp_path / "named"
    monkeypatch.delenv("FLASHMOE_RUNTIME")
    assert ENGINES["flashmoe"].find(None) == tmp_path / "llama-cli"
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(BadInput, match=r"^no llama-cli on the PATH; build the Flash-MoE fork"):
        ENGINES["flashmoe"].find(None)


def test_a_path_that_is_no_program(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text")
    for given, found in [("none", "no such file"), ("text", "is not a program"), (".", "is a folder, not a program")]:
        with pytest.raises(BadInput, match=rf"--runtime: {tmp_path}.*: {found}"):
            ENGINES["flashmoe"].find(str(tmp_path / given))
    with pytest.raises(BadInput, match="cannot be the name of a file"):
        ENGINES["flashmoe"].find("a\0b")


def test_a_folder_with_a_program_in_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "llama-cli").write_text("")
    with pytest.raises(BadInput, match=rf"is a folder, not a program; give {tmp_path / 'llama-cli'}"):
        ENGINES["flashmoe"].find(str(tmp_path))


def test_what_it_says_of_itself() -> None:
    found = ENGINES["flashmoe"].describe(STAND_IN)
    assert (found.version, found.commit) == ("8456", "64e25509b")
    assert found.compiler == "GNU 12.2.0 for Linux x86_64"
    assert found.backends == ("CPU",)
    assert found.devices == ()
    assert found.modes[0] == "stock"
    assert found.modes[-1] == "oracle-prefetch"
    assert {"-m", "--model", "--n-predict", "--usage", "--no-moe-prefetch-temporal", "-ngl"} <= set(found.flags)
    assert found.flags["--moe-slot-bank"] == "N"
    assert all(flag.startswith("-") and flag.strip("-") for flag in found.flags)


def test_its_devices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAND_IN_DOES", "has-a-gpu")
    found = ENGINES["flashmoe"].describe(STAND_IN)
    assert found.backends == ("CPU", "CUDA")
    (device,) = found.devices
    assert (device.name, device.description) == ("CUDA0", "NVIDIA H100 80GB HBM3")
    assert device.free_bytes == 80000 << 20


@pytest.mark.parametrize(
    ("does", "message"),
    [
        ("not-patched", "has no flag --moe-mode: a llama-cli that is not patched; build the Flash-MoE fork"),
        ("hang-at-once", "--version does not end within 1 s: not a llama-cli"),
        ("crash-at-once", "--version was ended by signal 4: a llama-cli that does not run on this machine"),
    ],
)
def test_one_that_is_of_no_use(monkeypatch: pytest.MonkeyPatch, does: str, message: str) -> None:
    monkeypatch.setenv("STAND_IN_DOES", does)
    monkeypatch.setattr(llama_program, "ASK_S", 1.0)
    with refused(match=message):
        find_runtime(str(STAND_IN))


def test_another_program(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("#!/bin/sh\necho other 1.0\n")
    (tmp_path / "other").chmod(0o755)
    with pytest.raises(BadInput, match=r"--version says 'other 1.0'; expected `version: NUMBER \(COMMIT\)`"):
        find_runtime(str(tmp_path / "other"))
