"""The patched runtime on a two-core virtual machine: fitted on two runs, checked on the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.machines.machine import Machine
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import prepare
from flashmoe_sim.sweep.plan import plan_setup
from flashmoe_sim.timeline.assemble import Conditions
from flashmoe_sim.timeline.from_replay import Timed, time_replay
from flashmoe_sim.timeline.models.table import parse_execution
from flashmoe_sim.timeline.names import READ
from flashmoe_sim.trace.load import load_trace
from native_bridge.engines.read import fit_runs, read_run
from native_bridge.engines.runs import Run
from reports.fidelity.prediction import Group, Prediction

FOLDER = Path(__file__).resolve().parents[2] / "data" / "runs-timed"
HELD_OUT = {
    "warm": ("warm-bank24", "warm-bank48", "warm-bank64", "warm-bank64-rep2"),
    "cold": ("cold-bank48",),
}
SPEED, INSTALL = "tok/s", "install s"


def group() -> Group:
    """Decode speed and the seconds of all installs of every streamed run that nothing was fitted on."""
    found, machines = [], {}
    for kind, names in HELD_OUT.items():
        anchors = (f"{kind}-bank12", f"{kind}-allhit")
        machine = fit_runs([FOLDER / name for name in anchors], name=kind, command="").machine
        machines[kind] = machine
        for name in names:
            run = read_run(FOLDER / name)
            timed = _time(run, machine)
            assert run.log.routed is not None
            speed = timed.timing.tok_s
            assert speed is not None
            on = " and ".join(anchors)
            lo, hi = timed.tok_s_lo, timed.tok_s_hi
            found.append(Prediction("runtime", name, SPEED, on, run.log.decode_tok_s, None, None, speed, lo, hi, ""))
            install = float(timed.timeline.parts[:, READ].sum())
            measured = run.log.routed.install_ms / 1e3
            found.append(Prediction("runtime", name, INSTALL, on, measured, None, None, install, None, None, ""))
    return Group("The patched runtime on two cores", tuple(found), _explanation(found, machines))


def _explanation(found: Sequence[Prediction], machines: Mapping[str, Machine]) -> str:
    speeds = np.array([abs(one.error) for one in found if one.quantity == SPEED])
    once, again = (read_run(FOLDER / name).log.routed for name in ("warm-bank64", "warm-bank64-rep2"))
    prime = read_run(FOLDER / "warm-allhit").log.prime
    assert once is not None
    assert again is not None
    assert prime is not None
    held = [one for one in found if one.quantity == INSTALL and "bank64" not in one.name]
    others = np.array([abs(one.error) for one in held])
    full = next(one for one in found if one.quantity == INSTALL and one.name == "warm-bank64")
    resumes = {kind: machine.host.resume_us for kind, machine in machines.items()}
    warm_ms, cold_ms = (1e-3 * of.value if (of := resumes[kind]) is not None else 0.0 for kind in ("warm", "cold"))
    return (
        f"Four numbers are fitted, apart for runs from the page cache (warm) and from disk (cold): on the smallest "
        f"bank and the all-hit replay the time of a layer, the rate of reads, and by how much a routed call takes "
        f"longer that waited for them ({warm_ms:.2f} ms warm, {cold_ms:.2f} ms cold); and on how long the empty bank "
        f"of that replay took to fill ({prime.total_ms / 1e3:.2f} s where it was warm) what memory costs that was "
        f"never written. Median error of the speed {np.median(speeds):.1%}, worst {speeds.max():.1%}. The seconds of "
        f"all installs are within {others.max():.0%} for the banks that keep installing. They fail for the bank of "
        f"64 slots, which holds every expert: its {once.misses} installs all fill empty slots, once in "
        f"{once.install_ms / 1e3:.2f} s and once in {again.install_ms / 1e3:.2f} s with the same reads, where "
        f"{full.predicted:.2f} s are predicted. The second run evidently read from the disk, which no anchor measures. "
        f"Installs are a small part of these runs' decoding, so the speed holds all the same."
    )


def _time(run: Run, machine: Machine) -> Timed:
    workload = prepare(load_trace(run.folder / "trace.jsonl.gz"), load_model(FOLDER / "manifest.json"))
    setup = plan_setup(run.bank, policy="lru", contract="runtime")
    assert run.log.routed is not None
    conditions = Conditions(parse_execution(run.log.routed.execution))
    return time_replay(workload, replay(workload, setup, record=True), machine, conditions)
