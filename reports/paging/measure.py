"""Run the patched llama.cpp with less and less RAM, on models with random weights: seconds and bytes of its tokens.

It needs Linux with memory cgroups of version 1, and root.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, NamedTuple

from flashmoe_sim.systems.slot_bank_flags import bank_flags
from native_bridge import page_cache
from native_bridge.fixture.model import FixtureShape
from native_bridge.fixture.sidecar import MODEL, SIDECAR, make_fixture

MODELS = {
    "small-experts": FixtureShape(layers=24, n_experts=64, top_k=4),
    "many-experts": FixtureShape(layers=24, n_experts=128, top_k=8, width=512, expert_width=512),
    "large-experts": FixtureShape(layers=16, n_experts=32, top_k=2, width=2048, expert_width=1024),
}
SHARES = (1.1, 0.9, 0.75, 0.6, 0.45, 0.3, 0.2, 0.1, 0.05)  # of the file, in RAM beside what the program takes
BANKS, BANK_SHARES = (0.125, 0.25), (1.1, 0.6, 0.3)  # of a layer's experts; of the file
PROMPT = "The quick brown fox jumps over the lazy dog."
TOKENS, CONTEXT, SEED = 64, 512, 1
SPARE_BYTES = 64 << 20  # beside a share of the file
LIMIT_S = 600.0
GROUP = Path("/sys/fs/cgroup/memory/paging")
STOCK, SLOT_BANK = "stock", "slot-bank"


class Measured(NamedTuple):
    """One run. mode: of the runtime. bank: slots of a layer; 0 if the model is mapped.

    read_ahead_kib: of the disk. room_bytes: of RAM, for files and the bank. load_s, load_bytes: until the first token,
    and read from disk meanwhile. steps, decode_s, decode_bytes: the same of the tokens after it.
    """

    model: str
    mode: str
    bank: int
    threads: int
    read_ahead_kib: int
    room_bytes: int
    load_s: float
    load_bytes: int
    steps: int
    decode_s: float
    decode_bytes: int


class Seen(NamedTuple):
    """What was seen as a piece of the text came: seconds since the start, bytes read from disk, bytes kept."""

    seconds: float
    read_bytes: int
    kept_bytes: int


@contextmanager
def read_ahead(device: str, kib: int) -> Iterator[None]:
    """The disk reads ahead this much while the block lasts."""
    setting = Path("/sys/block") / device / "queue" / "read_ahead_kb"
    before = setting.read_text()
    setting.write_text(str(kib))
    try:
        yield
    finally:
        setting.write_text(before)


@contextmanager
def limited(limit_bytes: int) -> Iterator[Path]:
    """A cgroup that may hold this many bytes, files included."""
    GROUP.mkdir()
    try:
        (GROUP / "memory.limit_in_bytes").write_text(str(limit_bytes))
        yield GROUP
    finally:
        for _ in range(100):
            with suppress(OSError):
                GROUP.rmdir()
                break
            time.sleep(0.05)


def pieces(command: list[str], *, log: Path, group: Path = GROUP.parent, threads: int = 1) -> list[Seen]:
    """Start a program, and look at it whenever a piece of the text comes that follows the prompt."""
    seen, heard, begin = [], b"", time.monotonic()
    with log.open("wb") as errors, started(command, errors, group, threads) as child:
        assert child.stdout is not None
        while data := os.read(child.stdout.fileno(), 1 << 16):
            after, now = PROMPT.encode() in heard, time.monotonic() - begin
            heard += data
            if now > LIMIT_S:
                child.kill()
            if after and data.strip(b"\n"):
                with suppress(OSError, TypeError):  # it has ended
                    seen.append(Seen(now, number_of(child.pid, "io", "read_bytes"), _kept(child.pid)))
    return seen


def started(command: list[str], errors: IO[bytes], group: Path, threads: int) -> subprocess.Popen[bytes]:
    """A program in a cgroup, on as many cores as it has threads: it inherits both from us."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[-threads:])
    (group / "cgroup.procs").write_text(str(os.getpid()))
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors)
    finally:
        (GROUP.parent / "cgroup.procs").write_text(str(os.getpid()))
        os.sched_setaffinity(0, cores)


def _kept(process: int) -> int:
    return 1024 * number_of(process, "status", "RssAnon")


def number_of(process: int, file: str, name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+)", Path(f"/proc/{process}/{file}").read_text(), re.MULTILINE)
    return int(found[1])  # type: ignore[index]


