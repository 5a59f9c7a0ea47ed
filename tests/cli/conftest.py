"""What all tests of commands share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from flashmoe_sim.verbs.compare import Compare
from flashmoe_sim.verbs.recommend import Recommend

ANSWERS: dict[str, Any] = {}


@pytest.fixture(autouse=True)
def terminal_of_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def answered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A question that is asked again, to be printed, saved or as JSON, has the answer that it had: it takes seconds."""

    def kept(answer: Callable[..., Any], **shown: Any) -> Callable[..., Any]:
        def once(asked: Any, *given: Any, **named: Any) -> Any:
            question = repr(replace(asked, **shown))
            if question not in ANSWERS:
                ANSWERS[question] = answer(asked, *given, **named)
            return ANSWERS[question]

        return once

    monkeypatch.setattr(Recommend, "advise", kept(Recommend.advise, why=False, save=None, force=False))
    monkeypatch.setattr(Compare, "run", kept(Compare.run, full=False))
