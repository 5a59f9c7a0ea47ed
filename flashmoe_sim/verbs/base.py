"""What every verb has that becomes a command by itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from flashmoe_sim.io.errors import SimError
    from flashmoe_sim.io.sections import Section
    from flashmoe_sim.report.figures.style import Chart

Found = TypeVar("Found")
Progress: TypeAlias = Callable[[int, int], None]  # takes how much is done, and all of it


class Verb(ABC, Generic[Found]):
    """A verb: its fields are its options.

    help: of its command. reads: whether the command reads TRACE, with notes on stderr, before `run` or by its argument
    `read`. writes: whether the command can write the `table` of a result to a file.
    """

    help: ClassVar[str]
    reads: ClassVar[bool] = False
    writes: ClassVar[bool] = False

    @abstractmethod
    def run(self) -> Found:
        """Do it. A verb that takes `progress` has its progress shown, and is left at once on Ctrl-C."""

    @abstractmethod
    def document(self, found: Found) -> dict[str, Any]:
        """What `--json` prints."""

    @abstractmethod
    def sections(self, found: Found) -> list[Section]:
        """What the terminal shows."""

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
