"""Drafted tokens: what they cost, what they yield, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from flashmoe_sim.drafts import Drafts, break_even, drafted, given_drafts, output_bytes, text_tokens
from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.model import ModelGeometry
from flashmoe_sim.io.errors import BadInput, Conflict, Malformed
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.machines.estimates import estimate
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.policies.bank import Bank
from flashmoe_sim.policies.lru import Lru
from flashmoe_sim.residency.replay import replay
from flashmoe_sim.residency.workload import Setup, Workload, prepare
from flashmoe_sim.systems.base import Case
from flashmoe_sim.systems.compare import Compared, at_setting, with_undrafted
from flashmoe_sim.systems.table import SYSTEMS, parse_system
from flashmoe_sim.trace.bundled import catalog
from flashmoe_sim.trace.cut import cut
from flashmoe_sim.trace.speculate import speculate
from flashmoe_sim.tune.cliffs import cliffs
from flashmoe_sim.verbs.compare import Compare
from flashmoe_sim.verbs.given import workload_of
from flashmoe_sim.verbs.recommend import Recommend
from tests.support import refused

OSS, QWEN = "gpt-oss-120b", "qwen3.6-35b-a3b"
CONTEXT_BYTES = estimate("drafts.context_gib").value * GIB


def test_tokens_of_text_and_the_acceptance_that_yields_as_many() -> None:
    assert text_tokens(3, 0.5) == 1 + 0.5 + 0.25 + 0.125
    assert (text_tokens(4, 0), text_tokens(4, 1)) == (1, 5)
    for count, accept in ((1, 0.3), (3, 0.7), (8, 0.99)):
        assert break_even(count, text_tokens(count, accept)) == pytest.approx(accept)
    assert break_even(3, 0.9) == 0
    assert break_even(3, 4) == 1
    assert break_even(3, 4.01) is None


def test_the_drafter_by_default() -> None:
    own, none = load_model(QWEN), load_model(OSS)
    assert given_drafts(None, None, None, own) is None
    assert given_drafts(0, None, None, own) is None
    assert given_drafts(3, 0.7, None, none) == Drafts(3, 0.7, "ngram")
    found = given_drafts(3, 0.7, None, own)
    assert (found.kind, found.layers) == ("mtp", 1)
    layer, dense = own.layers[39], (own.streamed_bytes or 0) - output_bytes(own)
    assert found.token_bytes == output_bytes(own) + dense // 40 + 8 * layer.expert_bytes
    assert found.kept_bytes == round(dense // 40 + 256 * layer.expert_bytes + CONTEXT_BYTES)
    counted = given_drafts(3, 0.7, "mtp", replace(own, gguf="model.gguf"))  # whose weights the file has already
    assert counted.kept_bytes == round(CONTEXT_BYTES)


def test_a_draft_model_by_size_name_and_file(tmp_path: Path) -> None:
    by_size = given_drafts(2, 0.5, "512MiB", None)
    assert by_size == Drafts(2, 0.5, "model", 512 * MIB, 28, round(512 * MIB + CONTEXT_BYTES))
    assert given_drafts(2, 0.5, 512 * MIB, None) == by_size
    named = load_model("olmoe-1b-7b")
    by_name = given_drafts(2, 0.5, "olmoe-1b-7b", None)
    assert by_name.token_bytes == (named.streamed_bytes or 0) + named.token_cycle_bytes()
    assert by_name.layers == 16
    other = tmp_path / "other.txt"
    other.write_text("no model")
    for given in ("fast", str(other), str(tmp_path / "missing.gguf")):
        with pytest.raises(Malformed, match="expected ngram, mtp, or a draft model"):
            given_drafts(2, 0.5, given, None)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ((65, 0.5, None), "--draft 65: expected 0 to 64 tokens"),
        ((3, -0.1, None), "--accept -0.1: expected a probability"),
        ((3, float("nan"), None), "--accept nan: expected a probability"),
        ((0, 1.5, None), "--accept 1.5: expected a probability"),
    ],
)
def test_refusals(given: tuple[int | None, float | None, str | None], found: str) -> None:
    """More of them are in tests/cli/test_bad_input.py."""
    with refused(BadInput, found):
        given_drafts(*given, load_model(OSS))


@pytest.fixture(scope="module")
def oss() -> Workload:
    workload = workload_of(OSS)
    return prepare(cut(workload.trace, steps=(None, 300)), workload.geometry)


def case_of(model: ModelGeometry, machine: str, drafts: Drafts | None = None) -> Case:
    return Case(model, load_machine(machine), leaves_spare=True, drafts=drafts)


def ran(workload: Workload, system: str, machine: str, drafts: Drafts | None) -> Compared:
    assert workload.geometry is not None
    case = case_of(workload.geometry, machine, drafts)
    sized = parse_system(system).sized(replace(case, drafts=Drafts(8, 1.0, kept_bytes=GIB)))  # at one size for all
    return at_setting(workload, case, sized, interval=False)


OF_LAWS = (
    ("placed", "rtx-4090"),
    ("cpu", "rtx-4090"),
    ("all-gpu", "strix-halo-128"),
    ("hot-cache", "rtx-3090"),
)


@pytest.mark.parametrize(("system", "machine"), OF_LAWS)
def test_laws_of_drafts(oss: Workload, system: str, machine: str) -> None:
    """Never accepted: never faster; more accepted: never slower, at most N + 1 times as fast; dear drafts: slower."""
    plain = ran(oss, system, machine, None).tok_s
    assert plain
    for count in (1, 3):
        speeds = [ran(oss, system, machine, Drafts(count, accept)).tok_s or 0.0 for accept in (0, 0.25, 0.5, 0.75, 1)]
        assert speeds[0] <= plain
        assert speeds == sorted(speeds)
        assert speeds[-1] <= (count + 1) * plain
        dear = ran(oss, system, machine, Drafts(count, 1.0, "model", token_bytes=GIB, layers=28)).tok_s
        assert dear < speeds[-1]


def test_the_counts_are_those_of_the_speculated_trace(oss: Workload) -> None:
    setup = Setup(Bank(slots=16), Lru(), "atomic")
    by_hand = replay(prepare(speculate(oss.trace, draft=3, accept=0.6), oss.geometry), setup).counts
    ours = replay(drafted(oss, Drafts(3, 0.6, "mtp", token_bytes=7)), setup).counts
    assert (ours.table == by_hand.table).all()
    assert ours.tokens == oss.trace.tokens  # of text
    assert drafted(oss, None) is oss
    with pytest.raises(Conflict, match="its passes verify drafted tokens already; leave --draft out"):
        drafted(drafted(oss, Drafts(3, 1.0)), Drafts(1, 0.5))


def test_alike_experts_are_read_once() -> None:
    """Accepted drafts of a text whose tokens all use the same experts: a pass takes 1.4 times as long for the experts,
    and is not slower otherwise."""
    model = workload_of(OSS).geometry
    one = cut(workload_of(OSS).trace, steps=(200, 201))
    calls, refs = np.tile(np.arange(one.calls), 64), np.tile(np.arange(one.refs), 64)
    same = one.with_(
        layer=one.layer[calls], n_tokens=one.n_tokens[calls], expert=one.expert[refs], weight=None, slot=None,
        resident=None, phase=None if one.phase is None else one.phase[calls], sequence=None,
        offset=np.arange(len(calls) + 1) * 4, step=np.repeat(np.arange(64, dtype=np.int32), one.calls),
    )  # fmt: skip
    workload = prepare(same, model)
    plain, quick = (ran(workload, "all-gpu", "strix-halo-128", drafts).tok_s for drafts in (None, Drafts(3, 1.0)))
    assert 4 / 1.4 <= quick / plain <= 4


def test_engines_that_do_not_draft_are_refused_with_the_reason() -> None:
    model = load_model(QWEN)
    mtp, ngram, own = (given_drafts(3, 0.7, drafter, model) for drafter in ("mtp", "ngram", "1GiB"))
    reasons = {
        "slot-bank": "computes drafted tokens one after another: its micro-batch is one token",
        "crow": "is not known to draft tokens",
        "hot-window": "is not known to draft with --drafter mtp; it does with ngram or model",
    }
    for name, reason in reasons.items():
        assert SYSTEMS[name]().why_not_drafts(case_of(model, "rtx-4090", mtp)) == reason
    for name in ("placed", "placed-ik", "static-profile", "big-moe-on-edge"):
        assert SYSTEMS[name]().why_not_drafts(case_of(model, "rtx-4090", mtp)) == ""
    glm = case_of(load_model("glm-4.5-air"), "rtx-4090", mtp)
    assert SYSTEMS["placed-ik"]().why_not_drafts(glm) == ""
    assert SYSTEMS["placed"]().why_not_drafts(glm) == (
        "drafts with the model's own layer for qwen35moe, cohere2moe, step35, qwen3next or qwen4exp, not glm4moe; "
        "--drafter ngram needs no layer"
    )
    edge = SYSTEMS["big-moe-on-edge"]()
    assert edge.why_not_drafts(case_of(model, "rtx-4090", replace(mtp, count=9) if mtp else None)) == (
        "drafts at most 8 tokens"
    )
    assert edge.why_not_drafts(case_of(model, "rtx-4090", own)).startswith("is not known to draft with --drafter model")
    for name, drafts, words in (
        ("placed", mtp, "--spec-type draft-mtp --spec-draft-n-max 3"),
        ("placed", ngram, "--spec-type ngram-simple --spec-ngram-simple-size-m 3"),
        ("placed", own, "--spec-type draft-simple --spec-draft-model DRAFT.gguf --spec-draft-n-max 3"),
        ("placed-ik", mtp, "--spec-type mtp:n_max=3,p_min=0.0"),
    ):
        case = case_of(model, "rtx-4090", drafts)
        assert parse_system(name).sized(case).started(case).line.endswith(words)


def test_a_layer_that_needs_a_build_of_its_own_is_priced_and_the_build_is_said() -> None:
    """Qwen3.8-Flash-Next's drafting layer is a file beside the model, which the main line did not read in September."""
    model = load_model("qwen3.8-flash-next")
    mtp, ngram = (given_drafts(2, 0.7, drafter, model) for drafter in (None, "ngram"))
    case, builds = case_of(model, "rtx-4090", mtp), "Unsloth's releases, or with pull request 28243"
    for name in ("placed", "cached", "all-gpu", "cpu"):
        system = SYSTEMS[name]()
        assert system.why_not_drafts(case) == ""
        assert system.of_builds(case)[-1] == f"drafts with the own layer of qwen4exp in {builds}"
        words = system.sized(case).started(case).line
        assert words.endswith("--spec-draft-model DRAFT.gguf --spec-type draft-mtp --spec-draft-n-max 2")
    for name in ("placed-ik", "cpu-ik"):
        system = SYSTEMS[name]()
        assert system.of_builds(case) == ["drafts with the own layer of qwen4exp in builds with pull request 2369"]
        line = system.sized(case).started(case).line
        assert line.endswith("--model-draft DRAFT.gguf --spec-type mtp:n_max=2,p_min=0.0")
    assert SYSTEMS["placed"]().of_builds(case_of(model, "rtx-4090", ngram)) == []
    assert SYSTEMS["placed"]().of_builds(case_of(load_model(QWEN), "rtx-4090", mtp)) == []
    assert "DRAFT" not in SYSTEMS["placed"]().started(case_of(model, "rtx-4090", ngram)).line
    assert SYSTEMS["neurall"]().of_builds(case) == []
    found = Compare(model=model, machine="rtx-4090", systems="placed", draft=2, accept=0.7).run()
    assert f"placed drafts with the own layer of qwen4exp in {builds}" in found.notes
    advice = Recommend(model=model, machine="rtx-4090", systems="placed", draft=2, accept=0.7).advise()
    assert f"placed drafts with the own layer of qwen4exp in {builds}." in cliffs(advice)


