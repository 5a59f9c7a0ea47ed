"""Every reader of an engine's recording returns the calls that follow from the definition, and all agree."""

from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flashmoe_sim.io.errors import Conflict, Malformed, Unsupported
from flashmoe_sim.trace.formats import find_format
from flashmoe_sim.trace.load import load_trace
from flashmoe_sim.trace.requests import Hints
from flashmoe_sim.trace.routing import RoutingTrace
from tests.support import refused
from tests.trace import recordings
from tests.trace.recordings import Made, calls, expected, lines, made, npy

Written = tuple[str, bytes, Hints]


def served(document: object) -> bytes:
    return json.dumps(document).encode()


# Each: the name of the format, the file of one request, and what the file does not say.
ENCODINGS: dict[str, Callable[[Made], Written]] = {
    "vllm": lambda one: ("served-json", served(recordings.vllm(one)), Hints()),
    "vllm int32": lambda one: ("served-json", served(recordings.vllm(one, dtype="int32")), Hints()),
    "vllm big-endian": lambda one: ("served-json", served(recordings.vllm(one, dtype=">u2")), Hints()),
    "vllm 0.21": lambda one: ("served-json", served(recordings.vllm_021(one)), Hints()),
    "sglang": lambda one: ("served-json", served(recordings.sglang(one)), Hints(top_k=one.expert.shape[2])),
    "sglang uint8": lambda one: (
        "served-json",
        served(recordings.sglang(one, dtype="uint8")),
        Hints(n_layers=one.expert.shape[1], top_k=one.expert.shape[2]),
    ),
    "sglang chat": lambda one: (
        "served-json",
        served(recordings.sglang_chat(one)),
        Hints(n_layers=one.expert.shape[1]),
    ),
    "sgl_ext": lambda one: (
        "served-json",
        served(recordings.sglang_chat(one, name="sgl_ext")),
        Hints(n_layers=one.expert.shape[1]),
    ),
    "wrapped": lambda one: ("served-json", served(recordings.wrapped(one)), Hints()),
    "npy": lambda one: ("array", npy(one.expert.astype(np.int16)), Hints(prompt_tokens=one.prompt)),
    "npy by layer": lambda one: (
        "array",
        npy(one.expert.swapaxes(0, 1)),
        Hints(prompt_tokens=one.prompt, axes=("layer", "token", "k")),
    ),
    "npy by columns": lambda one: ("array", npy(np.asfortranarray(one.expert)), Hints(prompt_tokens=one.prompt)),
    "npz": lambda one: ("array", recordings.npz(topk_ids=one.expert), Hints(prompt_tokens=one.prompt)),
    "safetensors": lambda one: (
        "array",
        recordings.safetensors(topk_indices=one.expert.swapaxes(0, 1)[np.newaxis], lengths=np.array([len(one.expert)])),
        Hints(prompt_tokens=one.prompt, array="topk_indices", axes=("request", "layer", "token", "k")),
    ),
    "imp": lambda one: ("imp-json", recordings.imp(one), Hints()),
    "imp flat": lambda one: ("imp-json", recordings.imp(one, key="entries", flat=True), Hints()),
    "step-layers": lambda one: ("step-layers", recordings.step_layers(one), Hints()),
    "megatron": lambda one: ("megatron-jsonl", recordings.megatron(one), Hints()),
    "phase csv": lambda one: ("moe-trace-csv", recordings.phase_csv(one), Hints()),
    "phase csv, again": lambda one: ("moe-trace-csv", recordings.phase_csv(one, again=True), Hints()),
    "position csv": lambda one: ("moe-trace-csv", recordings.position_csv(one), Hints()),
    "sglang recorder": lambda one: ("sglang-pt", recordings.torch_zip(recordings.recorder(one)), Hints()),
    "layer,expert": lambda one: ("plain-csv", recordings.layer_expert_csv(one), Hints()),
}
WITHOUT_PHASES = ("megatron", "layer,expert")
DECODED_ALONE = ("imp", "imp flat")  # every token is a step


def held(encoding: str, one: Made) -> Made:
    """The request that a file in an encoding holds."""
    return Made(one.expert, 0) if encoding in DECODED_ALONE else one


