"""A machine fitted on two timed runs, the smallest bank and an all-hit one, predicts the others.

Counts are those of a replay of each run's own trace. Repeats of one configuration
differ by up to 5% in tokens a second.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.machines.anchors import SPEED_SD, Anchor, Installs
from flashmoe_sim.machines.fitting import Fitted
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, prepare
from flashmoe_sim.timeline.assemble import Conditions
from flashmoe_sim.timeline.from_replay import time_replay
from flashmoe_sim.trace.load import load_trace
from native_bridge.engines.flashmoe.fit import anchors_of
from native_bridge.engines.read import fit_runs, read_run

TIMED = Path(__file__).parents[2] / "data" / "runs-timed"
MODEL = load_model(TIMED / "manifest.json")
# Signed errors: of tokens a second, and of the time of all installs.
ERRORS = {
    "warm-bank24": (-0.006, -0.033),
    "warm-bank48": (-0.014, 0.051),
    "warm-bank64": (-0.010, -0.408),
    "warm-bank64-rep2": (0.024, -0.814),
    "cold-bank48": (-0.027, -0.152),
}


@cache
def fitted(kind: str) -> Fitted:
    return fit_runs([TIMED / f"{kind}-bank12", TIMED / f"{kind}-allhit"], name=kind, command="")


@pytest.mark.parametrize("name", ERRORS)
def test_held_out_run(name: str) -> None:
    """The timeline with the fitted machine; and the plain sum of layers and reads, which it comes to."""
    machine = fitted(name.partition("-")[0]).machine
    run = read_run(TIMED / name)
    (measured,) = anchors_of([run], MODEL)
    workload, setup = (
        prepare(load_trace(TIMED / name / "trace.jsonl.gz"), MODEL),
        Setup(Bank(slots=run.bank), contract="runtime"),
    )
    timed = time_replay(workload, replay(workload, setup, record=True), machine, Conditions())
    first_touch = machine.host.first_touch_gb_s
    assert (first_touch is None) == name.startswith("cold")  # what comes from disk hides it

    def installing_s(moved: Anchor | Installs) -> float:
        first_s = 0.0 if first_touch is None else moved.first_bytes / (first_touch.value * 1e9)
        return moved.bytes_read / (machine.storage.read_gb_s.value * 1e9) + first_s

    layer_s = (machine.cpu.layer_us.value + machine.host.call_us.value) * 1e-6
    assert 1 / timed.timing.tok_s == pytest.approx(
        12 * layer_s + measured.stalled * machine.host.resume_us.value * 1e-6 + installing_s(measured), rel=1e-6
    )

    speed_error, install_error = ERRORS[name]
    assert timed.timing.tok_s / measured.tok_s - 1 == pytest.approx(speed_error, abs=0.001)
    assert abs(speed_error) < SPEED_SD
    assert timed.tok_s_lo < measured.tok_s < timed.tok_s_hi
    assert installing_s(measured.installs) / measured.installs.read_s - 1 == pytest.approx(install_error, abs=0.001)


def test_all_resident() -> None:
    """A run of the mode `stock` was not an anchor either; it has no slots to resolve."""
    machine = fitted("warm").machine
    tok_s = 1 / (12 * machine.cpu.layer_us.value * 1e-6)
    assert tok_s / read_run(TIMED / "warm-stock").log.decode_tok_s - 1 == pytest.approx(0.004, abs=0.001)


def test_one_configuration_twice() -> None:
    """Both installed every expert once and then hit; one evidently read from disk. No machine can predict both."""
    first, second = (read_run(TIMED / name).log.routed for name in ("warm-bank64", "warm-bank64-rep2"))
    assert (first.misses, first.reads) == (second.misses, second.reads) == (768, 9216)
    assert second.install_ms / first.install_ms == pytest.approx(3.17, abs=0.01)


def test_anchors_that_do_not_agree_are_told() -> None:
    assert fitted("warm").notes == ()
    names = ("warm-bank12", "warm-allhit", "warm-bank64-rep2")
    mixed = fit_runs([TIMED / name for name in names], name="mixed", command="")
    assert [note.partition(":")[0] for note in mixed.notes] == ["warm-allhit", "warm-bank64-rep2"]
    assert "reads took 3.148 s, 0.9364 s fitted" in mixed.notes[1]
