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
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from flashmoe_sim.io.errors import BadInput, Conflict, Malformed, SimError, Unusable, shortened, shown
from flashmoe_sim.io.locks import flock, open_folder, unlock
from flashmoe_sim.io.whole import sync_folder
from flashmoe_sim.schema import COUNTS, IDENTITY, RESULT_COLUMNS, TIMING, Column
from flashmoe_sim.sweep.task import SEMANTICS, Task

COLUMNS = [column.name for column in RESULT_COLUMNS]
UNKNOWN = {"model", "bank_slots", "bank_bytes"}  # without a model, or of the other kinds of banks
ALWAYS = {column.name for column in IDENTITY if column.name not in UNKNOWN} | {
    column.name for column in COUNTS if column.dtype == "int" and column.unit not in {"bytes", "reads"}
}
TYPES: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (float, int)}
HALF_CHARACTER = re.compile("[\ud800-\udfff]")
FILE = "ledger.ndjson"
HEADER = {"ledger": 1, "semantics": SEMANTICS, "columns": COLUMNS}
LONGEST_HEADER = 1 << 16  # bytes
NAMES = ("trace", "trace_id", "model", "policy", "machine")  # rows that differ only in these belong to one task
NUMBERS = [column.name for column in (*COUNTS, *TIMING) if column.name not in {"machine", "execution"}]
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
        self._file: Any = None
        self._folder, self._opened = -1, ExitStack()
        with self._errors(BadInput), ExitStack() as failed:
            failed.callback(self._let_go)
            if not force and self.path.exists():
                self._open()
                with self._locked():
                    self._read()
            failed.pop_all()

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
            if self._file is None:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._open()
            with self._locked():
                if self.force:
                    self._file.truncate(0)
                self._read()
            if self.force:
                _flock(self._file.fileno(), shared=True)

    def refresh(self) -> bool:
        """Read the rows that other processes added; return whether there were any.

        It also releases the lock if an interruption came while it was being taken.
        """
        before = len(self)
        if self._file is not None:
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
            wrong = {key: self._wrong(row, "what was computed now") for key, row in wanted.items()}
            new = [row for key, row in wanted.items() if key not in self._rows and not wrong[key]]
            written = self._write(b"".join(line_of([row[name] for name in COLUMNS]) for row in new))
            for number, row in enumerate(new, start=self._line + 1):
                self._take(row, f"line {number}")
            self._end, self._line = self._end + written, self._line + len(new)  # last: an interruption loses no row
            for problem in filter(None, wrong.values()):
                raise SimError(problem)

    def close(self) -> None:
        """Flush everything to the disk, and release the file."""
        try:
            if self._file is not None and not self.read_only:
                os.fsync(self._file.fileno())
                sync_folder(self.folder)
        except OSError as error:
            raise SimError(
                f"{self.path}: could not be flushed to the disk ({error.strerror or error}); a power failure may lose "
                "rows"
            ) from None
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self._file = None
        self._opened.close()

    def _open(self) -> None:
        """Open the file, and hold its lock while it is open, so that nobody empties it meanwhile."""
        if self.path.exists() and not stat.S_ISREG(self.path.stat().st_mode):
            raise Unusable(f"{self.path}: is not a file; remove it, or give another folder")
        if self.force and self.path.is_symlink():
            found = f"{self.path}: is a link to {self.path.readlink()}, which --force would empty"
            raise Unusable(found, advice="remove the link, or give another folder")
        self._file = self._opened.enter_context(self.path.open("rb" if self.read_only else "a+b", buffering=0))
        self._folder = open_folder(self.folder, inside=self.path)
        self._opened.callback(os.close, self._folder)
        if not _flock(self._file.fileno(), shared=not self.force, wait=False):
            self._let_go()
            what = "another sweep is writing to it" if self.force else "another sweep starts it again"
            raise Unusable(f"{self.folder}: {what}; wait for its end, or give another folder")

    def _check_in_place(self) -> None:
        """Refuse to go on if the file was removed or renamed: tables would be written without it."""
        if not (self.path.exists() and os.path.samestat(os.fstat(self._file.fileno()), self.path.stat())):
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
            if self._file is not None:  # Ctrl-C just before the block leaves this to the end, when the lock is gone
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
        if (size_bytes := self._file.seek(0, os.SEEK_END)) < self._end:
            raise SimError(f"{self.path}: was cut short by another program; run the same command again")
        if self._line and size_bytes == self._end:
            return
        if not self._line:
            self._check_header()
        self._file.seek(self._end)
        *lines, torn = self._file.read().split(b"\n")
        damaged = []
        for number, line in enumerate(lines, start=self._line + 1):
            if is_row(found := checked(line + b"\n")):
                self._take(dict(zip(COLUMNS, found, strict=True)), f"line {number}")
            elif number > 1:
                damaged.append(number)
        self._end, self._line = self._end + sum(map(len, lines)) + len(lines), self._line + len(lines)
        again = "is left out; the same sweep computes it again" if self.read_only else "is computed again"
        if torn:
            what = "torn, so its row" if self.read_only else "torn and is dropped; its row"
            self.notes.append(f"{self.path}: its last line {'is' if self.read_only else 'was'} {what} {again}")
        if damaged:
            which = f"line{'s' * (len(damaged) > 1)} {', '.join(map(str, damaged))}"
            self.notes.append(f"{self.path}: {which} of it cannot be read; what was there {again}")
        if torn and not self.read_only:
            self._file.truncate(self._end)
        if not self._line and not self.read_only:
            self._end, self._line = self._write(line_of(HEADER)), 1

    def _check_header(self) -> None:
        """Refuse a first line that is not this version's, or the beginning of it; before more is read."""
        self._file.seek(0)
        first, whole, _ = self._file.read(LONGEST_HEADER).partition(b"\n")
        if not whole and line_of(HEADER).startswith(first):
            return
        found = checked(first + b"\n")
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
        known, known_where = self._by_id.get(row["id"], (row, ""))
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
                written += self._file.write(data[written:])
        except BaseException:
            if self._file.seek(0, os.SEEK_END) - self._end < len(data):
                self._file.truncate(self._end)
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
    return isinstance(found, list) and len(found) == len(COLUMNS) and all(map(_is_value, found, RESULT_COLUMNS))


def _is_value(value: Any, column: Column) -> bool:
    """Whether a value is one of its column: a text, a number that is not negative, or none where a row may lack it."""
    if value is None or type(value) not in TYPES[column.dtype]:
        return value is None and column.name not in ALWAYS
    if isinstance(value, str):
        return not HALF_CHARACTER.search(value)
    return value >= 0 and (isinstance(value, float) or value < 1 << 63)  # false for NaN


def line_of(value: Any) -> bytes:
    """A line with a value and its checksum."""
    return _signed(json.dumps(value, separators=(",", ":")).encode())  # floats are restored bit for bit, infinite too


def _signed(text: bytes) -> bytes:
    return b'{"crc":"%08x","row":%s}\n' % (zlib.crc32(text), text)


LEAD = _signed(b"").index(b"}")


def checked(line: bytes) -> Any:
    """The content of a line, or None if it is not what was written."""
    text = line[LEAD:-2]
    try:
        return json.loads(text) if line == _signed(text) else None
    except (ValueError, RecursionError):
        return None
