"""The faults: each is done to sweeps of its own, which are then run again to their end."""

from __future__ import annotations

import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from flashmoe_sim.io.errors import BadInput
from flashmoe_sim.sweep import collect, passes
from flashmoe_sim.sweep.ledger import FILE, Ledger
from reports.reliability.processes import Reference, ended, fresh, hit, lines, run, start

YEAR_S = 365 * 86400
SAID_ENDED = {signal.SIGTERM: {143, -15}, signal.SIGINT: {130}}  # a shell makes 143 of -15, too


class Tally:
    """One row of the report.

    struck: rounds in which the fault met a sweep at work. kept: rows that were in the ledgers then.
    codes: exit codes that are not the right ones.
    """

    def __init__(self, fault: str) -> None:
        self.row: dict[str, Any] = {"fault": fault}
        self.row |= dict.fromkeys(("rounds", "struck", "kept", "lost", "double", "wrong", "codes"), 0)

    def add(self, **found: int) -> None:
        """One round."""
        self.row["rounds"] += 1
        for name, number in found.items():
            self.row[name] += number


class Faults:
    """What is done to sweeps of one kind, in a folder of its own."""

    def __init__(self, reference: Reference, scratch: Path, *, seed: int = 1) -> None:
        self.reference, self.scratch, self.rng = reference, scratch, random.Random(seed)

    def folder(self) -> Path:
        """An empty folder's name."""
        path = self.scratch / "results"
        shutil.rmtree(path, ignore_errors=True)
        return path

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

    def resumed(self, tally: Tally, folder: Path, *, code_is_wrong: bool = False, struck: bool = True) -> None:
        """Run the sweep again to its end, and take down what became of its rows."""
        before = lines(folder)
        code = run(self.reference.asked.into(folder))
        found = self.reference.outcome(folder, before)._asdict()
        tally.add(struck=struck, kept=len(before), codes=code_is_wrong + (code != 0), **found)

    def faulty(self, what: str, rounds: int, codes: set[int], before: Callable[[], Callable[[], object]]) -> Tally:
        """Sweeps in which something fails: they end with one of the codes, or are not struck."""
        tally = Tally(what)
        for _ in range(rounds):
            folder = self.folder()
            code = run(self.reference.asked.into(folder), before())
            self.resumed(tally, folder, code_is_wrong=code not in codes | {0}, struck=code != 0)
        return tally

    def killed(self, rounds: int) -> Tally:
        """`kill -9`."""
        tally = Tally("kill -9")
        for _ in range(rounds):
            folder = self.folder()
            process = start(self.reference.asked.into(folder))
            self.wait(process, folder)
            hit(process, signal.SIGKILL)
            code = ended(process)
            self.resumed(tally, folder, struck=code == -9, code_is_wrong=code not in {0, -9})
        return tally

    def stopped(self, how: signal.Signals, rounds: int) -> Tally:
        """Ctrl-C or SIGTERM; one that a sweep ignores counts as a wrong exit code."""
        tally = Tally({signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}[how])
        for _ in range(rounds):
            folder = self.folder()
            process = start(self.reference.asked.into(folder))
            self.wait(process, folder)
            at_work = len(lines(folder))
            hit(process, how)
            code = ended(process)
            over = code == 0 and at_work == len(self.reference.rows)
            self.resumed(tally, folder, struck=code != 0, code_is_wrong=not over and code not in SAID_ENDED[how])
        return tally

    def both_at_once(self, rounds: int) -> Tally:
        """Two sweeps into one folder that share half of their rows."""
        tally, asked = Tally("two sweeps into one folder"), self.reference.asked
        names = asked.policies.split(",")
        for _ in range(rounds):
            folder = self.folder()
            halves = [asked._replace(policies=",".join(part)) for part in (names[:-1], names[1:])]
            first = start(halves[0].into(folder))
            time.sleep(self.moment())
            second = start(halves[1].into(folder))
            codes = [ended(first), ended(second)]
            before = lines(folder)
            found = self.reference.outcome(folder, before, ordered=False)._asdict()
            tally.add(struck=1, kept=len(before), codes=codes != [0, 0], **found)
        return tally

    def forced_at_once(self, rounds: int) -> Tally:
        """Two sweeps that both start the folder again: one may be refused, and what is there is whole."""
        tally, asked = Tally("two sweeps with --force"), self.reference.asked
        for _ in range(rounds):
            folder = self.folder()
            assert run(asked._replace(policies="lru").into(folder)) == 0
            first, second = (start(asked.into(folder, "--force")) for _ in range(2))
            codes = sorted((ended(first), ended(second)))
            self.resumed(tally, folder, code_is_wrong=codes not in ([0, 0], [0, 2]))
        return tally

    def trace_replaced(self, rounds: int, trace: Path, other: Path) -> Tally:
        """Another trace under the same name, after a kill: rows of both are there, each with its own id."""
        tally, asked = Tally("trace replaced between runs"), self.reference.asked._replace(trace=str(trace))
        shutil.copy(trace, copy := trace.with_name("first.parquet"))
        alone = {}
        for content in (copy, other):
            shutil.copy(content, trace)
            run(asked.into(self.folder()))
            alone[content] = set(lines(self.scratch / "results"))
        for _ in range(rounds):
            folder = self.folder()
            shutil.copy(copy, trace)
            process = start(asked.into(folder))
            time.sleep(self.moment())
            hit(process, signal.SIGKILL)
            ended(process)
            before = lines(folder)
            shutil.copy(other, trace)
            codes = run(asked.into(folder))
            after = lines(folder)
            lost, wrong = len(set(before) - set(after)), len(set(after) ^ (set(before) | alone[other]))
            wrong += len(set(before) - alone[copy])
            double = len(after) - len(set(after))
            tally.add(struck=1, kept=len(before), lost=lost, double=double, wrong=wrong, codes=codes != 0)
        return tally

    def removed(self, rounds: int) -> Tally:
        """The folder goes while the sweep runs: its rows are gone, and the sweep does not say that they are kept."""
        tally = Tally("folder removed")
        for _ in range(rounds):
            folder = self.folder()
            process = start(self.reference.asked.into(folder))
            time.sleep(self.moment())
            shutil.rmtree(folder, ignore_errors=True)
            code = ended(process)
            if not (folder / FILE).exists():
                shutil.rmtree(folder, ignore_errors=True)  # tables that were on their way
            self.resumed(tally, folder, struck=code != 0, code_is_wrong=code not in {0, 1, 2})
        return tally

    def file_limit(self, rounds: int) -> Tally:
        """No file may be longer than some bytes, as on a disk that is full in the middle of a row or table."""
        most = len((self.scratch / "plain" / FILE).read_bytes()) * 3 // 2

        def limit() -> Callable[[], object]:
            size_bytes = self.rng.randrange(most)
            return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, size_bytes))

        return self.faulty("file size limit", rounds, {1, 2}, limit)

    def full_disk(self, rounds: int, disk: Path) -> Tally:
        """A disk with some bytes left."""
        tally = Tally("disk full")
        for _ in range(rounds):
            shutil.rmtree(folder := disk / "results", ignore_errors=True)
            with (disk / "ballast").open("wb", buffering=0) as ballast:
                left = os.statvfs(disk).f_bavail * os.statvfs(disk).f_bsize
                ballast.write(bytes(max(left - self.rng.randrange(16) * 4096, 0)))
            code = run(self.reference.asked.into(folder))
            (disk / "ballast").unlink()
            self.resumed(tally, folder, struck=code != 0, code_is_wrong=code not in {0, 1, 2})
        return tally

    def read_only(self, rounds: int, disk: Path, remount: Callable[[bool], None]) -> Tally:
        """A disk that may not be written to, with the ledger of a killed sweep on it."""
        tally = Tally("read-only disk")
        for _ in range(rounds):
            shutil.rmtree(folder := disk / "results", ignore_errors=True)
            process = start(self.reference.asked.into(folder))
            time.sleep(self.moment())
            hit(process, signal.SIGKILL)
            ended(process)
            remount(True)
            code = run(self.reference.asked.into(folder))
            remount(False)
            self.resumed(tally, folder, code_is_wrong=code != 2)
        return tally

    def memory_in_a_pass(self, rounds: int) -> Tally:
        """One pass runs out of memory."""

        def fail() -> Callable[[], object]:
            left, real = [self.rng.randrange(8)], passes.run_pass

            def failing(*arguments: Any) -> Any:
                left[0] -= 1
                if left[0] < 0:
                    raise MemoryError
                return real(*arguments)

            return lambda: setattr(collect, "run_pass", failing)

        return self.faulty("no memory in a pass", rounds, {2}, fail)

    def memory_limit(self, rounds: int) -> Tally:
        """An address space too small for all; libraries of others then end the process, and are expected to."""
        tally = Tally("memory limit")
        for _ in range(rounds):
            folder, most = self.folder(), self.rng.randrange(900, 1500) << 20
            code = ended(fresh(self.reference.asked.into(folder), most_bytes=most))
            self.resumed(tally, folder, struck=code != 0, code_is_wrong=code not in {0, 1, 2, -6, -11})
        return tally

    def no_sync(self, rounds: int) -> Tally:
        """The disk cannot promise to keep what it took."""

        def fail() -> Callable[[], object]:
            def failing(_: int) -> None:
                raise OSError(5, "Input/output error")

            return lambda: setattr(os, "fsync", failing)

        return self.faulty("fsync fails", rounds, {1, 2}, fail)

    def clock(self, rounds: int) -> Tally:
        """The time of day jumps by up to a year, both ways, while a sweep runs and between runs; it is killed, too."""
        tally = Tally("clock jumps")
        for _ in range(rounds):
            folder = self.folder()
            seed = self.rng.random()

            def jump(seed: float = seed) -> None:
                jumps, real = random.Random(seed), time.time
                time.time = lambda: real() + jumps.uniform(-YEAR_S, YEAR_S)
                time.time_ns = lambda: int(time.time() * 1e9)

            process = start(self.reference.asked.into(folder), jump)
            time.sleep(self.moment())
            hit(process, signal.SIGKILL)
            code = ended(process)
            if (folder / FILE).exists():
                then = time.time() + self.rng.uniform(-YEAR_S, YEAR_S)
                os.utime(folder / FILE, (then, then))
            self.resumed(tally, folder, struck=code == -9, code_is_wrong=code not in {0, -9})
        return tally

    def nobody_reads(self, rounds: int) -> Tally:
        """Stdout or stderr is full, or whoever read it is gone."""
        tally = Tally("stdout or stderr full or closed")
        for number in range(rounds):
            folder, which, full = self.folder(), 1 + number % 2, number // 2 % 2

            def close(which: int = which, full: int = full) -> None:
                reader, writer = os.pipe()
                os.close(reader)
                os.dup2(os.open("/dev/full", os.O_WRONLY) if full else writer, which)

            code = run(self.reference.asked.into(folder), close)
            wrong = code not in ({1, 2} if which == 1 else {0}) or len(lines(folder)) != len(self.reference.rows)
            self.resumed(tally, folder, code_is_wrong=wrong)
        return tally

    def torn(self, every: int) -> Tally:
        """The last row cut at every byte, or every few."""
        tally, plain = Tally("torn at each byte"), (self.scratch / "plain" / FILE).read_bytes()
        begin = plain[:-1].rindex(b"\n") + 1
        with Ledger(self.scratch / "plain") as ledger:
            last = next(row for row in ledger.rows() if row["id"].encode() in plain[begin:])
        for end in range(begin, len(plain), every):
            folder = self.folder()
            folder.mkdir()
            (folder / FILE).write_bytes(plain[:end])
            before = lines(folder)
            with Ledger(folder) as ledger:
                ledger.begin()
                held = len(ledger)
                ledger.append([last])
            wrong = ((folder / FILE).read_bytes() != plain) + (held != len(before))
            tally.add(struck=end > begin, kept=len(before), lost=len(set(before) - set(lines(folder))), wrong=wrong)
        return tally

    def flipped(self, rounds: int) -> Tally:
        """One to three bits of a ledger turned: no row is taken that is not one of the real ones."""
        tally, plain = Tally("bits flipped"), (self.scratch / "plain" / FILE).read_bytes()
        with Ledger(self.scratch / "plain") as ledger:
            real = {row["id"]: row for row in ledger.rows()}
        for _ in range(rounds):
            folder, data = self.folder(), bytearray(plain)
            folder.mkdir()
            for _ in range(self.rng.randint(1, 3)):
                data[self.rng.randrange(len(data))] ^= 1 << self.rng.randrange(8)
            (folder / FILE).write_bytes(data)
            before = lines(folder)
            try:
                with Ledger(folder) as ledger:
                    ledger.begin()
                    rows = ledger.rows()
                    wrong = sum(row != real[row["id"]] for row in rows) + (len(rows) < len(real) - 4)
                    ledger.append([*real.values()])
            except BadInput:  # a header that is not as it was: refused, and left as it is
                wrong = (folder / FILE).read_bytes() != bytes(data) or data.startswith(plain[: plain.index(b"\n") + 1])
                tally.add(struck=1, kept=len(before), wrong=wrong)
                continue
            after = lines(folder)
            lost, double = len(set(before) - set(after)), len(after) - len(set(after))
            wrong += set(after) != self.reference.rows
            tally.add(struck=1, kept=len(before), lost=lost, double=double, wrong=wrong)
        return tally

    def other_writers(self, rounds: int, trace: Path) -> Tally:
        """`sim trace convert` and `sim recommend --save`, killed: their file is whole, or is not there."""
        tally = Tally("convert and recommend killed")
        new, advice = self.scratch / "new.jsonl", self.scratch / "new.md"
        recommend = ["recommend", "gpt-oss-120b", "--machine", "rtx-4090", "--save", str(advice)]
        commands: list[
            tuple[list[str], Path, Callable[[list[str]], int]]
        ] = [  # the second has processes of its own, which a forked one cannot start
            (["trace", "convert", str(trace), str(new)], new, start),
            (recommend, advice, fresh),
        ]
        for command, target, begun in commands if rounds > 1 else commands[:1]:  # the second takes half a minute
            target.unlink(missing_ok=True)
            begin = time.monotonic()
            assert ended(begun(command)) == 0
            took_s, whole = time.monotonic() - begin, target.read_bytes()
            for _ in range(rounds if begun is start else 2):
                target.unlink(missing_ok=True)
                process = begun(command)
                time.sleep(self.rng.random() * took_s)
                hit(process, signal.SIGKILL)
                code = ended(process)
                wrong = int(target.exists() and target.read_bytes() != whole)
                target.unlink(missing_ok=True)
                again = ended(begun(command))
                left = [*self.scratch.glob(f".{target.name}.*")]
                wrong += target.read_bytes() != whole or bool(left)
                tally.add(struck=code == -9, wrong=wrong, codes=again != 0)
        return tally
