"""Options of a verb as fields of a dataclass: each declares its default, help and parser once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, TypedDict, TypeVar, Unpack

Default = TypeVar("Default")


class Details(TypedDict, total=False):
    """What an option can have.

    flag: on the command line, if it differs from the field's name. parse: from the text of the command line to the
    field's value. choices: the only values. least, most: the smallest and the largest number. above: a number that is
    too small. positional: without a flag. in_python: only there, not on the command line. on_command_line: only there,
    after the other options.
    """

    flag: str
    parse: Callable[[str], Any]
    choices: tuple[str, ...]
    least: float
    most: float
    above: float
    positional: bool
    in_python: bool
    on_command_line: bool


NONE_OF_THEM = dict.fromkeys(Details.__annotations__)


def option(metavar: str, help_: str, **details: Unpack[Details]) -> dict[str, Any]:
    """A field's metadata."""
    return {"metavar": metavar, "help": help_, **NONE_OF_THEM, **details}


def option_field(default: Default, metavar: str, help_: str, **details: Unpack[Details]) -> Default:
    """A field with a default and the metadata of an option."""
    made: Any = field(default=default, metadata=option(metavar, help_, **details))
    return made  # type: ignore[no-any-return]


Several: TypeAlias = str | Path | Iterable[str | Path]
LENIENT = option("", "Skip malformed lines and count them, instead of stopping.", on_command_line=True)
ONLINE = option(
    "",
    "Read the header of an unknown repository on Hugging Face: config.json, or the first MiB of its GGUF file; never "
    "done without this.",
    on_command_line=True,
)
FORCE = option("", "Overwrite existing files.", on_command_line=True)
MACHINE_OUT = option("FILE", "The machine's file to write, a .toml.")
OBJECTIVE = option(
    "",
    "What to make fast: generating, reading a prompt, or a prompt and its answer.",
    choices=("decode", "prompt", "both"),
)
PROMPT_TOKENS = option("P", "Tokens of the prompt, for --objective.", least=1)
ANSWER_TOKENS = option("N", "Tokens of the answer, for --objective both.", least=1)
MEMORY = "Context and memory"  # a group of options
NAMES_MODEL = "SPEC"  # what stands for the value of every option that takes a model's name
MODEL = option(NAMES_MODEL, "The model: a repository, GGUF file, config.json, sidecar or name.")

MEASURED = option(
    "FILE|SPEED",
    "Speeds that an engine printed on this machine: llama-bench's JSON, the folder of `sim tune` and more; or by hand: "
    '"placed:cpu_layers=24=28.1"; may be given several times.',
)


@dataclass(frozen=True, kw_only=True)
class DraftOptions:
    """Tokens that are drafted, and verified together: speculative decoding."""

    group: ClassVar[str] = "Drafts"

    draft: int | None = option_field(None, "N", "Tokens drafted before each pass, which verifies them; default: 0.")
    accept: float | None = option_field(
        None, "P", "With --draft: probability that one is accepted, given that those before it were."
    )
    drafter: str | int | Path | None = option_field(
        None,
        "D",
        "With --draft: mtp, the model's own layer; ngram, a lookup; or a draft model's file, name or size "
        "(0.6GiB); default: mtp if the model has it, else ngram.",
    )


@dataclass(frozen=True, kw_only=True)
class ContextOptions(DraftOptions):
    """What is in a machine's memory besides routed experts; sizes have their unit (`2GiB`), or are bytes."""

    group: ClassVar[str] = MEMORY

    dense: str | int | None = option_field(None, "SIZE", "Dense weights, such as 5GiB; default: the model's.")
    context: int | None = option_field(None, "N", "Tokens of the context; the model gives their size; default: 0.")
    depth: int | None = option_field(
        None, "N", "Tokens already in the context, which attention reads; default: 0.", least=0
    )
    kv: str | int | None = option_field(
        None, "SIZE", "Memory of the context, such as 2GiB; default: what --context takes."
    )
    kv_type: str | None = option_field(None, "T", "Type of the context's keys and values, such as q8_0; default: f16.")


@dataclass(frozen=True, kw_only=True)
class MemoryOptions(ContextOptions):
    """The memory of a real system: also what else uses it."""

    group: ClassVar[str] = MEMORY

    context: int | None = option_field(None, "N", "Tokens of the context; the model gives their size; default: 4096.")
    reserve: str | int | None = option_field(
        None, "SIZE", "RAM of the system and other programs; default: the machine's."
    )
    buffers: str | int | None = option_field(
        None, "SIZE", "Compute buffers of an engine like llama.cpp; default: from the model."
    )
