"""What the docstrings and attributes of a policy, a predictor or a system say of it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Sequence
from dataclasses import MISSING, asdict, fields
from typing import Any

from flashmoe_sim.io.sections import Item, Section, Verbatim
from flashmoe_sim.policies.base import ALL_CONTRACTS, EvictingPolicy, Policy
from flashmoe_sim.prefetchers.base import Prefetcher
from flashmoe_sim.systems.base import Cost, System

Kind = type[Policy] | type[Prefetcher]
SHARED = tuple(item.name for item in fields(EvictingPolicy))


def describe(kind: Kind) -> dict[str, Any]:
    """Everything about a policy or predictor; the meanings of its parameters come from docstrings.

    rule: the docstring without the parameters. parameters: defaults. meanings: empty if no docstring has them.
    """
    ours = kind.__module__.startswith("flashmoe_sim.")
    return _described(kind) | {
        "ties": _ties(kind),
        "lead": getattr(kind, "lead", ""),
        "contracts": list(kind.contracts),
        "hindsight": getattr(kind, "hindsight", False),
        "source": kind.source or ("" if ours else inspect.getsourcefile(kind)),
    }


def _ties(kind: Kind) -> str:
    """How ties are broken; empty for predictors, and for a policy of the user's that leaves it to the default."""
    if kind.__module__.startswith("flashmoe_sim."):
        return getattr(kind, "ties", "")
    return next((vars(one)["ties"] for one in kind.mro() if one is not Policy and "ties" in vars(one)), "")


def describe_system(kind: type[System]) -> dict[str, Any]:
    """Everything about a system; its settings are its `parameters`."""
    return _described(kind) | {
        "title": kind.title,
        "engine": kind.engine,
        "keeps": kind.keeps,
        "misses": kind.misses,
        "size": kind.size,
        "needs": _needs(kind),
        "facts": _facts(kind),
        "costs": [asdict(cost) for cost in kind.costs],
        "by_faults": kind.by_faults,
        "source": kind.source,
    }


def written(name: str, default: Any) -> str:
    """A parameter with its default, as it is given; its name alone if it is chosen when left out."""
    return name if default is None else f"{name}={default}"


def _described(kind: type) -> dict[str, Any]:
    """Name, rule and parameters of a class, from its docstring and its bases' docstrings."""
    own = {item.name: "required" if item.default is MISSING else item.default for item in fields(kind)}
    shared = {name: own.pop(name) for name in SHARED if name in own}
    parameters = own | shared
    docstring = vars(kind).get("__doc__") or ""
    if docstring.startswith(f"{kind.__name__}("):  # `dataclass` writes one for a class without
        docstring = ""
    rule, _ = split(inspect.cleandoc(docstring), parameters)
    meanings: dict[str, str] = {}
    for base in kind.__mro__:
        meanings = split(inspect.cleandoc(base.__doc__ or ""), parameters)[1] | meanings
    return {
        "name": getattr(kind, "name", ""),
        "summary": rule.partition("\n")[0],
        "rule": rule,
        "parameters": parameters,
        "meanings": {name: meanings.get(name, "") for name in parameters},
    }


def _needs(kind: type[System]) -> str:
    """The hardware and models that a system needs, in words."""
    needs = ["a GPU"] if kind.gpu else []
    if kind.own_gpu is not None:
        needs.append("a GPU with a memory of its own" if kind.own_gpu else "a GPU that shares the RAM")
    facts, gpu = kind.facts_of_engine(), bool(needs)
    return "; ".join([*needs, *(() if facts is None else facts.needs(gpu=gpu))])


def _facts(kind: type[System]) -> dict[str, Any] | None:
    """What is known of its engine, each part with its source; None if nothing is."""
    return None if (facts := kind.facts_of_engine()) is None else asdict(facts)


def shown_contracts(contracts: Iterable[str]) -> str:
    """The contracts as a list, or `all`."""
    return "all" if set(contracts) == set(ALL_CONTRACTS) else ", ".join(contracts)


def shown_cost(cost: Cost) -> str:
    """A cost of a system in words, with its source."""
    return f"{changed(cost)}: {cost.source}"


def changed(cost: Cost) -> str:
    """Which number of a machine a system changes, and to what."""
    value = f"{cost.value:g} ({cost.lo:g} to {cost.hi:g})"
    change = f"{value} times the machine's" if cost.scales else f"{value}, unless the machine's was measured"
    return f"`{cost.path}` is {change}"


def split(text: str, names: Iterable[str]) -> tuple[str, dict[str, str]]:
    """A docstring without its text on these parameters, and that text: from a line with `name:` on.

    Others may follow in the same paragraph, on their own lines or as sentences.
    """
    name = f"({'|'.join(map(re.escape, names)) or '$.'}): "
    rule: list[str] = []
    meanings: dict[str, str] = {}
    for paragraph in text.split("\n\n"):
        first = re.search(f"^{name}", paragraph, re.MULTILINE)
        start = first.start() if first else len(paragraph)
        rule += [paragraph[:start].rstrip()] if start else []
        _, *parts = re.split(rf"(?:^|(?<=\. )){name}", paragraph[start:], flags=re.MULTILINE)
        meanings |= {key: " ".join(meaning.split()) for key, meaning in zip(parts[::2], parts[1::2], strict=True)}
    return "\n\n".join(rule), meanings


def sections(title: str, rule: str, facts: Sequence[tuple[str, str]]) -> list[Section]:
    """A title, a rule in paragraphs, and facts with their labels."""
    width = max(len(label) for label, _ in facts) + 2
    return [
        Section("", (Verbatim(title),)),
        *(Section("", (" ".join(paragraph.split()),)) for paragraph in rule.split("\n\n")),
        Section("", tuple(Item(f"{label + ':':{width}}{text}", width) for label, text in facts)),
    ]
