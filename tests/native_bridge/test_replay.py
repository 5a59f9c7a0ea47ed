"""`sim replay` of a run's folder: what its log tells."""

import shutil
from pathlib import Path

import pytest

from native_bridge.cli.main import main
from tests.native_bridge.conftest import RECORDED
from tests.native_bridge.engines.flashmoe.test_run_log import LOGS


@pytest.mark.parametrize(("machine", "warned"), [("rtx-4090", True), ("m3-max-48", False)])
def test_a_run_whose_log_shows_the_link_unused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], machine: str, warned: bool
) -> None:
    folder = tmp_path / "prose-bank24"
    shutil.copytree(RECORDED / "prose-bank24", folder)
    cuda = (LOGS / "cuda.txt").read_text()
    loaded = cuda[cuda.index("load_tensors: loading") : cuda.index("llama_context: ")]
    log = (folder / "log.txt").read_text(errors="replace")
    manifest = str(folder.parent / "manifest.json")
    shutil.copy(RECORDED / "manifest.json", manifest)
    arguments = ["replay", str(folder), "--bank", "24", "--model", manifest, "--dense", "1MiB", "--machine", machine]
    assert main(arguments) == 0
    assert "host's memory" not in capsys.readouterr().err
    (folder / "log.txt").write_text(log.replace("Flash-MoE settings:", f"{loaded}Flash-MoE settings:"))
    assert main(arguments) == 0
    message = "prose-bank24: its log shows slots in the host's memory and experts computed by the CPU"
    assert (message in " ".join(capsys.readouterr().err.replace("sim: ", "").split())) == warned
