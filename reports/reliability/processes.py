"""Sweeps as processes of their own, and what is in the folders that they leave."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import sys
import time
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from numba.core.registry import cpu_target

import flashmoe_sim.cli.commands
import flashmoe_sim.report.sweep_tables
import flashmoe_sim.sweep.collect
import flashmoe_sim.sweep.plan
import flashmoe_sim.sweep.store
import flashmoe_sim.verbs.recommend
import flashmoe_sim.verbs.sweep  # noqa: F401  # all loaded once, since every process is forked from this one
from flashmoe_sim.cli.main import entry
from flashmoe_sim.report.figures import results
from flashmoe_sim.sweep.ledger import FILE


def draw(rows: Sequence[Mapping[str, Any]], path: Path) -> None:
    """A file in the picture's place: the engine that draws does not start in a forked process."""
    path.write_text(f"{len(rows)} rows")


results.draw = draw
cpu_target.target_context.refresh()
LONGEST_S = 120


class Asked(NamedTuple):
    """A sweep, but for its folder."""

    trace: str
    policies: str = "lru,random,lfu,sieve"

    def into(self, folder: Path, *more: str) -> list[str]:
        """The arguments of `sim`."""
        options = ["--bank", "16..240", "--bank-step", "16", "--policy", self.policies, "--contract", "atomic"]
        return ["sweep", self.trace, *options, "--threads", "2", "--out", str(folder), *more]


def start(arguments: list[str], before: Callable[[], object] = lambda: None) -> int:
    """The id of a new process that runs `sim` with these arguments; `before` runs in it first."""
    process = os.fork()
    if process:
        return process
    code: object = 70
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        sys.argv = ["sim", *arguments]
        before()
        entry()
    except SystemExit as end:
        code = end.code
    except KeyboardInterrupt:  # before `sim` was there to take it
        code = 130
    finally:
        os._exit(code if isinstance(code, int) else 70)


def fresh(arguments: list[str], *, most_bytes: int = resource.RLIM_INFINITY) -> int:
    """As `start`, but from nothing, in an address space of so many bytes."""
    program = [sys.executable, "-c", "from flashmoe_sim.cli.main import entry; entry()"]
    limited = ["sh", "-c", 'ulimit -v "$0"; exec "$@"', "unlimited" if most_bytes < 0 else str(most_bytes >> 10)]
    silent = [(os.POSIX_SPAWN_OPEN, number, os.devnull, os.O_WRONLY, 0) for number in (1, 2)]
    return os.posix_spawnp("sh", [*limited, *program, *arguments], os.environ, file_actions=silent)


def ended(process: int, *, within_s: float = LONGEST_S) -> int:
    """The exit code of a process, or minus the signal that ended it; one that hangs is killed, and its code is 99."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        found, status = os.waitpid(process, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    return 99


def run(arguments: list[str], before: Callable[[], object] = lambda: None) -> int:
    """The exit code of `sim` with these arguments."""
    return ended(start(arguments, before))


def hit(process: int, how: signal.Signals) -> None:
    """Send a signal to a process, unless it is over."""
    with suppress(ProcessLookupError):
        os.kill(process, how)


def lines(folder: Path) -> list[bytes]:
    """The whole rows of a ledger, read without the program's reader: lines that are as a row is written."""
    path = folder / FILE
    found = []
    for line in path.read_bytes().split(b"\n")[1:-1] if path.exists() else ():
        text = line[line.index(b"[") : -1] if b"[" in line else b""
        if line == b'{"crc":"%08x","row":%s}' % (zlib.crc32(text), text):
            found.append(text)
    return found


class Reference:
    """What a sweep gives that nothing disturbs, and how long it takes."""

    def __init__(self, asked: Asked, folder: Path) -> None:
        self.asked = asked
        for _ in range(2):  # the first compiles what is not compiled yet
            shutil.rmtree(folder, ignore_errors=True)
            begin = time.monotonic()
            assert run(asked.into(folder)) == 0
            self.seconds = time.monotonic() - begin
        self.rows, self.tables = set(lines(folder)), tables(folder)

    def outcome(self, folder: Path, before: list[bytes]) -> dict[str, int]:
        """Rows that were there before and are gone, rows twice, and rows or tables that are wrong, if by a bit."""
        after = lines(folder)
        ids = [json.loads(text)[0] for text in after]
        wrong = len(set(after) ^ self.rows) + (tables(folder) != self.tables)
        return {"lost": len(set(before) - set(after)), "double": len(ids) - len(set(ids)), "wrong": wrong}


def tables(folder: Path) -> dict[str, bytes]:
    """The tables of a folder of results, as they are."""
    names = [name for name in ("results.parquet", "results.csv") if (folder / name).exists()]
    return {name: (folder / name).read_bytes() for name in names}
