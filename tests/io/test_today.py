"""Today, which tests choose."""

from __future__ import annotations

from datetime import date

import pytest

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.io.provenance import today
from tests.support import refused


def test_today_is_the_clock_s_unless_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLASHMOE_TODAY", "2031-02-03")
    assert today() == date(2031, 2, 3)
    monkeypatch.delenv("FLASHMOE_TODAY")
    before = date.today()
    assert before <= today() <= date.today()
    monkeypatch.setenv("FLASHMOE_TODAY", "tomorrow")
    with refused(BadInput, "FLASHMOE_TODAY=tomorrow: expected a day such as 2026-11-29"):
        today()