def read(tmp_path: Path, content: bytes, hints: Hints | None = None, *, lenient: bool = False) -> RoutingTrace:
    path = tmp_path / "recording"
    path.write_bytes(content)
    return load_trace(path, hints=hints, lenient=lenient)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_round_trip_gives_the_calls_of_the_definition(tmp_path: Path, encoding: str) -> None:
    one = made()
    name, content, hints = ENCODINGS[encoding](one)
    trace = read(tmp_path, content, hints)
    found = calls(trace)
    assert trace.format == find_format(tmp_path / "recording").name == name
    if encoding in WITHOUT_PHASES:
        found = [(step, layer, 1 if tokens > 1 else 2, tokens, ids) for step, layer, _, tokens, ids in found]
    assert found == expected([held(encoding, one)])
    assert trace.top_k == 3
    assert trace.layers == (0, 1, 2)
    packed = tmp_path / "recording"
    packed.write_bytes(gzip.compress(content))
    assert calls(load_trace(packed, hints=hints)) == calls(trace)


@settings(max_examples=25)
@given(
    seed=st.integers(0, 1000),
    prompt=st.integers(2, 9),
    generated=st.integers(2, 6),
    layers=st.integers(2, 4),
    k=st.integers(2, 4),
)
def test_all_formats_agree_on_a_random_trace(
    tmp_path_factory: pytest.TempPathFactory, seed: int, prompt: int, generated: int, layers: int, k: int
) -> None:
    one = made(seed, prompt=prompt, generated=generated, layers=layers, k=k)
    path = tmp_path_factory.mktemp("made") / "recording"
    for encoding, write in ENCODINGS.items():
        _, content, hints = write(one)
        path.write_bytes(content)
        trace = load_trace(path, hints=hints)
        layer_calls = [call[:2] + call[3:] for call in calls(trace)]
        assert layer_calls == [call[:2] + call[3:] for call in expected([held(encoding, one)])], encoding


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_memory_is_bounded_by_the_file(tmp_path: Path, encoding: str) -> None:
    """Parsed JSON takes up to ten times its text, arrays of calls about as much as decoded ids."""
    one = made(prompt=600, generated=400, layers=6, experts=64, k=8)
    _, content, hints = ENCODINGS[encoding](one)
    read(tmp_path, content, hints)  # compiles and imports
    tracemalloc.start()
    try:
        read(tmp_path, content, hints)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 40 * len(content) + (4 << 20)


# The traps of the study, one by one.


def test_a_prompt_alone_lacks_its_last_token(tmp_path: Path) -> None:
    """No token was generated: the last row is that of the token before the last, not of the last."""
    one = made(prompt=8, generated=1)
    alone = Made(one.expert[:7], 8)
    document = recordings.sglang(alone, prompt_tokens=8, completion_tokens=0)
    assert calls(read(tmp_path, served(document), Hints(top_k=3))) == expected([Made(one.expert[:7], 7)])


@pytest.mark.parametrize("lost", [1, 3])
def test_missing_rows_are_at_the_front(tmp_path: Path, lost: int) -> None:
    """A prefix that was not returned; aligned at the start instead, all routing would be shifted."""
    one = made()
    part = Made(one.expert[lost:], one.prompt - lost)
    trace = read(tmp_path, served(recordings.vllm(part, usage=one.usage)))
    assert calls(trace) == expected([one], cached=lost)
    assert any(f"lack {lost} rows at the beginning" in note for note in trace.notes)


def test_a_stated_start_is_taken_at_its_word(tmp_path: Path) -> None:
    one = made()
    document = recordings.sglang(Made(one.expert[2:], one.prompt - 2), **one.usage, routed_experts_start_len=2)
    assert calls(read(tmp_path, served(document), Hints(top_k=3))) == expected([one], cached=2)


SHAPE = {"both": {"n_layers": 3, "top_k": 3}, "top-k": {"top_k": 3}, "layers": {"n_layers": 3}}


@pytest.mark.parametrize("known", SHAPE)
def test_sglang_without_the_rows_of_a_cached_prefix(tmp_path: Path, known: str) -> None:
    """Its rows hold no shape; the last one is that of the last token fed, however many are missing."""
    one = made()
    part = Made(one.expert[3:], one.prompt - 3)
    document = recordings.sglang(part, **one.usage, cached_tokens=3)
    trace = read(tmp_path, served(document), Hints(**SHAPE[known]))  # type: ignore[arg-type]
    assert calls(trace) == expected([one], cached=3)
    assert any("lack 3 rows at the beginning" in note for note in trace.notes)
    assert any("3 follow from their tokens; --model checks it" in note for note in trace.notes) == (known == "top-k")


