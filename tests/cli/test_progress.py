"""A bar for long work on a terminal, and nothing for quick work, or if nobody watches."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from flashmoe_sim import _jit
from flashmoe_sim.cli import progress


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
    with progress.replaying() as update:
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


def test_a_first_run_says_that_it_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    for kept in (True, False):
        monkeypatch.setattr(_jit._KernelCache, "compiles", not kept)
        monkeypatch.setattr(_jit, "kernel_cache", Path)
        made, terminal = bars(monkeypatch), on_terminal(monkeypatch)
        with progress.replaying():
            made[0]._show()
        assert ("replaying, compiling first" in terminal.getvalue()) is not kept


def test_quick_work_shows_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    made, terminal = bars(monkeypatch), on_terminal(monkeypatch)
    with progress.reading(tmp_path / "none") as advance:
        advance(1 << 20)
    with pytest.raises(ValueError, match="stop"), progress.working("it"):
        raise ValueError("stop")
    assert terminal.getvalue() == ""
    assert [bar._ended for bar in made] == [True, True]


def test_nothing_without_a_terminal(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    made = bars(monkeypatch)
    with progress.working("it") as update:
        update(1, 2)
    assert (capsys.readouterr().err, made) == ("", [])
