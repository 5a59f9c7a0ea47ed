"""What all tests of searches share."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from native_bridge.tuning import launch, session
from native_bridge.tuning.program import Program
from native_bridge.verbs.tune import Tune

GRIDS: dict[str, Any] = {}
OWN = Tune._grid


def grid_once(asked: Tune, program: Program) -> Any:
    """The settings of a question, which take a second to predict."""
    question = replace(asked, engine=None, out=None, minutes=1.0, dry_run=False, force=False)
    key = f"{sorted(program.flags)}{question}"
    if key not in GRIDS:
        GRIDS[key] = OWN(asked, program)
    return GRIDS[key]


@pytest.fixture(autouse=True)
def _same_everywhere(monkeypatch: pytest.MonkeyPatch, own_folder: None) -> None:
    """Eight cores, no other program, and short runs."""
    monkeypatch.setattr(session, "DECODED_S", 0.0)
    monkeypatch.setattr(Tune, "_grid", grid_once)
    monkeypatch.setattr(launch, "_threads", lambda: [6, 8])
    monkeypatch.setattr(session._Others, "cores", lambda *_: 0.0)
