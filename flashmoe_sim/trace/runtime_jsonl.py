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
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Malformed, Unusable
from flashmoe_sim.io.files import BOM
from flashmoe_sim.io.notes import SKIPPED, TORN, Note
from flashmoe_sim.trace._json_columns import Collector, ParsedCalls
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
from flashmoe_sim.trace.lines import counted, trace_name
from flashmoe_sim.trace.long_traces import Chunk, LongTrace, part_of, whole
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
    reader = _TraceFile(path, options)
    for _ in reader.collected():
        pass
    return whole(reader.finish())


def read_chunks(path: Path, options: ReadOptions = DEFAULTS) -> LongTrace:
    """Read a trace file once for what holds for all of it, and again each time its calls are read.

    Raises what `read` raises; reading it again raises BadInput if it has changed.
    """
    reader = _TraceFile(path, options)
    for columns in reader.collected():
        columns.forget()
    head = part_of(reader.finish(), 0, 0)
    return LongTrace(head, partial(_read_again, path, head, reader.columns.calls, options))


def _read_again(path: Path, head: Chunk, calls: int, options: ReadOptions) -> Iterator[Chunk]:
    reader = _TraceFile(path, options)
    for columns in reader.collected():
        if columns.waiting >= CALLS_PER_CHUNK:
            yield columns.take(head)
    again = reader.finish()
    if (now := reader.columns.calls) != calls or not part_of(again, 0, 0).equals(head):
        raise Unusable(f"{path}: changed while it was read ({calls:,} calls, then {now:,}); read it again")
    if again.calls:
        yield again


class _TraceFile:
    """Reads one file, once.

    columns: of the calls so far that nobody has taken.
    """

    def __init__(self, path: Path, options: ReadOptions) -> None:
        self.columns = Collector(path)
        self._path = path
        self._options = options
        self._offset = self._lines = 0  # bytes of the decompressed stream, and newlines, that were parsed
        self._skipped = 0
        self._skipped_lines: list[int] = []
        self._torn = bytearray()

    def collected(self) -> Iterator[Collector]:
        """The columns again and again, after each part of the file. The next part is parsed meanwhile.

        Raises BadInput for a malformed line (unless lenient) and for a line longer than LONGEST_LINE.
        """
        with open_bytes(self._path) as stream, ThreadPoolExecutor(1) as beside:
            parts = self._parts(stream)
            coming = beside.submit(next, parts, None)
            while part := coming.result():
                coming = beside.submit(next, parts, None)
                read_bytes, calls = part
                self.columns.add(calls)
                yield self.columns
                if self._options.progress:
                    self._options.progress(read_bytes)
        if self._is_complete(self._torn):
            self.columns.add(self._parsed(self._torn + b"\n"))
            self._torn = bytearray()
            yield self.columns

    def _parts(self, stream: IO[bytes]) -> Iterator[tuple[int, ParsedCalls]]:
        """How many bytes were read, and the calls of the lines that end in them."""
        rest = bytearray()  # of a line that is not whole
        while chunk := stream.read(CHUNK_BYTES):
            first, end = chunk.find(b"\n"), chunk.rfind(b"\n") + 1
            if len(rest) + (len(chunk) if first < 0 else first) > LONGEST_LINE:
                raise Malformed(
                    f"{self._path}:{self._lines + 1}: found a line longer than {LONGEST_LINE} bytes, expected one JSON "
                    "object a line; check that the file is a trace of the runtime"
                )
            rest += chunk[:end]
            lines = bytearray()
            if end:
                lines, rest = rest, lines
            rest += chunk[end:]
            yield len(chunk), self._parsed(lines)
        self._torn = rest

    def finish(self) -> Chunk:
        """The calls that were not taken, and what holds for the whole trace.

        Raises BadInput for steps that are out of order, and if there is no routed call.
        """
        notes: tuple[str, ...] = ()
        if self._without_bom(self._torn).strip():
            lost = f"line {self._lines + 1} at byte offset {self._offset}, {len(self._torn)} bytes dropped"
            notes += (Note(TORN, f"last line incomplete: {lost}; the run was cut off or is still writing"),)
        if self._skipped:
            shown = ", ".join(map(str, self._skipped_lines))
            more = ", ..." if self._skipped > len(self._skipped_lines) else ""
            notes += (Note(SKIPPED, f"{counted(self._skipped, 'malformed line')} skipped: {shown}{more}"),)
        if not self.columns.calls:
            why = f" ({'; '.join(notes)})" if notes else ""
            raise Malformed(
                f"{self._path}: found no routed calls in it{why}, expected one JSON object a line; "
                "record a trace with --moe-trace"
            )
        return self.columns.finish(format=FORMAT, name=trace_name(self._path), notes=notes)

    def _is_complete(self, last: bytearray) -> bool:
        """Whether a last line without a newline is an object, or is wrong in a way that must be reported."""
        line = self._without_bom(last)
        if not line.strip():
            return False
        try:
            read_record(line)
        except NotJson:
            return not self.columns.calls and not line.lstrip().startswith(b"{")
        except BadRecord:
            pass
        return True

    def _without_bom(self, head: bytearray) -> bytes:
        return bytes(head if self._offset else head.removeprefix(BOM))

    def _parsed(self, block: bytearray) -> ParsedCalls:
        at = len(BOM) if self._offset == 0 and block.startswith(BOM) else 0
        end = len(block)
        data = np.frombuffer(block + bytes(PADDING), np.uint8)
        table = np.empty((end // SHORTEST_LINE + 1, COLUMNS), np.int64)
        expert, slot = np.empty((2, end // SHORTEST_ID + 1), np.int16)
        weight: NDArray[np.float32] | None = None
        call = ref = 0
        while True:
            begin = Position(at, self._lines, call, ref)
            at, self._lines, call, ref = parse_lines(data, end, begin, table, expert, slot)
            if at == end:
                break
            newline = block.index(NEWLINE, at)
            self._lines += 1
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
        self._offset += end
        weight = None if weight is None else weight[:ref]
        return ParsedCalls(table[:call], expert[:ref], slot[:ref], weight)

    def _row(self, record: dict[str, Any]) -> list[int]:
        """A record's row of the table, as the kernels write it."""
        counts = dict(zip(("n_expert_used", "n_tokens"), counts_of(record), strict=True))
        keys = sum(1 << key for key, name in enumerate(KEY_NAMES) if name in record)
        return [*((record | counts).get(name, 0) for name in KEY_NAMES[:LINE]), self._lines, keys]

    def _skip(self, error: BadRecord) -> None:
        if not self._options.lenient:
            raise Malformed(f"{self._path}:{self._lines}: {error}; {_REPAIR}") from None
        self._skipped += 1
        if self._skipped <= _LINES_SHOWN:
            self._skipped_lines.append(self._lines)
