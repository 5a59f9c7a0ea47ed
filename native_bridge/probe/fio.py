"""Reads timed by fio, if it is installed."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from flashmoe_sim.io.errors import SimError
from native_bridge.probe.fio_json import FioReads, parse_fio
from native_bridge.process import ask

START_S = 0.35  # the overhead of starting fio, most of it waiting for its own threads
LEAST_READS_S = 0.1
PATIENCE_S = 5.0


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
