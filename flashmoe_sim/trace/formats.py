"""Every trace format: its name, how a file of it is recognised, and the module that reads it.

A file is of the first format that claims its first 64 KiB after decompression. To add a format: one file with `read`,
and one entry of FORMATS here.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flashmoe_sim.io.errors import Malformed
from flashmoe_sim.io.files import BOM
from flashmoe_sim.trace.lines import excerpt
from flashmoe_sim.trace.source import open_bytes

if TYPE_CHECKING:
    from flashmoe_sim.trace.long_traces import LongTrace
    from flashmoe_sim.trace.requests import ReadOptions
    from flashmoe_sim.trace.routing import RoutingTrace

HEAD_BYTES = 64 << 10
LONGEST_HEADER = 100_000_000  # bytes of a safetensors header, the format's own limit
NPY_MAGIC, ZIP_MAGIC = b"\x93NUMPY", b"PK\x03\x04"
OTHERS = {  # files that people have beside traces
    b"BZh": "compressed by bzip2; unpack it first (gzip and zstd are read as they are)",
    b"\xfd7zXZ": "compressed by xz; unpack it first (gzip and zstd are read as they are)",
    b"7z\xbc\xaf": "a 7z archive; unpack it first",
    ZIP_MAGIC: "a zip archive; unpack it first, or save a table as CSV or Parquet",
    b"ARROW1": "an Arrow file; save it as Parquet",
    b"SQLite format 3": "an SQLite database; save its table as CSV or Parquet",
    b"\x89HDF": "an HDF5 file; save its array with numpy.save",
    b"\x80": "a pickle, which is never run; save the array with numpy.save",
}
_BOM = rb"(?:\xef\xbb\xbf)?"
_RECORDS = rb"\[\s*(?:[0-9]|\[\s*[0-9]+\s*,\s*[0-9]+\s*,\s*[0-9])"  # numbers, or lists of three and more


@dataclass(frozen=True)
class TraceFormat:
    """One format: its name, its description, whether it claims a file that begins with given bytes, and its module.

    module: in `flashmoe_sim.trace`, imported when a file of the format is read; has `read` and perhaps `read_chunks`,
    whose memory does not grow with the length of the file.
    takes_hints: whether `read` accepts hints from the user about a file.
    """

    name: str
    description: str
    claims: Callable[[bytes], bool]
    module: str
    takes_hints: bool = False

    @property
    def read(self) -> Callable[[Path, ReadOptions], RoutingTrace]:
        return self._module.read  # type: ignore[no-any-return]

    @property
    def read_chunks(self) -> Callable[[Path, ReadOptions], LongTrace] | None:
        return getattr(self._module, "read_chunks", None)

    @property
    def _module(self) -> Any:
        return importlib.import_module(f"flashmoe_sim.trace.{self.module}")


def begins(pattern: bytes, *, has: bytes = b"") -> Callable[[bytes], bool]:
    """Whether a file begins with one pattern, after a byte order mark if there is one, and has another anywhere."""
    beginning, anywhere = re.compile(_BOM + pattern), re.compile(has)
    return lambda head: beginning.match(head) is not None and anywhere.search(head) is not None


def _grouped_pairs(head: bytes) -> bool:
    """A runtime's record may also have a key `trace`; what follows here are pairs, or nothing yet."""
    pairs = rb'"trace"\s*:\s*\[(?!\s*(?:-?[0-9]|\[\s*-?[0-9]+\s*,\s*-?[0-9]+\s*,))'
    runtime = re.search(rb'"layer"\s*:', head) and re.search(rb'"experts"\s*:', head)
    return not runtime and begins(rb"\s*\{", has=pairs)(head)


def _imp(head: bytes) -> bool:
    """A list of records, or one under a key; a runtime's record may have any other key."""
    document = begins(rb"\s*\{", has=rb'"(?:trace|entries|data)"\s*:\s*' + _RECORDS)
    records = begins(rb"\s*\[\s*\[\s*[0-9]+\s*,\s*[0-9]+\s*,\s*[0-9]")
    return b'"experts"' not in head and (document(head) or records(head))


def _sglang(head: bytes) -> bool:
    return _first_member(head).endswith("/data.pkl")


def _array(head: bytes) -> bool:
    """A `.npy` file, an archive of such files, or a safetensors file: a header's length and a header with a tensor."""
    size = int.from_bytes(head[:8], "little")
    safetensors = head[8:9] == b"{" and size <= LONGEST_HEADER and b'"data_offsets"' in head[8 : 8 + size]
    return head.startswith(NPY_MAGIC) or _first_member(head).endswith(".npy") or safetensors


def _first_member(head: bytes) -> str:
    """The name of the first member of a zip archive; empty if it is none."""
    if not head.startswith(ZIP_MAGIC) or len(head) < 30:
        return ""
    return head[30 : 30 + int.from_bytes(head[26:28], "little")].decode("utf-8", "replace")


def _megatron(head: bytes) -> bool:
    line = head.removeprefix(BOM).lstrip().partition(b"\n")[0]
    return line.startswith(b"{") and b'"layer"' in line and b'"top_indices"' in line and b'"experts"' not in line


