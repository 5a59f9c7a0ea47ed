"""What a report shows of its traces."""

from __future__ import annotations

import pytest

from flashmoe_sim.report import chapters
from flashmoe_sim.report.close import Material
from flashmoe_sim.residency.workload import prepare
from tests.trace.strategies import trace_of

CALLS = tuple((layer, [step % 3, 3 + step % 2]) for step in range(12) for layer in range(2))


@pytest.mark.parametrize(("traces", "ends"), [(1, [""]), (2, ["-1", "-2"]), (5, ["-1", "-2", "-3", "-4"])])
def test_each_of_the_first_four_traces_has_figures(traces: int, ends: list[str]) -> None:
    workloads = {name: prepare(trace_of(*CALLS, name=name), None) for name in map(str, range(traces))}
    found = Material((), False, workloads, None, None, None, (), (), (), ())
    use, reuse = chapters.use(found), chapters.reuse(found)
    assert [one.name for one in use.figures] == [f"{what}{end}" for end in ends for what in ("popularity", "drift")]
    assert [one.name for one in reuse.figures] == [f"reuse-distances{end}" for end in ends]
    assert [one.caption.split(",")[0].split(":")[0] for one in reuse.figures] == list(workloads)[:4]
    assert [part for part in reuse.parts if isinstance(part, str)] == ["Without a figure: 4."] * (traces == 5)
