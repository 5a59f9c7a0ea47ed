"""What every verb has that becomes a command by itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from flashmoe_sim.io.errors import SimError
    from flashmoe_sim.io.sections import Section
    from flashmoe_sim.report.figures.style import Chart

Found = TypeVar("Found")
Progress: TypeAlias = Callable[[int, int], None]  # takes how much is done, and all of it
Stages: TypeAlias = Callable[[str, int, int], None]  # also takes what is being done
Message: TypeAlias = Callable[[str], None]  # takes a line for the user, while the verb runs


def stage(stages: Stages | None, what: str) -> Progress | None:
    """The progress of one stage, which begins now."""
    if stages is None:
        return None
    stages(what, 0, 0)
    return partial(stages, what)


class Verb(ABC, Generic[Found]):
    """A verb: its fields are its options.

    help: of its command. shown: the fields that `--help` shows; `--help-all` shows all; empty for all at once.
    reads: whether the command reads TRACE, with notes on stderr, before `run` or by its argument `read` or `load`.
    writes: whether the command can write the `table` of a result to a file. keeps: whether `run` gets Ctrl-C and
    SIGTERM as KeyboardInterrupt, to keep what is done.
    """

    help: ClassVar[str]
    shown: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[bool] = False
    writes: ClassVar[bool] = False
    keeps: ClassVar[bool] = False

    @abstractmethod
    def run(self) -> Found:
        """Do it.

        It may take what a terminal gives: `read`, `load` and `load_long` as in `given.py`, `message`, `ask`, which is
        None without a terminal, and `progress` or `stages`. A verb that takes any of them is left at once on Ctrl-C,
        unless it `keeps`.
        """

    @abstractmethod
    def document(self, found: Found) -> dict[str, Any]:
        """What `--json` prints."""

    @abstractmethod
    def sections(self, found: Found) -> Iterable[Section]:
        """What the terminal shows, each as it comes."""

    def check(self) -> None:
        """Raise BadInput for what can be refused before anything is read."""
        return

    def finish(self, found: Found) -> Iterable[str]:
        """Write a file, if one is asked for; the lines on stderr before the result, with `--json` too."""
        return ()

    def notes(self, found: Found) -> Sequence[str]:
        """Lines on stderr after the sections."""
        return ()

    def failures(self, found: Found) -> Sequence[SimError]:
        """Why the verb failed, shown after everything else; the first one decides the exit code."""
        return ()


class DrawnVerb(Verb[Found]):
    """A verb whose command can also draw its result."""

    writes: ClassVar[bool] = True

    @abstractmethod
    def chart(self, found: Found) -> Chart:
        """A figure of the result."""
