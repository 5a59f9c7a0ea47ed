"""The pages of reference: every policy, predictor, system and function, from their docstrings."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from textwrap import dedent, fill
from typing import Any

from flashmoe_sim.describe import SHARED, Kind, changed, describe, describe_system, split, written
from flashmoe_sim.geometry.named import named_models
from flashmoe_sim.io.errors import CODED
from flashmoe_sim.policies.base import EvictingPolicy
from flashmoe_sim.policies.table import POLICIES
from flashmoe_sim.prefetchers.table import PREFETCHERS
from flashmoe_sim.systems.base import Cost
from flashmoe_sim.systems.facts import BY_CODE, FAILS, UNKNOWN, YES
from flashmoe_sim.systems.table import SYSTEMS

MANY = 6  # architectures, which a table then calls all others
HEAD = """\
# Policies and predictors

`./dev docs` makes this page from the docstrings. `sim policy show NAME` and `sim prefetch show NAME` give the whole
rule, ties and contracts.

`--policy` takes names, separated by commas, or `all`. Parameters follow a name: `lfu:count=restart`. `mine:Gap` is the
class `Gap` in your own `mine.py`; [CONTRIBUTING.md](../../CONTRIBUTING.md) shows how to write one.
[What to expect of a policy](../background/why.md) compares them. (future) marks those that know the future.

Every policy that evicts also takes:

"""

SYSTEMS_HEAD = """\
# Systems

`./dev docs` makes this page from the docstrings. `sim system show NAME` gives the rest, with the source of each cost.

`sim compare` takes names, separated by commas, or `all`. Settings follow a name: `slot-bank:slots=64`. An engine's
name, such as `llama.cpp` or `lm-studio`, stands for all of its systems. Of an engine that is not modelled, such as
`vllm`, it gives the speed of any engine, with a wide interval.
[Which engine is faster here?](../guides/compare.md) explains the result.

"""

PYTHON_HEAD = """\
# In Python

`./dev docs` makes this page from the docstrings of `flashmoe_sim.api`, which `help(sim.sweep)` shows as well. Functions
have the names and options of the [commands](commands.md), and return polars tables with [these columns](columns.md).

"""

ERRORS_HEAD = """\
## Errors

What cannot be done raises a `BadInput`, whose text is the line that `sim` prints: `.where` (the row or file), `.found`
and `.advice`; the first and last may be empty. Its `.code` says which of these it is:

