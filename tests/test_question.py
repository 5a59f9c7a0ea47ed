"""The fields of a question, and what their help lists."""

from __future__ import annotations

from flashmoe_sim.prefetchers.table import PREFETCHERS
from flashmoe_sim.question import EXECUTIONS, PREDICTORS
from flashmoe_sim.timeline.execution import EXECUTION_MODELS


def test_the_help_lists_every_predictor_and_execution_model() -> None:
    assert PREDICTORS.split(", ") == list(PREFETCHERS)
    assert EXECUTIONS.split(", ") == list(EXECUTION_MODELS)
