"""Rows that are not judged: deep in a context, or with drafts of several tokens a pass."""

from __future__ import annotations

from pathlib import Path

import pytest

from reports.field.report import judged_rows
from reports.field.scope import DEEP, DRAFTED, MOST_DEPTH, filled, why_not_judged
from tests.field.builders import row


@pytest.mark.parametrize(
    ("cells", "depth"),
    [
        ({}, 0),
        ({"context": "8192"}, 8192),
        ({"context": "65536"}, 0),
        ({"context": "65536", "flags": "tg32 at depth 65536"}, 65536),
        ({"context": "65536", "flags": "-n 128, -d 65536, 3 repeats"}, 65536),
        ({"context": "131072", "flags": "128k filled"}, 131072),
        ({"context": "131072", "varies": "context"}, 131072),
        ({"context": "32768", "notes": "context allocated"}, 0),
        ({"context": "32768", "flags": "-c 32768"}, 0),
        ({"context": "32768", "flags": "-c 32768", "varies": "context"}, 32768),
        ({"context": "much", "varies": "context"}, 0),
    ],
)
def test_a_context_is_filled_or_only_allocated(tmp_path: Path, cells: dict[str, str], depth: int) -> None:
    assert filled(row(tmp_path, **cells)) == depth


def test_deep_rows_and_drafts_are_left_out(tmp_path: Path) -> None:
    assert not why_not_judged(row(tmp_path, context=str(MOST_DEPTH)))
    assert why_not_judged(row(tmp_path, context=str(MOST_DEPTH + 1))) == DEEP
    assert why_not_judged(row(tmp_path, engine="Strata fork")) == DRAFTED
    assert not why_not_judged(row(tmp_path, engine="llama.cpp", flags="MTP draft"))


def test_the_published_rows_left_out_are_as_many_as_were_looked_at() -> None:
    """A looser rule would leave out more, and nobody would see it."""
    why = [why_not_judged(one) for one in judged_rows()]
    assert (why.count(DEEP), why.count(DRAFTED)) == (77, 53)
    assert not any(why_not_judged(one) for one in judged_rows() if one.id.startswith("ahhot-") or one.context == "0")