def test_sglang_with_rows_that_no_number_explains(tmp_path: Path) -> None:
    one = made()
    part = Made(one.expert[5:], one.prompt - 5)
    document = recordings.sglang(part, **one.usage, cached_tokens=1)
    numbers = "63 ids with top-k 3 are no whole number of layers for 12 rows: 7 prompt tokens, 1 of them cached and 0 "
    with refused(Malformed, numbers, "and 6 generated; rows are missing: give --model"):
        read(tmp_path, served(document), Hints(top_k=3))
    assert calls(read(tmp_path, served(document), Hints(top_k=3, start=5))) == expected([one], cached=5)


def zeros(one: Made) -> Made:
    return Made(np.zeros_like(one.expert), one.prompt)


def used(prompt: int, generated: int) -> dict[str, Any]:
    return recordings.vllm(made(), usage={"prompt_tokens": prompt, "completion_tokens": generated})


SHAPED = Hints(top_k=3, n_layers=3)


@pytest.mark.parametrize(
    ("document", "hints", "found"),
    [
        (
            recordings.vllm(made(), usage={"prompt_tokens": 30}),
            Hints(),
            "12 rows of routing from token 0 on, but 30 pro",
        ),
        (used(5, 6), Hints(), "12 rows of routing, but 5 prompt tokens and 6 generated make 10 tokens fed, 0 of them"),
        (
            used(3, 20),
            Hints(),
            "12 rows of routing, but 3 prompt tokens and 20 generated make 22 tokens fed, 0 of them",
        ),
        (
            recordings.sglang(made(prompt=8), prompt_tokens=3),
            SHAPED,
            "13 rows of routing, but 3 prompt tokens and 6 gen",
        ),
        (
            recordings.sglang(Made(made().expert[2:], 5), **made().usage, routed_experts_start_len=1),
            SHAPED,
            "10 rows of routing, but 7 prompt tokens and 6 generated make 12 tokens fed, 1 of them",
        ),
        (recordings.vllm(zeros(made())), Hints(), "no token of it has routing, every row is [0, 0, 0]"),
        (recordings.sglang(made(prompt=40, k=4)), Hints(top_k=12, n_layers=1), "names an expert twice, such as "),
    ],
)
def test_rows_that_cannot_be_those_of_the_request(tmp_path: Path, document: Any, hints: Hints, found: str) -> None:
    """All numbers that do not add up are named."""
    with refused(Malformed, found, begins="recording: "):
        read(tmp_path, served(document), hints)


def test_a_dense_layer_is_zeros_and_left_out(tmp_path: Path) -> None:
    one = made()
    dense = Made(np.concatenate([np.zeros_like(one.expert[:, :1]), one.expert], axis=1), one.prompt)
    trace = read(tmp_path, served(recordings.vllm(dense)))
    assert calls(trace) == expected([one], layers=[1, 2, 3])
    assert any(note.startswith("layer 0 left out: no routing in any token") for note in trace.notes)


def test_a_row_of_zeros_is_refused_or_left_out_and_counted(tmp_path: Path) -> None:
    one = made()
    holes = one.expert.copy()
    holes[2:4] = 0
    content = served(recordings.vllm(Made(holes, one.prompt)))
    with pytest.raises(Malformed, match=r"token 2 has no routing in layer 0 \(2 such tokens\); .* --lenient"):
        read(tmp_path, content)
    trace = read(tmp_path, content, lenient=True)
    rest = Made(np.delete(one.expert, [2, 3], axis=0), one.prompt - 2)
    assert calls(trace) == expected([rest])
    assert any(note.startswith("2 tokens without routing left out; the first: ") for note in trace.notes)


def test_zero_is_an_expert_where_a_token_uses_one(tmp_path: Path) -> None:
    """Of one expert a token only a layer that is always 0 can be told."""
    one = made(k=1, layers=2, experts=3)
    assert (one.expert == 0).any()
    always = Made(np.concatenate([one.expert, np.zeros_like(one.expert[:, :1])], axis=1), one.prompt)
    assert calls(read(tmp_path, served(recordings.vllm(always)))) == expected([one])


def test_cached_tokens_are_no_work(tmp_path: Path) -> None:
    one = made()
    usage = one.usage | {"prompt_tokens_details": {"cached_tokens": 4}}
    trace = read(tmp_path, served(recordings.vllm(one, usage=usage)))
    assert calls(trace) == expected([one], cached=4)
    assert "4 rows of cached tokens left out: they were not computed in these requests" in trace.notes


def test_negative_rows_of_vllm_021_are_cached_tokens(tmp_path: Path) -> None:
    one = made()
    document = recordings.vllm_021(one)
    document["prompt_routed_experts"][:3] = [[[-1] * 3] * 3] * 3
    assert calls(read(tmp_path, served(document))) == expected([one], cached=3)


