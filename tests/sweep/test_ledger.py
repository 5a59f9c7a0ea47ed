"""The ledger: rows come back bit for bit, whatever ends the process that writes them."""

from __future__ import annotations

import errno
import fcntl
import json
import math
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from flashmoe_sim.io.errors import BadInput, Malformed, SimError, Unusable
from flashmoe_sim.schema import RESULT_COLUMNS
from flashmoe_sim.sweep.ledger import COLUMNS, FILE, HEADER, Ledger, line_of

VALUES: dict[str, Any] = {"str": "é,\"'\n", "int": 2**60 + 1, "float": 0.1}
ROW = {column.name: VALUES[column.dtype] for column in RESULT_COLUMNS}


def row(number: int, **changes: Any) -> dict[str, Any]:
    return ROW | {"id": f"{number:016x}", "hits": number} | changes


def write(folder: Path, *rows: dict[str, Any], force: bool = False) -> None:
    with Ledger(folder, force=force) as ledger:
        ledger.begin()
        for one in rows:
            ledger.append([one])


def read(folder: Path, *, read_only: bool = False) -> tuple[list[dict[str, Any]], list[str]]:
    with Ledger(folder, read_only=read_only) as ledger:
        return ledger.rows(), ledger.notes


class Faulty:
    """The file of a ledger, whose writes do something else."""

    def __init__(self, file: Any, write: Callable[[bytes], int]) -> None:
        self._file, self.write = file, write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


def test_rows_come_back_bit_for_bit_and_any_tool_reads_them(tmp_path: Path) -> None:
    rng = random.Random(1)
    odd = [0.1 + 0.2, 5e-324, -0.0, 1e308, math.inf, *(rng.random() for _ in range(50))]
    rows = [row(number, hit_rate=value, model=None, trace=f"t{number:02}") for number, value in enumerate(odd)]
    write(tmp_path, *rows)
    found, notes = read(tmp_path)
    assert notes == []
    assert [list(one) for one in found] == [list(ROW)] * len(rows)
    assert [one["hit_rate"].hex() for one in found] == [value.hex() for value in odd]
    header, *lines = (json.loads(line)["row"] for line in (tmp_path / FILE).read_text().splitlines())
    assert found == rows == [dict(zip(header["columns"], line, strict=True)) for line in lines]


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


def test_a_damaged_line_costs_its_own_row_and_a_reader_leaves_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows, file, again = [row(number) for number in range(4)], tmp_path / FILE, "the same sweep computes it again"
    write(tmp_path, *rows)
    lines = file.read_bytes().splitlines(keepends=True)
    nothing = [None] * (len(ROW) - 1)
    for damaged in (
        *(line_of([value, *nothing]) for value in (None, 7, [1], {"a": 1})),
        *(line_of([*(rows[1] | one).values()]) for one in ({"hits": -5}, {"hit_rate": math.nan}, {"hits": True})),
        *(line_of([*(rows[1] | one).values()]) for one in ({"hits": 2**63}, {"model": "\ud800"}, {"trace": None})),
        line_of([]),
        line_of(["x", [1], *nothing[1:]]),
        lines[2][:-9] + b"\n",
        b"\n",
        b"\xff\x00\n",
        lines[2].replace(b"0.1", b"0.2", 1),
    ):
        content = b"".join([*lines[:2], damaged, *lines[3:]])
        file.write_bytes(content)
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", None)
            found = read(tmp_path, read_only=True)
        left_out = f"{file}: line 3 of it cannot be read; what was there is left out; {again}"
        assert (found, file.read_bytes()) == (([rows[0], *rows[2:]], [left_out]), content)
        assert read(tmp_path) == (found[0], [f"{file}: line 3 of it cannot be read; what was there is computed again"])
    write(tmp_path, *rows)
    assert read(tmp_path)[0] == rows
    torn = f"{file}: its last line is torn, so its row is left out; {again}"
    for content, kept, notes in (
        (b"", [], []),
        (b"".join(lines)[:-3], rows[:3], [torn]),
        (lines[0] + b"\n" + b"\n" + lines[2], [rows[1]], [f"{file}: lines 2, 3 of it cannot be read; what was there "]),
    ):
        file.write_bytes(content)
        found = read(tmp_path, read_only=True)
        assert found[0] == kept
        assert [one.startswith(note) for one, note in zip(found[1], notes, strict=True)] == [True] * len(notes)
        assert file.read_bytes() == content
    with Ledger(tmp_path, read_only=True) as ledger:
        assert not fcntl.fcntl(ledger._file.fileno(), fcntl.F_GETFL) & (os.O_WRONLY | os.O_RDWR)


def test_flipped_bits_cost_the_rows_of_their_lines(tmp_path: Path) -> None:
    """One to three, of two lines each at most: no row is taken that was not written, and all can be written again."""
    rng, rows = random.Random(1), [row(number, trace=f"t{number:02}") for number in range(20)]
    write(tmp_path, *rows)
    plain = (tmp_path / FILE).read_bytes()
    head = plain[: plain.index(b"\n") + 1]
    for _ in range(500):
        data, flips = bytearray(plain), rng.randint(1, 3)
        for _ in range(flips):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        (tmp_path / FILE).write_bytes(data)
        try:
            found, notes = read(tmp_path)
        except BadInput:  # left as it is, since the header is damaged
            assert (tmp_path / FILE).read_bytes() == data
            assert not data.startswith(head)
            continue
        assert [one for one in rows if one in found] == found
        assert len(rows) - 2 * flips <= len(found) < len(rows) or data == plain
        assert notes or data == plain
        write(tmp_path, *rows)
        assert read(tmp_path)[0] == rows


