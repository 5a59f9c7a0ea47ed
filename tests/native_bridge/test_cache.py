"""The page cache: its content, and the refusal of a cold run that was not cold."""

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.geometry import read_gguf
from flashmoe_sim.geometry.manifest import repacked_files
from flashmoe_sim.io.errors import Malformed, TooLarge, Unusable
from native_bridge import page_cache
from native_bridge.cache import Cache, source_files
from native_bridge.engines.base import RunRequest
from native_bridge.engines.flashmoe.modes import MODES
from native_bridge.engines.table import ENGINES
from native_bridge.process import Around, Finished, run_child
from tests.native_bridge.conftest import MODEL, PROMPT, RECORDED

GEOMETRY = read_gguf(MODEL)
REQUEST = RunRequest("slot-bank", 24, PROMPT)
LOG = (RECORDED / "prose-bank24" / "log.txt").read_text()
INSTALLED = 8509 * 13_056
linux = pytest.mark.skipif(sys.platform != "linux", reason="posix_fadvise and mincore as Linux has them")


@linux
def test_files_are_dropped_and_read_again(tmp_path: Path) -> None:
    files = [tmp_path / "a", tmp_path / "b", tmp_path / "empty"]
    for file, size in zip(files, (3 << 20, 1 << 20, 0), strict=True):
        file.write_bytes(os.urandom(size))
    assert page_cache.total_bytes(files) == page_cache.resident_bytes(files) == 4 << 20
    page_cache.drop(files)
    assert page_cache.resident_bytes(files) == 0
    page_cache.warm(files)
    assert page_cache.resident_bytes(files) == 4 << 20


def test_the_files_of_a_run(sidecar: Path) -> None:
    layers = [sidecar / f"layer_{layer:03}.bin" for layer in range(8)]
    assert repacked_files(sidecar) == repacked_files(sidecar / "manifest.json") == layers
    assert source_files(MODES["slot-bank"], model=MODEL, sidecar=sidecar) == layers
    assert source_files(MODES["stock"], model=MODEL, sidecar=sidecar) == [MODEL]
    with pytest.raises(Malformed, match="not JSON"):
        repacked_files(MODEL)


@linux
def test_cold_is_checked_before_the_run(sidecar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = Cache("cold")
    with cache.before(REQUEST, MODES[REQUEST.mode], GEOMETRY, model=MODEL, sidecar=sidecar):
        assert cache.facts()["resident_before"] == 0
    with Cache("warm").before(REQUEST, MODES[REQUEST.mode], GEOMETRY, model=MODEL, sidecar=sidecar) as group:
        assert group is None
    monkeypatch.setattr(page_cache, "drop", lambda files: None)
    with (
        pytest.raises(Unusable, match=r"--cache cold: 100% of 6.38 MiB stay in the page cache"),
        Cache("cold").before(REQUEST, MODES[REQUEST.mode], GEOMETRY, model=MODEL, sidecar=sidecar),
    ):
        pass


@linux
def test_warm_is_checked_before_the_run(sidecar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page_cache.drop(repacked_files(sidecar))
    monkeypatch.setattr(page_cache, "warm", lambda files: None)
    with (
        pytest.raises(TooLarge, match=r"--cache warm: 0% of 6.38 MiB are in the page cache"),
        Cache("warm").before(REQUEST, MODES[REQUEST.mode], GEOMETRY, model=MODEL, sidecar=sidecar),
    ):
        pass


@linux
@pytest.mark.parametrize(("read_bytes", "share"), [(0, 0.0), (INSTALLED // 2 - 1, 0.5), (INSTALLED // 2 + 1, 0.5)])
def test_cold_is_checked_after_the_run(sidecar: Path, read_bytes: int, share: float) -> None:
    cache = Cache("cold")
    with cache.before(REQUEST, MODES[REQUEST.mode], GEOMETRY, model=MODEL, sidecar=sidecar):
        pass
    of_the_model = cache.facts()["dense_bytes_uncached"]  # more than none where another worker just dropped its pages
    why = cache.after(ENGINES["flashmoe"], REQUEST, GEOMETRY, Finished(0, 1.0, False, read_bytes + of_the_model), LOG)
    assert cache.facts()["wanted_bytes"] == INSTALLED
    assert cache.facts()["from_disk"] == share
    if 2 * read_bytes > INSTALLED:
        assert why is None
        assert "not_cold" not in cache.facts()
    else:
        assert why.startswith(f"not cold: {share:.0%} of the 106 MiB it read came from the disk; the page cache ")
        assert cache.facts()["not_cold"] is True


def test_warm_needs_no_proof(sidecar: Path) -> None:
    assert Cache("warm").after(ENGINES["flashmoe"], REQUEST, GEOMETRY, Finished(0, 1.0, False), LOG) is None


@linux
def test_what_a_child_reads_from_disk_is_counted(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(8 << 20))

    def read() -> Finished:
        program = f"open({str(file)!r}, 'rb', buffering=0).read()"
        return run_child([sys.executable, "-c", program], output=tmp_path / "log", timeout_s=20)

    page_cache.drop([file])
    cold = read().read_bytes
    if cold == 0:
        pytest.skip("the file system of the tests is in memory")
    assert cold >= 8 << 20
    assert read().read_bytes < 8 << 20


@linux
def test_a_confined_child_cannot_keep_more_than_its_memory(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(os.urandom(64 << 20))
    with page_cache.confined(32 << 20) as group:
        if group is None:
            pytest.skip("no cgroup may be made here")
        page_cache.drop([file])
        program = f"f = open({str(file)!r}, 'rb', buffering=0)\nwhile f.read(1 << 20): pass"
        around = Around(cgroup=group)
        finished = run_child([sys.executable, "-c", program], output=tmp_path / "log", timeout_s=20, around=around)
        assert finished.code == 0
        assert page_cache.resident_bytes([file]) <= 32 << 20
    assert not group.exists()


@linux
def test_without_a_cgroup_it_says_so(sidecar: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("native_bridge.page_cache._places", list)
    cache: Any = Cache("cold")
    with cache.before(REQUEST, MODES[REQUEST.mode], GEOMETRY, model=MODEL, sidecar=sidecar) as group:
        assert group is None
    why = cache.after(ENGINES["flashmoe"], REQUEST, GEOMETRY, Finished(0, 1.0, False, 0), LOG)
    assert "this system lets us make no cgroup to confine it" in why
