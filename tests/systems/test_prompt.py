"""Prompts that are timed, and their intervals."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.machines.estimates import estimate
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import at_setting
from flashmoe_sim.systems.cpu import Cpu
from flashmoe_sim.systems.hot_cache import HotCache
from flashmoe_sim.systems.placed import PlacedLayers
from flashmoe_sim.systems.prompt import prompted
from flashmoe_sim.systems.resolve import resolve
from flashmoe_sim.systems.slot_bank import SlotBank
from flashmoe_sim.trace.bundled import catalog
from flashmoe_sim.trace.join import join_calls, phases_of
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.made_prompt import in_micro_batches
from flashmoe_sim.trace.routing import PHASE_DECODE, PHASE_PROMPT, RoutingTrace
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.search import search
from tests.systems.cases import case, workload

PROMPT = 40


def both(of: Case, *, tokens: int = 128) -> Workload:
    """The first 40 tokens are recorded as a prompt."""
    trace = workload(of.model, tokens=tokens).trace
    phase = np.where(trace.steps < PROMPT, PHASE_PROMPT, PHASE_DECODE).astype(np.uint8)
    return prepare(trace.with_(phase=phase), of.model)


def test_a_prompt_has_the_speed_of_its_tokens() -> None:
    """On a bank that holds everything nothing but the number of tokens in a call matters."""
    of = case("m4-max-128")
    on, system = both(of), SlotBank(slots=16)
    as_it_is = at_setting(on, of, system, interval=False)
    asked = at_setting(on, of, system, interval=False, prompt_tokens=PROMPT)
    assert asked.prompt_tok_s == pytest.approx(as_it_is.prompt_tok_s)
    assert asked.tok_s == pytest.approx(as_it_is.tok_s)


@pytest.mark.parametrize("system", [PlacedLayers(cpu_layers=28), PlacedLayers(cpu_layers=28, ubatch=2048), Cpu()])
def test_twice_the_prompt_never_takes_less_time(system: System) -> None:
    on = resolve(workload=None, model=load_model("gpt-oss-120b"), machine=load_machine("rtx-3090"), systems=system.spec)
    seconds = []
    for tokens in (128, 256, 512, 1024, 2048, 4096):
        found = at_setting(on.workload, on.case, system, interval=False, prompt_tokens=tokens)
        assert found.prompt_tok_s is not None
        seconds.append(tokens / found.prompt_tok_s)
    assert seconds == sorted(seconds)


def test_a_prompt_is_read_faster_in_larger_micro_batches() -> None:
    of = case("m4-max-128")
    speeds = [
        at_setting(both(of), of, SlotBank(slots=16, ubatch=size), interval=False, prompt_tokens=PROMPT).prompt_tok_s
        for size in (1, 4, 16)
    ]
    assert speeds == sorted(speeds, key=lambda speed: speed or 0.0)


def test_larger_micro_batches_copy_experts_less_often() -> None:
    """Published for gpt-oss-120b on an RTX 3090 (data/published/field.csv, maestro): 380 tok/s with 512 tokens, 1,113
    with 2,048 and 1,682 with 4,096."""
    on = resolve(workload=None, model=load_model("gpt-oss-120b"), machine=load_machine("rtx-3090"), systems="placed")
    speeds = []
    for ubatch in (None, 2048, 4096):
        found = at_setting(
            on.workload, on.case, PlacedLayers(cpu_layers=28, ubatch=ubatch), interval=False, prompt_tokens=8192
        )
        assert found.prompt_tok_s is not None
        speeds.append(found.prompt_tok_s)
    assert speeds[1] / speeds[0] == pytest.approx(1113 / 380, rel=0.2)
    assert speeds[2] / speeds[0] == pytest.approx(1682 / 380, rel=0.4)


def test_a_larger_micro_batch_takes_memory_and_is_in_the_command_line() -> None:
    of = replace(case(gpu_gib=2.5), model=load_model("olmoe-1b-7b"))
    each = plain, large = tuple(PlacedLayers(ubatch=size).sized(of) for size in (None, 4096))
    assert large.cpu_layers > plain.cpu_layers
    held = [sum(share.size_bytes for share in one.memory(of) if share.what == "compute buffers") for one in each]
    assert held[1] > 2 * held[0]
    assert " -ub 4096 " in large.launch(of).line
    assert " -b 4096" in large.launch(of).line
    assert " -b " not in replace(large, ubatch=2048).launch(of).line
    assert " -ub 512 " in plain.launch(of).line


def test_a_prompt_that_counts_is_read_in_larger_micro_batches() -> None:
    of = case(gpu_gib=2.2, ram_gib=32)
    on = workload(of.model, tokens=1024)
    found = search(on, of, [PlacedLayers()], objective=Objective(goal="prompt", prompt_tokens=1024)).systems[0].best
    assert isinstance(found.system, PlacedLayers)
    assert found.system.ubatch >= 1024
    decode = search(on, of, [PlacedLayers()]).systems[0].best
    assert isinstance(decode.system, PlacedLayers)
    assert decode.system.ubatch is None


def test_the_interval_is_wider_below_for_a_prompt_of_decoded_tokens() -> None:
    of = case("m4-max-128")
    system = SlotBank(slots=6)
    recorded = at_setting(both(of), of, system, prompt_tokens=PROMPT)
    made = at_setting(workload(of.model, tokens=128), of, system, prompt_tokens=PROMPT)
    for one in (recorded, made):
        assert one.prompt_tok_s is not None
        assert one.prompt_tok_s_lo is not None
        assert one.prompt_tok_s_hi is not None
    assert made.prompt_tok_s_lo / made.prompt_tok_s < recorded.prompt_tok_s_lo / recorded.prompt_tok_s  # type: ignore[operator]
    borrowed = at_setting(workload(of.model, tokens=128), of, system, borrowed=True, prompt_tokens=PROMPT)
    spreads = [np.std(np.log(one.prompt_draws)) for one in (made, borrowed) if one.prompt_draws is not None]
    assert spreads[0] < spreads[1]
    assert estimate("text.prompt_misses").lo == 1  # so that it is not wider above
    in_memory = [at_setting(on, of, Cpu(), prompt_tokens=PROMPT) for on in (both(of), workload(of.model, tokens=128))]
    assert in_memory[0].prompt_tok_s_lo == pytest.approx(in_memory[1].prompt_tok_s_lo, rel=0.02)


def test_a_system_with_a_profile_reads_a_prompt_of_the_half_that_it_is_judged_on() -> None:
    of = case()
    found = at_setting(both(of), of, HotCache(max_mib=64), prompt_tokens=PROMPT)
    assert found.prompt_tok_s
    assert found.prompt_tok_s_lo


def distinct(trace: RoutingTrace, tokens: int) -> dict[int, float]:
    """How many experts calls of `tokens` tokens request, by layer."""
    phase = np.full(trace.calls, PHASE_PROMPT, np.uint8)
    cut = in_micro_batches(trace.with_(phase=phase, step=trace.steps, sequence=None), tokens)
    found: dict[int, list[int]] = {}
    for call in np.flatnonzero(cut.n_tokens == tokens):
        experts = set(cut.expert[cut.offset[call] : cut.offset[call + 1]].tolist())
        found.setdefault(int(cut.layer[call]), []).append(len(experts))
    return {layer: float(np.mean(counts)) for layer, counts in found.items()}


def test_prompts_use_more_experts_than_decoded_tokens_as_the_interval_says() -> None:
    values, weights = [], []
    for name in catalog():
        trace = load_trace(name)
        if trace.sequence is not None and np.ptp(trace.sequence):  # its prompts are shorter than most of these calls
            continue
        prompt = phases_of(trace) == PHASE_PROMPT
        parts = [join_calls(trace, np.flatnonzero(of), trace.steps[of].astype(np.int64)) for of in (prompt, ~prompt)]
        ratios = []
        for tokens in (4, 8, 16, 32, 64, 128):
            read, decoded = (distinct(part, tokens) if part.calls else {} for part in parts)
            ratios += [read[layer] / decoded[layer] for layer in read.keys() & decoded.keys()]
        values += ratios
        weights += [1 / len(ratios) for _ in ratios]
    order = np.argsort(values)
    share = np.cumsum(np.array(weights)[order]) / sum(weights)
    lo, middle, hi = np.array(values)[order][np.searchsorted(share, (0.05, 0.5, 0.95))].round(1)
    assert (lo, middle, hi) == estimate("text.prompt_misses").ends


def test_a_workload_is_given_its_prompt_once() -> None:
    on = workload(case().model)
    assert prompted(on, 10)[0] is prompted(on, 10)[0]
    assert prompted(on, 11)[1].tokens == 11
    assert replace(on) is not on