def test_the_same_id_with_other_numbers_names_both(tmp_path: Path) -> None:
    write(tmp_path, row(1), row(2))
    with Ledger(tmp_path) as ledger:
        ledger.begin()
        with pytest.raises(SimError, match=r"line 3 and what was computed now have the id 0+2, but hits is 2 and 5;"):
            ledger.append([row(2, trace="other", hits=5), row(3)])
    assert read(tmp_path)[0] == [row(1), row(2), row(3)]
    with (tmp_path / FILE).open("ab") as stream:
        stream.write(line_of([*row(2, hits=6).values()]))
    with pytest.raises(SimError, match=r"line 3 and line 5 have the id 0+2, but hits is 2 and 6"):
        read(tmp_path)
    for one, other in ((math.inf, 0.5), (0.5, math.nan)):
        write(tmp_path, row(1, hit_rate=one), force=True)
        with pytest.raises(SimError, match=f"line 2 and what was computed now .* hit_rate is {one} and {other}"):
            write(tmp_path, row(1, hit_rate=other))


def test_which_rows_are_kept(tmp_path: Path) -> None:
    """One id under two names is two rows; a row without an id is not kept; what others add is seen."""
    rows = [row(1, trace="a"), row(1, trace="b"), row(1, trace="b", machine="ö")]
    write(tmp_path, *rows, rows[0], row(2, id=None))
    assert len((tmp_path / FILE).read_bytes().splitlines()) == 4
    with Ledger(tmp_path) as ledger:
        assert (ledger.rows(), ledger.notes, ledger.refresh()) == (rows, [], False)
        assert ledger.rows([row(2, id=None), rows[1]]) == [row(2, id=None), rows[1], rows[0], rows[2]]
        write(tmp_path, row(3, trace="z"))
        assert ledger.refresh()
        assert ledger.rows() == [*rows, row(3, trace="z")]


@pytest.mark.parametrize("left", ["whole", "part", "memory"])
def test_an_interruption_leaves_no_lock_and_whole_rows_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, left: str
) -> None:
    """Python hears a signal between the write and what counts it, or before the row is in memory, too."""
    with Ledger(tmp_path) as ledger:
        ledger.begin()

        def interrupted(*given: Any) -> int:
            if left != "memory":
                file.write(given[0] if left == "whole" else given[0][:-3])
            raise KeyboardInterrupt

        file: Any = ledger._file
        with monkeypatch.context() as patch:
            name = "_take" if left == "memory" else "_file"
            patch.setattr(ledger, name, interrupted if left == "memory" else Faulty(file, interrupted))
            with pytest.raises(KeyboardInterrupt):
                ledger.append([row(1)])
        fcntl.flock(ledger._folder, fcntl.LOCK_EX)  # as if it had come right after the lock
        kept = [] if left == "part" else [row(1)]
        assert ledger.refresh() == bool(kept)
        with Ledger(tmp_path) as other:
            assert ledger.rows() == other.rows() == kept
            assert not ledger.notes + other.notes


def test_readers_and_writers_wait_for_one_another(tmp_path: Path) -> None:
    write(tmp_path, row(1))
    with Ledger(tmp_path) as ledger:
        held = os.open(tmp_path, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
        others = [threading.Thread(target=one) for one in (lambda: ledger.append([row(2)]), lambda: read(tmp_path))]
        for other in others:
            other.start()
        assert [other.join(0.2) or other.is_alive() for other in others] == [True, True]
        os.close(held)
        for other in others:
            other.join()
    assert read(tmp_path)[0] == [row(1), row(2)]


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


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"mine", "is not a ledger of results"),
        (b"[1, 2]\n", "is not a .*, or its header line is damaged; .* or --force to start again without"),
        (b'{"crc":"of another program"', "is not a ledger of results"),
        (line_of([1]), "is not a ledger of results"),
        *(
            (line_of(HEADER | change), "is of another version, whose rows may differ; .* or --force")
            for change in (
                {"semantics": 0},
                {"ledger": 2},
                {"columns": COLUMNS[:-1]},
                {"columns": [*COLUMNS, "joules"]},
                {"more": 1},
            )
        ),
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
    with Ledger(tmp_path) as ledger:
        ledger.begin()
        file: Any = ledger._file

        def full(data: bytes) -> int:
            if file.seek(0, os.SEEK_END) > end:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return int(file.write(data[:50]))

        end = file.seek(0, os.SEEK_END)
        with monkeypatch.context() as patch:
            patch.setattr(ledger, "_file", Faulty(file, full))
            with pytest.raises(SimError, match="No space left on device; the 1 rows in it are safe; the same command"):
                ledger.append([row(2)])
        ledger.append([row(3)])
        assert ledger.notes == []
    assert read(tmp_path) == ([row(1), row(3)], [])


def test_a_disk_that_keeps_nothing_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing)
        with pytest.raises(SimError, match=r"not be flushed to the disk \(Input/output error\); a power failure may"):
            write(tmp_path, row(1))
    write(tmp_path, row(2), force=True)  # nothing holds its lock


def test_force_is_refused_while_another_writes(tmp_path: Path) -> None:
    with Ledger(tmp_path) as first:
        first.begin()
        first.append([row(1)])
        with pytest.raises(Unusable, match="another sweep is writing to it; wait for its end, or give another folder"):
            write(tmp_path, force=True)
        first.append([row(2)])
    assert read(tmp_path)[0] == [row(1), row(2)]
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
    assert ([one["hits"] for one in found], notes) == (list(range(250)), [])
    assert len((tmp_path / FILE).read_bytes().splitlines()) == 251
