"""Reading a trace for a command: what a terminal is told, and the same trace as without one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flashmoe_sim.verbs.given import Terminal, long_trace_of, trace_of, workload_of
from tests.systems.cases import model

LINE = '{"layer":%d,"n_expert_used":2,"n_tokens":1,"experts":[%d,7]}\n'
TEXT = "".join(LINE % (layer, step % 6) for step in range(40) for layer in (2, 3)) + "no JSON\n" + LINE % (2, 1)


class Told:
    """A terminal, and what it was told: its lines, and the bytes of each file that was read."""

    def __init__(self) -> None:
        self.lines, self.read_bytes = list[str](), list[int]()
        self.terminal = Terminal(self.shown, self.lines.append)

    @contextmanager
    def shown(self, path: Path) -> Iterator[Callable[[int], None]]:
        each = list[int]()
        yield each.append
        assert path.name == "t.jsonl"
        self.read_bytes.append(sum(each))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    (tmp_path / "t.jsonl").write_text(TEXT)
    return tmp_path / "t.jsonl"


@pytest.mark.parametrize("in_chunks", [False, True])
@pytest.mark.parametrize(("layers", "missing"), [(3, []), (5, ["has 2 of the 5 MoE layers of small"])])
def test_a_terminal_sees_progress_notes_and_that_layers_are_missing(
    path: Path, layers: int, missing: list[str], in_chunks: bool
) -> None:
    """The last layer of a model may be one that drafts tokens, so that one alone is not missed."""
    told, of = Told(), model(layers=range(2, 2 + layers))
    found = workload_of(path, of, lenient=True, in_chunks=in_chunks, terminal=told.terminal)
    assert found.trace.equals(workload_of(path, of, lenient=True, in_chunks=in_chunks).trace)
    assert sum(told.read_bytes) == len(TEXT) * (1 + in_chunks)  # chunks are read once for the head
    note, *others = told.lines
    assert note == f"{path}: {found.trace.notes[0]}"
    assert [line.removeprefix("t: ").partition(";")[0] for line in others] == missing


def test_notes_are_told_unless_the_verb_shows_them(path: Path) -> None:
    told = Told()
    assert trace_of(path, lenient=True, notes=False, terminal=told.terminal).notes
    assert told.lines == []
    assert sum(told.read_bytes) == len(TEXT)


def test_each_reading_of_chunks_has_its_own_progress(path: Path) -> None:
    told = Told()
    with long_trace_of(path, lenient=True, terminal=told.terminal) as long:
        assert len(told.lines) == len(long.head.notes) == 1
        for _ in range(2):
            assert sum(chunk.calls for chunk in long.read()) == 81
    assert told.read_bytes[-2:] == [len(TEXT)] * 2
