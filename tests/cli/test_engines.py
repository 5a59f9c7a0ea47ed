"""`sim system engines`: how old what is known of each engine is."""

from __future__ import annotations

import re
from datetime import date, timedelta

import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.systems.facts import engine_names, facts_of
from flashmoe_sim.systems.table import SYSTEMS
from tests.support import document


def test_engines_are_listed_by_the_age_of_their_facts(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    days = sorted(date.fromisoformat(facts_of(name).looked_up) for name in engine_names())
    monkeypatch.setenv("FLASHMOE_TODAY", str(days[0] + timedelta(93)))
    rows = document(capsys, "system", "engines")["engines"]
    assert [row["looked_up"] for row in rows] == [str(day) for day in days]
    assert sorted(system for row in rows for system in row["systems"]) == sorted(SYSTEMS)
    assert [row["days"] for row in rows] == [93 - (day - days[0]).days for day in days]
    assert [row["old"] for row in rows] == [day == days[0] for day in days]
    assert main(["system", "engines"]) == 0
    printed = capsys.readouterr().out
    assert max(map(len, printed.splitlines())) <= 80
    assert re.search(rf"^{days.count(days[0])} of {len(days)} (is|are) older than three months", printed, re.MULTILINE)
