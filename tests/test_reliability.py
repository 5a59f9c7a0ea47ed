"""A few rounds of every fault in reports/reliability, and its page."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from reports.reliability.page import FAULTS, FUZZ, PAGE, markdown, read

ROUNDS = 2


def test_nothing_is_lost_or_double_or_wrong_whatever_happens() -> None:
    """In a process of its own, since its sweeps are forked from one without threads."""
    if sys.platform != "linux":
        pytest.skip("needs Linux")
    command = [sys.executable, "-m", "reports.reliability", "--rounds", str(ROUNDS), "--json"]
    rows = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
    assert len(rows) >= 13
    struck = {row["fault"] for row in rows if row["struck"]}
    assert struck >= {"two sweeps into one folder", "fsync fails", "no memory in a pass", "trace replaced between runs"}
    bad = [row for row in rows if row["lost"] or row["double"] or row["wrong"] or row["codes"]]
    assert bad == []


def test_the_page_is_made_of_the_committed_figures() -> None:
    assert markdown(read(FAULTS), read(FUZZ)) == PAGE.read_text(), "run python -m reports.reliability"
