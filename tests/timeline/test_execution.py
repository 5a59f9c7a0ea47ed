"""The table of execution models."""

from __future__ import annotations

import pytest

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.timeline.models.table import EXECUTION_MODELS, parse_execution


def test_every_model_is_found_by_its_name_and_described() -> None:
    for name in EXECUTION_MODELS:
        model = parse_execution(name)
        assert model.name == name
        assert model.meaning.endswith(".")
        assert model.describes


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(
        BadInput, match=r"unknown execution model 'sync'; known: async-upload, hot-cold, .*sync-install"
    ):
        parse_execution("sync")
