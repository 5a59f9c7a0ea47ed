"""A machine fitted on two timed runs, the smallest bank and an all-hit one, predicts the others.

By the plain sum: a token takes its layers and its misses, an install what one took in the anchors. Counts are those of
each run's own trace. Repeats of one configuration differ by up to 5 % in tokens a second.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.machines.anchors import SPEED_SD, anchors_of
from flashmoe_sim.machines.fitting import Fitted, fit_runs
from flashmoe_sim.machines.runs import read_run

TIMED = Path(__file__).parent / "runs" / "runs-timed"
# Signed errors: of tokens a second, and of the time of all installs; None where there are none.
ERRORS = {
    "warm-bank24": (-0.008, -0.046),
    "warm-bank48": (-0.012, -0.040),
    "warm-bank64": (-0.004, -0.663),
    "warm-bank64-rep2": (0.029, -0.894),
    "warm-stock": (0.006, None),
    "cold-bank48": (0.032, -0.151),
}


@cache
def fitted(kind: str) -> Fitted:
    return fit_runs([TIMED / f"{kind}-bank12", TIMED / f"{kind}-allhit"], name=kind, command="")


@pytest.mark.parametrize("name", ERRORS)
def test_held_out_run(name: str) -> None:
    machine = fitted(name.partition("-")[0]).machine
    assert machine.cpu is not None
    (run,) = anchors_of([read_run(TIMED / name)], load_model(TIMED / "manifest.json"))
    layer_s = machine.cpu.layer_us.value * 1e-6 + run.call_s
    read_s = 1 / (machine.storage.read_gb_s.value * 1e9)
    tok_s = 1 / (run.layers * layer_s + run.bytes_read * read_s)
    speed_error, install_error = ERRORS[name]
    assert tok_s / run.tok_s - 1 == pytest.approx(speed_error, abs=0.001)
    assert abs(speed_error) < SPEED_SD
    if install_error is None:
        assert run.installs is None
    else:
        assert run.installs is not None
        assert run.installs.bytes_read * read_s / run.installs.read_s - 1 == pytest.approx(install_error, abs=0.001)


def test_one_configuration_twice() -> None:
    """Both installed every expert once and then hit; one evidently read from disk. No machine can predict both."""
    first, second = (read_run(TIMED / name).log.routed for name in ("warm-bank64", "warm-bank64-rep2"))
    assert first is not None
    assert second is not None
    assert (first.misses, first.reads) == (second.misses, second.reads) == (768, 9216)
    assert second.install_ms / first.install_ms == pytest.approx(3.17, abs=0.01)


def test_anchors_that_do_not_agree_are_told() -> None:
    agreeing = fitted("warm")
    assert agreeing.notes == ()
    names = ("warm-bank12", "warm-allhit", "warm-bank64-rep2")
    mixed = fit_runs([TIMED / name for name in names], name="mixed", command="")
    assert [note.partition(":")[0] for note in mixed.notes] == ["warm-bank64-rep2"]
    assert "reads took 3.148 s, 0.3573 s fitted" in mixed.notes[0]
