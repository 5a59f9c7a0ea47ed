"""`sim watch`: a line, a table or a document for each look; looks are made without waiting."""

from __future__ import annotations

import gzip
import json
import os
import pty
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from flashmoe_sim.sweep.watch import Look, Watcher
from native_bridge.cli.main import main
from tests.support import document, printed_by, refusal

LINE = b'{"layer":0,"n_expert_used":2,"n_tokens":1,"experts":[%d,%d]}\n'


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Ctrl-C reaches these tests also where it is ignored, as in a shell's background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return Path("t.jsonl")


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Does one thing after each look, in place of waiting, and then presses Ctrl-C."""

    def plan(*things: Callable[[], object]) -> None:
        left = iter(things)

        def sleep(seconds: float) -> None:
            assert 1 <= seconds <= 5
            if (thing := next(left, None)) is None:
                raise KeyboardInterrupt
            thing()

        monkeypatch.setattr("flashmoe_sim.cli.live.time.sleep", sleep)

    return plan


def write(path: Path, tokens: int, *, first: int = 0, mode: str = "ab") -> None:
    with path.open(mode) as stream:
        stream.write(b"".join(LINE % (n % 5, n % 3 + 5) for n in range(first, first + tokens)))


def test_once(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(path, 30)
    assert main(["watch", str(path), "--once", "--bank", "4,6,99", "--policy", "lru,fifo", "--window", "16"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "t.jsonl: 30 tokens, 30 calls, 1 layer",
        "bank: slots of each layer, contract protected",
        "bank  policy  hit %  last  miss/tok  last miss",
        "──────────────────────────────────────────────",
        "   4  lru       0.0   0.0      2.00       2.00",
        "   4  fifo      0.0   0.0      2.00       2.00",
        "   6  lru      45.0  50.0      1.10       1.00",
        "   6  fifo     25.0  28.1      1.50       1.44",
        "last: of the last 16 tokens; left out: 99 (bank 99: a layer of t has 8 experts;",
        "give at most --bank 8)",
        "",
    ]


def test_each_look_is_a_line(path: Path, between: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    between(
        lambda: write(path, 10),
        lambda: write(path, 30, first=10),
        lambda: write(path, 5, mode="wb"),
    )
    assert main(["watch", str(path), "--bank", "6", "--window", "10"]) == 0
    out, err = capsys.readouterr()
    lines = [line[9:] for line in out.splitlines()]
    assert lines[0] == "t.jsonl: no such file yet: waiting for it"
    assert lines[1] == "t.jsonl: 10 tokens, 10 calls, 1 layer; hit % (last 10 tokens): 6 35.0 (35.0)"
    assert lines[2].startswith("t.jsonl: 40 tokens, 40 calls, 1 layer, ")
    assert lines[2].endswith("tok/s; overlap with as many before 95.0%; hit % (last 10 tokens): 6 46.2 (50.0)")
    assert lines[3] == "t.jsonl: 5 tokens, 5 calls, 1 layer; hit % (last 5 tokens): 6 20.0 (20.0)"
    assert out.splitlines()[4] == "t.jsonl: 5 tokens, 5 calls, 1 layer"  # the last table
    assert err == "sim: t.jsonl: it was cut from 2,360 to 295 bytes; read from its first byte\n"


def test_each_look_is_an_object(path: Path, between: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    write(path, 10)
    between(lambda: write(path, 30, first=10))
    assert main(["watch", str(path), "--bank", "6,7", "--contract", "runtime", "--json"]) == 0
    first, second, last = map(json.loads, capsys.readouterr().out.splitlines())
    assert (first["tokens"], second["tokens"], last["tokens"]) == (10, 40, 40)
    replayed = document(capsys, "replay", str(path), "--bank", "7", "--contract", "runtime")
    assert second["rows"][1]["whole"] == replayed["counts"]
    assert second["version"] == replayed["version"]
    assert second["overlap"] is None


def test_what_ends_it(path: Path, between: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    assert "no such file" in refusal(capsys, "watch", str(path), "--once")
    write(path, 3)
    between(lambda: path.write_bytes(path.read_bytes() + b'{"layer":0}\n'))
    assert main(["watch", str(path), "--bank", "6"]) == 2
    assert capsys.readouterr().err.startswith("sim: t.jsonl:4: ")
    Path("t.jsonl.gz").write_bytes(gzip.compress(b"{}"))
    assert "is compressed" in refusal(capsys, "watch", "t.jsonl.gz", "--json")
    assert "needs future requests" in refusal(capsys, "watch", str(path), "--policy", "min")


def test_narrow_terminals_get_fewer_columns(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(path, 30)
    for columns in (79, 40, 24):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert main(["watch", str(path), "--once", "--bank", "4,6", "--model", "model.json"]) == 2
        lines = printed_by(capsys, "watch", str(path), "--once", "--bank", "4,6", "--contract", "runtime").splitlines()
        assert max(map(len, lines)) <= columns
        assert any(line.startswith("bank  hit %  last") for line in lines)


def test_a_terminal_is_redrawn_and_left_as_it_was(
    path: Path, between: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    write(path, 40)
    between(lambda: write(path, 2), lambda: os.truncate(path, 0), lambda: write(path, 40))
    ours, theirs = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        while data := os.read(ours, 1 << 16):
            shown.append(data)
            if b"THE END" in data:
                return

    reader = threading.Thread(target=read)
    reader.start()
    for name, value in (("TERM", "xterm"), ("COLUMNS", "80"), ("LINES", "24")):
        monkeypatch.setenv(name, value)
    with os.fdopen(theirs, "w") as terminal:
        monkeypatch.setattr("sys.stdout", terminal)
        assert main(["watch", str(path), "--bank", "1..40", "--bank-step", "1"]) == 0
        terminal.write("THE END")
        terminal.flush()
        reader.join()
    os.close(ours)
    text = b"".join(shown).decode()
    inside, _, after = text.removeprefix("\x1b[?1049h").partition("\x1b[?1049l")
    frames = inside.split("\x1b[H")[2:]
    assert len(frames) == 5  # the first says that it reads
    assert [frame.count("\n") for frame in frames] == [23] * 5
    assert "42 tokens" in frames[2]
    assert "it was cut from" in frames[3]
    assert "it was cut from" in frames[4]
    assert "\x1b[?25h" in text
    assert "t.jsonl: 40 tokens" in after


def test_the_last_table_is_of_the_whole_file(
    path: Path, between: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    """What was written after the last look is in the table, or in an object of its own."""

    def written_as_it_is_stopped() -> None:
        write(path, 30, first=10)
        raise KeyboardInterrupt

    for option, text in (("--bank=6", "t.jsonl: 40 tokens"), ("--json", '"tokens":40,')):
        write(path, 10, mode="wb")
        between(written_as_it_is_stopped)
        out = printed_by(capsys, "watch", str(path), option)
        assert text in out
    assert len(out.splitlines()) == 2


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 0), (signal.SIGTERM, 143)])
def test_a_signal_during_a_look_ends_it_after_that(
    path: Path,
    number: int,
    code: int,
    between: Callable[..., None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One during the first look, which compiles kernels, is not lost; the handlers are as before in the end."""
    between(lambda: pytest.fail("it went on"))
    write(path, 10)
    look = Watcher.look

    def interrupted(watch: Watcher, now_s: float) -> Look:
        if not watch._follower.read_bytes:
            os.kill(os.getpid(), number)
        return look(watch, now_s)

    monkeypatch.setattr(Watcher, "look", interrupted)
    before = signal.getsignal(number)
    assert main(["watch", str(path), "--bank", "6"]) == code
    assert signal.getsignal(number) is before
    assert capsys.readouterr().out.splitlines()[1] == "t.jsonl: 10 tokens, 10 calls, 1 layer"


def test_a_second_signal_ends_it_at_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def never(*_: object) -> Look:
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        pytest.fail("it went on")

    monkeypatch.setattr(Watcher, "look", never)
    assert main(["watch", str(path)]) == 130


def test_a_trace_that_is_still_says_so(
    path: Path, between: Callable[..., None], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The speed is what it was while the trace grew."""
    clock = iter((0.0, 5.0, 7.0, 17.0, 40.0))
    monkeypatch.setattr("flashmoe_sim.verbs.watch.time.monotonic", lambda: next(clock))
    write(path, 10)
    between(lambda: None, lambda: write(path, 20), lambda: None)
    lines = printed_by(capsys, "watch", str(path), "--bank", "6").splitlines()
    assert [line.partition("layer")[2].partition(";")[0] for line in lines[:5]] == [
        "",
        "",
        ", 10.0 tok/s",
        ", 10.0 tok/s, still for 10 s",
        ", 10.0 tok/s, still for 33 s",
    ]
