"""What a recommendation is based on: trace, contract, machine, and the errors of such predictions."""

from __future__ import annotations

import numpy as np

from flashmoe_sim.io.sizes import plain
from flashmoe_sim.machines.basis import notes
from flashmoe_sim.machines.belief import errors, unknown
from flashmoe_sim.machines.estimates import estimate
from flashmoe_sim.machines.machine import SIZES, Machine
from flashmoe_sim.policies.base import CONTRACT_MEANINGS
from flashmoe_sim.systems.prompt import prompted
from flashmoe_sim.trace.made_prompt import MICRO_BATCH
from flashmoe_sim.trace.phases import find_phases
from flashmoe_sim.tune.proof import checked, count
from flashmoe_sim.tune.recommend import Recommendation

MOST_NAMED = 4
FEW_RUNS = 2
LEAST_PEOPLE = 3


def evidence(found: Recommendation) -> list[str]:
    """One or two sentences each; notes of the trace and the machine last."""
    system = found.best.best.system
    plan = system.plan(found.case)
    of_machine = notes(found.case.machine)
    ran, replayed = sum(one.runs for one in found.found.systems), found.found.evaluations
    return [
        _trace(found),
        *_prompt(found),
        f"Hits are counted under the contract {plan.setup.contract}: {CONTRACT_MEANINGS[plan.setup.contract]}. Seconds "
        f"are of the execution model {plan.execution.name}: {plan.execution.describes}.",
        *_machine(found),
        *how_sure(found),
        f"{replayed} setting{'s' * (replayed > 1)} of {ran} system{'s' * (ran > 1)} "
        f"{'were' if replayed > 1 else 'was'} replayed.",
        *(f"{note[:1].upper()}{note[1:]}." for note in found.notes if note not in of_machine),
    ]


def how_sure(found: Recommendation) -> list[str]:
    """How far such predictions have been off, and how often their intervals held."""
    best = found.best.best
    machine = best.system.plan(found.case).machine
    return [_checked(found, machine), *_intervals(machine)]


def _trace(found: Recommendation) -> str:
    trace = found.workload.trace
    phases = find_phases(trace)
    made = "a made trace" if found.borrowed else "the trace"
    prompt = "" if phases is not None else "; it does not say which of them are the prompt's"
    return f"{made.capitalize()} {trace.name}: {trace.tokens:,} tokens, {len(trace.layers)} layers{prompt}."


def _prompt(found: Recommendation) -> list[str]:
    """What the prompt is made of."""
    tokens = found.objective.prompt_tokens
    if not tokens:
        return []
    made = prompted(found.workload, tokens)[1]
    decoded = made.distinct - made.recorded
    repeated = f", repeated up to {made.tokens:,} tokens" if made.tokens > made.distinct else ""
    sentence = f"The prompt is the first {made.distinct:,} tokens of a recorded one{repeated}."
    if decoded:
        before = f"{made.recorded:,} tokens of a recorded prompt and " if made.recorded else ""
        misses = estimate("text.prompt_misses")
        sentence = (
            f"The prompt consists of {before}{decoded:,} decoded tokens{repeated}. In five traces prompts used "
            f"{misses.lo:g} to {misses.hi:g} times as many experts as decoded tokens; the interval of the prompt "
            "speed is wider for it."
        )
    system = found.best.best.system
    execution = system.plan(found.case).execution
    first = ", although the first ones fill the cache" if execution.reads and execution.has_bank else ""
    batches = "" if system.prompt_choices else f", in micro-batches of {MICRO_BATCH} tokens"
    longer = "" if made.tokens >= tokens else f" All {tokens:,} tokens are assumed to be as fast{batches}{first}."
    return [sentence + longer]


def _machine(found: Recommendation) -> list[str]:
    """What is only estimated of the machine, what decides most first."""
    machine = found.case.machine
    if machine.anchors is not None:
        anchors = machine.anchors.runs
        runs = " and ".join(anchors) if len(anchors) <= FEW_RUNS else f"{len(anchors)} runs"
        return [f"{machine.name} was fitted on {runs}, with {machine.anchors.model}."]
    draws = found.best.best.draws
    assert draws is not None
    guessed = [
        (
            abs(float(np.corrcoef(unknown(machine, path), np.log(draws))[0, 1])),
            f"{path} {plain(quantity.value)} ({plain(quantity.lo)} to {plain(quantity.hi)})",
        )
        for path, quantity in machine.quantities()
        if quantity.estimated and path not in SIZES and quantity.hi > quantity.lo > 0
    ]
    if not guessed:
        return [f"Every number of {machine.name} was measured or published."]
    guessed.sort(reverse=True)
    named = ", ".join(text for _, text in guessed[:MOST_NAMED])
    more = f", and {len(guessed) - MOST_NAMED} more (`sim machine show`)" if len(guessed) > MOST_NAMED else ""
    return [f"Of {machine.name}, these are estimates, what the speed depends on most first: {named}{more}."]


def _checked(found: Recommendation, machine: Machine) -> str:
    """On how many published speeds the prediction rests, and of which architecture."""
    name, checks, proof = found.best.best.system.name, checked(), found.proof
    if machine.anchors is not None and (fitted := checks["fitted"].get(name)):
        return (
            f"Checked: on {fitted['runs']} held-out runs of this engine on fitted machines the median error was "
            f"{fitted['median_error']:.1%}, the worst {fitted['worst_error']:.1%}."
        )
    arch, everything = proof.arch or "this architecture", checks["published"]["all"]
    if (published := checks["published"].get(name)) is None:
        return (
            f"Not checked: of {everything['rows']} speeds that others published, none is of this engine. "
            f"Over those the median error was {everything['median_error']:.0%}."
        )
    machines = count(published["machines"], "machine")
    people = "one person" if published["people"] == 1 else f"{published['people']} people"
    of = f"{count(published['rows'], 'published speed')} of this engine, by {people} on {machines}"
    every = "too few people measured it to know its error"
    if published["people"] >= LEAST_PEOPLE:
        every = (
            f"answered without who measured them, the median error was {published['median_error']:.0%}, "
            f"{published['within_2']:.0%} were within a factor of two, and {published['inside_without_source']:.0%} in "
            f"the interval ({published['inside_without_machine']:.0%} without the machine alone)"
        )
    if not proof.rows:
        return f"Not checked with {arch} on such a machine: none of {of}, is of it; {every}."
    are = "are" if proof.rows > 1 else "is"
    return f"Checked: of {of}, {proof.rows} {are} of {arch} {proof.where}; {every}."


def _intervals(machine: Machine) -> list[str]:
    """How often such intervals held."""
    if machine.anchors is not None:
        return []
    checked = errors()["checked"]
    return [
        f"Intervals like these held {checked['without_source']:.0%} of {checked['rows']} published speeds, each fitted "
        f"without who measured it, and {checked['without_machine']:.0%} without its machine alone."
    ]
