"""Child processes: never a shell, a time limit, and no child outlives us."""

from __future__ import annotations

import math
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, NamedTuple

from flashmoe_sim.io.errors import BadInput, SimError, Unsupported, Unusable
from flashmoe_sim.io.locks import check_posix

if TYPE_CHECKING:
    from resource import struct_rusage

LAUNCH = Path(__file__).with_name("_launch.py")
MAX_ANSWER_BYTES = 1 << 20
MAX_LINE_BYTES = 1 << 20  # held until the line ends
KEPT_BYTES = 1 << 20  # of excessive output
TICK_S = 0.1


class TerminatedRun(SimError):
    """SIGTERM came while something had to be ended in order."""

    exit_code = 128 + signal.SIGTERM


@dataclass(frozen=True)
class Finished:
    """How a child ended. code: its exit code, or minus the number of the signal that ended it.

    timed_out, flooded: it was ended because its time was up, or because it printed too much. read_bytes: read from
    disk, page faults included; 0 if unknown. cpu_s: that processors worked for it. ram_bytes: the most that it, or the
    largest program that it started, had in RAM at once, with what it used of mapped files; 0 if less than we have.
    """

    code: int
    seconds: float
    timed_out: bool
    read_bytes: int = 0
    flooded: bool = False
    cpu_s: float = 0.0
    ram_bytes: int = 0


@dataclass(frozen=True)
class Answer:
    """The output of a short command: at most the first MAX_ANSWER_BYTES of each stream."""

    code: int
    stdout: str
    stderr: str
    timed_out: bool


class Around(NamedTuple):
    """What a child is started in.

    environment: instead of ours. folder: its working folder. cgroup: the one it is put into before it starts. stdin: a
    file to read there; nothing by default.
    """

    environment: Mapping[str, str] | None = None
    folder: Path | None = None
    cgroup: Path | None = None
    stdin: Path | None = None


OURS = Around()


def run_child(
    arguments: Sequence[str],
    *,
    output: Path,
    timeout_s: float,
    around: Around = OURS,
    watch: Callable[[float], None] | None = None,
    stdout: Path | None = None,
    most_bytes: int | None = None,
) -> Finished:
    """Run a program to its end, its stdout and stderr together in the file `output`, line by line.

    It has its own session and process group, which end with it, with an exception here (including Ctrl-C and SIGTERM),
    and with this process however that dies.
    watch: called about ten times a second with the seconds so far. stdout: a file for a copy of only its stdout.
    most_bytes: it is ended when it has printed more, and only the first KEPT_BYTES stay.
    Raises BadInput if the program cannot be started, and SimError if a file cannot be written.
    """
    with sigterm_raises():
        try:
            with output.open("wb", buffering=0) as both, stdout.open("wb") if stdout else nullcontext() as copy:
                child = _Child(arguments, around)
                out, err = _Lines(both.fileno(), copy), _Lines(both.fileno(), None)

                def flooded() -> bool:
                    return most_bytes is not None and out.taken + err.taken > most_bytes

                finished = child.run((out.take, err.take), timeout_s=timeout_s, watch=watch, enough=flooded)
                out.end()
                err.end()
                if not flooded():
                    return finished
                for file in (both, copy):
                    if file is not None:
                        file.truncate(min(KEPT_BYTES, file.seek(0, os.SEEK_END)))
                return replace(finished, flooded=True)
        except OSError as error:
            raise SimError(f"{output}: cannot be written ({error.strerror or error}); free the disk") from None


def ask(arguments: Sequence[str], *, timeout_s: float, environment: Mapping[str, str] | None = None) -> Answer:
    """The output of a short command, such as a program's version.

    Raises BadInput if it cannot be started.
    """
    heard = bytearray(), bytearray()

    def hear(into: bytearray) -> Callable[[bytes], None]:
        return lambda data: into.extend(data[: MAX_ANSWER_BYTES - len(into)])

    with sigterm_raises():
        child = _Child(arguments, Around(environment))
        finished = child.run([hear(each) for each in heard], timeout_s=timeout_s)
    out, err = (each.decode("utf-8", "replace") for each in heard)
    return Answer(finished.code, out, err, finished.timed_out)


def listen(
    arguments: Sequence[str], *, take: Callable[[bytes], object], enough: Callable[[], bool], around: Around = OURS
) -> Answer:
    """Run a program and take its stdout as it comes, until it ends or there is enough; its stderr as `ask` returns it.

    Raises BadInput if it cannot be started.
    """
    said = bytearray()
    with sigterm_raises():
        child = _Child(arguments, around)
        sinks = (take, lambda data: said.extend(data[: MAX_ANSWER_BYTES - len(said)]))
        finished = child.run(sinks, timeout_s=math.inf, enough=enough)
    return Answer(finished.code, "", said.decode("utf-8", "replace"), timed_out=enough())


