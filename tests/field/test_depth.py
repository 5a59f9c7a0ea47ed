"""How deep rows decode, and what predictions make of it."""

from __future__ import annotations

import statistics
from pathlib import Path

import pytest

from flashmoe_sim.field.engines import attended, depth_of, kv_type_of
from reports.field.depth_page import UNSET, order, slopes, timed
from reports.field.residuals import known, on_parts
from tests.field.builders import published, residuals, row


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
    assert depth_of(row(tmp_path, **cells)) == depth


@pytest.mark.parametrize(
    ("flags", "kv_type"),
    [("", "f16"), ("-ctk q8_0 -ctv q8_0", "q8_0"), ("8 threads, KV q8_0", "q8_0"), ("--kv int8", "q8_0")],
)
def test_types_of_the_cache(tmp_path: Path, flags: str, kv_type: str) -> None:
    assert kv_type_of(row(tmp_path, flags=flags)) == kv_type


def test_an_engine_that_chooses_tokens_reads_no_more(tmp_path: Path) -> None:
    cells = {"context": "131072", "varies": "context"}
    assert attended(row(tmp_path, engine="Strata fork", **cells)) == 2048
    assert attended(row(tmp_path, engine="llama.cpp", **cells)) == 131072


def test_slopes_are_as_published() -> None:
    """The rates are medians of these slopes, so this shows that the laws hold, not what a new machine gets."""
    _, of_parts = timed(published().values(), known(on_parts(residuals())))
    found = slopes(of_parts)
    assert {one.deep.series for one in found if one.replaced} == {
        "ik357-3090ti",
        "ik357-9355-1gpu",
        "ik357-9355-1gpu-lc",
        "ikaw-5975-scout",
    }
    counted = [one for one in found if not one.replaced and one.system not in UNSET]
    assert len(counted) >= 25
    assert statistics.median(one.off for one in counted) <= 0.15
    right, pairs = order(of_parts)
    assert right / pairs >= 0.8