def test_a_cache_that_verification_bypasses_does_not_serve_it() -> None:
    """bounded-insert looks up calls of one token only: with drafts its CPU computes nearly everything."""
    workload = workload_of("qwen3-30b-mlx", "qwen3-30b-a3b")
    plain, verified = (ran(workload, "bounded-insert:slots=32", "rtx-3090", one) for one in (None, Drafts(2, 0.9)))
    assert plain.hit_rate > 0.3
    assert verified.hit_rate < 0.01


def test_memory_of_a_drafter(oss: Workload) -> None:
    assert oss.geometry is not None
    drafts = Drafts(3, 0.7, "model", token_bytes=GIB, layers=28, kept_bytes=2 * GIB)
    before, after = (parse_system("placed").sized(case_of(oss.geometry, "rtx-4090", one)) for one in (None, drafts))
    assert after.cpu_layers > before.cpu_layers  # type: ignore[attr-defined]
    case = case_of(oss.geometry, "rtx-4090", drafts)
    assert {share.what: share.size_bytes for share in after.memory(case)}["drafter"] == 2 * GIB
    large = case_of(oss.geometry, "rtx-4090", replace(drafts, kept_bytes=30 * GIB))
    assert "left for experts on the GPU" in at_setting(oss, large, parse_system("placed")).why_not


def test_whether_drafts_pay(oss: Workload) -> None:
    assert oss.geometry is not None
    case = case_of(oss.geometry, "strix-halo-128", Drafts(3, 0.9))
    row = with_undrafted(oss, case, ran(oss, "all-gpu", "strix-halo-128", case.drafts), interval=False)
    plain = ran(oss, "all-gpu", "strix-halo-128", None)
    assert row.undrafted.tok_s == plain.tok_s
    assert row.pass_tokens == pytest.approx(text_tokens(3, 0.9), rel=0.1)
    assert row.pass_cost == pytest.approx(row.pass_tokens / row.tok_s * (plain.tok_s or 0))
    assert (row.tok_s > (plain.tok_s or 0)) == (row.break_even_accept < 0.9)
    assert with_undrafted(oss, replace(case, drafts=None), plain) is plain


def test_every_bundled_trace_can_be_drafted() -> None:
    for name in catalog():
        workload = workload_of(name)
        found = drafted(workload, Drafts(2, 0.5))
        assert found.trace.tokens == workload.trace.tokens
