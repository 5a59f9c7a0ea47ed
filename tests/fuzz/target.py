"""A door of the program, and the judgement of one input at it."""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from flashmoe_sim.io.errors import SimError
from tests.fuzz.memory import Peak

PROJECT = Path(__file__).parents[2]
MIB = 2**20
MOST_CPU_S = 3.0  # a hundred times what the slowest small input takes
MOST_LETTERS = 2000
_ADVICE = re.compile(r"; |expected|give|known|at most|at least|did you mean|[:?] [Ww]rite|is not |must be |the most")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")

Document = tuple[bytes, Any]


class Skip(Exception):
    """This input is not for the door."""


@dataclass(frozen=True)
class Target:
    """A door.

    read: takes an input and an empty folder to put it in; what it returns is accepted. seeds: inputs to begin with.
    words: what mutations put in. file: the name that a refusal must have, if the input is a file.
    holds: raises AssertionError if something accepted is not what the input says. documents: inputs that are valid, and
    what reading them must give, as `same` compares it.
    most_mib, most_cpu_s: beyond 100 bytes and 20 us for each byte of the input.
    """

    name: str
    read: Callable[[bytes, Path], Any]
    seeds: Callable[[], Sequence[bytes]]
    words: tuple[bytes, ...] = ()
    file: str = ""
    holds: Callable[[bytes, Any, Path], None] | None = None
    documents: Callable[[], st.SearchStrategy[Document]] | None = None
    same: Callable[[Any, Any], bool] = lambda found, expected: bool(found == expected)
    most_mib: int = 64
    most_cpu_s: float = MOST_CPU_S

    @cached_property
    def first(self) -> list[bytes]:
        return list(self.seeds())


@dataclass(frozen=True)
class Finding:
    """What an input did that none may do."""

    kind: str
    what: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.kind}: {self.what}" + (f" ({self.where})" if self.where else "")

    @property
    def key(self) -> str:
        """Equal for inputs that probably show the same mistake."""
        return f"{self.kind} {self.where or re.sub('[0-9]+', '0', self.what)[:60]}"


@dataclass
class Verdict:
    """What came of one input. value: what was accepted; None if it was refused."""

    value: Any = None
    accepted: bool = False
    skipped: bool = False
    cpu_s: float = 0.0
    grown_bytes: int = 0
    findings: list[Finding] = field(default_factory=list)


def judge(target: Target, data: bytes, folder: Path, *, measured: bool = True) -> Verdict:
    """Try one input at a door; measured: whether to measure its time and memory."""
    verdict = Verdict()
    found = verdict.findings
    peak = Peak() if measured else None
    began = time.thread_time()
    try:
        verdict.value = target.read(data, folder)
        verdict.accepted = True
    except Skip:
        verdict.skipped = True
    except SimError as error:
        found += _of_message(target, error, len(data))
    except MemoryError as error:
        found.append(Finding("memory", "MemoryError", _place(error)))
    except Exception as error:
        found.append(Finding("crash", f"{type(error).__name__}: {str(error)[:200]}", _place(error)))
    verdict.cpu_s = time.thread_time() - began
    if peak is not None:
        verdict.grown_bytes = peak.grown_bytes()
        bound = target.most_mib * MIB + 100 * len(data)
        if verdict.grown_bytes > bound:
            grown = f"{verdict.grown_bytes / MIB:.0f} MiB for {len(data):,} bytes; expected {bound / MIB:.0f}"
            found.append(Finding("memory", grown, target.name))
        if verdict.cpu_s > target.most_cpu_s + 20e-6 * len(data):
            found.append(Finding("slow", f"{verdict.cpu_s:.1f} s for {len(data):,} bytes", target.name))
    if verdict.accepted and target.holds is not None:
        try:
            target.holds(data, verdict.value, folder)
        except AssertionError as error:
            found.append(Finding("wrong", str(error)[:300] or "not what it says", _place(error)))
        except Exception as error:
            found.append(Finding("wrong", f"{type(error).__name__}: {str(error)[:200]}", _place(error)))
    return verdict


def _of_message(target: Target, error: SimError, size: int) -> list[Finding]:
    """What is wrong with the line that a refusal prints."""
    text, place = str(error), _place(error)
    found = []
    if _CONTROL.search(text):
        found.append(Finding("message", f"has control characters or several lines: {text[:200]!r}", place))
    if target.file and target.file not in text:
        found.append(Finding("message", f"does not name the file: {text[:200]!r}", place))
    if len(text) > MOST_LETTERS + (0 if target.file else 8 * size):  # what was typed may be shown whole, with escapes
        found.append(Finding("message", f"{len(text):,} letters: {text[:100]!r}...", place))
    if not _ADVICE.search(text):
        found.append(Finding("message", f"does not say what to do: {text[:200]!r}", place))
    return found


def _place(error: BaseException) -> str:
    """File and line of this program where an error was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if frame.filename.startswith(str(PROJECT / "flashmoe_sim"))]
    ours += [frame for frame in frames if frame.filename.startswith(str(PROJECT / "native_bridge"))]
    ours = ours or [frame for frame in frames if "tests/fuzz" in frame.filename]
    if not ours:
        return ""
    return f"{Path(ours[-1].filename).relative_to(PROJECT)}:{ours[-1].name}"
