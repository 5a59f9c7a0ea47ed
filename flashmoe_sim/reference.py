"""What is said of every policy and predictor: by `sim policy`, `sim prefetch` and the page `docs/policies.md`."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from typing import Any

from flashmoe_sim.policies.base import ALL_CONTRACTS, EvictingPolicy, Policy
from flashmoe_sim.policies.table import POLICIES
from flashmoe_sim.prefetchers.base import Prefetcher
from flashmoe_sim.prefetchers.table import PREFETCHERS

Kind = type[Policy] | type[Prefetcher]
SHARED = tuple(item.name for item in fields(EvictingPolicy))
HEAD = """\
# Policies and predictors

Made from the docstrings of `flashmoe_sim/policies/` and `flashmoe_sim/prefetchers/` by `./dev docs`.

`--policy` takes a name, with parameters after it where the defaults below are not what you want (`lfu:count=restart`),
several with commas between them, or `all`. `mine:Gap` is one of your own: the class `Gap` in `mine.py`, in the current
folder or on Python's path. [CONTRIBUTING.md](../CONTRIBUTING.md) shows how to write it. [contracts.md](contracts.md)
defines the contracts;
[why.md](why.md) says which to use when, and compares the policies.

Every policy that evicts also takes:

"""


def describe(kind: Kind) -> dict[str, Any]:
    """All that is known of a policy or predictor; what its parameters mean is taken from docstrings.

    rule: the docstring without the parameters. parameters: defaults. meanings: empty where no docstring tells.
    """
    own = {item.name: "required" if item.default is MISSING else item.default for item in fields(kind)}
    shared = {name: own.pop(name) for name in SHARED if name in own}
    parameters = own | shared
    said = vars(kind).get("__doc__") or ""
    if said.startswith(f"{kind.__name__}("):  # written by `dataclass`, for want of another
        said = ""
    rule, _ = _split(inspect.cleandoc(said), parameters)
    meanings: dict[str, str] = {}
    for base in kind.__mro__:
        meanings = _split(inspect.cleandoc(base.__doc__ or ""), parameters)[1] | meanings
    ours = kind.__module__.startswith("flashmoe_sim.")
    return {
        "name": kind.name,
        "summary": rule.partition("\n")[0],
        "rule": rule,
        "parameters": parameters,
        "meanings": {name: meanings.get(name, "") for name in parameters},
        "ties": getattr(kind, "ties", ""),
        "lead": getattr(kind, "lead", ""),
        "contracts": list(kind.contracts),
        "hindsight": getattr(kind, "hindsight", False),
        "source": kind.source or ("" if ours else inspect.getsourcefile(kind)),
    }


def shown_contracts(contracts: Iterable[str]) -> str:
    """The contracts as a list, or that it is all of them."""
    return "all" if set(contracts) == set(ALL_CONTRACTS) else ", ".join(contracts)


def markdown() -> str:
    """The page of all policies and predictors, as it stands in `docs/policies.md`."""
    _, shared = _split(inspect.getdoc(EvictingPolicy) or "", SHARED)
    lines = [
        *HEAD.splitlines(),
        *(f"- `{item.name}={item.default}`: {shared[item.name]}" for item in fields(EvictingPolicy)),
        "",
        "## Policies",
        "",
        *_table(POLICIES, "policy"),
        *(line for kind in POLICIES.values() for line in _section(kind)),
        "",
        "## Predictors",
        "",
        "What `--prefetch` takes.",
        "",
        *_table(PREFETCHERS, "predictor"),
        *(line for kind in PREFETCHERS.values() for line in _section(kind)),
    ]
    return "\n".join(lines) + "\n"


def _table(table: Mapping[str, Kind], heading: str) -> list[str]:
    lines = [f"| {heading} | contracts | what it does |", "|---|---|---|"]
    for name, kind in table.items():
        described = describe(kind)
        anchor = re.sub(r"[^\w-]", "", name)
        summary = described["summary"].replace("|", "\\|")
        lines.append(f"| [`{name}`](#{anchor}) | {shown_contracts(described['contracts'])} | {summary} |")
    return lines


def _section(kind: Kind) -> list[str]:
    described = describe(kind)
    lines = ["", f"### `{described['name']}`", "", described["rule"], ""]
    for name, default in described["parameters"].items():
        if name not in SHARED:
            lines.append(f"- `{name}={default}`: {described['meanings'][name]}")
    known = (("Ties", "ties"), ("Lead", "lead"), ("Source", "source"))
    lines += [f"- **{label}:** {described[key]}" for label, key in known if described[key]]
    lines.append(f"- **Contracts:** {shown_contracts(described['contracts'])}")
    if described["hindsight"]:
        lines.append("- **Knows the future:** it uses what the trace says of later calls")
    return lines


def _split(text: str, names: Iterable[str]) -> tuple[str, dict[str, str]]:
    """A docstring without what it says of these parameters, and that: from a line with `name:` on.

    Others may follow in the same paragraph, on lines of their own or as sentences.
    """
    name = f"({'|'.join(map(re.escape, names)) or '$.'}): "
    rule: list[str] = []
    meanings: dict[str, str] = {}
    for paragraph in text.split("\n\n"):
        first = re.search(f"^{name}", paragraph, re.MULTILINE)
        start = first.start() if first else len(paragraph)
        rule += [paragraph[:start].rstrip()] if start else []
        _, *parts = re.split(rf"(?:^|(?<=\. )){name}", paragraph[start:], flags=re.MULTILINE)
        meanings |= {key: " ".join(said.split()) for key, said in zip(parts[::2], parts[1::2], strict=True)}
    return "\n\n".join(rule), meanings
