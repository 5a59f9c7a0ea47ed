"""How bash, zsh and fish complete, where click's own scripts stop: at `--option=`, after a colon, after a comma."""

from __future__ import annotations

import os
from typing import Any

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)


class _WholeWords(ShellComplete):
    """Completes `--option=part` to a whole word; click leaves `--option=` out."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[Any]]:
        items = super().get_completions(args, incomplete)
        option, equals, _ = incomplete.partition("=")
        if not equals or not option.startswith("--"):
            return items
        return [
            CompletionItem(f"{option}={item.value}", item.type, item.help) if item.type == "plain" else item
            for item in items
        ]


class Bash(_WholeWords, BashComplete):
    """Takes the line as it was typed: bash's own words end at each `=` and `:`, and so do the words it replaces."""

    source_template = BashComplete.source_template.replace(
        'COMP_WORDS="${COMP_WORDS[*]}"', 'COMP_LINE="${COMP_LINE:0:COMP_POINT}" COMP_WORDS="${COMP_WORDS[*]}"'
    )

    def get_completion_args(self) -> tuple[list[str], str]:
        line = os.environ.get("COMP_LINE")
        if line is None:  # asked by a script of click's
            return super().get_completion_args()
        words = split_arg_string(line)[1:]
        return (words, "") if line[-1:].isspace() else (words[:-1], words[-1])

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[Any]]:
        items = super().get_completions(args, incomplete)
        if "COMP_LINE" not in os.environ:
            return items
        kept = incomplete[: max(incomplete.rfind("="), incomplete.rfind(":")) + 1]
        return [CompletionItem(item.value.removeprefix(kept), item.type, item.help) for item in items]


class Zsh(_WholeWords, ZshComplete):
    pass


class Fish(_WholeWords, FishComplete):
    """A value may have a comma in it."""

    source_template = FishComplete.source_template.replace('string split ","', 'string split --max 1 ","')


def use_shells() -> None:
    """Let click take these classes for its own."""
    for kind in (Bash, Zsh, Fish):
        add_completion_class(kind)
