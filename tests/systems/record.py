"""The options of real programs, read from their own argument parsers: the records in tests/systems/options.

A record has a head of `# key: value`, then a line for each option with its spellings, and what follows it: nothing,
VALUE for each value, or {a,b} for one value of a list; `env NAME` for each variable; `include RECORD` for the options
of the program that it is a patch of.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from flashmoe_sim.systems.base import System

OPTIONS = Path(__file__).parent / "options"


@dataclass
class Record:
    """head: repository, commit, file and program. values: how many each spelling takes. choices: those of a list."""

    head: dict[str, str] = field(default_factory=dict)
    values: dict[str, int] = field(default_factory=dict)
    choices: dict[str, set[str]] = field(default_factory=dict)
    variables: set[str] = field(default_factory=set)


def record_name(system: System) -> str:
    return re.sub("[/ #]", "_", system.version)


def read_record(name: str) -> Record:
    record = Record()
    for line in (OPTIONS / f"{name}.txt").read_text().splitlines():
        if line.startswith("# "):
            key, _, value = line[2:].partition(": ")
            record.head[key] = value
        elif line.startswith("include "):
            base = read_record(line.removeprefix("include "))
            record.values |= base.values
            record.choices |= base.choices
            record.variables |= base.variables
        elif line.startswith("env "):
            record.variables.add(line.removeprefix("env "))
        else:
            option = re.fullmatch(r"(--?[\w.-]+(?:, --?[\w.-]+)*)((?: VALUE)*)(?: \{([^}]+)\})?", line)
            assert option, f"{name}: {line!r}"
            for spelling in option[1].split(", "):
                record.values[spelling] = option[2].count("VALUE") + bool(option[3])
                if option[3]:
                    record.choices[spelling] = set(option[3].split(","))
    return record
