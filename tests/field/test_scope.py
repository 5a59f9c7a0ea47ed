"""Rows that are not judged: with drafts of several tokens a pass."""

from __future__ import annotations

from pathlib import Path

from reports.field.report import judged_rows
from reports.field.scope import DRAFTED, why_not_judged
from tests.field.builders import row


def test_drafts_are_left_out(tmp_path: Path) -> None:
    assert not why_not_judged(row(tmp_path, context="131072", flags="128k filled"))
    assert why_not_judged(row(tmp_path, engine="Strata fork")) == DRAFTED
    assert not why_not_judged(row(tmp_path, engine="llama.cpp", flags="MTP draft"))


def test_the_published_rows_left_out_are_as_many_as_were_looked_at() -> None:
    """A looser rule would leave out more, and nobody would see it."""
    assert [why_not_judged(one) for one in judged_rows()].count(DRAFTED) == 53
