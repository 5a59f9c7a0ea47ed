"""The files of a split GGUF model, checked to belong together."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from flashmoe_sim.geometry.gguf_header import ENOUGH_BYTES, Header, read_header
from flashmoe_sim.io.errors import Conflict, Malformed, Missing, shown

MOST_NAMED = 4
SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf")


class GgufFile(NamedTuple):
    """One file of a model, and its header."""

    path: Path
    header: Header


def read_files(path: Path, *, cut: bool = False) -> tuple[GgufFile, ...]:
    """The headers of all files of a model in order, given any one of them; the first has the model's keys.

    cut: accept files whose weights are cut off.
    Raises BadInput for a damaged file, a file that is missing or from another model, and a duplicate tensor.
    """
    files = tuple(_shards(path, read_header(path)))
    for file in files if not cut else ():
        if file.header.end > file.header.size:
            found = f"{file.path}: at byte {file.header.size}: the file ends, but its tensors reach to byte"
            raise Malformed(f"{found} {file.header.end}", advice="download the rest of it")
    names: set[str] = set()
    for file in files:
        if twice := names & file.header.tensors.keys():
            found = f"{path}: tensor {shown(min(twice))} is in two of its files"
            raise Malformed(found, advice="download the model again")
        names.update(file.header.tensors)
    promised = files[0].header.keys.get("split.tensors.count")
    if len(files) > 1 and isinstance(promised, int) and promised != len(names):
        raise Malformed(
            f"{path}: {len(names)} tensors in its {len(files)} files, but split.tensors.count is {promised}",
            advice="download the model again",
        )
    return files


def stem(path: Path) -> str:
    """The name of a model's file without the suffix of a split."""
    named = SHARD.fullmatch(path.name)
    return named[1] if named else path.stem


def _shards(path: Path, given: Header) -> Iterator[GgufFile]:
    """All files of a split model, in order."""
    named = SHARD.fullmatch(path.name)
    count = int(named[3]) if named else 1
    _check_split(path, given, int(named[2]) if named else 1, count)
    names = [f"{named[1]}-{number:05}-of-{named[3]}.gguf" for number in range(1, count + 1)] if named else [path.name]
    shards = [path.with_name(name) for name in names]
    if absent := [shard.name for shard in shards if not shard.exists()]:
        missing = ", ".join(absent[:MOST_NAMED]) + (", ..." if len(absent) > MOST_NAMED else "")
        raise Missing(
            f"{path}: {len(absent)} of the model's {count} files are missing ({missing}), and each file lists only its "
            "own tensors",
            advice=f"put them beside it; of each, the first {ENOUGH_BYTES >> 20} MiB are enough for `--model`",
        )
    for number, shard in enumerate(shards, 1):
        header = given if shard == path else read_header(shard)
        _check_split(shard, header, number, count)
        yield GgufFile(shard, header)


def _check_split(path: Path, header: Header, number: int, count: int) -> None:
    """Compare the keys of a split file, which a whole file lacks, with its name."""
    split_count = header.keys.get("split.count", 0) or count
    split_number = header.keys.get("split.no", number - 1)
    if split_count != count or split_number != number - 1 or not 1 <= number <= count:
        raise Conflict(
            f"{path}: split.no is {shown(split_number)} and split.count {shown(split_count)}, but by its name it is "
            f"file {number} of {count}, so {number - 1} and {count} are expected",
            advice="give the files the names they were published with",
        )
