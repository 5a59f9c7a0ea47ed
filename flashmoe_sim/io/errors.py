"""The errors a user can cause; `sim` prints each as one line and exits with its `exit_code`."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import ClassVar

from flashmoe_sim.io.printable import one_line

INTERRUPTED, TERMINATED = 130, 143  # exit codes


class SimError(Exception):
    """An error that one line can explain; anything unsafe for a terminal is escaped."""

    code: ClassVar[str] = "failed"
    exit_code = 1

    def __init__(self, text: str) -> None:
        super().__init__(one_line(text))


class Terminated(KeyboardInterrupt):
    """SIGTERM, for a verb that stops in order."""


class Interrupted(SimError):
    """Ctrl-C, or SIGTERM if `stop` says so."""

    def __init__(self, text: str, stop: KeyboardInterrupt | None = None) -> None:
        super().__init__(text)
        self.exit_code = TERMINATED if isinstance(stop, Terminated) else INTERRUPTED


class BadInput(SimError):
    """A file or an option cannot be used.

    where: the row or file, if `found` does not name it. found: what was found and expected. advice: what to do.
    message: everything but `where`. code: of the subclass, which is what is raised.
    """

    code = "bad-input"
    exit_code = 2

    def __init__(self, found: str, *, where: str = "", advice: str = "") -> None:
        self.where, self.found, self.advice = where, found, advice
        self.message = f"{found}; {advice}" if advice else found
        super().__init__(f"{where}: {self.message}" if where else self.message)


class UnknownName(BadInput):
    """A name, key, column or choice that is not among the known ones."""

    code = "unknown-name"


class Missing(BadInput):
    """A file, folder, package or program that is not there."""

    code = "missing"


class Exists(BadInput):
    """A file that would be overwritten."""

    code = "exists"


class Unusable(BadInput):
    """A file, folder, program, run or server that failed, is of another kind, or cannot be read, written or started."""

    code = "unusable"


class Malformed(BadInput):
    """A file, text or class that is not what its format demands, or is damaged."""

    code = "malformed"


class OutOfRange(BadInput):
    """A value outside what is possible, such as a bank of fewer slots than a call has experts."""

    code = "out-of-range"


class TooLarge(BadInput):
    """More than the memory, the disk or this program takes."""

    code = "too-large"


class Conflict(BadInput):
    """Options, files, parts or settings that exclude each other, such as a trace and another model."""

    code = "conflict"


class Incomplete(BadInput):
    """Something that must be given as well, such as --model, or that a trace or machine does not record."""

    code = "incomplete"


class Unsupported(BadInput):
    """An engine, policy, contract, model or format that cannot do what was asked."""

    code = "unsupported"


CODED = (UnknownName, Missing, Exists, Unusable, Malformed, OutOfRange, TooLarge, Conflict, Incomplete, Unsupported)


def shortened(text: str, width: int = 60) -> str:
    """A text of at most `width` characters; a longer one ends in dots."""
    return text if len(text) <= width else f"{text[: width - 3]}..."


def shown(value: object, width: int = 60) -> str:
    """A value for a message: as Python writes it, shortened; `nothing` for None."""
    try:
        return "nothing" if value is None else shortened(repr(value), width)
    except (ValueError, RecursionError):
        return "too long to show"


FEW = 8  # names, which are listed beside the nearest one


def unknown_name(kind: str, given: str, known: Iterable[str]) -> UnknownName:
    """An error for an unknown name: with the nearest known name, and the list of all if none is near or all are few."""
    names = sorted(known)
    near = did_you_mean(given, names)
    listed = "" if near and len(names) > FEW else f"known: {', '.join(names)}"
    return UnknownName(f"unknown {kind} {given!r}; {near}{listed}".rstrip())


def did_you_mean(given: str, known: Iterable[str]) -> str:
    """`did you mean 'lru'? ` if a known name is close to the given one, else nothing."""
    nearest = get_close_matches(given.lower(), known, n=1, cutoff=0.65)
    return f"did you mean {nearest[0]!r}? " if nearest else ""
