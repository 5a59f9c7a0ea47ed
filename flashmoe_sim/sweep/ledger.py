"""The ledger of a folder of results: every row, stored as soon as it is known.

An append-only file of lines, each a JSON object with the checksum of its row. It is faster than SQLite, is one file
that any tool can read, and needs no shared memory, which network folders lack;
reports/measured/README.md has the numbers.
"""

from __future__ import annotations

import json
import os
import re
import stat
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from flashmoe_sim.io.errors import BadInput, Conflict, Malformed, SimError, Unusable, shortened, shown
from flashmoe_sim.io.locks import flock, open_folder, unlock
from flashmoe_sim.io.whole import sync_folder
from flashmoe_sim.schema import COUNTS, IDENTITY, RESULT_COLUMNS, TIMING
from flashmoe_sim.sweep.task import SEMANTICS, Task

COLUMNS = [column.name for column in RESULT_COLUMNS]
UNKNOWN = {"model", "bank_slots", "bank_bytes"}  # without a model, or of the other kinds of banks
ALWAYS = {column.name for column in IDENTITY if column.name not in UNKNOWN} | {
    column.name for column in COUNTS if column.dtype == "int" and column.unit not in {"bytes", "reads"}
}
INT64 = 1 << 63
HALF_CHARACTER = re.compile("[\ud800-\udfff]")
TYPES: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (float, int)}
LEAD = len('{"crc":"01234567","row":')
FILE = "ledger.ndjson"
HEADER = {"ledger": 1, "semantics": SEMANTICS, "columns": COLUMNS}
NAMES = ("trace", "trace_id", "model", "policy", "machine")  # rows that differ only in these belong to one task
NUMBERS = [column.name for column in (*COUNTS, *TIMING) if column.name not in {"machine", "execution"}]
START = b'{"crc":"'
BINARY: int = getattr(os, "O_BINARY", 0)  # or Windows writes a CR before each LF
AGAIN = "the same sweep computes it again"
SORTED_BY = ("trace", "contract", "scope", "policy", "prefetch", "machine", "bank_bytes", "bank_slots", "bank", "id")

Row = dict[str, Any]