def test_several_choices_have_one_prompt(tmp_path: Path) -> None:
    one, other = made(1), made(2, generated=4)
    other = Made(np.concatenate([one.expert[:7], other.expert[7:]]), 7)
    document = recordings.vllm(one)
    document["choices"] = [
        {**choice["choices"][0], "token_ids": [1] * of.generated}
        for of in (one, other)
        for choice in [recordings.vllm(of)]
    ]
    document["usage"]["completion_tokens"] = one.generated + other.generated
    trace = read(tmp_path, served(document))
    decoded = [(call[0], *call[1:]) for call in expected([one]) + expected([other], cached=7)]
    assert [call[1:] for call in calls(trace)] == [call[1:] for call in decoded]
    assert trace.sequence.max() == 1


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 100])
def test_prompts_are_read_in_chunks(tmp_path: Path, chunk: int) -> None:
    one, other = made(1), made(2, prompt=9)
    content = lines([recordings.vllm(one), recordings.vllm(other)])
    trace = read(tmp_path, content, Hints(prefill_chunk=chunk))
    assert calls(trace) == expected([one, other], chunk=chunk)
    assert f"prompts are assumed to be read in chunks of {chunk} tokens" in trace.notes


def test_files_of_many_responses(tmp_path: Path) -> None:
    """Lines, a list, a document over several lines, and lines of batch output."""
    several = [made(seed, prompt=3 + seed) for seed in range(3)]
    documents = [recordings.vllm(one) for one in several]
    batch = [{"custom_id": "1", "response": {"status_code": 200, "body": document}} for document in documents]
    spread = json.dumps(documents, indent=1).encode()
    for content in (lines(documents), served(documents), spread, lines(batch), b"\n\n" + lines(documents) + b"  \n"):
        trace = read(tmp_path, content)
        assert calls(trace) == expected(several)
    assert any("3 requests, one after another" in note for note in trace.notes)


def test_lines_longer_than_the_reader_s_memory(tmp_path: Path) -> None:
    several = [made(seed, prompt=size, layers=30, k=8, experts=64) for seed, size in enumerate([3000, 9, 6000])]
    trace = read(tmp_path, lines([recordings.vllm(one, dtype="int32") for one in several]), Hints(prefill_chunk=9999))
    assert calls(trace) == expected(several, chunk=9999)


MODEL = {3: 12, 4: 12, 5: 12}


@pytest.mark.parametrize("encoding", ["vllm 0.21", "npy"])
def test_routed_layers_alone_get_the_model_s_numbers(tmp_path: Path, encoding: str) -> None:
    one = made()
    _, content, hints = ENCODINGS[encoding](one)
    plain = read(tmp_path, content, hints)
    assert any("numbered 0-2" in note for note in plain.notes)
    for known in ({"model": MODEL}, {"moe_layers": (3, 4, 5)}):
        trace = read(tmp_path, content, Hints(prompt_tokens=hints.prompt_tokens, **known))  # type: ignore[arg-type]
        assert calls(trace) == expected([one], layers=[3, 4, 5])
        assert not any("numbered" in note for note in trace.notes)
    with pytest.raises(Conflict, match="3 layers, but the model routes in 2: 3-4"):
        read(tmp_path, content, Hints(prompt_tokens=hints.prompt_tokens, moe_layers=(3, 4)))


def test_ids_beyond_the_model(tmp_path: Path) -> None:
    one = made()
    small = dict.fromkeys(range(3), 5)
    with pytest.raises(Conflict, match=r"expert \d+ in layer \d, which has 5 in the model, counted from 0"):
        read(tmp_path, served(recordings.vllm(one)), Hints(model=small))
    trace = read(tmp_path, served(recordings.vllm(one)), Hints(model=dict.fromkeys(range(3), 12)))
    assert trace.n_experts_known
    assert trace.n_experts == {0: 12, 1: 12, 2: 12}


def test_ranks_are_not_cut(tmp_path: Path) -> None:
    from flashmoe_sim.trace.cut import cut

    for encoding in ("vllm", "sglang recorder", "megatron"):
        _, content, hints = ENCODINGS[encoding](made())
        with pytest.raises(Unsupported, match="does not record the router-rank order"):
            cut(read(tmp_path, content, hints), top_k=1)


@pytest.mark.parametrize("name", recordings.files())
def test_the_files_of_the_documentation_are_made_up_here(name: str) -> None:
    assert (Path(__file__).parents[2] / "data" / "made-up" / name).read_bytes() == recordings.files()[name]
