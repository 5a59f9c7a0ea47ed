"""The options that several verbs of the bridge share, and what else they do alike."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from flashmoe_sim.io.errors import Conflict, Malformed, Missing, TooLarge, Unusable
from flashmoe_sim.options import option, option_field
from flashmoe_sim.question import flag_of, in_order

if TYPE_CHECKING:
    from native_bridge.repeats import Planned, Series

MAX_PROMPT_BYTES = 1 << 20
ERASE = "\r\x1b[K"  # clears the line
PROMPT = (
    "Every layer of the model keeps a few of its experts in a bank of slots, and reads the others when a token asks "
    "for them. What was read replaces what was not asked for in the longest time. A run is compared call by call."
)
TOKENS = 100
CACHE_STATES = ("warm", "cold", "as-is")

RUNTIME = option(
    "PROGRAM", "The patched llama-cli; default: FLASHMOE_RUNTIME, or the one on the PATH.", on_command_line=True
)
CACHE = option("", "State of the page cache before a run.", choices=CACHE_STATES)
GENERATED = option("N", "Tokens to generate in each run.", least=1)
PARAMETERS = option("NAME", "A further number to fit.", flag="--parameter")


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How the runtime is run."""

    group: ClassVar[str] = "The runtime"

    runtime: str | None = field(default=None, metadata=RUNTIME)
    sidecar: Path | None = option_field(
        None, "DIR", "The folder of the model's sidecar; default: written beside the runs.", on_command_line=True
    )
    threads: int | None = option_field(
        None, "N", "Threads that compute; default: the physical cores.", least=1, on_command_line=True
    )
    gpu_layers: str | None = option_field(None, "N", "Layers on the GPU, as the runtime's -ngl.", on_command_line=True)

    def series(self, model: Path, place: Path, **more: Any) -> Series:
        """Runs of a model in the folder `place`, with a sidecar there if none is given. more: fields of `Series`."""
        from native_bridge.engines.table import find_runtime
        from native_bridge.repeats import Series

        sidecar = self.sidecar or place / "sidecar"
        return Series(find_runtime(self.runtime), model, sidecar, writes_sidecar=self.sidecar is None, **more)

    def of_request(self) -> dict[str, Any]:
        """The fields of a RunRequest that these options set."""
        from native_bridge.host import physical_cores

        return {"threads": self.threads or physical_cores(), "gpu_layers": self.gpu_layers}


def refuse_given(question: Any, names: Sequence[str], why: str) -> None:
    """Raise BadInput, which names the option, if one of these fields differs from its default."""
    for item in in_order(type(question)):
        if item.name in names and getattr(question, item.name) != item.default:
            raise Conflict(f"{flag_of(question, item.name)} {why}")


def first_difference(name: str, differences: Sequence[object]) -> str:
    """A line on what differs in a run."""
    first, *others = differences
    return f"{name}: {first}" + (f"; {len(others)} more (--json has all)" if others else "")


def read_prompt(file: Path, *, most_bytes: int = MAX_PROMPT_BYTES) -> str:
    """The text of a file. Raises BadInput for one that cannot be read, is too large or is not UTF-8."""
    try:
        with file.open("rb") as stream:
            content = stream.read(most_bytes + 1)
        if len(content) > most_bytes:
            raise TooLarge(f"{file}: more than {most_bytes >> 20} MiB; give a shorter text")
        return content.decode("utf-8")
    except FileNotFoundError:
        raise Missing(f"{file}: no such file; give a text file") from None
    except UnicodeDecodeError as error:
        raise Malformed(f"{file}: is not UTF-8 (byte {error.start}); give a text file") from None
    except OSError as error:
        raise Unusable(f"{file}: cannot be read ({error.strerror or error}); give a text file") from None


@contextmanager
def one_line() -> Iterator[Callable[[str], None] | None]:
    """A line on stderr that each text replaces; None if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return

    def show(text: str) -> None:
        sys.stderr.write(f"{ERASE}{text}")
        sys.stderr.flush()

    try:
        yield show
    finally:
        sys.stderr.write(ERASE)


@contextmanager
def running(layers: int) -> Iterator[Callable[[Planned, float, int], None] | None]:
    """The progress of runs: what runs, for how long, and how far it is; None if stderr is not a terminal."""
    with one_line() as show:
        if show is None:
            yield None
            return

        def progress(one: Planned, seconds: float, calls: int) -> None:
            of = one.request.n_predict
            tokens = f", {calls // max(1, layers):,} steps for a prompt and {of:,} tokens" if calls else ""
            show(f"{one.folder.name}: {seconds:.0f} s{tokens}")

        yield progress
