"""Every policy there is: one line each."""

from __future__ import annotations

import importlib
import typing
from dataclasses import fields
from inspect import isabstract

from flashmoe_sim.errors import BadInput, unknown_name
from flashmoe_sim.policies.arc import Arc
from flashmoe_sim.policies.base import Policy
from flashmoe_sim.policies.cacheus import Cacheus
from flashmoe_sim.policies.demand import Demand
from flashmoe_sim.policies.fifo import Fifo
from flashmoe_sim.policies.lecar import LeCaR
from flashmoe_sim.policies.lfu import Lfu
from flashmoe_sim.policies.lirs import Lirs
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.policies.lru_k import LruK
from flashmoe_sim.policies.min_ import Min, MinForced
from flashmoe_sim.policies.random_ import Random
from flashmoe_sim.policies.static import Static, StaticGlobal
from flashmoe_sim.policies.w_tinylfu import WTinyLfu

POLICIES: dict[str, type[Policy]] = {
    "demand": Demand,
    "lru": Lru,
    "fifo": Fifo,
    "lfu": Lfu,
    "random": Random,
    "static": Static,
    "static:global": StaticGlobal,
    "min": Min,
    "min:forced": MinForced,
    "arc": Arc,
    "lirs": Lirs,
    "lru-k": LruK,
    "w-tinylfu": WTinyLfu,
    "lecar": LeCaR,
    "cacheus": Cacheus,
}


def parse_policy(text: str) -> Policy:
    """A policy from `lru`, `lru:stamp=last`, `min:forced` or `my_module:MyPolicy`."""
    name, *pieces = text.split(":")
    if pieces and "=" not in pieces[0]:
        name = f"{name}:{pieces.pop(0)}"
    if name in POLICIES:
        chosen = POLICIES[name]
    elif ":" in name and name.split(":")[0] not in POLICIES:
        chosen = _outside(name)
    else:
        raise unknown_name("policy", name, POLICIES)
    types = typing.get_type_hints(chosen)
    known = [item.name for item in fields(chosen)]
    parameters = {}
    for piece in pieces:
        key, equals, value = piece.partition("=")
        if not equals or key not in known:
            raise BadInput(f"policy {text!r}: {piece!r} is not a parameter; {name} has: {', '.join(known) or 'none'}")
        try:
            parameters[key] = types[key](value)
        except ValueError:
            raise BadInput(f"policy {text!r}: {key} is {value!r}, expected {types[key].__name__}") from None
    return chosen(**parameters)


def _outside(name: str) -> type[Policy]:
    module, _, attribute = name.partition(":")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        raise BadInput(f"policy {name!r}: {error}; expected a name from `sim policy list` or module:Class") from None
    if not (isinstance(found, type) and issubclass(found, Policy)) or isabstract(found) or not hasattr(found, "name"):
        raise BadInput(f"policy {name!r}: not a policy: a named subclass of EvictingPolicy or PinningPolicy")
    return found
