"""Made traces on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from flashmoe_sim.trace.bundled import find_trace
from flashmoe_sim.trace.kept import kept
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.synth_like import alike
from flashmoe_sim.trace.synth_shape import Shape

SOURCE = find_trace("python-256")[0]
SHAPE = Shape("small", {0: 12, 2: 20}, 3)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("FLASHMOE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "traces"


def make(shape: Shape = SHAPE) -> RoutingTrace:
    return alike(load_trace("python-256"), shape=shape, tokens=40)[0]


def never() -> RoutingTrace:
    raise AssertionError("made again")


def test_a_kept_trace_is_the_made_one(folder: Path) -> None:
    made = kept([SOURCE], SHAPE, 0.5, make)
    again = kept([SOURCE], SHAPE, 0.5, never)
    for item in fields(RoutingTrace):
        if item.name != "name":
            np.testing.assert_equal(getattr(again, item.name), getattr(made, item.name))
    assert [path.suffix for path in folder.iterdir()] == [".npz"]


def test_what_decides_a_trace_makes_another(tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_bytes(b"other")
    made = [kept([SOURCE], SHAPE, 0.5, make)]
    for sources, shape, share in (
        ([SOURCE], SHAPE, 0.6),
        ([SOURCE, other], SHAPE, 0.5),
        ([SOURCE], replace(SHAPE, top_k=4), 0.5),
        ([SOURCE], replace(SHAPE, n_experts={0: 12, 2: 21}), 0.5),
    ):
        with pytest.raises(AssertionError, match="made again"):
            kept(sources, shape, share, never)
    assert kept([SOURCE], SHAPE, 0.5, never).content_id == made[0].content_id


def _changed(path: Path, **values: np.ndarray) -> None:
    with np.load(path) as stored:
        arrays = dict(stored) | values
    np.savez(path.with_suffix(""), **arrays)


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(b"no archive"),
        lambda path: path.write_bytes(path.read_bytes()[:-200]),
        lambda path: _changed(path, expert=np.zeros((2, 40, 3), np.int16)),
        lambda path: _changed(path, expert=np.array([None], object)),
        lambda path: np.savez(path.with_suffix(""), notes=np.array([])),
    ],
    ids=["empty", "no archive", "cut off", "other experts", "objects", "no experts"],
)
def test_a_damaged_file_is_made_again(folder: Path, damage: Callable[[Path], object]) -> None:
    made = kept([SOURCE], SHAPE, 0.5, make)
    (path,) = folder.iterdir()
    damage(path)
    assert kept([SOURCE], SHAPE, 0.5, make).content_id == made.content_id
    assert kept([SOURCE], SHAPE, 0.5, never).content_id == made.content_id


def test_a_folder_that_cannot_be_written_keeps_nothing(folder: Path) -> None:
    folder.parent.write_text("no folder")
    assert kept([SOURCE], SHAPE, 0.5, make).content_id == make().content_id