def _moe_trace_csv(head: bytes) -> bool:
    """The exact header, or a first line of three or more integers."""
    first = head.removeprefix(BOM).partition(b"\n")[0].decode("utf-8", "replace").strip().lower()
    return first == "phase,token,layer,rank,expert" or begins(rb"\s*-?[0-9]+,[0-9]+(?:,[0-9]+)+\r?\n")(head)


def _plain_csv(head: bytes) -> bool:
    """A header with the columns layer and expert, after comments."""
    lines = (line for line in head.split(b"\n") if line.strip() and not line.startswith(b"#"))
    names = next(lines, b"").decode("utf-8-sig", "replace").lower().split(",")
    return {"layer", "expert"} <= {name.strip() for name in names}


def _runtime(head: bytes) -> bool:
    """The first line that is not blank is an object with `layer` and `experts`, or the beginning of one."""
    import orjson

    line, newline, _ = head.removeprefix(BOM).lstrip().partition(b"\n")
    if not line.startswith(b"{"):
        return False
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError:
        keys = [b'"layer"' in line, b'"experts"' in line]
        return all(keys) if newline else any(keys)
    return "layer" in value and "experts" in value


FORMATS: dict[str, TraceFormat] = {
    entry.name: entry
    for entry in (
        TraceFormat("parquet", "this program's own store", lambda head: head.startswith(b"PAR1"), "store"),
        TraceFormat(
            "route-csv",
            "route CSV with residency (`# route_trace v1`)",
            begins(rb"# route_trace v[0-9]"),
            "route_csv",
        ),
        TraceFormat("imp-json", "imp's moe_expert_trace", _imp, "imp_json", takes_hints=True),
        TraceFormat(
            "token-pairs",
            "a line of [layer, expert] pairs per token",
            begins(rb"\s*\[\s*\[\s*-?[0-9]"),
            "token_pairs",
        ),
        TraceFormat("sglang-pt", "SGLang's recorder, per token", _sglang, "sglang_pt"),
        TraceFormat("array", "arrays: .npy, .npz, .safetensors", _array, "arrays", takes_hints=True),
        TraceFormat(
            "served-json",
            "responses of vLLM and SGLang",
            begins(rb"\s*(?:\[\s*)?\{", has=rb'"(?:routed_experts|prompt_routed_experts|choices|meta_info)"\s*:'),
            "served_json",
            takes_hints=True,
        ),
        TraceFormat("grouped-pairs", "one JSON document of cache accesses", _grouped_pairs, "grouped_pairs"),
        TraceFormat(
            "step-layers",
            "JSON lists of steps with layers",
            begins(rb'\s*\[\s*\{\s*"[0-9]+"\s*:\s*(?:\[\s*\[|null)'),
            "step_layers",
        ),
        TraceFormat("megatron-jsonl", "Megatron-LM's routing trace", _megatron, "megatron_jsonl"),
        TraceFormat("moe-trace-csv", "CSV of llama.cpp tracers", _moe_trace_csv, "moe_trace_csv", takes_hints=True),
        TraceFormat("plain-csv", "CSV with the columns layer and expert", _plain_csv, "plain_csv", takes_hints=True),
        TraceFormat("runtime-jsonl", "the patched runtime's --moe-trace", _runtime, "runtime_jsonl"),
    )
}


def detect(head: bytes) -> TraceFormat | None:
    """The first format that claims a file that begins with these bytes."""
    return next((entry for entry in FORMATS.values() if entry.claims(head)), None)


def find_format(path: Path) -> TraceFormat:
    """The format of a file. Raises BadInput, saying what was found, if no format claims it."""
    with open_bytes(path) as stream:
        head = stream.read(HEAD_BYTES)
    if not head:
        raise Malformed(f"{path}: is empty; expected a routing trace")
    if found := detect(head):
        return found
    raise Malformed(
        f"{path}: {_describe(head)}; known trace formats: {', '.join(FORMATS)}; any other table: sim trace import "
        "--columns layer=A,expert=B, with the names of its columns"
    )


def _describe(head: bytes) -> str:
    """A description of the content for the user."""
    nul = len(head) - len(head.lstrip(b"\0"))
    if nul:
        return f"begins with {'only' if nul == len(head) else nul} NUL bytes: a binary file"
    if head.startswith(b"GGUF") and b"imatrix" in head:
        return (
            "an importance matrix: counts, which hold no order of tokens (`sim trace synth` makes a trace of a curve)"
        )
    if head.startswith(b"GGUF"):
        return "a GGUF model file, not a trace"
    if found := next((what for begin, what in OTHERS.items() if head.startswith(begin)), ""):
        return found
    if not head.strip():
        return "holds only white space"
    try:
        text = head[:-4].decode() if len(head) == HEAD_BYTES else head.decode()
    except UnicodeDecodeError as error:
        if error.end < len(head) - 4:
            return f"begins with the bytes {head[:4].hex(' ')}: a binary file or not UTF-8"
        text = head[: error.start].decode()
    if "\0" in text:
        return "has NUL bytes: a binary file"
    return f"begins with {excerpt(text.lstrip())}: no format claims it"