| code | raised for |
|---|---|
"""

SERVED_HEAD = """\
Which engine serves which architecture of `sim model list`, read in the engines' sources: `sim system show NAME` names
the files and lines. A system is refused, with that as the reason, in the last four columns. Flags without effect: the
engine accepts them, may take the memory, and computes as if they were absent. A single model can differ from its
architecture (`sim compare` gives the reason), and so can a file: fused tensors, scales, expert groups.
"""


def _served_markdown() -> list[str]:
    """A table of every engine and every architecture of the named models."""
    archs = sorted({model.arch for model in named_models().values()})
    heads = {
        YES: "runs",
        BY_CODE: "runs by its code, no report was read",
        "ignored": "flags without effect",
        "wrong": "wrong text",
        FAILS: "does not run",
        UNKNOWN: "not known",
    }
    lines = ["", "## Engines and architectures", "", *SERVED_HEAD.splitlines(), ""]
    lines += [f"| system | {' | '.join(heads.values())} |", f"|---|{'---|' * len(heads)}"]
    programs: dict[str, list[str]] = {}
    for name, kind in SYSTEMS.items():
        programs.setdefault(kind.program, []).append(f"[`{name}`](#{name})")
    known = {kind.program: kind.facts_of_engine() for kind in SYSTEMS.values()}
    for program, names in programs.items():
        if (facts := known[program]) is None:
            continue
        of = {status: list[str]() for status in heads}
        for arch in archs:
            of[facts.archs.of(arch).removesuffix("-alloc").removesuffix("-free")].append(arch)
        of[facts.archs.others] = ["all others"] if len(of[facts.archs.others]) > MANY else of[facts.archs.others]
        lines.append(f"| {', '.join(names)} | {' | '.join(', '.join(each) or '-' for each in of.values())} |")
    return lines


def markdown() -> str:
    """The page of all policies and predictors, `docs/reference/policies.md`."""
    _, shared = split(inspect.getdoc(EvictingPolicy) or "", SHARED)
    lines = [
        *HEAD.splitlines(),
        *(f"- `{item.name}={item.default}`: {shared[item.name]}" for item in fields(EvictingPolicy)),
        "",
        "## Policies",
        *(line for kind in POLICIES.values() for line in _section(kind)),
        "",
        "## Predictors",
        "",
        "For `--prefetch`. Each also takes `cost_us`, as policies do.",
        *(line for kind in PREFETCHERS.values() for line in _section(kind)),
    ]
    return "\n".join(lines) + "\n"


def systems_markdown() -> str:
    """The page of all systems, `docs/reference/systems.md`."""
    described = [describe_system(kind) for kind in SYSTEMS.values()]
    lines = [*SYSTEMS_HEAD.splitlines(), "| system | what it keeps | misses | needs |", "|---|---|---|---|"]
    for one in described:
        cells = (f"[`{one['name']}`](#{one['name']})", one["keeps"], one["misses"], one["needs"] or "any machine")
        lines.append(f"| {' | '.join(cells)} |")
    for one in described:
        lines += ["", f"## `{one['name']}`", "", f"{one['title']} ({one['engine']}).", "", *_parameters(one)]
        lines += [f"- **Cost of its own:** {changed(Cost(**cost))}" for cost in one["costs"]]
        if one["by_faults"]:
            lines.append("- **Reads** experts by page faults of a mapped file.")
        lines.append(f"- **Source:** {one['source']}")
    return "\n".join([*lines, *_served_markdown()]) + "\n"


def python_markdown() -> str:
    """The page of the Python functions, `docs/reference/python.md`."""
    from flashmoe_sim import api
    from flashmoe_sim.report import figures

    lines = [*PYTHON_HEAD.splitlines(), *_paragraphs(inspect.getdoc(api) or "", ())]
    lines += ["", *ERRORS_HEAD.splitlines()]
    lines += [f"| `{kind.code}` | {inspect.getdoc(kind)} |" for kind in CODED]
    lines += ["", "## Functions"]
    for name, function in inspect.getmembers(api, inspect.isfunction):
        if function.__module__ == api.__name__ and not name.startswith("_"):
            lines += _function(name, function)
    lines += ["", "## Figures", "", *_paragraphs(inspect.getdoc(figures) or "", ())]
    for name in figures.__all__:
        lines += _function(f"figures.{name}", getattr(figures, name))
    return "\n".join(lines) + "\n"


def _function(name: str, function: Callable[..., Any]) -> list[str]:
    """A heading, the call with its defaults, and the docstring."""
    parameters = inspect.signature(function).parameters
    plain = inspect.Signature([one.replace(annotation=inspect.Parameter.empty) for one in parameters.values()])
    call = fill(f"{name}{plain}", 100, subsequent_indent=" " * 4, break_on_hyphens=False)
    docstring = _paragraphs(inspect.getdoc(function) or "", parameters)
    return ["", f"### `{name}`", "", "```py", *call.splitlines(), "```", "", *docstring]


def _paragraphs(text: str, parameters: Iterable[str]) -> list[str]:
    """A docstring as Markdown: examples become blocks of code, parameters a list."""
    rule, meanings = split(text, parameters)
    lines = []
    for paragraph in rule.split("\n\n"):
        code = paragraph.startswith((">>>", "    "))
        lines += ["", "```py", *dedent(paragraph).splitlines(), "```"] if code else ["", *paragraph.splitlines()]
    return [*lines[1:], *[""][: len(meanings)], *(f"- `{name}`: {meaning}" for name, meaning in meanings.items())]


def _section(kind: Kind) -> list[str]:
    described = describe(kind)
    future = " (future)" * described["hindsight"]
    lines = ["", f"### `{described['name']}`", "", f"{described['summary']}{future}", "", *_parameters(described)]
    if described["source"]:
        lines.append(f"- **Source:** {described['source']}")
    return lines if lines[-1] else lines[:-1]


def _parameters(described: Mapping[str, Any]) -> list[str]:
    """A line for each of its own parameters: the first sentence on it."""
    return [
        f"- `{written(name, default)}`: {first_sentence(described['meanings'][name])}"
        for name, default in described["parameters"].items()
        if name not in SHARED
    ]


def first_sentence(text: str) -> str:
    """A text up to its first full stop before a capital letter or code."""
    return re.split(r"(?<=\.) (?=[A-Z`])", text, maxsplit=1)[0]
