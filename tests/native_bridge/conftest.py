"""The stand-in, the recorded runs it replays, and the small model with its sidecar."""

import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from native_bridge.engines.base import Runtime
from native_bridge.engines.table import ENGINES
from native_bridge.fixture import bundled_model
from native_bridge.fixture.sidecar import write_sidecar

_FOLDER = TemporaryDirectory()
STAND_IN = Path(_FOLDER.name) / "stand_in.py"  # starts this very Python, with nothing installed: it is started often
_, _, _SOURCE = Path(__file__).with_name("stand_in.py").read_text().partition("\n")
STAND_IN.write_text(f"#!{sys.executable} -SE\n{_SOURCE}")
STAND_IN.chmod(0o755)
RECORDED = Path(__file__).parents[2] / "data" / "runs"
MODEL = bundled_model()
PROMPT = "The runtime keeps a small bank."


@pytest.fixture(autouse=True)
def _no_other_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that need the program of another engine give it themselves."""
    monkeypatch.delenv("HOT_CACHE_RUNTIME", raising=False)


@pytest.fixture
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test runs in an empty folder, on a terminal of 80 columns."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture(scope="session")
def sidecar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model") / "sidecar"
    write_sidecar(MODEL, folder)
    return folder


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> Runtime:
    """A runtime that replays the recorded runs of the small model."""
    monkeypatch.setenv("FLASHMOE_RUNTIME", str(STAND_IN))
    monkeypatch.setenv("STAND_IN_RUN", str(RECORDED))
    return ENGINES["flashmoe"].describe(STAND_IN)
