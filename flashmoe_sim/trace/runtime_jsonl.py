"""The trace of the patched runtime (`--moe-trace`): one JSON object per line, one line per routed call.

{"seq":0,"layer":3,"n_expert_used":8,"n_tokens":1,"experts":[...],"slots":[...]}

`experts` and `slots` have n_expert_used x n_tokens entries, token-major. Only `layer` and `experts` are required. A
missing n_expert_used or n_tokens follows from the number of experts; without both, a line is one token. A call without
tokens has n_tokens 0 and empty lists: most architectures write one for the last layer of a micro-batch that outputs no
row. `slots` may be empty beside experts, of a call that used none: later builds read prompts that way. `phase` (0, 1,
2, "prompt" or "decode"), `sequence`, `step` and `weights` (one number per reference) are read too; any other key is
ignored. Steps that start again, as in two captures in one file, are numbered on. A key may be written with escapes
(`"\\u006cayer"` is `layer`), and must not occur twice; a text with half a character (a lone surrogate, `"\\ud800"`) is
refused, even under an ignored key.

Lines are parsed by compiled kernels. A line with `weights`, escapes, unknown keys or a phase in words goes through
orjson, at a tenth of the speed.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Malformed, Unusable
from flashmoe_sim.io.files import BOM
from flashmoe_sim.io.notes import SKIPPED, TORN, Note
from flashmoe_sim.trace._json_columns import Collector
from flashmoe_sim.trace._json_kernels import (
    COLUMNS,
    KEY_NAMES,
    LINE,
    NEWLINE,
    PADDING,
    SHORTEST_ID,
    SHORTEST_LINE,
    Position,
    parse_lines,
)
from flashmoe_sim.trace._json_record import BadRecord, NotJson, counts_of, read_record
from flashmoe_sim.trace.chunk import Chunk, LongTrace, part_of, whole
from flashmoe_sim.trace.lines import counted, trace_name
from flashmoe_sim.trace.requests import DEFAULTS, ReadOptions
from flashmoe_sim.trace.routing import RoutingTrace
from flashmoe_sim.trace.source import open_bytes

FORMAT = "runtime-jsonl"
CHUNK_BYTES = 1 << 20
CALLS_PER_CHUNK = 1 << 17
# A prompt micro-batch of 4096 tokens x 32 experts takes at most 1.7 MB.
LONGEST_LINE = 64 << 20

_LINES_SHOWN = 5
_REPAIR = "fix or delete the line, or skip such lines with --lenient"


def read(path: Path, options: ReadOptions = DEFAULTS) -> RoutingTrace:
    """Read a whole trace file, compressed or not. An incomplete last line is dropped with a note.

    Raises BadInput for a file that cannot be read, a malformed line, and a file without routed calls.
    """
    parser = JsonlParser(path, lenient=options.lenient)
    for _ in _fed(parser, path, options):
        pass
    return parser.finish()


def read_chunks(path: Path, options: ReadOptions = DEFAULTS) -> LongTrace:
    """Read a trace file once for what holds for all of it, and again each time its calls are read.

    Raises what `read` raises; reading it again raises BadInput if it has changed.
    """
    parser = JsonlParser(path, lenient=options.lenient)
    for _ in _fed(parser, path, options):
        parser.forget()
    head = part_of(parser.finish_chunk(), 0, 0)
    return LongTrace(head, partial(_read_again, path, head, parser.calls, options))


def _read_again(path: Path, head: Chunk, calls: int, options: ReadOptions) -> Iterator[Chunk]:
    parser = JsonlParser(path, lenient=options.lenient)
    for _ in _fed(parser, path, options):
        if parser.waiting >= CALLS_PER_CHUNK:
            yield parser.take(head)
    again = parser.finish_chunk()
    if parser.calls != calls or not part_of(again, 0, 0).equals(head):
        raise Unusable(f"{path}: changed while it was read ({calls:,} calls, then {parser.calls:,}); read it again")
    if again.calls:
        yield again


def _fed(parser: JsonlParser, path: Path, options: ReadOptions) -> Iterator[None]:
    """Feed a file to a parser; yields after each part of it."""
    with open_bytes(path) as stream:
        while data := stream.read(CHUNK_BYTES):
            parser.feed(data)
            yield
            if options.progress:
                options.progress(len(data))


class JsonlParser:
    """Parses a trace as its bytes arrive.

    path: names the trace and its errors; it is not opened.
    offset: bytes of the decompressed stream up to the end of the last whole line.
    lines: newlines up to there.
    """

    def __init__(self, path: Path, *, lenient: bool = False, chunk_bytes: int = CHUNK_BYTES) -> None:
        self.offset = self.lines = 0
        self._path = path
        self._lenient = lenient
        self._chunk_bytes = chunk_bytes
        self._columns = Collector(path)
        self._skipped = 0
        self._skipped_lines: list[int] = []
        self._rest = bytearray()  # of a line that is not whole

    @property
    def calls(self) -> int:
        """Routed calls in the whole lines so far."""
        return self._columns.calls

    @property
    def waiting(self) -> int:
        """Routed calls that have not been taken yet."""
        return self._columns.waiting

    def take(self, head: Chunk) -> Chunk:
        """The calls since the last time; afterwards `finish_chunk` returns only later ones."""
        return self._columns.take(head)

    def forget(self) -> None:
        """Drop the calls so far, and keep only what holds for the whole trace."""
        self._columns.forget()

    def feed(self, data: bytes) -> None:
        """Parse the next bytes of the stream, cut anywhere.

        Raises BadInput for a malformed line (unless lenient) and for a line longer than LONGEST_LINE.
        """
        for start in range(0, len(data), self._chunk_bytes):
            chunk = data[start : start + self._chunk_bytes]
            first, end = chunk.find(b"\n"), chunk.rfind(b"\n") + 1
            if len(self._rest) + (len(chunk) if first < 0 else first) > LONGEST_LINE:
                raise Malformed(
                    f"{self._path}:{self.lines + 1}: found a line longer than {LONGEST_LINE} bytes, expected one JSON "
                    "object a line; check that the file is a trace of the runtime"
                )
            self._rest += chunk[:end]
            if end:
                whole_lines, self._rest = self._rest, bytearray()
                self._parse(whole_lines)
            self._rest += chunk[end:]

    def finish(self) -> RoutingTrace:
        """The trace of everything fed; a last line without a newline counts if it is complete. Ends the parser.

        Raises BadInput for a malformed last line (unless lenient), steps that are out of order, and if there is no
        routed call.
        """
        return whole(self.finish_chunk())

    def finish_chunk(self) -> Chunk:
        """Like `finish`, but with only the calls that were not taken."""
        notes: tuple[str, ...] = ()
        torn = bytes(self._rest)
        if not self.take_last_line() and self._without_bom(torn).strip():
            lost = f"line {self.lines + 1} at byte offset {self.offset}, {len(torn)} bytes dropped"
            notes += (Note(TORN, f"last line incomplete: {lost}; the run was cut off or is still writing"),)
        if self._skipped:
            shown = ", ".join(map(str, self._skipped_lines))
            more = ", ..." if self._skipped > len(self._skipped_lines) else ""
            notes += (Note(SKIPPED, f"{counted(self._skipped, 'malformed line')} skipped: {shown}{more}"),)
        if not self.calls:
            why = f" ({'; '.join(notes)})" if notes else ""
            raise Malformed(
                f"{self._path}: found no routed calls in it{why}, expected one JSON object a line; "
                "record a trace with --moe-trace"
            )
        return self._columns.finish(format=FORMAT, name=trace_name(self._path), notes=notes)

    def take_last_line(self) -> bool:
        """Take a last line that lacks only its newline; return whether there was one. More can be fed afterwards."""
        if not self._is_complete(bytes(self._rest)):
            return False
        line, self._rest = self._rest, bytearray()
        self._parse(line + b"\n")
        self.offset -= 1
        self.lines -= 1
        return True

    def _is_complete(self, line: bytes) -> bool:
        """Whether a last line without a newline is an object, or is wrong in a way that must be reported."""
        line = self._without_bom(line)
        if not line.strip():
            return False
        try:
            read_record(line)
        except NotJson:
            return not self.calls and not line.lstrip().startswith(b"{")
        except BadRecord:
            pass
        return True

    def _without_bom(self, head: bytes) -> bytes:
        return head if self.offset else head.removeprefix(BOM)

    def _parse(self, block: bytearray) -> None:
        """Parse whole lines."""
        at = len(BOM) if self.offset == 0 and block.startswith(BOM) else 0
        end = len(block)
        data = np.frombuffer(block + bytes(PADDING), np.uint8)
        table = np.empty((end // SHORTEST_LINE + 1, COLUMNS), np.int64)
        expert, slot = np.empty((2, end // SHORTEST_ID + 1), np.int16)
        weight: NDArray[np.float32] | None = None
        call = ref = 0
        while True:
            begin = Position(at, self.lines, call, ref)
            at, self.lines, call, ref = parse_lines(data, end, begin, table, expert, slot)
            if at == end:
                break
            newline = block.index(NEWLINE, at)
            self.lines += 1
            try:
                record = read_record(bytes(block[at:newline]))
            except BadRecord as error:
                self._skip(error)
            else:
                count = len(record["experts"])
                table[call] = self._row(record)
                expert[ref : ref + count] = record["experts"]
                slot[ref : ref + count] = record.get("slots", 0)
                if "weights" in record:
                    weight = np.empty(len(expert), np.float32) if weight is None else weight
                    weight[ref : ref + count] = record["weights"]
                call, ref = call + 1, ref + count
            at = newline + 1
        self.offset += end
        weight = None if weight is None else weight[:ref]
        self._columns.add(table[:call], expert=expert[:ref], slot=slot[:ref], weight=weight)

    def _row(self, record: dict[str, Any]) -> list[int]:
        """A record's row of the table, as the kernels write it."""
        counts = dict(zip(("n_expert_used", "n_tokens"), counts_of(record), strict=True))
        keys = sum(1 << key for key, name in enumerate(KEY_NAMES) if name in record)
        return [*((record | counts).get(name, 0) for name in KEY_NAMES[:LINE]), self.lines, keys]

    def _skip(self, error: BadRecord) -> None:
        if not self._lenient:
            raise Malformed(f"{self._path}:{self.lines}: {error}; {_REPAIR}") from None
        self._skipped += 1
        if self._skipped <= _LINES_SHOWN:
            self._skipped_lines.append(self.lines)
