"""Captures of models of the transformers library, against routers worked out from hidden states with numpy."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from flashmoe_sim.io.errors import Unsupported, Unusable
from flashmoe_sim.prefetchers.recorded import Recorded
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.routing import RoutingTrace
from native_bridge.capture.record import TraceWriter
from native_bridge.capture.session import Captured, CaptureRequest, capture
from native_bridge.capture.transformers import Transformers
from native_bridge.cli.main import main
from tests.native_bridge.needs import needs

pytestmark = [pytest.mark.capture, needs("torch", extra="capture-hf"), needs("transformers", extra="capture-hf")]

PROMPT = "the quick brown fox jumps over the lazy dog and the cat sleeps all day long"
TOKENS = 9
SHAPE: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 128,
    "num_experts_per_tok": 3,
}

Scores = NDArray[np.float64]
Routed = tuple[NDArray[np.int64], Scores]


def softmax(logits: Scores) -> Scores:
    power = np.exp(logits - logits.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


def best(scores: Scores, count: int) -> NDArray[np.int64]:
    return np.argsort(-scores, axis=-1, kind="stable")[:, :count]


def softmax_first(logits: Scores, gate: Any) -> Routed:
    """OLMoE: the weights do not add up to 1."""
    chosen = best(logits, 3)
    return chosen, np.take_along_axis(softmax(logits), chosen, -1)


def normalised(logits: Scores, gate: Any) -> Routed:
    """Mixtral and Qwen3: they do."""
    chosen = best(logits, 3)
    return chosen, softmax(np.take_along_axis(logits, chosen, -1))


def in_groups(logits: Scores, gate: Any) -> Routed:
    """DeepSeek-V3: sigmoid, a bias for the choice only, the best 2 of 4 groups, scaled by 2.5."""
    share = 1 / (1 + np.exp(-logits))
    biased = share + gate.e_score_correction_bias.double().numpy()
    of_group = np.sort(biased.reshape(-1, 4, 4), -1)[:, :, -2:].sum(-1)
    allowed = np.zeros_like(of_group, bool)
    np.put_along_axis(allowed, best(of_group, 2), True, -1)
    chosen = best(np.where(np.repeat(allowed, 4, -1), biased, -np.inf), 3)
    weights = np.take_along_axis(share, chosen, -1)
    return chosen, 2.5 * weights / weights.sum(-1, keepdims=True)


ARCHITECTURES: dict[str, tuple[str, dict[str, Any], str, Callable[[Scores, Any], Routed]]] = {
    "olmoe": ("Olmoe", {"num_experts": 16}, "gate", softmax_first),
    "mixtral": ("Mixtral", {"num_local_experts": 16}, "gate", normalised),
    "qwen3_moe": (
        "Qwen3Moe",
        {"num_experts": 16, "moe_intermediate_size": 24, "norm_topk_prob": True, "head_dim": 8},
        "gate",
        normalised,
    ),
    "gpt_oss": (
        "GptOss",
        {"num_local_experts": 16, "head_dim": 8, "layer_types": ["full_attention"] * 3},
        "router",
        normalised,
    ),
    "deepseek_v3": (
        "DeepseekV3",
        {
            "n_routed_experts": 16,
            "n_group": 4,
            "topk_group": 2,
            "first_k_dense_replace": 1,
            "moe_intermediate_size": 24,
            "num_key_value_heads": 4,
            "q_lora_rank": 16,
            "kv_lora_rank": 16,
            "qk_rope_head_dim": 8,
            "qk_nope_head_dim": 8,
            "v_head_dim": 8,
        },
        "gate",
        in_groups,
    ),
}


@pytest.fixture(scope="module", params=ARCHITECTURES)
def saved(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small model of random weights, and a tokenizer of words."""
    folder = tmp_path_factory.mktemp("models") / request.param
    save_tokenizer(folder)
    name, more, router, _ = ARCHITECTURES[request.param]
    save_model(folder, name, SHAPE | more, router)
    return folder


def save_tokenizer(folder: Path) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["[UNK]", *sorted(set(PROMPT.split()))]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]").save_pretrained(folder)


def save_model(folder: Path, name: str, shape: dict[str, Any], router: str) -> None:
    import torch
    import transformers

    torch.manual_seed(7)
    model = getattr(transformers, f"{name}ForCausalLM")(getattr(transformers, f"{name}Config")(**shape))
    for module_name, module in model.named_modules():
        if module_name.endswith(f".{router}"):
            torch.nn.init.normal_(module.weight)  # router scores far enough apart for two ways of adding
            if getattr(module, "bias", None) is not None:
                torch.nn.init.normal_(module.bias)
            if hasattr(module, "e_score_correction_bias"):
                torch.nn.init.normal_(module.e_score_correction_bias, std=0.3)
    model.save_pretrained(folder)


def captured(folder: Path, out: Path, *, ubatch: int, weights: bool = True) -> tuple[RoutingTrace, Captured]:
    with Transformers(folder, threads=1, weights=weights) as engine, TraceWriter(out, origin={}, force=True) as writer:
        done = capture(engine, CaptureRequest(PROMPT, TOKENS, ubatch), writer)
    return load_trace(out), done


def by_layer(trace: RoutingTrace, values: NDArray[Any]) -> dict[int, NDArray[Any]]:
    """Values of the references, [tokens, top-k] of each layer."""
    found: dict[int, list[NDArray[Any]]] = defaultdict(list)
    for call in range(trace.calls):
        begin, end = trace.offset[call : call + 2]
        found[int(trace.layer[call])].append(values[begin:end].reshape(trace.n_tokens[call], -1))
    return {layer: np.concatenate(rows) for layer, rows in found.items()}


