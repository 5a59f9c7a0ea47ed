"""What a computer says of itself: the text of files and the output of programs, as they were found."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

_HEAD = re.compile(r"== (.+?)(?: \((exit (\d+)|[^()]+)\))?")


@dataclass(frozen=True)
class Told:
    """The text of a file or the output of a program. code: its exit code. problem: why there is no text, or empty."""

    text: str = ""
    code: int = 0
    problem: str = ""


Seen: TypeAlias = Mapping[str, Told]  # by the file's path or the program's name


def text_of(seen: Seen, name: str) -> str:
    """What a file says, or a program that ended well; empty otherwise."""
    answer = seen.get(name)
    return "" if answer is None or answer.code or answer.problem else answer.text


def trouble_of(seen: Seen, name: str) -> str:
    """Why a program that is there gave no answer, in a few words; empty if it did, or is not there."""
    answer = seen.get(name)
    if answer is None:
        return ""
    if answer.problem:
        return answer.problem
    first = next((line.strip() for line in answer.text.splitlines() if line.strip()), "no output")
    return f"exit code {answer.code}: {first}"[:120] if answer.code else ""


def parse_seen(recorded: str) -> Seen:
    """What was seen, from a text with `== NAME`, `== NAME (exit 9)` or `== NAME (problem)` before each answer."""
    found: dict[str, Told] = {}
    name, lines = "", [""]
    for line in recorded.splitlines():
        if (head := _HEAD.fullmatch(line)) is None:
            lines.append(line)
            if name:
                found[name] = Told("\n".join(lines), found[name].code, found[name].problem)
            continue
        name, lines = head[1], []
        found[name] = Told("", int(head[3] or 0), "" if head[3] or not head[2] else head[2])
    return found
