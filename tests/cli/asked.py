"""What a command prints as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flashmoe_sim.cli.main import main


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)
