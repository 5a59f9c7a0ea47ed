"""The ledger of a folder of results: every row, kept as soon as it is known.

A file of lines that are only appended, each a JSON object with the checksum of its row. It is faster than SQLite, one
file that any tool reads, and needs no shared memory, which network folders lack; docs/guides/sweeps.md has the numbers.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flashmoe_sim.io.errors import BadInput, SimError, shortened, shown
from flashmoe_sim.io.whole import sync_folder
from flashmoe_sim.schema import COUNTS, TIMING
from flashmoe_sim.sweep.ledger_lines import COLUMNS, checked, is_row, line_of
from flashmoe_sim.sweep.task import SEMANTICS, Task

FILE = "ledger.ndjson"
HEADER = {"ledger": 1, "semantics": SEMANTICS, "columns": COLUMNS}
NAMES = ("trace", "trace_id", "model", "policy", "machine")  # two rows that differ in these only are of one task
NUMBERS = [column.name for column in (*COUNTS, *TIMING) if column.name not in {"machine", "execution"}]
START = b'{"crc":"'
SORTED_BY = ("trace", "contract", "scope", "policy", "prefetch", "machine", "bank_bytes", "bank_slots", "bank", "id")

Row = dict[str, Any]


class Ledger:
    """The rows of a folder, and the file that they are appended to. Several processes may share it.

    notes: what was repaired. Close it with `close`, or as a context.
    Raises BadInput for a ledger that cannot be read, or is of another version; SimError for one with two rows of the
    same id and other numbers, and if rows cannot be written.
    """

    def __init__(self, folder: Path, *, force: bool = False) -> None:
        self.folder, self.path, self.force = folder, folder / FILE, force
        self.notes: list[str] = []
        self._rows: dict[tuple[Any, ...], Row] = {}
        self._by_id: dict[str, tuple[Row, str]] = {}
        self._end, self._line = 0, 0
        self._file = self._folder = -1
        try:
            with self._errors(BadInput):
                if not force and self.path.exists():
                    self._open()
                    with self._locked():
                        self._read()
        except BaseException:
            self._let_go()
            raise

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __len__(self) -> int:
        return len(self._rows)

    def row_of(self, task: Task) -> Row | None:
        """The row of a task, under the names that things have now; None if it is not known."""
        if task.strong_id not in self._by_id:
            return None
        row, _ = self._by_id[task.strong_id]
        names = {name: value for name, value in task.identity().items() if name != "version"}
        if task.machine is not None and task.conditions is not None:
            names |= {"machine": task.machine.name, "execution": task.conditions.execution.name}
        return row | names

    def rows(self, first: Sequence[Row] = ()) -> list[Row]:
        """All rows, those without an id included that are among `first`; `first` stand first, the others sorted."""
        ahead = {_key(row) for row in first}
        return [*first, *sorted((row for key, row in self._rows.items() if key not in ahead), key=_place)]

    def begin(self) -> None:
        """Make the file if there is none, or, with `force`, empty it."""
        with self._errors(BadInput):
            if self._file < 0:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._open()
            with self._locked():
                if self.force:
                    os.ftruncate(self._file, 0)
                self._read()
            if self.force:
                _flock(self._file, fcntl.LOCK_SH)

    def refresh(self) -> bool:
        """Take the rows that other processes added; whether there were any.

        It also gives back the lock if an interruption came while it was taken.
        """
        before = len(self)
        if self._file >= 0:
            with self._errors(), self._locked():
                self._read()
        return len(self) > before

    def append(self, rows: Sequence[Row]) -> None:
        """Keep rows that are not kept yet, but for those without an id; they survive the end of this process."""
        wanted = {_key(row): row for row in rows if row["id"] is not None}
        if all(key in self._rows and not self._wrong(row, "") for key, row in wanted.items()):
            return
        with self._errors(), self._locked():
            if not os.fstat(self._file).st_nlink:
                raise SimError(f"{self.path}: was removed while the sweep ran; run the same command again")
            self._read()
            wrong = [said for row in wanted.values() if (said := self._wrong(row, "what was computed now"))]
            new = [row for key, row in wanted.items() if key not in self._rows and not self._wrong(row, "")]
            written = self._write(b"".join(line_of([row[name] for name in COLUMNS]) for row in new))
            for number, row in enumerate(new, start=self._line + 1):
                self._take(row, f"line {number}")
            self._end, self._line = self._end + written, self._line + len(new)  # last: an interruption loses no row
            if wrong:
                raise SimError(wrong[0])

    def close(self) -> None:
        """Put all of it on the disk, and let go of it."""
        try:
            if self._file >= 0:
                os.fsync(self._file)
                sync_folder(self.folder)
        except OSError as error:
            raise SimError(
                f"{self.path}: may not be on the disk ({error.strerror or error}); a loss of power would cost rows"
            ) from None
        finally:
            self._let_go()

    def _let_go(self) -> None:
        for descriptor in (self._file, self._folder):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._folder = -1

    def _open(self) -> None:
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        self._folder = os.open(self.folder, os.O_RDONLY)
        # held for as long as it is open: nobody empties it meanwhile
        if not _flock(self._file, (fcntl.LOCK_EX if self.force else fcntl.LOCK_SH) | fcntl.LOCK_NB):
            self._let_go()
            what = "another sweep is writing to it" if self.force else "another sweep starts it again"
            raise BadInput(f"{self.folder}: {what}; wait for its end, or give another folder")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Nobody else reads or writes; a lock of the folder, since that of the file says that it is in use."""
        _flock(self._folder, fcntl.LOCK_EX)
        try:
            yield
        finally:
            _flock(self._folder, fcntl.LOCK_UN)

    @contextmanager
    def _errors(self, kind: type[SimError] = SimError) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            advice = "give another folder"
            if self._line:
                advice = f"the {len(self)} rows in it are safe; the same command goes on from there"
            raise kind(f"{self.path}: {error.strerror or error}; {advice}") from None

    def _read(self) -> None:
        """Take what was added since the last time, drop the torn end that a killed process left, write a new header."""
        size_bytes = os.fstat(self._file).st_size
        if size_bytes < self._end:
            raise SimError(f"{self.path}: was cut short by another program; run the same command again")
        if not self._end:
            start = os.pread(self._file, len(START), 0)
            if start != START[: len(start)]:  # known before a file of any size is read
                self._check_header(None)
        added = b""
        while part := os.pread(self._file, size_bytes - self._end - len(added), self._end + len(added)):
            added += part
        *lines, torn = added.split(b"\n")
        if not self._line and not lines and not line_of(HEADER).startswith(torn):
            self._check_header(None)
        damaged = []
        for number, line in enumerate(lines, start=self._line + 1):
            found = checked(line + b"\n")
            if number == 1:
                self._check_header(found)
            elif not is_row(found):
                damaged.append(number)
            else:
                self._take(dict(zip(COLUMNS, found, strict=True)), f"line {number}")
        if torn:
            os.ftruncate(self._file, self._end + len(added) - len(torn))
            self.notes.append(f"{self.path}: its last line was torn and is dropped; its row is computed again")
        if damaged:
            which = f"line{'s' * (len(damaged) > 1)} {', '.join(map(str, damaged))}"
            self.notes.append(f"{self.path}: {which} of it cannot be read; what was there is computed again")
        self._end, self._line = self._end + len(added) - len(torn), self._line + len(lines)
        if not self._line:
            self._end, self._line = self._write(line_of(HEADER)), 1

    def _check_header(self, found: Any) -> None:
        if not isinstance(found, dict) or "ledger" not in found:
            raise BadInput(
                f"{self.path}: is no ledger of results, or its first line is damaged, which says what its rows mean; "
                "restore it, give another folder, or --force to start again without its rows"
            )
        if found != HEADER:
            raise BadInput(
                f"{self.path}: is of another version, whose rows may differ; give another folder, "
                "or --force to start again"
            )

    def _take(self, row: Row, where: str) -> None:
        if wrong := self._wrong(row, where):
            raise SimError(wrong)
        self._rows[_key(row)] = row
        self._by_id.setdefault(row["id"], (row, where))

    def _wrong(self, row: Row, where: str) -> str:
        """What is wrong with a row whose id the ledger has with other numbers; nothing for any other."""
        if row["id"] not in self._by_id:
            return ""
        known, known_where = self._by_id[row["id"]]
        for name in NUMBERS:
            one, other = known[name], row[name]
            if one != other and repr(one) != repr(other):  # NaN differs from itself
                return (
                    f"{self.path}: {known_where} and {where} have the id {shortened(row['id'])}, but {name} is "
                    f"{shown(one)} and {shown(other)}; both cannot be right: please report it; --force starts again"
                )
        return ""

    def _write(self, data: bytes) -> int:
        """All of it, or nothing; how many bytes that is."""
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except BaseException:
            os.ftruncate(self._file, self._end)
            raise
        return written


def _key(row: Row) -> tuple[Any, ...]:
    return row["id"], *(row[name] for name in NAMES)


def _place(row: Row) -> list[tuple[bool, Any]]:
    return [(row[name] is not None, row[name]) for name in SORTED_BY]


def _flock(descriptor: int, how: int) -> bool:
    """Whether nobody else has the lock; a file system without locks has only the checksums against two writers."""
    try:
        fcntl.flock(descriptor, how)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
