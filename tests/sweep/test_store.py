"""Results on disk: whole, or as they were before."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars
import pytest

from flashmoe_sim.cli.main import main
from flashmoe_sim.io.errors import Exists, Malformed, Missing, SimError, Unusable
from flashmoe_sim.io.tables import as_csv
from flashmoe_sim.schema import RESULT_COLUMNS
from flashmoe_sim.sweep import store
from flashmoe_sim.sweep.store import FILES, check_folder, write_results

VALUES: dict[str, Any] = {"str": "é,\"'", "int": 2**40, "float": 0.1}
ROW = {column.name: VALUES[column.dtype] for column in RESULT_COLUMNS}
EMPTY = dict.fromkeys(ROW)


def draw(rows: Any, path: Path) -> None:
    path.write_bytes(b"a picture")


def full(*_: Any, **__: Any) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    write_results([ROW, EMPTY], tmp_path, draw=draw)
    assert sorted(os.listdir(tmp_path)) == sorted(FILES)
    table = polars.read_parquet(tmp_path / "results.parquet")
    assert table.to_dicts() == [ROW, EMPTY]
    assert polars.read_csv(tmp_path / "results.csv", schema=table.schema).to_dicts() == [ROW, EMPTY]


def full_parquet(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(polars.DataFrame, "write_parquet", full)


def full_csv(monkeypatch: pytest.MonkeyPatch) -> None:
    write = Path.write_bytes
    monkeypatch.setattr(Path, "write_bytes", lambda path, data: full() if path.suffix == ".csv" else write(path, data))


def draw_half(rows: Any, path: Path) -> None:
    path.write_bytes(b"half a pic")
    full()


def interrupted(rows: Any, path: Path) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize(
    ("break_it", "drawing"), [(full_parquet, draw), (full_csv, draw), (None, draw_half), (None, interrupted)]
)
def test_a_full_disk_or_an_interruption_leaves_the_folder_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, break_it: Any, drawing: Any, existing: bool
) -> None:
    folder = tmp_path / "some" / "where"
    if existing:
        write_results([ROW], folder, draw=draw)
        (folder / "notes.txt").write_text("mine")
    before = snapshot(tmp_path)
    if break_it:
        break_it(monkeypatch)
    kind = KeyboardInterrupt if drawing is interrupted else Unusable
    with pytest.raises(kind) as raised:
        write_results([ROW, EMPTY], folder, draw=drawing)
    assert kind is KeyboardInterrupt or "where: No space left on device; nothing was written" in str(raised.value)
    assert snapshot(tmp_path) == before
    assert sorted(os.listdir(tmp_path)) == (["some"] if existing else [])


@pytest.mark.parametrize("existing", [True, False])
def test_a_picture_that_cannot_be_drawn_keeps_the_rest(tmp_path: Path, existing: bool) -> None:
    """The data are new, and no picture of older data stays beside them."""

    def half(rows: Any, path: Path) -> None:
        path.write_bytes(b"half a pic")
        raise ValueError("no glyph")

    folder = tmp_path / "results"
    if existing:
        write_results([ROW], folder, draw=draw)
    with pytest.raises(SimError, match=r"could not be drawn \(ValueError: no glyph\); results.parquet and .csv are"):
        write_results([ROW, EMPTY], folder, draw=half)
    assert sorted(os.listdir(folder)) == ["results.csv", "results.parquet"]
    assert polars.read_parquet(folder / "results.parquet").height == 2


def test_a_full_disk_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("flashmoe_sim.report.figures.results.draw", full)
    out = tmp_path / "results"
    assert main(["sweep", "--bank", "64", "--contract", "protected", "--out", str(out)]) == 2
    printed = capsys.readouterr()
    assert printed.err.splitlines()[1:] == [f"sim: {out}: No space left on device; nothing was written"]
    assert printed.out.startswith("python-256: 1,026 tokens")  # what was computed is not lost with the disk
    assert os.listdir(out) == ["ledger.ndjson"]


def test_a_folder_where_a_file_should_be_is_refused(tmp_path: Path) -> None:
    (tmp_path / "results.csv").mkdir()
    with pytest.raises(Unusable, match=r"results\.csv: is not a file"):
        check_folder(tmp_path, force=True)


def test_a_folder_named_like_a_file_is_refused_unless_it_is_there(tmp_path: Path) -> None:
    with pytest.raises(Malformed, match=r"o\.html: is named like a file; --out takes a folder.*give --out o$"):
        check_folder(tmp_path / "o.html", force=True)
    check_folder(tmp_path / "v1.2", force=False)
    (tmp_path / "o.html").mkdir()
    check_folder(tmp_path / "o.html", force=False)


def test_a_link_to_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "o").symlink_to(tmp_path / "none")
    for place in (tmp_path / "o", tmp_path / "o" / "a"):
        with pytest.raises(Missing, match=r"o: is a link to .*none, which does not exist"):
            check_folder(place, force=False)
    (tmp_path / "none").mkdir()
    check_folder(tmp_path / "o", force=False)


def test_a_folder_is_checked_and_not_made(tmp_path: Path) -> None:
    check_folder(tmp_path / "a" / "b", force=False)
    assert os.listdir(tmp_path) == []
    store.write_results([ROW], tmp_path / "a", draw=draw)
    with pytest.raises(Exists, match="already"):
        check_folder(tmp_path / "a", force=False)
    check_folder(tmp_path / "a", force=True)


KILLED = """
import os, signal, sys
from pathlib import Path
from flashmoe_sim.sweep import store