class Ledger:
    """The rows of a folder, and the file that they are appended to. Several processes may share it.

    read_only: leave the file as it is. notes: what was repaired or, if read_only, left out. Close it with `close`, or
    use it as a context.
    Raises BadInput for a ledger that cannot be read, or is of another version; SimError if two rows have the same id
    but different numbers, and if rows cannot be written.
    """

    def __init__(self, folder: Path, *, force: bool = False, read_only: bool = False) -> None:
        self.folder, self.path, self.force, self.read_only = folder, folder / FILE, force, read_only
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
        """All rows: `first` in order, including rows without an id, then the others, sorted."""
        ahead = {_key(row) for row in first}
        others = (row for key, row in self._rows.items() if key not in ahead)
        return [*first, *sorted(others, key=lambda row: [(row[name] is not None, row[name]) for name in SORTED_BY])]

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
                _flock(self._file, shared=True)

    def refresh(self) -> bool:
        """Read the rows that other processes added; return whether there were any.

        It also releases the lock if an interruption came while it was being taken.
        """
        before = len(self)
        if self._file >= 0:
            with self._errors(), self._locked():
                self._check_in_place()
                self._read()
        return len(self) > before

    def append(self, rows: Sequence[Row]) -> None:
        """Store new rows, except rows without an id; they survive the end of this process."""
        wanted = {_key(row): row for row in rows if row["id"] is not None}
        if all(key in self._rows and not self._wrong(row, "") for key, row in wanted.items()):
            return
        with self._errors(), self._locked():
            self._check_in_place()
            self._read()
            wrong = [problem for row in wanted.values() if (problem := self._wrong(row, "what was computed now"))]
            new = [row for key, row in wanted.items() if key not in self._rows and not self._wrong(row, "")]
            written = self._write(b"".join(line_of([row[name] for name in COLUMNS]) for row in new))
            for number, row in enumerate(new, start=self._line + 1):
                self._take(row, f"line {number}")
            self._end, self._line = self._end + written, self._line + len(new)  # last: an interruption loses no row
            if wrong:
                raise SimError(wrong[0])

    def close(self) -> None:
        """Flush everything to the disk, and release the file."""
        try:
            if self._file >= 0 and not self.read_only:
                os.fsync(self._file)
                sync_folder(self.folder)
        except OSError as error:
            raise SimError(
                f"{self.path}: could not be flushed to the disk ({error.strerror or error}); a power failure may lose "
                "rows"
            ) from None
        finally:
            self._let_go()

    def _let_go(self) -> None:
        for descriptor in (self._file, self._folder):
            if descriptor >= 0:
                os.close(descriptor)
        self._file = self._folder = -1

    def _open(self) -> None:
        self._check_kind()
        how = os.O_RDONLY if self.read_only else os.O_RDWR | os.O_CREAT | os.O_APPEND
        self._file = os.open(self.path, how | BINARY, 0o666)
        self._folder = open_folder(self.folder, inside=self.path)
        # held while it is open: nobody empties it meanwhile
        if not _flock(self._file, shared=not self.force, wait=False):
            self._let_go()
            what = "another sweep is writing to it" if self.force else "another sweep starts it again"
            raise Unusable(f"{self.folder}: {what}; wait for its end, or give another folder")

    def _check_kind(self) -> None:
        """Refuse what is not a file. With `force`, which empties the file, also refuse a link to one."""
        if self.path.exists() and not stat.S_ISREG(self.path.stat().st_mode):
            raise Unusable(f"{self.path}: is not a file; remove it, or give another folder")
        if self.force and self.path.is_symlink():
            found = f"{self.path}: is a link to {self.path.readlink()}, which --force would empty"
            raise Unusable(found, advice="remove the link, or give another folder")

    def _check_in_place(self) -> None:
        """Refuse to go on if the file was removed or renamed: tables would be written without it."""
        ours, there = os.fstat(self._file), os.stat(self.path) if self.path.exists() else None
        if there is None or not os.path.samestat(ours, there):
            raise SimError(
                f"{self.path}: was moved or removed while the sweep ran; run the same command again, with the folder's "
                "new name if it has one"
            )

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Within it nobody else reads or writes; it locks the folder, since the file's lock means that it is in use."""
        _flock(self._folder, of_folder=True)
        try:
            yield
        finally:
            if self._folder >= 0:  # Ctrl-C just before the block leaves this to the end, when the lock is gone
                with suppress(OSError):
                    unlock(self._folder, of_folder=True)

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
        """Read what was added since the last time.

        Unless read_only, drop the torn end that a killed process left, and write a new header.
        """
        size_bytes = os.fstat(self._file).st_size
        if size_bytes < self._end:
            raise SimError(f"{self.path}: was cut short by another program; run the same command again")
        if not self._end:
            start = self._read_at(0, len(START))
            if start != START[: len(start)]:  # known before the file is read, however large
                self._check_header(None)
        added = b""
        while part := self._read_at(self._end + len(added), size_bytes - self._end - len(added)):
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
        if torn and self.read_only:
            self.notes.append(f"{self.path}: its last line is torn, so its row is left out; {AGAIN}")
        elif torn:
            os.ftruncate(self._file, self._end + len(added) - len(torn))
            self.notes.append(f"{self.path}: its last line was torn and is dropped; its row is computed again")
        if damaged:
            which = f"line{'s' * (len(damaged) > 1)} {', '.join(map(str, damaged))}"
            then = f"what was there is left out; {AGAIN}" if self.read_only else "what was there is computed again"
            self.notes.append(f"{self.path}: {which} of it cannot be read; {then}")
        self._end, self._line = self._end + len(added) - len(torn), self._line + len(lines)
        if not self._line and not self.read_only:
            self._end, self._line = self._write(line_of(HEADER)), 1

    def _read_at(self, place: int, count_bytes: int) -> bytes:
        """As os.pread, which Windows lacks; writing appends in any case."""
        os.lseek(self._file, place, os.SEEK_SET)
        return os.read(self._file, count_bytes)

    def _check_header(self, found: Any) -> None:
        if not isinstance(found, dict) or "ledger" not in found:
            raise Malformed(
                f"{self.path}: is not a ledger of results, or its header line is damaged; "
                "restore it, give another folder, or --force to start again without its rows"
            )
        if found != HEADER:
            raise Conflict(
                f"{self.path}: is of another version, whose rows may differ; give another folder, "
                "or --force to start again"
            )

    def _take(self, row: Row, where: str) -> None:
        if wrong := self._wrong(row, where):
            raise SimError(wrong)
        self._rows[_key(row)] = row
        self._by_id.setdefault(row["id"], (row, where))

    def _wrong(self, row: Row, where: str) -> str:
        """What is wrong with a row whose id the ledger has with other numbers; empty for any other row."""
        if row["id"] not in self._by_id:
            return ""
        known, known_where = self._by_id[row["id"]]
        for name in NUMBERS:
            one, other = known[name], row[name]
            if one != other and repr(one) != repr(other):  # NaN differs from itself
                return (
                    f"{self.path}: {known_where} and {where} have the id {shortened(row['id'])}, but {name} is "
                    f"{shown(one)} and {shown(other)}; they disagree, which is a bug: please report it; --force starts "
                    "again"
                )
        return ""

    def _write(self, data: bytes) -> int:
        """Write all of it or nothing; return the number of bytes. What an interruption finds written stays."""
        written = 0
        try:
            while written < len(data):
                written += os.write(self._file, data[written:])
        except BaseException:
            if os.fstat(self._file).st_size - self._end < len(data):
                os.ftruncate(self._file, self._end)
            raise
        return written


def _key(row: Row) -> tuple[Any, ...]:
    return row["id"], *(row[name] for name in NAMES)


def _flock(descriptor: int, *, shared: bool = False, wait: bool = True, of_folder: bool = False) -> bool:
    """Lock if possible; return whether nobody else has the lock. Without file locks, only checksums help."""
    try:
        flock(descriptor, shared=shared, wait=wait, of_folder=of_folder)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True


def is_row(found: Any) -> bool:
    """Whether a line has valid values for every column, and lacks nothing that every row has."""
    return (
        isinstance(found, list)
        and len(found) == len(COLUMNS)
        and all(
            column.name not in ALWAYS if value is None else _is_value(value, column.dtype)
            for value, column in zip(found, RESULT_COLUMNS, strict=True)
        )
    )


def _is_value(value: Any, dtype: str) -> bool:
    """Whether a value is one of its column: a text, or a number that is not negative."""
    if type(value) not in TYPES[dtype]:
        return False
    if isinstance(value, str):
        return not HALF_CHARACTER.search(value)
    return value >= 0 and (isinstance(value, float) or value < INT64)  # false for NaN


def line_of(value: Any) -> bytes:
    """A line with a value and its checksum."""
    text = json.dumps(value, separators=(",", ":")).encode()  # floats are restored bit for bit, infinite ones too
    return b'{"crc":"%08x","row":%s}\n' % (zlib.crc32(text), text)


def checked(line: bytes) -> Any:
    """The content of a line, or None if it is not what was written."""
    text = line[LEAD:-2]
    if line != b'{"crc":"%08x","row":%s}\n' % (zlib.crc32(text), text):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
