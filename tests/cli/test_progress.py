"""A bar for long work on a terminal, and nothing for quick work, or if nobody watches."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest

from flashmoe_sim import _jit
from flashmoe_sim.cli import progress
from flashmoe_sim.cli.main import main


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Stderr, from here on: between a fixture and its test pytest puts its own in place."""
    shown = Terminal()
    monkeypatch.setattr("sys.stderr", shown)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(progress, "SHOWN_AFTER_S", 1000.0)
    return shown


def bars(monkeypatch: pytest.MonkeyPatch) -> list[progress._Bar]:
    """The bars as they are made, to make time pass for them."""
    made: list[progress._Bar] = []
    begin = progress._Bar.__init__

    def remembered(self: progress._Bar, what: str) -> None:
        begin(self, what)
        made.append(self)

    monkeypatch.setattr(progress._Bar, "__init__", remembered)
    return made


def test_long_work_says_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    made, terminal = bars(monkeypatch), on_terminal(monkeypatch)
    with progress.working("replaying") as update:
        update(1, 4)
        made[0]._show()
        update(4, 4)
    text = terminal.getvalue()
    assert "replaying" in text
    assert "left:" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h") == 1
    shown = len(text)
    made[0]._show()  # too late
    assert len(terminal.getvalue()) == shown


def test_a_bar_that_begins_again_says_which_part_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    made, terminal = bars(monkeypatch), on_terminal(monkeypatch)
    monkeypatch.setattr(progress, "_compiles", lambda: False)
    with progress.working("replaying") as update:
        update(9, 10)
        made[0]._show()
        assert "part" not in terminal.getvalue()
        update(1, 20)
    assert "replaying, part 2" in terminal.getvalue()


def test_progress_within_other_progress_takes_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two lines would overwrite each other; the outer one comes back."""
    made, terminal = bars(monkeypatch), on_terminal(monkeypatch)
    with progress.working("replaying"):
        outer = made[0]
        outer._show()
        with progress.working("reading"):
            assert [bar._ended for bar in made] == [True, False]
            outer._show()  # too late
            made[1]._show()
            assert [bar._shown is not None for bar in made] == [False, True]
        assert [bar._ended for bar in made] == [False, True]
        outer._show()
        assert outer._shown is not None
    assert terminal.getvalue().count("\x1b[?25l") == terminal.getvalue().count("\x1b[?25h") == 3


def test_a_first_run_says_that_it_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    for kept in (True, False):
        monkeypatch.setattr(_jit._KernelCache, "compiles", not kept)
        monkeypatch.setattr(_jit, "kernel_cache", Path)
        made, terminal = bars(monkeypatch), on_terminal(monkeypatch)
        with progress.working("replaying") as update:
            update(1, 5)
            made[0]._begun -= 45
            made[0]._show()
        text = terminal.getvalue()
        assert ("replaying, compiling first" in text) is not kept
        assert ("0:03:00" in text) is kept  # while it compiles, the first parts say nothing about the rest
        assert "after:" in text


def test_quick_work_shows_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made, terminal = bars(monkeypatch), on_terminal(monkeypatch)
    with progress.reading(tmp_path / "none") as advance:
        advance(1 << 20)
    with pytest.raises(ValueError, match="stop"), progress.working("it"):
        raise ValueError("stop")
    assert terminal.getvalue() == ""
    assert [bar._ended for bar in made] == [True, True]


def test_a_pipe_is_said_to_be_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "trace.jsonl.gz")
    made, terminal = bars(monkeypatch), on_terminal(monkeypatch)
    with progress.reading(tmp_path / "trace.jsonl.gz"):
        made[0]._show()
    assert "reading the pipe trace.jsonl.gz" in terminal.getvalue()


def test_nothing_without_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    made = bars(monkeypatch)
    with progress.working("it") as update:
        update(1, 2)
    assert (capsys.readouterr().err, made) == ("", [])


def test_one_part_done_is_enough_for_the_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    made, terminal = bars(monkeypatch), on_terminal(monkeypatch)
    with progress.working("merging") as update:
        update(1, 3)
        made[0]._begun -= 90
        made[0]._show()
    assert "0:03:00" in terminal.getvalue()


def test_each_verb_that_can_take_long_counts_its_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every bar ends with all of its work done: none shows the elapsed time alone."""
    made, _ = bars(monkeypatch), on_terminal(monkeypatch)
    jsonl, packed, stored = (str(tmp_path / name) for name in ("t.jsonl", "t.jsonl.gz", "t.parquet"))
    synth = ["trace", "synth", "--layers", "2", "--experts", "8", "--topk", "2", "--tokens", "40"]
    for words in (
        [*synth, "--curve", "4:0.7", "--out", jsonl],
        ["trace", "convert", jsonl, packed],
        ["trace", "convert", packed, stored],
        ["trace", "inspect", stored],
        ["trace", "inspect", "--in-chunks", jsonl],
        ["trace", "lint", packed],
        ["trace", "merge", stored, jsonl, "--how", "concat", "--out", str(tmp_path / "m.parquet")],
        ["trace", "merge", stored, jsonl, "--concurrency", "2", "--out", str(tmp_path / "n.parquet")],
        ["trace", "synth", "--like", stored, "--out", str(tmp_path / "like.parquet")],
        ["diagnose", stored, "--bank", "4", "--contract", "atomic"],
        ["curve", "--in-chunks", jsonl],
    ):
        made.clear()
        assert main(words) == 0, words
        assert made, words
        for bar in made:
            assert bar._total, (words, bar._what)
            assert bar._done >= 0.5 * bar._total, (words, bar._what)
    capsys.readouterr()
