"""The faults: each is done to sweeps of its own, which are then run again to their end."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from flashmoe_sim.sweep import passes
from flashmoe_sim.sweep.ledger import FILE
from reports.reliability.processes import Reference, ended, fresh, hit, lines, run, start, tables

YEAR_S = 365 * 86400
SAID_ENDED = {signal.SIGTERM: {143, -15}, signal.SIGINT: {130}, signal.SIGKILL: {-9}}  # a shell makes 143 of -15, too
Found = dict[str, int]  # of a round, columns of the report


class Faults:
    """What is done to sweeps of one kind, in a folder of its own.

    disk: a small disk, and how to make it read-only or not; None if none could be mounted.
    """

    def __init__(
        self, reference: Reference, scratch: Path, *, disk: Path | None = None, remount: Callable[[bool], None]
    ) -> None:
        self.reference, self.asked, self.scratch, self.rng = reference, reference.asked, scratch, random.Random(1)
        self.disk, self.remount, self.number = disk, remount, count()

    def rows(self, rounds: int, trace: Path, other: Path) -> Iterator[dict[str, Any]]:
        """A row of the report for each fault. rounds: of `kill -9`; the others have a share of them."""
        some, few, many = max(rounds // 8, 1), max(rounds // 20, 1), rounds > 10
        yield self.row("kill -9", rounds, partial(self.signalled, signal.SIGKILL))
        yield self.row("SIGTERM", some, partial(self.signalled, signal.SIGTERM))
        yield self.row("Ctrl-C", some, partial(self.signalled, signal.SIGINT))
        yield self.row("two sweeps into one folder", some, self.both_at_once)
        yield self.row("two sweeps with --force", few, self.forced_at_once)
        yield self.row("file size limit", some, partial(self.failing, {1, 2}, self.file_limit))
        if self.disk is not None:
            yield self.row("disk full", some, self.full_disk, at=self.disk)
            yield self.row("read-only disk", few, self.read_only, at=self.disk)
        yield self.row("folder removed", few, self.removed)
        yield self.row("fsync fails", few, partial(self.failing, {1, 2}, self.no_sync))
        yield self.row("no memory in a pass", few, partial(self.failing, {2}, self.no_memory))
        if many:
            yield self.row("memory limit", few, self.memory_limit)
        yield self.row("clock jumps", few, self.clock)
        yield self.row("stdout or stderr full or closed", 4, self.nobody_reads)
        yield self.others_killed(few, trace)
        yield self.row("trace replaced between runs", few, self.replacing(trace, other), again=False)

    def row(
        self, fault: str, rounds: int, once: Callable[[Path], Found], *, at: Path | None = None, again: bool = True
    ) -> dict[str, Any]:
        """Rounds of a fault, each in an empty folder. again: run the sweep to its end, and see what became of its rows.

        struck: rounds in which the fault met a sweep at work. kept: rows that were in the ledgers then. codes: exit
        codes that are not the right ones.
        """
        row: dict[str, Any] = {"fault": fault, "rounds": rounds}
        row |= dict.fromkeys(("struck", "kept", "lost", "double", "wrong", "codes"), 0)
        for _ in range(rounds):
            shutil.rmtree(folder := (at or self.scratch) / "results", ignore_errors=True)
            found = Counter(once(folder))
            if again:
                before = lines(folder)
                found += Counter({"kept": len(before), "codes": run(self.asked.into(folder)) != 0})
                found += Counter(self.reference.outcome(folder, before))
            for name, number in found.items():
                row[name] += number
        return row

    def moment(self) -> float:
        """Seconds until something happens."""
        return self.rng.random() * self.reference.seconds

    def wait(self, process: int, folder: Path) -> None:
        """Until a random moment of the sweep or, every other time, until it has kept a random number of rows."""
        if self.rng.random() < 1 / 2:
            time.sleep(self.moment())
            return
        wanted, path = self.rng.randrange(1, len(self.reference.rows)), folder / FILE
        while not os.waitid(os.P_PID, process, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if path.exists() and path.read_bytes().count(b"\n") > wanted:
                return
            time.sleep(0.0005)

    def signalled(self, how: signal.Signals, folder: Path) -> Found:
        """A signal; one that a sweep ignores counts as a wrong exit code."""
        process = start(self.asked.into(folder))
        self.wait(process, folder)
        at_work = len(lines(folder))
        hit(process, how)
        code = ended(process)
        over = code == 0 and (how == signal.SIGKILL or at_work == len(self.reference.rows))
        return {"struck": code != 0, "codes": not over and code not in SAID_ENDED[how]}

    def killed(self, folder: Path, before: Callable[[], object] = lambda: None) -> int:
        """The code of a sweep that was killed at a random moment."""
        process = start(self.asked.into(folder), before)
        time.sleep(self.moment())
        hit(process, signal.SIGKILL)
        return ended(process)

    def failing(self, codes: set[int], how: Callable[[], Callable[[], object]], folder: Path) -> Found:
        """Something fails in a sweep: it ends with one of the codes, or is not struck."""
        code = run(self.asked.into(folder), how())
        return {"struck": code != 0, "codes": code not in codes | {0}}

    def both_at_once(self, folder: Path) -> Found:
        """Two sweeps into one folder that share half of their rows; both write tables of all, in any order."""
        names = self.asked.policies.split(",")
        halves = [self.asked._replace(policies=",".join(part)) for part in (names[:-1], names[1:])]
        first = start(halves[0].into(folder))
        time.sleep(self.moment())
        second = start(halves[1].into(folder))
        codes = [ended(first), ended(second)]
        csv, other = (sorted(one["results.csv"].splitlines()) for one in (tables(folder), self.reference.tables))
        return {"struck": 1, "codes": codes != [0, 0], "wrong": csv != other}

    def forced_at_once(self, folder: Path) -> Found:
        """Two sweeps that both start the folder again: one may be refused, and what is there is whole."""
        assert run(self.asked._replace(policies="lru").into(folder)) == 0
        both = [start(self.asked.into(folder, "--force")) for _ in range(2)]
        return {"struck": 1, "codes": sorted(map(ended, both)) not in ([0, 0], [0, 2])}

    def file_limit(self) -> Callable[[], object]:
        """No file may be longer than some bytes, as on a disk that is full in the middle of a row or table."""
        size_bytes = self.rng.randrange((self.scratch / "plain" / FILE).stat().st_size * 3 // 2)
        return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))

    def no_sync(self) -> Callable[[], object]:
        """The disk cannot promise to keep what it took."""

        def fails(_: int) -> None:
            raise OSError(5, "Input/output error")

        return lambda: setattr(os, "fsync", fails)

    def no_memory(self) -> Callable[[], object]:
        """One pass runs out of memory."""
        left, real = [self.rng.randrange(8)], passes.run_pass

        def fails(*arguments: Any) -> Any:
            left[0] -= 1
            if left[0] < 0:
                raise MemoryError
            return real(*arguments)

        return lambda: setattr(passes, "run_pass", fails)

    def full_disk(self, folder: Path) -> Found:
        """A disk with some bytes left."""
        disk = folder.parent
        with (disk / "ballast").open("wb", buffering=0) as ballast:
            left = os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize
            ballast.write(bytes(max(left - self.rng.randrange(16) * 4096, 0)))
        found = self.failing({1, 2}, lambda: lambda: None, folder)
        (disk / "ballast").unlink()
        return found

    def read_only(self, folder: Path) -> Found:
        """A disk that may not be written to, with the ledger of a killed sweep on it."""
        self.killed(folder)
        self.remount(True)
        code = run(self.asked.into(folder))
        self.remount(False)
        return {"struck": 1, "codes": code != 2}

    def removed(self, folder: Path) -> Found:
        """The folder goes while the sweep runs: its rows are gone, and the sweep does not say that they are kept."""
        process = start(self.asked.into(folder))
        time.sleep(self.moment())
        shutil.rmtree(folder, ignore_errors=True)
        code = ended(process)
        if not (folder / FILE).exists():
            shutil.rmtree(folder, ignore_errors=True)  # tables that were on their way
        return {"struck": code != 0, "codes": code not in {0, 1, 2}}

    def memory_limit(self, folder: Path) -> Found:
        """An address space too small for all; libraries of others then end the process, and are expected to."""
        code = ended(fresh(self.asked.into(folder), most_bytes=self.rng.randrange(900, 1500) << 20))
        return {"struck": code != 0, "codes": code not in {0, 1, 2, -6, -11}}

    def clock(self, folder: Path) -> Found:
        """The time of day jumps by up to a year, both ways, while a sweep runs and between runs; it is killed, too."""
        jumps, real = random.Random(self.rng.random()), time.time

        def jump() -> None:
            time.time = lambda: real() + jumps.uniform(-YEAR_S, YEAR_S)
            time.time_ns = lambda: int(time.time() * 1e9)

        code = self.killed(folder, jump)
        if (folder / FILE).exists():
            os.utime(folder / FILE, (real() + jumps.uniform(-YEAR_S, YEAR_S),) * 2)
        return {"struck": code == -9, "codes": code not in {0, -9}}

    def nobody_reads(self, folder: Path) -> Found:
        """Stdout or stderr is full, or whoever read it is gone."""
        full, which = divmod(next(self.number) % 4, 2)

        def close() -> None:
            reader, writer = os.pipe()
            os.close(reader)
            os.dup2(os.open("/dev/full", os.O_WRONLY) if full else writer, 1 + which)

        code = run(self.asked.into(folder), close)
        wrong = code not in ({0} if which else {1, 2}) or len(lines(folder)) != len(self.reference.rows)
        return {"struck": 1, "codes": wrong}

    def replacing(self, trace: Path, other: Path) -> Callable[[Path], Found]:
        """Another trace under the same name, after a kill: rows of both are there, each with its own id."""
        shutil.copy(trace, copy := trace.with_name("first.parquet"))
        alone = {}
        for content in (copy, other):
            shutil.copy(content, trace)
            shutil.rmtree(self.scratch / "results", ignore_errors=True)
            run(self.asked.into(self.scratch / "results"))
            alone[content] = {*lines(self.scratch / "results")}

        def once(folder: Path) -> Found:
            shutil.copy(copy, trace)
            self.killed(folder)
            before = lines(folder)
            shutil.copy(other, trace)
            code = run(self.asked.into(folder))
            after = lines(folder)
            wrong = len({*after} ^ {*before, *alone[other]}) + len({*before} - alone[copy])
            lost, double = len({*before} - {*after}), len(after) - len({*after})
            return {
                "struck": 1,
                "kept": len(before),
                "lost": lost,
                "double": double,
                "wrong": wrong,
                "codes": code != 0,
            }

        return once

    def others_killed(self, rounds: int, trace: Path) -> dict[str, Any]:
        """`sim trace convert` and `sim recommend --save`, killed: their file is whole, or is not there."""
        new, advice = self.scratch / "new.jsonl", self.scratch / "new.md"
        recommend = ["recommend", "gpt-oss-120b", "--machine", "rtx-4090", "--save", str(advice)]
        # the second has processes of its own, which a forked one cannot start, and takes half a minute
        commands: list[tuple[list[str], Path, Callable[[list[str]], int], int]]
        commands = [(["trace", "convert", str(trace), str(new)], new, start, rounds), (recommend, advice, fresh, 2)]
        found = list[Found]()
        for command, target, begun, times in commands if rounds > 1 else commands[:1]:
            target.unlink(missing_ok=True)
            begin = time.monotonic()
            assert ended(begun(command)) == 0
            took_s, whole = time.monotonic() - begin, target.read_bytes()
            for _ in range(times):
                target.unlink(missing_ok=True)
                process = begun(command)
                time.sleep(self.rng.random() * took_s)
                hit(process, signal.SIGKILL)
                code, half = ended(process), target.exists() and target.read_bytes() != whole
                target.unlink(missing_ok=True)
                again = ended(begun(command))
                other = target.read_bytes() != whole or any(self.scratch.glob(f".{target.name}.*"))
                found.append({"struck": code == -9, "wrong": half + other, "codes": again != 0})
        each = iter(found)
        return self.row("convert and recommend killed", len(found), lambda _: next(each), again=False)