def gates_and_states(folder: Path, tokens: list[int]) -> tuple[dict[int, Any], dict[int, Scores]]:
    """The router of each layer, and what goes into it when all tokens are evaluated at once."""
    import torch
    import transformers

    router = ARCHITECTURES[folder.name][2]
    model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    gates: dict[int, Any] = {}
    states: dict[int, Scores] = {}

    def see(layer: int) -> Callable[[Any, Any], None]:
        def hook(_: Any, given: Any) -> None:
            states[layer] = given[0].reshape(-1, SHAPE["hidden_size"]).double().numpy()

        return hook

    for layer, block in enumerate(model.model.layers):
        if hasattr(block.mlp, "experts"):
            gates[layer] = getattr(block.mlp, router)
            gates[layer].register_forward_pre_hook(see(layer))
    with torch.inference_mode():
        model(torch.tensor([tokens]))
    return gates, states


def logits_of(gate: Any, state: Scores) -> Scores:
    logits: Scores = state @ gate.weight.detach().double().numpy().T
    bias = getattr(gate, "bias", None)
    return logits if bias is None else logits + bias.detach().double().numpy()


def expected(folder: Path, tokens: list[int]) -> dict[int, Routed]:
    """Experts and weights of each layer."""
    route = ARCHITECTURES[folder.name][3]
    gates, states = gates_and_states(folder, tokens)
    return {layer: route(logits_of(gate, states[layer]), gate) for layer, gate in gates.items()}


def test_what_is_captured_is_what_the_routers_choose(saved: Path, tmp_path: Path) -> None:
    trace, done = captured(saved, tmp_path / "trace.jsonl", ubatch=5)
    assert (done.prompt_tokens, len(done.generated)) == (16, TOKENS)
    with Transformers(saved) as engine:
        tokens = [*engine.tokenize(PROMPT), *done.generated[:-1]]
    wanted = expected(saved, tokens)
    experts = by_layer(trace, trace.expert)
    assert trace.weight is not None
    weights = by_layer(trace, trace.weight)
    assert list(experts) == list(wanted)
    for layer, (chosen, share) in wanted.items():
        # DeepSeek's ranks are as torch hands them over, unsorted
        order, back = (np.argsort(rows, axis=-1) for rows in (chosen, experts[layer]))
        assert np.take_along_axis(experts[layer], back, -1).tolist() == np.take_along_axis(chosen, order, -1).tolist()
        np.testing.assert_allclose(
            np.take_along_axis(weights[layer], back, -1), np.take_along_axis(share, order, -1), rtol=2e-4
        )
        if "deepseek" not in saved.name:
            assert experts[layer].tolist() == chosen.tolist()


def test_the_gates_of_later_layers_on_the_state_of_this_one(saved: Path, tmp_path: Path) -> None:
    """The first choices of all tokens first; and the predictor takes them, in the order of the calls."""
    out = tmp_path / "trace.jsonl"
    with Transformers(saved, threads=1, lookahead=2) as engine, TraceWriter(out, origin={}) as writer:
        done = capture(engine, CaptureRequest(PROMPT, TOKENS, 5), writer)
        tokens = [*engine.tokenize(PROMPT), *done.generated[:-1]]
    gates, states = gates_and_states(saved, tokens)
    layers = sorted(gates)
    found: dict[tuple[int, int], list[NDArray[Any]]] = defaultdict(list)
    for line in map(json.loads, out.read_text().splitlines()):
        for calls, experts in line.get("ahead", {}).items():
            found[line["layer"], int(calls)].append(np.array(experts).reshape(3, line["n_tokens"]).T)
    assert sorted(found) == [(one, calls) for one in layers for calls in (1, 2) if one + calls <= layers[-1]]
    for (layer, calls), rows in found.items():
        gate = gates[layer + calls]
        scores = logits_of(gate, states[layer])
        if hasattr(gate, "e_score_correction_bias"):
            scores = 1 / (1 + np.exp(-scores)) + gate.e_score_correction_bias.double().numpy()
        assert np.concatenate(rows).tolist() == best(scores, 3).tolist()
    trace = load_trace(out)
    predictions = Recorded(str(out), calls=1).predict(trace)
    assert predictions.after.tolist() == [at for at in range(trace.calls) if trace.layer[at] < layers[-1]]
    assert (predictions.target == predictions.after + 1).all()


def test_steps_phases_and_widths(saved: Path, tmp_path: Path) -> None:
    trace, _ = captured(saved, tmp_path / "trace.jsonl.zst", ubatch=5, weights=False)
    layers = len(trace.layers)
    assert trace.weight is None
    assert trace.n_tokens[::layers].tolist() == [5, 5, 5, 1] + [1] * (TOKENS - 1)
    assert trace.phase[::layers].tolist() == [1] * 4 + [2] * (TOKENS - 1)
    assert trace.steps.tolist() == np.repeat(np.arange(3 + TOKENS), layers).tolist()


def test_the_command(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "trace.jsonl"
    assert (
        main(["trace", "capture", "--model", str(saved), "--prompt", PROMPT, "--tokens", "2", "--out", str(out)]) == 0
    )
    printed = capsys.readouterr()
    assert printed.err == ""
    assert "16 of the prompt, 2 generated" in printed.out
    assert load_trace(out).tokens == 17


def test_a_dense_model_and_a_folder_of_something_else(tmp_path: Path) -> None:
    folder = tmp_path / "dense"
    save_tokenizer(folder)
    save_model(folder, "Llama", {name: SHAPE[name] for name in list(SHAPE)[:-1]}, "gate")
    with pytest.raises(Unsupported, match=r"no layer of this model .llama. calls routed experts"):
        Transformers(folder)
    (folder / "config.json").write_text('{"model_type": "nobody-knows"}')
    with pytest.raises(Unusable, match="transformers cannot load it"):
        Transformers(folder)
