"""The table of execution models."""

from __future__ import annotations

import pytest

from flashmoe_sim.io.errors import UnknownName
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


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(
        UnknownName, match=r"unknown execution model 'sync'; known: async-upload, hot-cold, .*sync-install"
    ):
        parse_execution("sync")


@pytest.mark.parametrize("name", EXECUTION_MODELS)
def test_every_instance_of_a_model_shares_one_compiled_loop(name: str) -> None:
    before = loop_of.cache_info().misses
    for _ in range(3):
        simulate(work_of([]), costs_of(), parse_execution(name))
    assert loop_of.cache_info().misses - before <= 1
