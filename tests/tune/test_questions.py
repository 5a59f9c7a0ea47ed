"""Questions as people ask them: the first choice is one that its engine can do, and the answer says where it is."""

from __future__ import annotations

import pytest

from flashmoe_sim.machines.load import load_machine
from flashmoe_sim.systems.resolve import resolve
from flashmoe_sim.tune.recommend import chosen
from flashmoe_sim.tune.search import search
from tests.tune.every_answer import answer, by_chance, can_be_followed

QUESTIONS = {
    "gpt-oss-120b": """rtx-3060 + 64GiB; rtx-4090; rtx-4090 + ryzen-7950x + 64GiB; 2x rtx-3090 + 128GiB;
        2x rtx-3090 + epyc-7763 + 128GiB; rx-7900-xtx + ryzen-7950x + 64GiB; rtx-5060-ti-16gb + ryzen-5600 + 64GiB;
        ryzen-7700x + 64GiB; m4-max-128; m3-max-48; strix-halo-128; gb10-128""",
    "gpt-oss-20b": "rtx-3060; laptop-ddr4",
    "qwen3-30b-a3b": """rtx-3060; rtx-3060 + 64GiB; rtx-4060 + 16GiB; ryzen-5600 + 64GiB; laptop-ddr4; m2-16;
        vm-2core""",
    "qwen3-235b-a22b": "m4-max-128; strix-halo-128; rtx-4090 + 128GiB; rtx-5090 + 192GiB",
    "qwen3-235b-a22b:q2_k": "2x rtx-3090 + ryzen-5950x + 128GiB",
    "glm-4.5-air": "rtx-4090 + 64GiB; m4-max-128; strix-halo-128; 2x rtx-3090 + ryzen-5950x + 128GiB",
    "glm-4.6": "m2-ultra-192; m1-ultra-128",
    "glm-4.7-flash": "rtx-3060",
    "qwen3.5-35b-a3b": "rtx-3060; rtx-3060 + ryzen-5600 + 32GiB",
    "qwen3.5-397b-a17b": "m3-max-48",
    "qwen3-next-80b-a3b": "rtx-3090",
    "qwen3-coder-480b": "epyc-7763 + rtx-4090 + 512GiB",
    "gemma-4-26b-a4b": "rtx-3060; m1-8; m2-16; m3-16; m3-max-48; m4-pro-48; m5-pro-48",
    "gemma-4-26b-a4b:mlx-4bit": "m2-16",
    "mixtral-8x7b": "rtx-3060 + 32GiB",
    "deepseek-v3": "rtx-4090 + 512GiB; epyc-7763 + rtx-4090 + 512GiB; m3-ultra-512",
    "deepseek-v4-flash": "rtx-5090 + ryzen-9950x + 64GiB; rtx-5090 + ryzen-9950x + 64GiB + windows",
    "kimi-k2": "rtx-4090 + 512GiB; epyc-9354 + rtx-4090 + 768GiB",
    "kimi-k2.5": "m5-max-128",
}
ASKED = [(model, " ".join(one.split())) for model, machines in QUESTIONS.items() for one in machines.split(";")]


@pytest.mark.parametrize(("model", "machine"), ASKED)
def test_the_first_choice_can_be_followed(model: str, machine: str) -> None:
    on = resolve(workload=by_chance(model), model=None, machine=load_machine(machine))
    best = chosen(search(by_chance(model), on.case, on.systems, borrowed=True), on.case)
    can_be_followed(best.best, on.case)


@pytest.mark.parametrize(
    ("model", "machine"),
    [
        ("gemma-4-26b-a4b", "m2-16"),
        ("gpt-oss-20b", "rtx-3060"),
        ("qwen3.8-flash-next", "m1-8"),  # of an architecture that nothing there runs
        ("kimi-k3", "vm-2core"),  # larger than everything
        ("olmoe-1b-7b", "phone-ufs4"),
    ],
)
def test_a_named_model_on_a_preset_has_an_answer_or_a_line(model: str, machine: str) -> None:
    """A sample of what `python -m tests.tune.every_answer` asks."""
    assert answer(model, machine)
