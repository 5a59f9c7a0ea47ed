"""MLX by hand: its memory, what drafts read, its files and command, and where it does not run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flashmoe_sim.drafts import MODEL, MTP, Drafts
from flashmoe_sim.geometry.load import load_model
from flashmoe_sim.geometry.named import named_model
from flashmoe_sim.io.errors import TooLarge
from flashmoe_sim.io.sizes import GIB, MIB
from flashmoe_sim.machines.belief import published_times
from flashmoe_sim.machines.estimates import estimate
from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.residency.workload import Workload, prepare
from flashmoe_sim.systems.all_gpu import AllGpu
from flashmoe_sim.systems.base import Case, System
from flashmoe_sim.systems.compare import at_setting
from flashmoe_sim.systems.files import placeholders
from flashmoe_sim.systems.mlx import Mlx
from flashmoe_sim.timeline.models.resident import Resident
from tests.residency.builders import geometry_of, one_layer, trace_of
from tests.systems.cases import case
from tests.timeline.cases import work_of

QWEN = "qwen3.6-35b-a3b"


def on(name: str, machine: str = "m3-max-48") -> Case:
    return Case(named_model(name), load_machine(machine))


def test_all_of_it_is_on_the_gpu() -> None:
    """16 experts of 4 MiB in 4 layers are a quarter of a GiB."""
    shares = {share.what: (share.where, share.size_bytes / GIB) for share in Mlx().memory(case("m3-max-48"))}
    assert shares == {
        "experts": ("gpu", 0.25),
        "dense weights": ("gpu", 1.0),
        "context": ("gpu", 0.0),
        "compute buffers": ("gpu", 1.0),
    }


def test_over_the_wired_limit_it_says_how_to_raise_it() -> None:
    """The GPU has 36 GiB; 35 of dense weights, 1.25 of the rest and a step of half a GiB make 36.5."""
    of = case("m3-max-48")
    with pytest.raises(TooLarge, match=r"takes 36\.2 GiB of the GPU.*; `sudo sysctl iogpu\.wired_limit_mb=37376`"):
        Mlx().check(replace(of, model=replace(of.model, dense_bytes=35 * GIB)))


@pytest.mark.parametrize(
    ("model", "machine", "reason"),
    [
        (f"{QWEN}:mlx-4bit", "m3-max-48", ""),
        ("gpt-oss-20b:mxfp4-q8", "m3-max-48", ""),
        (f"{QWEN}:q5_k_m", "m3-max-48", f"reads MLX, not gguf; give --model {QWEN}:mlx-5bit, 23."),
        ("gpt-oss-20b", "m3-max-48", "reads MLX, not gguf; give --model gpt-oss-20b:mxfp4-q8, 11."),
        ("kimi-k3", "m3-max-48", "does not run kimi-k3"),
        (f"{QWEN}:mlx-4bit", "rtx-4090", "needs a GPU that shares the RAM"),
        (f"{QWEN}:mlx-4bit", "strix-halo-128", "needs metal; the machine has rocm"),
        (f"{QWEN}:mlx-4bit", "gb10-128", "needs metal; the machine has cuda"),
        (f"{QWEN}:mlx-4bit", "laptop-ddr4", "needs a GPU that shares the RAM"),
    ],
)
def test_where_it_runs_and_with_which_file(model: str, machine: str, reason: str) -> None:
    found = Mlx().why_not(on(model, machine))
    assert found.startswith(reason)
    assert bool(found) == bool(reason)


def test_its_command_is_of_the_package_that_serves_the_model() -> None:
    for model, server in ((f"{QWEN}:mlx-4bit", "mlx_lm.server"), ("qwen3.8-flash-next:mlx-4bit", "mlx_vlm.server")):
        launch = Mlx().launch(on(model))
        assert launch.line == f"{server} --model MLX_MODEL"
        assert placeholders(launch).keys() == {"MLX_MODEL"}
    named = Mlx().launch(replace(on(f"{QWEN}:mlx-4bit"), model=load_model("mlx-community/Qwen3.5-35B-A3B-4bit")))
    assert named.line == "mlx_lm.server --model mlx-community/Qwen3.5-35B-A3B-4bit"
    assert not placeholders(named)


def test_only_a_draft_model_drafts() -> None:
    of = on(f"{QWEN}:mlx-4bit")
    drafting = replace(of, drafts=Drafts(3, 0.6, MODEL))
    assert Mlx().why_not(drafting) == ""
    assert Mlx().started(drafting).line.endswith(" --draft-model MLX_DRAFT --num-draft-tokens 3")
    refused = Mlx().why_not(replace(of, drafts=Drafts(3, 0.6, MTP)))
    assert refused == "is not known to draft with --drafter mtp; it does with model"


def test_few_tokens_of_a_call_read_their_own_experts() -> None:
    """Two tokens with 3 distinct experts of 4 read 4. 64 references share 8 experts; 3 take 4 reads."""
    shapes = ((2, 4, 3), (32, 64, 8), (32, 64, 3), (33, 66, 4), (1, 2, 2))
    work = work_of([{"n_tokens": tokens, "refs": refs, "requests": requests} for tokens, refs, requests in shapes])
    assert Resident(shared_from=64, shared_by=16).computed(work).requests.tolist() == [4, 8, 4, 5, 2]
    assert Resident(shared_from=64).computed(work).requests.tolist() == [4, 8, 3, 4, 2]
    assert Resident().computed(work) is work
    plan = Mlx().plan(case("m3-max-48"))
    assert plan.execution == Resident(shared_from=64, shared_by=16)  # 4 for each of 16 experts, and at least 64
    assert Mlx().plan(case("m3-max-48", experts=32)).execution == Resident(shared_from=128, shared_by=16)


def of_tokens(*experts: list[int]) -> Workload:
    """Tokens of a model of one layer that use these experts in turn."""
    of = replace(geometry_of({0: 64 * MIB}, 8), top_k=2, dense_bytes=GIB, arch="qwen3moe", format="mlx")
    return prepare(trace_of(one_layer([experts[step % len(experts)] for step in range(64)]), 8), of)


def pass_ms(workload: Workload, system: System, drafts: Drafts | None) -> float:
    """Milliseconds of a pass, as the parts have it."""
    assert workload.geometry is not None
    asked = Case(workload.geometry, load_machine("m3-max-48"), drafts=drafts)
    found = at_setting(workload, asked, system, borrowed=False, interval=False)
    assert found.tok_s is not None
    return 1e3 / found.tok_s * published_times(system.name) * (1 if drafts is None else drafts.text_tokens)


class AnyFile(AllGpu):
    program = ""


def test_a_pass_takes_no_less_if_its_tokens_share_experts() -> None:
    """A second token adds its two experts; with all-gpu none if they are the first one's, else two at 1.4 times."""
    same, other, draft = of_tokens([0, 1]), of_tokens([0, 1], [2, 3]), Drafts(1, 1.0, MODEL)
    added = [pass_ms(one, Mlx(), draft) - pass_ms(one, Mlx(), None) for one in (same, other)]
    assert added[0] == pytest.approx(added[1], rel=1e-6)
    shared, apart = (pass_ms(one, AnyFile(), draft) for one in (same, other))
    assert apart - shared == pytest.approx(estimate("drafts.verify_times").value * added[0], rel=1e-6)
