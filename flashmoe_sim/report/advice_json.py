"""A recommendation as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from flashmoe_sim.io.provenance import today
from flashmoe_sim.systems.compare import Compared
from flashmoe_sim.tune.buy import Advice
from flashmoe_sim.tune.change import Changed
from flashmoe_sim.tune.cliffs import cliffs
from flashmoe_sim.tune.evidence import evidence
from flashmoe_sim.tune.proof import proof
from flashmoe_sim.tune.recommend import Recommendation
from flashmoe_sim.tune.search import Searched


def document(found: Recommendation) -> dict[str, Any]:
    """`sim recommend --json`."""
    sizes = found.sizes

    def row(one: Searched | Compared | None) -> dict[str, Any] | None:
        if one is None:
            return None
        compared = one.best if isinstance(one, Searched) else one
        launch = compared.launch
        shown = proof(compared.system, found.case)
        return compared.as_row() | {
            "environment": dict(launch.environment) if launch else {},
            "published_speeds": shown.rows,
            "anybody_can_install": shown.common,
        }

    def of_model(one: Changed | None) -> dict[str, Any] | None:
        return None if one is None else {"model": one.change, **(row(one.after) or {})}

    def faster_in(one: Searched) -> float | None:
        """The share of draws in which it is faster than the best; None for the best and for what is not timed."""
        return found.wins(one) if one in found.timed else None

    return {
        "model": found.case.model.name,
        "machine": found.case.machine.name,
        "objective": found.objective.goal,
        "evaluations": found.found.evaluations,
        "socket_mode": found.best.best.system.socket_mode(found.case) or None,
        "otherwise_seated": row(found.otherwise_seated),
        "depth": found.case.depth,
        "drafts": None if found.case.drafts is None else asdict(found.case.drafts),
        "best": row(found.quoted),
        "get": found.best.best.system.get_row(found.case.machine),
        "old_facts": None if (facts := found.best.best.system.facts) is None else facts.if_old(today()) or None,
        "main_line": row(found.main_line),
        "sizes": None
        if sizes is None
        else {
            "setting": found.best.best.system.size,
            "smallest": row(sizes.smallest),
            "knee": row(sizes.knee),
            "chosen": row(sizes.chosen),
            "fastest": row(sizes.fastest),
            "tried": [row(one) for one in found.best.tried],
        },
        "choices": [row(one) for one in found.best.others],
        "fewer_experts": [row(one) for one in found.fewer],
        "levers": [one.as_row() for one in found.levers],
        "enough": None
        if found.enough is None
        else {
            "settled": found.enough.settled,
            "wanted_tokens": found.enough.wanted_tokens,
            "parts": [one.as_row() for one in found.enough.parts],
        },
        "transfers": [one.as_row() for one in found.transfers],
        "cache_pays": None if found.cache_pays is None else found.cache_pays.as_row(),
        "smaller": of_model(found.smaller),
        "larger": of_model(found.larger),
        "kv_types": None
        if (kinds := found.kv_types) is None
        else {
            "proposed": None if kinds.proposed is None else kinds.proposed.kv_type,
            "tried": [{"kv_type": one.kv_type, "gains": one.gains, **(row(one.best) or {})} for one in kinds.tried],
        },
        "bought": _bought_json(found.bought),
        "reads_itself": row(found.reads_itself),
        "predicted_faster": [one.best.system.spec for one in found.faster],
        "rivals": [one.best.system.spec for one in found.rivals],
        "systems": [(row(one) or {}) | {"faster_in": faster_in(one)} for one in found.found.systems],
        "cliffs": cliffs(found),
        "evidence": evidence(found),
        "notes": list(found.notes),
    }


def _bought_json(bought: Advice | None) -> dict[str, Any] | None:
    if bought is None:
        return None
    return {
        "present": bought.present.as_row(),
        "sentence": bought.sentence or None,
        "budget": None if bought.prices is None else bought.prices.budget,
        "prices_at_launch": bought.prices is not None and bought.prices.at_launch,
        "fastest": bought.fastest.as_row() if bought.fastest else None,
        "useless": list(bought.useless),
        "target_tok_s": bought.target_tok_s,
        "rows": [one.as_row() for one in bought.rows],
        "used": bought.used.as_row() if bought.used else None,
        "note": bought.note or None,
        "machines": bought.n_machines,
        "evaluations": bought.evaluations,
    }
