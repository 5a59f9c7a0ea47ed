"""The table of execution models."""

from __future__ import annotations

from flashmoe_sim.timeline.kernel import loop_of
from flashmoe_sim.timeline.models.table import EXECUTION_MODELS, parse_execution
from flashmoe_sim.timeline.run import simulate
from tests.timeline.cases import costs_of, work_of


def test_every_model_is_found_by_its_name_and_described() -> None:
    for name in EXECUTION_MODELS:
        model = parse_execution(name)
        assert model.name == name
        assert model.meaning.endswith(".")
        assert model.describes


def test_all_models_share_one_compiled_loop() -> None:
    loops = set()
    for name in EXECUTION_MODELS:
        execution = parse_execution(name)
        simulate(work_of([{"requests": 1}]), costs_of(), execution)
        loops.add(loop_of(type(execution).serve))
    (loop,) = loops
    assert len(loop.nopython_signatures) == 1