class _Child:
    """A started program, its output in pipes."""

    def __init__(self, arguments: Sequence[str], around: Around) -> None:
        if os.name != "posix":
            raise Unsupported(
                "running a runtime needs Linux or macOS; run it there, and read the folders of its runs here"
            )
        self.started = time.monotonic()
        self.seconds = 0.0
        self.ended: tuple[int, struct_rusage] | None = None
        check_posix("running the runtime")
        child_alive, self.alive = os.pipe()
        errors, child_errors = os.pipe()
        group = "" if around.cgroup is None else str(around.cgroup / "cgroup.procs")
        launch = [sys.executable, "-I", "-S", str(LAUNCH), str(child_alive), str(child_errors), group]
        try:
            with around.stdin.open("rb") if around.stdin else nullcontext(subprocess.DEVNULL) as stdin:
                self.process = subprocess.Popen(
                    [*launch, *arguments],
                    stdin=stdin,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    env=around.environment,
                    cwd=around.folder,
                    pass_fds=(child_alive, child_errors),
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            os.close(self.alive)
            os.close(errors)
            raise _not_started(arguments[0], getattr(error, "strerror", None) or str(error)) from None
        finally:
            os.close(child_alive)
            os.close(child_errors)
        try:
            with open(errors, "rb") as stream:
                code = stream.read()  # ends when the program replaces the launcher
        except BaseException:
            self._end(timed_out=False)
            raise
        if code:
            self._end(timed_out=False)
            raise _not_started(arguments[0], os.strerror(int(code)))

    def run(
        self,
        sinks: Sequence[Callable[[bytes], object]],
        *,
        timeout_s: float,
        watch: Callable[[float], None] | None = None,
        enough: Callable[[], bool] = lambda: False,
    ) -> Finished:
        """Pass its output to the sinks, of stdout and stderr, until it ends, its time is up or there is enough."""
        open_sinks = {pipe.fileno(): sink for pipe, sink in zip(self._pipes(), sinks, strict=True)}
        timed_out = True
        try:
            while (passed := time.monotonic() - self.started) < timeout_s:
                ended = self._has_ended()
                wait_s = 0.0 if ended else min(timeout_s - passed, TICK_S if open_sinks else TICK_S / 10)
                ready = select.select(list(open_sinks), [], [], wait_s)[0]
                for source in ready:
                    if data := os.read(source, 1 << 16):
                        open_sinks[source](data)
                    else:
                        del open_sinks[source]
                if enough() or (ended and not ready):  # a process that left its group may still hold the pipes
                    timed_out = False
                    break
                if watch is not None:
                    watch(passed)
        except BaseException:
            self._end(timed_out=False)
            raise
        return self._end(timed_out=timed_out)

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        return self.process.stdout, self.process.stderr

    def _has_ended(self, *, wait: bool = False) -> bool:
        """Whether it ended; the rest of its group is then ended too.

        The group's id stays valid as long as the launcher's other half is in it, which waits for us to end.
        """
        if self.ended is None:
            number, status, usage = os.wait4(self.process.pid, 0 if wait else os.WNOHANG)
            if number == 0:
                return False
            self.ended = os.waitstatus_to_exitcode(status), usage
            self.process.returncode = self.ended[0]
            self.seconds = time.monotonic() - self.started
            self._kill()
        return True

    def _kill(self) -> None:
        with suppress(ProcessLookupError, PermissionError):  # macOS refuses to signal a group of which all have ended
            os.killpg(self.process.pid, signal.SIGKILL)

    def _end(self, *, timed_out: bool) -> Finished:
        """End it and whatever is left of its group, and say how it ended."""
        if self.ended is None:
            self._kill()
            self._has_ended(wait=True)
        for pipe in self._pipes():
            pipe.close()
        os.close(self.alive)
        assert self.ended is not None
        import resource  # Windows has none

        code, usage = self.ended
        read_bytes = usage.ru_inblock * 512 if sys.platform == "linux" else 0
        ours = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # which a child begins with
        ram_bytes = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024) if usage.ru_maxrss > ours else 0
        cpu_s = usage.ru_utime + usage.ru_stime
        return Finished(code, self.seconds, timed_out, read_bytes, cpu_s=cpu_s, ram_bytes=ram_bytes)


class _Lines:
    """One of two streams that share a file: only whole lines are written, so that neither breaks the other's lines."""

    def __init__(self, number: int, copy: IO[bytes] | None) -> None:
        self.number = number
        self.copy = copy
        self.held = b""
        self.taken = 0

    def take(self, data: bytes) -> None:
        self.taken += len(data)
        if self.copy is not None:
            self.copy.write(data)
        whole, newline, self.held = (self.held + data).rpartition(b"\n")
        self._write(whole + newline)
        if len(self.held) > MAX_LINE_BYTES:
            self.end()

    def end(self) -> None:
        self._write(self.held)
        self.held = b""

    def _write(self, data: bytes) -> None:
        while data:
            data = data[os.write(self.number, data) :]


def _not_started(program: str, why: str) -> BadInput:
    return Unusable(f"{program}: cannot be started ({why}); give the path of a program that runs on this machine")


@contextmanager
def sigterm_raises() -> Iterator[None]:
    """In this block SIGTERM raises Terminated, so that everything is ended in order."""

    def terminated(number: int, frame: FrameType | None) -> None:
        raise TerminatedRun("terminated; nothing that was started still runs, and nothing was left half-written")

    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may set it; a child ends with us in any case
        return
    before = signal.signal(signal.SIGTERM, terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before if before is not None else signal.SIG_DFL)
