"""The ledger: rows come back bit for bit, whatever ends the process that writes them."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.io.errors import BadInput, Malformed, SimError, Unusable
from flashmoe_sim.schema import RESULT_COLUMNS
from flashmoe_sim.sweep import ledger as module
from flashmoe_sim.sweep.ledger import FILE, Ledger

VALUES: dict[str, Any] = {"str": "é,\"'\n", "int": 2**60 + 1, "float": 0.1}
ROW = {column.name: VALUES[column.dtype] for column in RESULT_COLUMNS}


def row(number: int, **changes: Any) -> dict[str, Any]:
    return ROW | {"id": f"{number:016x}", "hits": number} | changes


def write(folder: Path, *rows: dict[str, Any], force: bool = False) -> None:
    with Ledger(folder, force=force) as ledger:
        ledger.begin()
        for one in rows:
            ledger.append([one])


def read(folder: Path) -> tuple[list[dict[str, Any]], list[str]]:
    with Ledger(folder) as ledger:
        return ledger.rows(), ledger.notes


def test_rows_come_back_bit_for_bit(tmp_path: Path) -> None:
    rng = random.Random(1)
    odd = [0.1 + 0.2, 5e-324, -0.0, 1e308, math.inf, *(rng.random() for _ in range(50))]
    rows = [row(number, hit_rate=value, model=None, trace=f"t{number:02}") for number, value in enumerate(odd)]
    write(tmp_path, *rows)
    found, notes = read(tmp_path)
    assert notes == []
    assert [list(one) for one in found] == [list(ROW)] * len(rows)
    assert [one["hit_rate"].hex() for one in found] == [value.hex() for value in odd]
    assert found == rows


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_a_torn_tail_at_every_byte(tmp_path: Path, rows: int) -> None:
    """The last record, be it the header, cut anywhere: the others stay, and it can be written again."""
    kept = [row(number) for number in range(rows)]
    write(tmp_path, *kept[:-1])
    begin = (tmp_path / FILE).stat().st_size if rows else 0
    write(tmp_path, *kept)
    whole = (tmp_path / FILE).read_bytes()
    for end in range(begin, len(whole)):
        (tmp_path / FILE).write_bytes(whole[:end])
        found, notes = read(tmp_path)
        assert found == kept[:-1]
        assert [("was torn" in note) for note in notes] == [True] * (end > begin)
        write(tmp_path, *kept)
        assert (tmp_path / FILE).read_bytes() == whole


def test_a_reader_needs_no_right_to_write_and_says_what_it_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [row(number) for number in range(3)]
    write(tmp_path, *rows)
    lines = (tmp_path / FILE).read_bytes().splitlines(keepends=True)
    path = f"{tmp_path / FILE}: "
    left_out = "is left out; the same sweep computes it again"
    for content, kept, notes in (
        (b"", [], []),
        (b"".join(lines), rows, []),
        (b"".join(lines)[:-3], rows[:2], [f"{path}its last line is torn, so its row {left_out}"]),
        (lines[0] + b"\n" + lines[2], [rows[1]], [f"{path}line 2 of it cannot be read; what was there {left_out}"]),
    ):
        (tmp_path / FILE).write_bytes(content)
        with monkeypatch.context() as patch:
            for name in ("write", "ftruncate", "fsync"):
                patch.setattr(os, name, None)
            with Ledger(tmp_path, read_only=True) as ledger:
                assert not fcntl.fcntl(ledger._file, fcntl.F_GETFL) & (os.O_WRONLY | os.O_RDWR)
                assert (ledger.rows(), ledger.notes) == (kept, notes)
        assert (tmp_path / FILE).read_bytes() == content


def test_a_damaged_line_costs_its_own_row(tmp_path: Path) -> None:
    rows = [row(number) for number in range(4)]
    write(tmp_path, *rows)
    lines = (tmp_path / FILE).read_bytes().splitlines(keepends=True)
    odd = [module.line_of([value, *[None] * (len(ROW) - 1)]) for value in (None, 7, [1], {"a": 1})]
    forged = [module.line_of([*(rows[1] | one).values()]) for one in ({"hits": -5}, {"hit_rate": math.nan})]
    for damaged in (
        *odd,
        *forged,
        module.line_of([]),
        module.line_of(["x", [1], *[None] * (len(ROW) - 2)]),
        lines[2][:-9] + b"\n",
        b"\n",
        b"\xff\x00\n",
        lines[2].replace(b"0.1", b"0.2", 1),
    ):
        (tmp_path / FILE).write_bytes(b"".join([*lines[:2], damaged, *lines[3:]]))
        found, notes = read(tmp_path)
        assert found == [rows[0], *rows[2:]]
        assert notes == [f"{tmp_path / FILE}: line 3 of it cannot be read; what was there is computed again"]
    write(tmp_path, *rows)
    assert read(tmp_path)[0] == rows


def test_the_same_id_with_other_numbers_names_both(tmp_path: Path) -> None:
    write(tmp_path, row(1), row(2))
    with Ledger(tmp_path) as ledger:
        ledger.begin()
        with pytest.raises(SimError, match=r"line 3 and what was computed now have the id 0+2, but hits is 2 and 5;"):
            ledger.append([row(2, trace="other", hits=5), row(3)])
    assert read(tmp_path)[0] == [row(1), row(2), row(3)]
    (tmp_path / "b").mkdir()
    write(tmp_path / "b", row(2, hits=6))
    with (tmp_path / FILE).open("ab") as stream:
        stream.write((tmp_path / "b" / FILE).read_bytes().splitlines(keepends=True)[1])
    with pytest.raises(SimError, match=r"line 3 and line 5 have the id 0+2, but hits is 2 and 6"):
        read(tmp_path)


def test_a_row_that_is_known_is_compared_too(tmp_path: Path) -> None:
    for one, other in ((math.inf, 0.5), (0.5, math.nan)):
        write(tmp_path, row(1, hit_rate=one), force=True)
        with pytest.raises(SimError, match=f"line 2 and what was computed now .* hit_rate is {one} and {other}"):
            write(tmp_path, row(1, hit_rate=other))


def test_refresh_takes_what_others_added(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        ledger.begin()
        assert not ledger.refresh()
        write(tmp_path, row(1))
        assert ledger.refresh()
        assert ledger.rows() == [row(1)]


def test_an_interruption_while_rows_are_added_leaves_no_lock_and_loses_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger(tmp_path) as ledger:
        ledger.begin()

        def interrupted(*_: object) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(ledger, "_take", interrupted)  # the row is in the file by then
            with pytest.raises(KeyboardInterrupt):
                ledger.append([row(1)])
        fcntl.flock(ledger._folder, fcntl.LOCK_EX)  # as if it had come right after the lock
        assert ledger.refresh()
        assert ledger.rows() == [row(1)]
        with Ledger(tmp_path) as other:
            assert other.rows() == [row(1)]


@pytest.mark.parametrize("whole", [True, False])
def test_an_interruption_just_after_a_write_keeps_whole_rows_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """Python hears a signal between the write and what counts it."""
    with Ledger(tmp_path) as ledger:
        ledger.begin()
        write = os.write

        def interrupted(file: int, data: bytes) -> int:
            write(file, data if whole else data[:-3])
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(os, "write", interrupted)
            with pytest.raises(KeyboardInterrupt):
                ledger.append([row(1)])
        assert ledger.refresh() == whole
        assert ledger.rows() == ([row(1)] if whole else [])
        assert not ledger.notes


def test_an_interruption_just_before_a_locked_block_says_nothing(tmp_path: Path) -> None:
    """Python ends what the block left open only when it ends itself, and prints what is raised there."""
    ledger = Ledger(tmp_path / "out")
    ledger.begin()
    block = ledger._locked()
    block.__enter__()
    ledger.close()
    block.__exit__(None, None, None)


def test_a_file_of_any_size_that_is_no_ledger_is_refused_at_once(tmp_path: Path) -> None:
    with (tmp_path / FILE).open("wb") as stream:
        stream.truncate(1 << 40)
    with pytest.raises(Malformed, match="is not a ledger of results"):
        Ledger(tmp_path)


def test_a_disk_that_keeps_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(
            SimError, match=r"could not be flushed to the disk \(Input/output error\); a power failure may"
        ):
            write(tmp_path, row(1))
    write(tmp_path, row(2), force=True)  # nothing holds its lock


def test_one_id_under_two_names_is_two_rows(tmp_path: Path) -> None:
    rows = [row(1, trace="a"), row(1, trace="b"), row(1, trace="b", machine="ö")]
    write(tmp_path, *rows, rows[0])
    assert read(tmp_path)[0] == rows
    assert len((tmp_path / FILE).read_bytes().splitlines()) == 4


def test_a_row_without_an_id_is_not_kept(tmp_path: Path) -> None:
    write(tmp_path, row(1), row(2, id=None))
    assert read(tmp_path) == ([row(1)], [])
    with Ledger(tmp_path) as ledger:
        assert ledger.rows() == [row(1)]
        assert ledger.rows([row(2, id=None)]) == [row(2, id=None), row(1)]


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"mine", "is not a ledger of results"),
        (
            b"[1, 2]\n",
            "is not a ledger of results, or its header line is damaged; .* or --force to start again without",
        ),
        (b'{"crc":"of another program"', "is not a ledger of results"),
        (module.line_of([1]), "is not a ledger of results"),
        (module.line_of(module.HEADER | {"semantics": 0}), "is of another version, whose rows may differ"),
        (module.line_of(module.HEADER | {"ledger": 2}), "is of another version, whose rows may differ"),
        (
            module.line_of(module.HEADER | {"columns": module.COLUMNS[:-1]}),
            "is of another version, whose rows may differ",
        ),
        (
            module.line_of(module.HEADER | {"columns": [*module.COLUMNS, "joules"]}),
            "is of another version, whose rows may",
        ),
        (module.line_of(module.HEADER | {"more": 1}), "is of another version, whose rows may differ"),
    ],
)
def test_what_is_no_ledger_is_refused(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(BadInput, match=says):
        Ledger(tmp_path)
    assert (tmp_path / FILE).read_bytes() == content
    write(tmp_path, row(1), force=True)
    assert read(tmp_path)[0] == [row(1)]


def test_a_full_disk_loses_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, row(1))
    plain = os.write
    with Ledger(tmp_path) as ledger:
        ledger.begin()

        def full(descriptor: int, data: bytes) -> int:
            if len(data) > 50:
                return plain(descriptor, data[:50])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        monkeypatch.setattr(os, "write", lambda descriptor, data: full(descriptor, data[:60]))
        with pytest.raises(SimError, match="No space left on device; the 1 rows in it are safe; the same command goes"):
            ledger.append([row(2)])
        monkeypatch.undo()
        ledger.append([row(3)])
        assert ledger.notes == []
    assert read(tmp_path) == ([row(1), row(3)], [])


def test_force_is_refused_while_another_writes(tmp_path: Path) -> None:
    with Ledger(tmp_path) as first:
        first.begin()
        first.append([row(1)])
        with pytest.raises(Unusable, match="another sweep is writing to it; wait for its end, or give another folder"):
            write(tmp_path, force=True)
        first.append([row(2)])
    write(tmp_path, row(3), force=True)
    assert read(tmp_path)[0] == [row(3)]


def test_a_ledger_that_is_removed_meanwhile_is_an_error(tmp_path: Path) -> None:
    with Ledger(tmp_path) as ledger:
        ledger.begin()
        (tmp_path / FILE).unlink()
        for _ in ("without one", "with another in its place"):
            with pytest.raises(SimError, match="was moved or removed while the sweep ran; run the same command"):
                ledger.append([row(1)])
            write(tmp_path, row(2))


def test_what_is_no_file_or_a_link_to_one_is_refused(tmp_path: Path) -> None:
    """A pipe always; a link with force, which would empty the file that it leads to. A link alone is followed."""
    piped, linked, mine = tmp_path / "piped", tmp_path / "linked", tmp_path / "mine"
    piped.mkdir()
    os.mkfifo(piped / FILE)
    linked.mkdir()
    (linked / FILE).symlink_to(mine)
    mine.write_text("precious")
    for force in (False, True):
        with pytest.raises(Unusable, match="is not a file; remove it, or give another folder"):
            write(piped, row(1), force=force)
    with pytest.raises(Unusable, match=f"is a link to {mine}, which --force would empty"):
        write(linked, row(1), force=True)
    assert mine.read_text() == "precious"
    mine.unlink()
    write(linked, row(1))
    assert read(linked)[0] == [row(1)]


def test_several_writers_share_a_ledger(tmp_path: Path) -> None:
    """Each has its own rows, and rows that others also have."""

    def run(first: int) -> None:
        write(tmp_path, *(row(number, trace=f"{number:03}") for number in range(first, first + 100)))

    writers = [threading.Thread(target=run, args=(50 * number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found, notes = read(tmp_path)
    assert [one["hits"] for one in found] == list(range(250))
    assert notes == []
    assert len((tmp_path / FILE).read_bytes().splitlines()) == 251


WRITER = """
import sys
from pathlib import Path
from tests.sweep.test_ledger import row
from flashmoe_sim.sweep.ledger import Ledger
ledger = Ledger(Path(sys.argv[1]))
ledger.begin()
print("ready", flush=True)
for number in range(int(sys.argv[2]), 10**9):
    ledger.append([row(number)])
    print(number, flush=True)
"""


def test_two_writers_that_are_killed_lose_no_row(tmp_path: Path) -> None:
    """Whatever a writer said was kept is there, and nothing is torn, at a random moment."""
    rng = random.Random(2)
    for trial in range(4):
        folder = tmp_path / str(trial)
        command = [sys.executable, "-c", WRITER, str(folder)]
        children = [subprocess.Popen([*command, str(first)], stdout=subprocess.PIPE, text=True) for first in (0, 10**6)]
        for child in children:
            assert child.stdout.readline() == "ready\n"
        time.sleep(rng.random() / 5)
        for child in children:
            child.send_signal(signal.SIGKILL)
        printed = "".join(child.communicate()[0].rpartition("\n")[0] + "\n" for child in children)
        kept = [int(line) for line in printed.split()]
        found = [one["hits"] for one in read(folder)[0]]
        assert set(kept) <= set(found)
        assert len(found) <= len(kept) + len(children)
        assert len(set(found)) == len(found)


def test_a_line_is_json_that_any_tool_reads(tmp_path: Path) -> None:
    write(tmp_path, row(1))
    header, first = map(json.loads, (tmp_path / FILE).read_text().splitlines())
    assert dict(zip(header["row"]["columns"], first["row"], strict=True)) == row(1)
