"""Tables of cases: a line for each, its cells between ` | `."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support import refusal


def rows(text: str, **words: object) -> list[list[str]]:
    """The cells of each line; lines that begin with # are for people alone. words: what `{name}` stands for."""
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [[cell.strip().format(**words) if words else cell.strip() for cell in line.split(" | ")] for line in lines]


def refused_in(place: Path, capsys: pytest.CaptureFixture[str], case: Sequence[str]) -> None:
    """Run `sim` with the words of a row in this folder: one line, exit code 2, nothing on stdout, nothing written.

    The other cells of the row are in the line, or not if they begin with `not: `.
    """
    words, *fragments = case
    with pytest.MonkeyPatch.context() as here:
        here.chdir(place)
        before = files(place)
        line = refusal(capsys, *shlex.split(words))
    assert line.startswith("sim")
    for fragment in fragments:
        absent = fragment.removeprefix("not: ")
        assert (absent.lower() in line.lower()) == (absent == fragment), line
    assert files(place) == before


def files(place: Path) -> dict[str, bytes | None]:
    """Everything in a folder, at any depth."""
    found = sorted(place.rglob("*"))
    return {str(path): path.read_bytes() if path.is_file() and path.stat().st_size < 10_000 else None for path in found}
