"""Reads timed by fio, if it is installed."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any, NamedTuple

from flashmoe_sim.io.errors import SimError
from native_bridge.process import ask

START_S = 0.35  # the overhead of starting fio, most of it waiting for its own threads
LEAST_READS_S = 0.1
PATIENCE_S = 5.0


class FioReads(NamedTuple):
    """The reads of one group of jobs together."""

    read_bytes: int
    seconds: float

    @property
    def gb_s(self) -> float:
        return self.read_bytes / self.seconds / 1e9


def fio_version() -> str | None:
    """The version of the fio on PATH; None if there is none.

    Raises SimError if there is one that does not say its version.
    """
    if shutil.which("fio") is None:
        return None
    answer = ask(["fio", "--version"], timeout_s=PATIENCE_S)
    found = re.match(r"fio-(\S+)", answer.stdout)
    if answer.code or not found:
        raise SimError(
            f"fio --version says {answer.stdout.strip()[:40]!r}; expected fio-3.33 or the like; try --no-fio"
        )
    return found[1]


def fio_reads(path: Path, *, size_bytes: int, depth: int, seconds: float) -> FioReads:
    """Random direct reads of a file for some seconds, with `depth` threads that read one after another.

    This is how the runtime's reading pool works, on every system. Raises SimError if fio fails.
    """
    arguments = [
        "fio",
        "--readonly",
        "--name=reads",
        f"--filename={str(path).replace(':', chr(92) + ':')}",  # fio separates several names with colons
        "--allow_file_create=0",
        "--rw=randread",
        "--direct=1",
        f"--bs={size_bytes}",
        "--ioengine=psync",
        "--thread",
        f"--numjobs={depth}",
        "--group_reporting",
        "--time_based",
        f"--runtime={max(round(seconds * 1e3), 1)}ms",
        "--eta=never",
        "--output-format=json",
    ]
    answer = ask(arguments, timeout_s=seconds + PATIENCE_S)
    if answer.timed_out:
        raise SimError(f"fio did not end {PATIENCE_S:g} s after its time; try --no-fio")
    if answer.code:
        message = (answer.stderr.strip() or answer.stdout.strip() or "nothing").splitlines()[0]
        raise SimError(f"fio fails with code {answer.code}: {message[:200]}; try --no-fio")
    return parse_fio(answer.stdout)


def parse_fio(text: str) -> FioReads:
    """The first group of a fio report, which --group_reporting makes the sum of its jobs.

    Lines before the document are notes of fio's. Raises SimError if there is no report, or it reports an error or no
    reads.
    """
    start = 0 if text.startswith("{") else text.find("\n{") + 1
    try:
        document, _ = json.JSONDecoder().raw_decode(text, start)
        job: dict[str, Any] = document["jobs"][0]
        error, read = job["error"], job["read"]
        found = FioReads(int(read["io_bytes"]), int(read["runtime"]) / 1e3)
    except (json.JSONDecodeError, RecursionError):
        raise SimError("fio printed no JSON; expected its report; try --no-fio") from None
    except (ArithmeticError, LookupError, TypeError, ValueError, AttributeError):
        raise SimError("fio printed a report of another form than fio 3; try --no-fio") from None
    if error:
        raise SimError(f"fio reports error {error}; try --no-fio")
    if found.read_bytes <= 0 or found.seconds <= 0:
        raise SimError("fio reports no reads; give more --seconds, or try --no-fio")
    return found
