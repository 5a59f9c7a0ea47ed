"""Measured speeds: files of every format, and speeds by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from flashmoe_sim.measured import Measured, distinct, missing, read_measured
from flashmoe_sim.measured.by_hand import read_by_hand
from flashmoe_sim.measured.value import MOST_PROMPT
from flashmoe_sim.systems.table import parse_system
from tests.fuzz.target import PROJECT, Document, Target
from tests.measured.bench import WRITTEN, any_rows

FILES = PROJECT / "tests" / "measured" / "files"
BY_HAND = (b"placed:cpu_layers=24=28.1 depth=32768", b"all-gpu=58.8 prompt", b"cpu=5 quant=Q4_K_M tokens=128 sd=0.02")


def of_file(data: bytes, folder: Path) -> list[Measured]:
    (folder / "m.txt").write_bytes(data)
    return read_measured(folder / "m.txt")


def of_text(data: bytes, _: Path) -> list[Measured]:
    return [read_by_hand(data.decode("utf-8", "replace"))]


def possible(_: bytes, found: list[Measured], __: Path) -> None:
    assert found, "no speed"
    for one in found:
        assert 0 < one.tok_s <= MOST_PROMPT, "a speed that cannot be"
        assert one.depth >= 0, "a depth that cannot be"
        assert one.sd is None or one.sd > 0, "a deviation that cannot be"
        assert bool(one.system) != bool(missing(one)), "neither a system nor what to ask"
        assert not one.system or parse_system(one.system), "no system"
    assert distinct([*found, *found]) == distinct(found), "counted twice"


def seeds() -> list[bytes]:
    return [path.read_bytes() for path in sorted(FILES.iterdir()) if path.name != "README.md"]


@st.composite
def benches(draw: st.DrawFn) -> Document:
    rows = draw(st.lists(any_rows(), min_size=1, max_size=3))
    written = WRITTEN[draw(st.sampled_from(sorted(WRITTEN)))]
    return written(rows).encode(), [(one["n_prompt"] or one["n_gen"], one["n_depth"], one["avg_ts"]) for one in rows]


def same(found: Any, expected: Any) -> bool:
    return [(one.tokens, one.depth, one.tok_s) for one in found] == expected


WORDS = (b"0", b"-1", b"1e999", b"nan", b"inf", b'"avg_ts":', b"eval time =", b"eval rate:", b"|", b"-ot", b"blk.0.")
TARGETS = (
    Target("measured-file", of_file, seeds, WORDS, "m.txt", possible, benches, same),
    Target("measured-text", of_text, lambda: BY_HAND, (b"=", b":", b" ", b"depth=", b"prompt", b"1e9"), holds=possible),
)
