"""Loops that other processes compile while this one goes on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim._jit import is_compiled
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.execution import OF_SYSTEMS
from flashmoe_sim.systems.table import SYSTEMS, parse_system
from flashmoe_sim.timeline import compiling
from flashmoe_sim.timeline.kernel import loop_of
from flashmoe_sim.timeline.models.resident import Resident
from flashmoe_sim.timeline.models.sync_install import SyncInstall
from flashmoe_sim.timeline.run import simulate
from tests.systems.cases import machine, model
from tests.timeline.cases import costs_of, work_of

COMPILED = """
from flashmoe_sim._jit import is_compiled
from flashmoe_sim.timeline.kernel import loop_of
from flashmoe_sim.timeline.models.resident import Resident
from flashmoe_sim.timeline.models.sync_install import SyncInstall
print(is_compiled(loop_of(Resident)), is_compiled(loop_of(SyncInstall)), end="")
"""


class Child:
    """A process that ends after some looks at it."""

    def __init__(self, looks: int) -> None:
        self.looks = looks

    def poll(self) -> int | None:
        self.looks -= 1
        return None if self.looks > 0 else 1

    def terminate(self) -> None:
        pass


def test_what_another_process_compiled_is_there_for_this_one(tmp_path: Path) -> None:
    environment = {**os.environ, "FLASHMOE_CACHE": str(tmp_path)}
    name = f"{Resident.__module__}:{Resident.__qualname__}"
    subprocess.run([sys.executable, "-P", "-m", compiling.__name__, name], check=True, env=environment)
    looked = [sys.executable, "-c", COMPILED]
    assert subprocess.run(looked, check=True, env=environment, capture_output=True, text=True).stdout == "True False"


def test_each_loop_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    monkeypatch.setattr(compiling, "_children", {})
    monkeypatch.setattr(compiling, "is_compiled", lambda loop: loop is loop_of(Resident))
    monkeypatch.setattr(compiling.os, "cpu_count", lambda: 4)

    def popen(command: list[str], **_: Any) -> Child:
        started.append(command[4:])
        return Child(1)

    monkeypatch.setattr(compiling.subprocess, "Popen", popen)
    for _ in range(2):
        compiling.compile_ahead(OF_SYSTEMS)
    assert len(started) == 4
    asked = [name for names in started for name in names]
    assert sorted(asked) == sorted(f"{one.__module__}:{one.__qualname__}" for one in OF_SYSTEMS if one is not Resident)
    assert max(map(len, started)) - min(map(len, started)) <= 1


@pytest.mark.parametrize("processors", [1, 2])
def test_few_loops_or_one_processor_start_no_process(monkeypatch: pytest.MonkeyPatch, processors: int) -> None:
    monkeypatch.setattr(compiling, "_children", {})
    monkeypatch.setattr(compiling, "is_compiled", lambda _: False)
    monkeypatch.setattr(compiling.os, "cpu_count", lambda: processors)
    monkeypatch.setattr(compiling.subprocess, "Popen", None)
    compiling.compile_ahead(OF_SYSTEMS if processors == 1 else OF_SYSTEMS[: compiling.LEAST - 1])


def test_a_process_that_fails_is_done_without(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, child = loop_of(SyncInstall), Child(3)
    monkeypatch.setattr(compiling, "_children", {loop: child})
    monkeypatch.setattr(compiling, "is_compiled", lambda _: False)
    simulate(work_of([]), costs_of(), SyncInstall())
    assert child.looks == 0
    assert is_compiled(loop)


def test_the_loops_of_all_systems_are_among_them() -> None:
    loops = {loop_of(one) for one in OF_SYSTEMS}
    of = model(layers=range(2, 26), experts=128, top_k=4, arch="qwen3moe")
    case, planned = Case(of, machine("rtx-3060", gpu_gib=11.2)), 0
    for name in SYSTEMS:
        for one in parse_system(name).at_each_size(case)[:1]:
            planned += 1
            assert loop_of(type(one.plan(case).execution)) in loops, name
    assert planned > len(SYSTEMS) / 2