def command_of(
    runtime: Path, folder: Path, shape: FixtureShape, *, bank: int, threads: int = 1, trace: Path | None = None
) -> list[str]:
    """The runtime's command line; every run of a model generates the same text. bank: 0 to map the model."""
    sidecar = str(folder / SIDECAR) if bank else ""
    words = [str(runtime), "-m", str(folder / MODEL)]
    words += bank_flags(SLOT_BANK if bank else STOCK, sidecar=sidecar, slots=bank, top_k=shape.top_k)
    words += ["--moe-trace-harness", "--no-warmup", "--simple-io", "-b", "1", "-ub", "1", "-t", str(threads)]
    words += ["-n", str(TOKENS), "-c", str(CONTEXT), "--seed", str(SEED), "--logit-bias", "0-inf"]
    words += ["--moe-trace", str(trace)] if trace is not None else []
    return [*words, "-p", PROMPT]


def measure(name: str, runtime: Path, folder: Path, *, device: str, ahead_kib: int, threads: int) -> Iterator[Measured]:
    """Every run of a model whose files are in `folder`."""
    shape, log = MODELS[name], folder / "log.txt"
    file_bytes = (folder / MODEL).stat().st_size
    cases = [(0, share) for share in SHARES]
    cases += [(round(part * shape.n_experts), share) for part in BANKS for share in BANK_SHARES]
    for bank, share in cases:
        command = command_of(runtime, folder, shape, bank=bank, threads=threads)
        bank_bytes = shape.routed_bytes * bank // shape.n_experts
        if bank and share * file_bytes < bank_bytes:
            continue
        page_cache.warm([folder / MODEL])
        kept_bytes = max(one.kept_bytes for one in pieces(command, log=log, threads=threads)) - bank_bytes
        page_cache.drop([folder / MODEL, *sorted((folder / SIDECAR).iterdir())])
        room_bytes = round(share * file_bytes) + SPARE_BYTES
        with read_ahead(device, ahead_kib), limited(room_bytes + kept_bytes) as group:
            seen = pieces(command, log=log, group=group, threads=threads)
        if len(seen) < TOKENS // 2:
            print(f"{name}, bank {bank}, {share:g} of the file: {len(seen)} pieces of text", file=sys.stderr)
            continue
        first, last = seen[0], seen[-1]
        load, decode_s = (round(first.seconds, 3), first.read_bytes), round(last.seconds - first.seconds, 4)
        mode = SLOT_BANK if bank else STOCK
        yield Measured(
            name, mode, bank, threads, ahead_kib, room_bytes, *load, TOKENS - 1, decode_s, last.read_bytes - load[1]
        )


def record(name: str, runtime: Path, folder: Path, trace: Path) -> None:
    """The routing that all runs of a model have, with a slot for every expert."""
    lines = folder / "trace.jsonl"
    pieces(command_of(runtime, folder, MODELS[name], bank=MODELS[name].n_experts, trace=lines), log=folder / "log.txt")
    with lines.open("rb") as found, gzip.open(trace, "wb") as kept:
        shutil.copyfileobj(found, kept)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runtime", type=Path, required=True, help="the patched llama-cli")
    parser.add_argument("--folder", type=Path, required=True, help="where the models are made: 20 GB of the disk")
    parser.add_argument("--device", required=True, help="that disk, such as vda")
    parser.add_argument("--read-ahead-kib", type=int, default=128, help="of the disk, during the runs")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="folder of traces and runs.csv, which grows")
    parser.add_argument("models", nargs="*", default=[*MODELS])
    asked = parser.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    table = asked.out / "runs.csv"
    for name in asked.models:
        folder, trace = asked.folder / name, asked.out / f"{name}.jsonl.gz"
        if not (folder / MODEL).exists():
            make_fixture(folder, MODELS[name])
        if not trace.exists():
            record(name, asked.runtime, folder, trace)
        for one in measure(
            name,
            asked.runtime,
            folder,
            device=asked.device,
            ahead_kib=asked.read_ahead_kib,
            threads=asked.threads,
        ):
            is_new = not table.exists()
            with table.open("a", encoding="utf-8", newline="") as rows:
                writer = csv.writer(rows, lineterminator="\n")
                if is_new:
                    writer.writerow(Measured._fields)
                writer.writerow(one)
            print(*one, file=sys.stderr)


if __name__ == "__main__":
    main()
