"""The fields of a question, and what their help lists."""

from __future__ import annotations

from flashmoe_sim.prefetchers.table import PREFETCHERS
from flashmoe_sim.question import PREDICTORS


def test_the_help_lists_every_predictor() -> None:
    assert PREDICTORS.split(", ") == list(PREFETCHERS)