class Table:
    def __init__(self, rows): pass
    def write_parquet(self, stream): stream.write(b"new")

def dying(move):
    def call(*arguments, **named):
        global left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return move(*arguments, **named)
    return call

store.frame, store.as_csv = Table, lambda table: b"new"
os.replace, os.rename, os.rmdir = dying(os.replace), dying(os.rename), dying(os.rmdir)
for left, folder in enumerate(sys.argv[1:], 1):
    if not (child := os.fork()):
        store.write_results([], Path(folder), draw=lambda rows, path: path.write_bytes(b"new"))
        os._exit(0)
    print(os.waitpid(child, 0)[1])
"""


@pytest.mark.parametrize("existing", [True, False])
def test_a_killed_sweep_leaves_no_mixture_and_is_put_in_order(tmp_path: Path, *, existing: bool) -> None:
    """Killed before each of its moves in turn."""
    folders = [tmp_path / str(at) for at in range(1, 12)]
    for folder in folders:
        (folder / ".results-mine").mkdir(parents=True)
        (folder / ".results-mine" / "thesis").touch()
        if existing:
            for name in FILES:
                (folder / name).write_text("old")
    printed = subprocess.run([sys.executable, "-c", KILLED, *folders], check=True, stdout=subprocess.PIPE).stdout
    statuses, ends = list(map(int, printed.split())), set()
    killed = statuses.index(0)
    assert killed >= 4
    assert statuses == [signal.SIGKILL] * killed + [0] * (len(folders) - killed)
    for folder in folders:
        found = {(folder / name).read_text() for name in FILES if (folder / name).exists()}
        assert len(found) <= 1
        check_folder(folder, force=True)
        found = {(folder / name).read_text() if (folder / name).exists() else "" for name in FILES}
        assert len(found) == 1
        ends |= found
        assert sorted(os.listdir(folder)) == sorted([".results-mine", *(FILES if found != {""} else ())])
    assert ends == ({"old", "new"} if existing else {"", "new"})


@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize("forever", [True, False])
@pytest.mark.parametrize("picture", [True, False])
@pytest.mark.parametrize("failing", range(1, 8))
def test_a_move_that_fails_loses_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, existing: bool, forever: bool, picture: bool, failing: int
) -> None:
    """Once or from then on: the folder is as it was, or the next sweep into it finds all files of the new one."""
    folder, number, move = tmp_path / "results", 0, os.replace
    if existing:
        write_results([ROW], folder, draw=draw)
    before = snapshot(tmp_path)

    def replace(source: Path, target: Path) -> None:
        nonlocal number
        number += 1
        if number == failing or (forever and number > failing):
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        move(source, target)

    with monkeypatch.context() as broken:
        broken.setattr(os, "replace", replace)
        moves = 2 + picture + 3 * existing
        if failing > moves:
            write_results([ROW, EMPTY], folder, draw=draw if picture else None)
            return
        with pytest.raises(Unusable, match=r"results: Invalid cross-device link; (.*)") as refused:
            write_results([ROW, EMPTY], folder, draw=draw if picture else None)
    if "nothing was written" in str(refused.value):
        assert snapshot(tmp_path) == before
        return
    assert "the next sweep into it puts its files in place" in str(refused.value)
    check_folder(folder, force=True)
    assert polars.read_parquet(folder / "results.parquet").height == 2
    assert sorted(os.listdir(folder)) == sorted(FILES if picture else FILES[:2])


def test_results_that_are_replaced_hand_on_their_mode(tmp_path: Path) -> None:
    write_results([ROW], tmp_path, draw=draw)
    (tmp_path / "results.csv").chmod(0o600)
    write_results([ROW], tmp_path, draw=draw)
    assert (tmp_path / "results.csv").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("=cmd|calc", "'=cmd|calc"),
        ("@sum(a1)", "'@sum(a1)"),
        ("+1+1", "'+1+1"),
        ("\x1b[31mred", r"\x1b[31mred"),
        ("-1", "-1"),
        ("plain", "plain"),
    ],
)
def test_a_name_is_text_in_a_terminal_and_a_spreadsheet(name: str, shown: str) -> None:
    table = polars.read_csv(as_csv(polars.DataFrame({"trace": [name, None], "hits": [-1, 2]})))
    assert table.get_column("trace").cast(polars.String).to_list() == [shown, None]
    assert table.get_column("hits").to_list() == [-1, 2]
