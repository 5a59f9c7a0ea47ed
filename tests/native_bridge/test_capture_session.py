"""Prompts in micro-batches and tokens one by one, with a model that is made up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from flashmoe_sim.io.errors import BadInput, SimError, Unsupported
from flashmoe_sim.trace.load import load_trace
from native_bridge.capture.record import RoutedCall, TraceWriter
from native_bridge.capture.session import Captured, CaptureRequest, capture, choose

LAST = 2
REQUEST = CaptureRequest("abcdefghij", tokens=4, ubatch=4)


class Model:
    """Three layers of 256 experts: a token requests expert (token + layer), and the next token is the next letter.

    The last layer is computed for outputs only. `z` ends a text.
    """

    library = "none"
    architecture = "made-up"
    trained_context = 20
    n_experts = dict.fromkeys(range(LAST + 1), 256)

    def __init__(self) -> None:
        self.seen: list[list[int]] = []
        self.context = 0

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *_: object) -> None: ...

    def tokenize(self, text: str) -> list[int]:
        return list(text.encode())

    def begin(self, context: int) -> None:
        self.context = context

    def evaluate(self, tokens: Sequence[int], *, output: bool) -> list[RoutedCall]:
        self.seen.append(list(tokens))
        rows = {0: tokens, 1: tokens, LAST: tokens[-1:] if output else []}
        return [
            RoutedCall(layer, np.array([[token + layer, token] for token in some], np.int32))
            for layer, some in rows.items()
            if some
        ]

    def logits(self) -> NDArray[np.float32]:
        logits = np.zeros(256, np.float32)
        logits[self.seen[-1][-1] + 1] = 1
        return logits

    def is_end(self, token: int) -> bool:
        return token == ord("z")

    def text(self, tokens: Sequence[int]) -> str:
        return bytes(tokens).decode()


def captured(path: Path, model: Model, request: CaptureRequest) -> Captured:
    with TraceWriter(path, origin={}) as writer:
        return capture(model, request, writer)


def test_micro_batches_then_tokens(tmp_path: Path) -> None:
    model, path = Model(), tmp_path / "t.jsonl"
    assert captured(path, model, REQUEST) == Captured(10, tuple(b"klmn"), "klmn")
    assert [bytes(tokens) for tokens in model.seen] == [b"abcd", b"efgh", b"ij", b"k", b"l", b"m"]
    assert model.context == 14
    trace = load_trace(path)
    # the last layer has no call before the prompt's last micro-batch, and there a single row
    assert trace.layer.tolist() == [0, 1, 0, 1, 0, 1, 2] + [0, 1, 2] * 3
    assert trace.n_tokens.tolist() == [4, 4, 4, 4, 2, 2, 1] + [1] * 9
    assert trace.steps.tolist() == [0, 0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4, 5, 5, 5]
    assert trace.phase.tolist() == [1] * 7 + [2] * 9
    assert trace.expert[trace.offset[6] : trace.offset[9]].tolist() == list(b"ljkklk")
    assert trace.tokens == 13


@pytest.mark.parametrize("ubatch", [1, 2, 3, 7, 10, 11, 512])
def test_any_micro_batch_sees_the_same_tokens(tmp_path: Path, ubatch: int) -> None:
    model = Model()
    captured(tmp_path / "t.jsonl", model, replace(REQUEST, ubatch=ubatch))
    assert [token for tokens in model.seen for token in tokens] == list(b"abcdefghijklm")
    assert max(map(len, model.seen)) == min(ubatch, 10)


def test_the_prompt_alone(tmp_path: Path) -> None:
    model, path = Model(), tmp_path / "t.jsonl"
    assert captured(path, model, replace(REQUEST, tokens=0)).generated == ()
    assert load_trace(path).tokens == 10


def test_it_ends_where_the_model_ends(tmp_path: Path) -> None:
    assert captured(tmp_path / "t.jsonl", Model(), replace(REQUEST, prompt="uvw", tokens=9)).text == "xyz"


def test_progress(tmp_path: Path) -> None:
    reported: list[tuple[int, int]] = []
    with TraceWriter(tmp_path / "t.jsonl", origin={}) as writer:
        capture(Model(), REQUEST, writer, progress=lambda done, total: reported.append((done, total)))
    assert reported == [(4, 13), (8, 13), (10, 13), (11, 13), (12, 13), (13, 13)]


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (replace(REQUEST, prompt=""), "the prompt has no tokens"),
        (replace(REQUEST, tokens=11), "10 tokens, with 11 more to come, and the model was trained with 20"),
        (replace(REQUEST, context=13), "10 tokens, with 4 more to come, and --ctx is 13"),
    ],
)
def test_prompts_that_cannot_be_run(tmp_path: Path, request_: CaptureRequest, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        captured(tmp_path / "t.jsonl", Model(), request_)
    assert list(tmp_path.iterdir()) == []


def test_a_context_that_is_asked_for_may_be_longer_than_the_trained_one(tmp_path: Path) -> None:
    model = Model()
    captured(tmp_path / "t.jsonl", model, replace(REQUEST, tokens=11, context=30))
    assert model.context == 30


def test_what_cannot_be_a_choice_is_not_written(tmp_path: Path) -> None:
    model = Model()
    model.n_experts = {0: 256, 1: 105, 2: 256}
    with pytest.raises(SimError, match="layer 1 asked for experts 101 to 105 of 105"):
        captured(tmp_path / "t.jsonl", model, REQUEST)
    assert load_trace(tmp_path / "t.jsonl").calls == 2  # the first micro-batch


def test_a_model_without_routers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Model, "evaluate", lambda *_, output: [])
    with pytest.raises(Unsupported, match="no router was seen"):
        captured(tmp_path / "t.jsonl", Model(), REQUEST)


def test_the_likeliest_token_and_drawn_ones() -> None:
    logits = np.zeros(100, np.float32)
    logits[[7, 9]] = 3
    random = np.random.default_rng(1)
    assert choose(logits, 0.0, random) == 7
    drawn = [choose(logits, 1.0, random) for _ in range(4000)]
    share = np.exp(3) / (2 * np.exp(3) + 38)  # of the likeliest 40
    assert drawn.count(7) / 4000 == pytest.approx(share, abs=0.03)
    assert drawn.count(9) / 4000 == pytest.approx(share, abs=0.03)
    assert len(set(drawn)) <= 40
    assert len({choose(logits, 1.0, np.random.default_rng(5)) for _ in range(9)}) == 1
