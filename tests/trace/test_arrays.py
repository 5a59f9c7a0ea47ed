"""NumPy's files, and what they do not say."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from flashmoe_sim.io.errors import BadInput, Conflict, Incomplete, Malformed, UnknownName
from tests.support import refused
from tests.trace.recordings import Evil, calls, expected, made, npy, npz, read, safetensors


def test_weights_follow_the_experts(tmp_path: Path) -> None:
    one = made()
    gates = np.random.default_rng(0).random(one.expert.shape, dtype=np.float32)
    content = npz(ids=one.expert, gates=gates)
    trace = read(tmp_path, content, prompt_tokens=7, array="ids", weights_array="gates", prefill_chunk=3)
    assert calls(trace) == expected([one], chunk=3)
    by_id = {
        (token, layer, int(expert)): gates[token, layer, rank]
        for (token, layer, rank), expert in np.ndenumerate(one.expert)
    }
    tokens = [token for chunk in ((0, 3), (3, 6), (6, 7)) for _ in range(3) for token in range(*chunk)]
    layers = [layer for size in (3, 3, 1) for layer in range(3) for _ in range(size)]
    of_prompt = [
        by_id[token, layer, int(trace.expert[3 * at + rank])]
        for at, (token, layer) in enumerate(zip(tokens, layers, strict=True))
        for rank in range(3)
    ]
    assert trace.weight[: len(of_prompt)].tolist() == of_prompt


def test_phases_and_a_start(tmp_path: Path) -> None:
    one = made()
    content = npy(one.expert)
    assert set(read(tmp_path, content, phase="decode").phase) == {2}
    assert set(read(tmp_path, content, phase="prompt").phase) == {1}
    from_two = read(tmp_path, npy(one.expert[2:]), prompt_tokens=7, start=2)
    assert calls(from_two) == expected([one], cached=2)


def test_requests_that_are_filled_up_at_their_ends(tmp_path: Path) -> None:
    one, other = made(1), made(2, generated=3)
    both = np.full((2, 12, 3, 3), -1)
    both[0], both[1, :9] = one.expert, other.expert
    axes = ("request", "token", "layer", "k")
    assert calls(read(tmp_path, npy(both), prompt_tokens=7, axes=axes)) == expected([one, other])
    stand_in = np.where(both < 0, 255, both).astype(np.uint8)
    found = read(tmp_path, npy(stand_in), prompt_tokens=7, axes=axes, missing=255)
    assert calls(found) == expected([one, other])


@pytest.mark.parametrize(
    ("content", "hints", "found", "kind"),
    [
        (npy(made().expert), {}, "12 tokens, but nothing says which of them are the prompt; give --prompt", Incomplete),
        (npy(made().expert), {"prompt_tokens": 13}, "12 tokens, but a prompt of 13; check --prompt-tokens", Conflict),
        (npy(made().expert[0]), {"phase": "decode"}, r"an array \[3, 3\] of 2 axes, but --axes has 3: token", Conflict),
        (npy(made().expert), {"axes": ("token", "k")}, "--axes token,k: expected token, layer and k in the", Malformed),
        (npy(made().expert), {"array": "a"}, "one array without a name", Conflict),
        (npy(made().expert * 1.0), {"phase": "decode"}, r"float64 \[12, 3, 3\]; expected ids of experts.*`", Malformed),
        (npy(made().expert + 40_000), {"phase": "decode"}, r"expert 40,011; expected at most 32,767", Malformed),
        (npy(made().expert)[:-1], {"phase": "decode"}, "it is cut off or damaged", Malformed),
        (npz(a=made().expert, b=made().expert), {"phase": "decode"}, "2 arrays: 'a', 'b'; give the one wi", Incomplete),
        (npz(a=made().expert), {"phase": "decode", "array": "b"}, "unknown array in .* 'b'; known: a", UnknownName),
        (
            npz(a=made().expert, w=made().expert[1:] / 2),
            {"phase": "decode", "array": "a", "weights_array": "w"},
            "alike",
            Malformed,
        ),
        (npz(a=made().expert)[:-9], {"phase": "decode"}, "damaged zip archive", Malformed),
    ],
)
def test_arrays_that_cannot_be_used(
    tmp_path: Path, content: bytes, hints: dict[str, Any], found: str, kind: type[BadInput]
) -> None:
    with refused(kind, match=found):
        read(tmp_path, content, **hints)


@pytest.mark.parametrize("packed", [False, True])
def test_an_array_of_objects_is_not_loaded(tmp_path: Path, packed: bool) -> None:
    witness = tmp_path / "witness"
    array = np.array([Evil(f"touch {witness}")], dtype=object)
    stream = io.BytesIO()
    if packed:
        np.savez(stream, a=array)
    else:
        np.save(stream, array)
    with pytest.raises(Malformed, match="expected whole numbers"):
        read(tmp_path, stream.getvalue(), phase="decode")
    assert not witness.exists()


GOOD = safetensors(ids=made().expert, gates=made().expert / 16)


@pytest.mark.parametrize(
    ("content", "found", "kind"),
    [
        (GOOD[:-1], r"tensor 'gates': bytes 864 to 1,728 of 1,727, but 864 make F64 \[12, 3, 3\]: it is cu", Malformed),
        (GOOD[:150], "no safetensors .a header of 183 bytes in a file of 150: it is cut off or damaged", Malformed),
        (GOOD.replace(b"[12, 3, 3]", b"[12, 3, 4]"), r"tensor 'ids': bytes 0 to 864 of 1,728, but 1,152 ma", Malformed),
        (GOOD.replace(b"[12, 3, 3]", b"[-2, 3, 3]"), "expected its shape and two offsets", Malformed),
        (GOOD.replace(b"[12, 3, 3]", b"[99999999]"), "but 799,999,992 make I64", Malformed),
        (GOOD.replace(b'"I64"', b'"C64"'), "tensor 'ids' is of dtype 'C64'; one of I8, ", Malformed),
        (GOOD.replace(b'"I64"', b'["I"]'), r"tensor 'ids' is of dtype \['I'\]; one of I8, ", Malformed),
        (GOOD.replace(b'"gates"', b'"ids"  '), "no safetensors .*twice", Malformed),
        (GOOD.replace(b'"ids"', b'"idz"'), "unknown array in .* 'ids'; did you mean 'idz'", UnknownName),
    ],
)
def test_safetensors_that_cannot_be_used(tmp_path: Path, content: bytes, found: str, kind: type[BadInput]) -> None:
    with refused(kind, match=found):
        read(tmp_path, content, phase="decode", array="ids", weights_array="gates")


def test_half_weights(tmp_path: Path) -> None:
    """bf16 is the upper half of f32."""
    one = made()
    gates = np.linspace(0, 1, one.expert.size, dtype=np.float32).reshape(one.expert.shape)
    half = (gates.view(np.uint32) >> 16).astype(np.uint16)
    content = safetensors(ids=one.expert, gates=half).replace(b'"U16"', b'"BF16"'.ljust(5))
    length = int.from_bytes(content[:8], "little") + 1
    trace = read(tmp_path, struct.pack("<Q", length) + content[8:], phase="decode", array="ids", weights_array="gates")
    assert np.abs(trace.weight - gates.ravel()).max() < 1 / 128
    assert trace.weight[-1] == 1


def test_shared_experts_are_dropped_with_their_weights(tmp_path: Path) -> None:
    one = made()
    gates = np.random.default_rng(0).random(one.expert.shape, dtype=np.float32)
    shared = np.full((*one.expert.shape[:-1], 1), 300)
    wide = np.concatenate([one.expert[..., :1], shared, one.expert[..., 1:]], axis=-1)
    of_all = np.concatenate([gates[..., :1], np.ones(shared.shape, np.float32), gates[..., 1:]], axis=-1)
    hints: dict[str, Any] = {"prompt_tokens": 7, "array": "ids", "weights_array": "gates"}
    plain = read(tmp_path, npz(ids=one.expert, gates=gates), **hints)
    found = read(tmp_path, npz(ids=wide, gates=of_all), shared=(300,), **hints)
    assert calls(found) == calls(plain)
    assert found.weight.tolist() == plain.weight.tolist()
    with pytest.raises(Conflict, match="tokens have no expert but the shared 1"):
        read(tmp_path, npy(np.ones((9, 2, 1), np.int64)), prompt_tokens=7, shared=(1,))
