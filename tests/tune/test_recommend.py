"""A recommendation: its sizes, floors and cliffs, evidence, and what it refuses."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.io.errors import Conflict, Incomplete, TooLarge, Unsupported
from flashmoe_sim.io.sections import Command
from flashmoe_sim.io.sizes import GIB
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.machines.machine import Anchors
from flashmoe_sim.report.advice import sections
from flashmoe_sim.report.advice_json import document
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.big_moe_on_edge import BigMoeOnEdge
from flashmoe_sim.systems.cpu import Cpu
from flashmoe_sim.systems.hot_cache import HotCache
from flashmoe_sim.systems.ktransformers import KTransformers
from flashmoe_sim.systems.nvmoe import Nvmoe
from flashmoe_sim.systems.placed import PlacedLayers
from flashmoe_sim.systems.resolve import parse_systems
from flashmoe_sim.systems.slot_bank import SlotBank
from flashmoe_sim.systems.static_profile import StaticProfile
from flashmoe_sim.tune.cliffs import cliffs, largest_union
from flashmoe_sim.tune.evidence import evidence
from flashmoe_sim.tune.objective import Objective
from flashmoe_sim.tune.proof import checked, kept_bytes
from flashmoe_sim.tune.recommend import (
    KNEE,
    LEAST_WINS,
    Recommendation,
    recommend,
    refuse_other_models,
    with_transfers,
)
from tests.residency.builders import trace_of
from tests.systems.cases import case, machine, model, workload


def found(of: Case | None = None, *systems: Any, tokens: int = 128, **asked: Any) -> Recommendation:
    of = of or case(arch="gemma4")
    return recommend(workload(of.model, tokens=tokens), of, list(systems) or [SlotBank()], **asked)


def test_sizes_are_in_order_of_memory_and_each_has_an_interval() -> None:
    sizes = found().sizes
    each = (sizes.smallest, sizes.knee, sizes.chosen, sizes.fastest)
    kept = [kept_bytes(one) for one in each]
    assert kept == sorted(kept)
    assert all(one.tok_s_lo and one.tok_s_hi for one in each)
    assert sizes.knee.tok_s >= KNEE * sizes.fastest.tok_s
    assert sizes.smallest.system == SlotBank(
        slots=2, install=sizes.chosen.system.install, io_split=sizes.chosen.system.io_split
    )  # type: ignore[attr-defined]


def test_the_best_is_the_smallest_memory_of_systems_within_3_percent() -> None:
    on = found(case(), *parse_systems("all"))
    speeds = [one.best.tok_s for one in on.found.systems if one.runs]
    assert on.best.best.tok_s >= 0.97 * max(speed or 0.0 for speed in speeds)
    assert on.main_line is None or on.main_line.best.system.engine == "llama.cpp"


def test_rivals_are_faster_in_one_of_ten_draws() -> None:
    on = found(case(), *parse_systems("all"))
    best = on.best.best.draws
    assert best is not None
    for one in on.others:
        faster = one.best.draws is not None and float(np.mean(one.best.draws > best)) >= LEAST_WINS
        assert (one in on.rivals) == faster


@dataclass(frozen=True, kw_only=True)
class Untimed(HotCache):
    """Like hot-cache, and how it reads prompts is not known."""

    name: ClassVar[str] = "untimed"
    times_prompts: ClassVar[bool] = False


def test_a_system_whose_prompts_are_not_timed_is_no_rival() -> None:
    prompt = Objective(goal="prompt", prompt_tokens=64)
    answer = found(case(arch="gpt-oss"), Untimed(), PlacedLayers(), objective=prompt)
    (untimed,) = answer.others
    assert untimed.runs
    assert prompt.seconds(untimed.best) is None
    assert np.isinf(prompt.draws_s(untimed.best)).all()
    assert answer.timed == answer.rivals == ()
    (others,) = (section for section in sections(answer) if section.title == "Other systems")
    assert others.parts[-1] == "How they read prompts is not known here: untimed."
    assert next(row for row in document(answer)["systems"] if row["system"] == "untimed")["faster_in"] is None


def test_where_the_answer_pages_the_engine_that_reads_experts_itself_is_shown() -> None:
    paging, holding = (
        found(Case(load_model("qwen3-30b-a3b"), machine("m1-8", ram_gib=ram_gib)), Cpu(), BigMoeOnEdge())
        for ram_gib in (8, 64)
    )
    assert paging.best.best.system == Cpu()
    assert paging.reads_itself is not None
    assert paging.reads_itself in paging.faster
    launch = paging.reads_itself.best.launch
    assert launch is not None
    (run,) = (section for section in sections(paging) if section.title.startswith("qwen3-30b-a3b"))
    assert Command(launch.line) in run.parts
    assert document(paging)["reads_itself"]["tok_s"] == paging.reads_itself.best.tok_s
    assert holding.reads_itself is None


def test_a_model_that_fits_nowhere_says_what_would_be_needed() -> None:
    of = Case(load_model("kimi-k2"), load_machine("m1-8"))
    with pytest.raises(TooLarge, match=r"m1-8: no system can run kimi-k2.*the least that any of them needs is \d+"):
        recommend(workload(model()), of, parse_systems("slot-bank,all-gpu"))


def test_a_budget_below_the_floor_is_refused_with_the_floor() -> None:
    with pytest.raises(Unsupported, match="1 slots; a token routes 2 experts"):
        found(None, SlotBank(slots=1))


def test_a_short_trace_is_refused_with_what_is_needed() -> None:
    with pytest.raises(Incomplete, match="has 2 decoded tokens; a recommendation needs 64 or more"):
        found(tokens=2)


def test_a_trace_of_another_model_is_refused_beside_the_first() -> None:
    with pytest.raises(Conflict, match="is a trace of another model"):
        refuse_other_models(workload(model()), [workload(model(experts=32))])


def test_the_choice_is_scored_on_other_traces() -> None:
    of = case(arch="gemma4")
    other = workload(of.model, tokens=200)
    assert [(one.tuned_on, one.scored_on) for one in with_transfers(found(of), [other]).transfers] == [
        (workload(of.model, tokens=128).trace.name, other.trace.name),
        (other.trace.name, workload(of.model, tokens=128).trace.name),
    ]


def of_calls(calls: list[list[int]], tokens: list[int]) -> Workload:
    """Two layers; each step asks both for these experts."""
    flat: list[Any] = [(layer, experts, n) for experts, n in zip(calls, tokens, strict=True) for layer in (0, 1)]
    return prepare(replace(trace_of(flat, 16), top_k=2), None)


def test_the_largest_union_is_counted_in_distinct_experts() -> None:
    assert largest_union(of_calls([[1, 2], [3, 4, 3, 5], [6, 6, 6, 7]], [1, 2, 2])) == (3, 2)
    assert largest_union(of_calls([[1, 2]], [1])) == (2, 1)


def with_a_prompt(tokens: int, **asked: Any) -> Recommendation:
    of = case("m4-max-128", experts=32)
    return found(of, SlotBank(), objective=Objective(prompt_tokens=tokens, **asked))


def test_a_micro_batch_that_was_chosen_is_said_with_its_floor() -> None:
    on = with_a_prompt(64, goal="prompt")
    best = on.best.best.system
    assert isinstance(best, SlotBank)
    assert best.ubatch > 1
    (sentence,) = [one for one in cliffs(on) if "A micro-batch" in one]
    assert f"of {best.ubatch} tokens uses up to {best.ubatch} times the experts of one token" in sentence
    assert f"more than the {best.slots} slots" in sentence
    assert f"-ub {best.ubatch}" in on.best.best.launch.line  # type: ignore[union-attr]


@pytest.mark.parametrize(("tokens", "words"), [(64, "of 64 decoded tokens"), (4000, "of 128 decoded tokens")])
def test_evidence_says_what_a_prompt_is_made_of(tokens: int, words: str) -> None:
    (prompt,) = [one for one in evidence(with_a_prompt(tokens, goal="both")) if one.startswith("The prompt consists")]
    assert words in prompt
    assert ("All 4,000 tokens are assumed to be as fast" in prompt) == (tokens == 4000)
    assert ("although the first ones fill the cache" in prompt) == (tokens == 4000)
    assert not any("The prompt consists" in one for one in evidence(found()))


def test_every_size_of_a_prompt_is_timed_with_it() -> None:
    on = with_a_prompt(64, goal="both")
    for one in (on.sizes.smallest, on.sizes.knee, on.sizes.fastest, *on.fewer):
        assert one.prompt_tok_s_lo is not None
    assert all(part.chosen is not None for part in on.enough.parts)


def test_a_prompt_of_unknown_tokens_is_made_of_decoded_ones() -> None:
    of = case()
    trace = workload(of.model, tokens=128).trace
    assert trace.phase is not None
    first = (trace.steps < 20).astype(np.uint8)
    unknown = trace.with_(n_tokens=np.where(first, 0, trace.n_tokens).astype(np.int32), phase=2 - first)
    on = recommend(prepare(unknown, of.model), of, [Cpu()], objective=Objective(goal="prompt", prompt_tokens=9))
    assert on.best.best.prompt_tok_s  # of decoded tokens, as those of the prompt are not known


def test_a_pool_below_the_experts_of_a_token_is_named() -> None:
    """A token uses 24 layers x 4 experts of 4 MiB, which are 0.375 GiB."""
    large = model(layers=range(2, 26), experts=64, top_k=4)
    on = found(Case(large, machine(ram_gib=8)), BigMoeOnEdge(cache_mib=128))
    assert any("0.38 GiB of experts over all layers, more than the cache" in one for one in cliffs(on))
    on = found(Case(large, machine()), Nvmoe())
    assert any("With a smaller cache nvmoe throws every expert out" in one for one in cliffs(on))


def test_a_size_that_does_not_fit_is_named_with_its_reason() -> None:
    small = case(gpu_gib=2 + 9 * 16 / 1024, arch="gemma4")
    assert any("is too large here: takes 2.2 GiB of the GPU" in one for one in cliffs(found(small)))


def test_a_size_that_leaves_no_room_for_a_desktop_is_named() -> None:
    """Of 2.8 GiB, 0.5 are for a desktop and 0.1 for the error of the plan; with 16 slots of 16 MiB 0.55 are free."""
    small = replace(case(gpu_gib=2.8, arch="gemma4"), leaves_spare=True)
    on = found(small)
    assert on.best.best.gpu_free_bytes >= small.spare_bytes
    sentence = "is too large here: leaves 0.5 GiB of the GPU free; a desktop and the error of this plan need 0.6."
    assert any(sentence in one for one in cliffs(on))


def test_aliasing_is_said_with_the_size_that_avoids_it() -> None:
    on = found()
    share = on.best.best.aliased_share
    assert share is not None
    aliased = replace(on, best=replace(on.best, best=replace(on.best.best, aliased_share=0.01)))
    (sentence,) = [one for one in cliffs(aliased) if "slot aliasing" in one]
    assert "1.00%" in sentence
    without = [one.system.slots for one in on.best.tried if one.aliased_share == 0]  # type: ignore[attr-defined]
    assert f"From {min(without)} on none is." in sentence
    exact = replace(on, best=replace(on.best, best=replace(on.best.best, aliased_share=0.0)))
    assert not any("aliasing" in one for one in cliffs(exact))


def test_a_profile_of_this_very_trace_is_said() -> None:
    on = found(case(), StaticProfile(), Cpu())
    if on.best.best.system.name == "static-profile":
        assert "depends on a profile" in cliffs(on)[0]
    assert not any("profile" in one for one in cliffs(found()))


def test_only_a_strategy_with_a_profile_depends_on_one() -> None:
    assert KTransformers(strategy="frequency").uses_profile
    assert not KTransformers().uses_profile
    assert not KTransformers().learns_first_half
    assert StaticProfile().uses_profile


def test_evidence_names_trace_machine_checks_and_how_much_was_tried() -> None:
    on = found(case(), *parse_systems("placed,slot-bank"))
    text = " ".join(evidence(on))
    assert on.workload.trace.name in text
    assert "rtx-3090, these are estimates, what the speed depends on most first: " in text
    assert "Checked: of 179 published speeds of this engine, by 51 people" in text
    assert f"{on.found.evaluations} settings of 2 systems" in text


def test_estimates_are_the_machines_not_those_of_an_engine_on_it() -> None:
    """How page faults read a mapped file is the engine's: the drive's rate is told as it is."""
    large = model(layers=range(2, 26), experts=128, top_k=4)
    on = found(Case(large, load_machine("rtx-3060 + 16GiB")), Cpu())
    storage = dict(on.case.machine.quantities())["storage.read_gb_s"]
    assert "storage.faults_in_flight" in dict(on.best.best.system.plan(on.case).machine.quantities())
    sentence = next(one for one in evidence(on) if "these are estimates" in one)
    assert f" storage.read_gb_s {storage.value:g} ({storage.lo:g} to {storage.hi:g})" in sentence
    assert "faults" not in sentence


def test_speeds_of_one_machine_do_not_tell_an_engines_error() -> None:
    on = found(case(), StaticProfile())
    text = " ".join(evidence(on))
    assert checked()["published"]["static-profile"]["machines"] == 1
    assert "on 1 machine" in text
    assert "1 machine are too few" not in text
    assert "the median error was" not in text


def test_checked_errors_are_shares_of_known_systems() -> None:
    from flashmoe_sim.systems.table import SYSTEMS

    published = checked()["published"]
    assert set(published) - {"all"} <= set(SYSTEMS)
    assert all(one["rows"] >= 1 and 0 <= one["within_2"] <= 1 for one in published.values())


def test_a_fitted_machine_without_ram_or_weights_recommends() -> None:
    of = case("laptop-ddr4")
    cpu = of.machine.cpu
    assert cpu is not None
    anchors = Anchors(("run-a", "run-b"), of.model.name, "2026-11-22", "sim machine fit", of.model.routed_bytes)
    fitted = replace(of.machine, memory=None, cpu=replace(cpu, weights_gb_s=None), anchors=anchors)
    on = found(Case(replace(of.model, dense_bytes=0), fitted), SlotBank())
    assert on.best.runs
    assert on.fewer == ()
    assert all(one.page_cache_bytes is None for one in on.best.tried)
    assert any("was fitted on run-a and run-b" in one for one in evidence(on))


def test_fewer_experts_are_a_choice_that_changes_the_text() -> None:
    on = found(case(top_k=4, arch="gemma4"), SlotBank())
    assert [one.system.top_k for one in on.fewer] == [3, 2]  # type: ignore[attr-defined]
    assert on.best.best.system.top_k is None  # type: ignore[attr-defined]


def test_memory_that_is_kept_fits_the_machine() -> None:
    of = case("m1-8")
    for one in found(of, *parse_systems("all")).found.systems:
        if one.runs:
            assert (one.best.gpu_bytes or 0) + (one.best.ram_bytes or 0) <= of.ram_bytes <= 8 * GIB
